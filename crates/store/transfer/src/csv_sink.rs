//! Export to CSV.

use super::base64_text::encode;
use super::quoting::is_one_row;
use super::{Error, Item, ItemSink, OmitReason, Omitted, display_key};
use std::io::{self, Write};

/// The form of a CSV export.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CsvExport {
    /// Each value is a row of its own: the inverse of [`CsvValue::Row`](super::CsvValue::Row).
    Rows {
        /// The first row: the value of [`CSV_HEADER_KEY`](super::CSV_HEADER_KEY) in the table.
        header: Option<Vec<u8>>,
        /// The byte between fields.
        delimiter: u8,
    },
    /// Columns `key`, `value` and `encoding`, for any table.
    /// [`CsvImport::pairs`](super::CsvImport::pairs) reads this form.
    Pairs {
        /// The byte between fields.
        delimiter: u8,
    },
}

/// Writes items as CSV.
pub struct CsvSink<W: Write> {
    out: Out<W>,
    name: String,
    omitted: Omitted,
}

enum Out<W: Write> {
    Rows { writer: W, delimiter: u8 },
    Pairs(Box<csv::Writer<W>>),
}

impl<W: Write> CsvSink<W> {
    /// Makes a sink that writes to `writer`, and writes the header. `name` stands for the file in
    /// errors.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut writer: W, name: &str, options: CsvExport) -> Result<Self, Error> {
        let at = |source| Error::Io { name: name.to_owned(), source };
        let out = match options {
            CsvExport::Rows { header, delimiter } => {
                if let Some(header) = header {
                    writer.write_all(&header).and_then(|()| writer.write_all(b"\n")).map_err(at)?;
                }
                Out::Rows { writer, delimiter }
            }
            CsvExport::Pairs { delimiter } => {
                let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(writer);
                writer
                    .write_record(["key", "value", "encoding"])
                    .map_err(|error| at(error.into()))?;
                Out::Pairs(Box::new(writer))
            }
        };
        Ok(Self { out, name: name.to_owned(), omitted: Omitted::default() })
    }

    /// Flushes the writer; returns it and the items that were left out.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(self) -> Result<(W, Omitted), Error> {
        let at = |source| Error::Io { name: self.name.clone(), source };
        let writer = match self.out {
            Out::Rows { mut writer, .. } => {
                writer.flush().map_err(at)?;
                writer
            }
            Out::Pairs(writer) => writer.into_inner().map_err(|error| at(error.into_error()))?,
        };
        Ok((writer, self.omitted))
    }
}

impl<W: Write> ItemSink for CsvSink<W> {
    fn put(&mut self, item: &Item) -> Result<(), Error> {
        let written: io::Result<()> = match &mut self.out {
            Out::Rows { .. } if item.is_reserved() => Ok(()),
            Out::Rows { writer, delimiter } => {
                if !is_one_row(&item.value, *delimiter) {
                    self.omitted.add(display_key(&item.key), OmitReason::NotOneRow);
                    return Ok(());
                }
                writer.write_all(&item.value).and_then(|()| writer.write_all(b"\n"))
            }
            Out::Pairs(writer) => {
                let (key, key_coded) = encode(&item.key);
                let (value, value_coded) = encode(&item.value);
                let encoding = match (key_coded, value_coded) {
                    (false, false) => "",
                    (true, false) => "key",
                    (false, true) => "value",
                    (true, true) => "both",
                };
                writer.write_record([&*key, &*value, encoding]).map_err(io::Error::from)
            }
        };
        written.map_err(|source| Error::Io { name: self.name.clone(), source })
    }

    fn omitted(&self) -> &Omitted {
        &self.omitted
    }
}
