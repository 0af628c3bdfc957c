//! Export to JSONL.

use super::base64_text::encode;
use super::quoting::is_blank;
use super::{Error, Item, ItemSink, OmitReason, Omitted, display_key};
use serde::de::IgnoredAny;
use std::io::{self, Write};

/// The form of a JSONL export.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JsonlExport {
    /// Each value is a line of its own: the inverse of
    /// [`JsonlValue::Line`](super::JsonlValue::Line).
    Lines,
    /// Fields `key` and `value`, or `key_base64` and `value_base64`, for any table.
    /// [`JsonlImport::pairs`](super::JsonlImport::pairs) reads this form.
    Pairs,
}

/// Writes items as JSONL.
pub struct JsonlSink<W> {
    writer: W,
    name: String,
    options: JsonlExport,
    line: Vec<u8>,
    omitted: Omitted,
}

impl<W: Write> JsonlSink<W> {
    /// Makes a sink that writes to `writer`. `name` stands for the file in errors.
    pub fn new(writer: W, name: &str, options: JsonlExport) -> Self {
        Self {
            writer,
            name: name.to_owned(),
            options,
            line: Vec::new(),
            omitted: Omitted::default(),
        }
    }

    /// Flushes the writer; returns it and the items that were left out.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<(W, Omitted), Error> {
        match self.writer.flush() {
            Ok(()) => Ok((self.writer, self.omitted)),
            Err(source) => Err(Error::Io { name: self.name, source }),
        }
    }
}

impl<W: Write> ItemSink for JsonlSink<W> {
    fn put(&mut self, item: &Item) -> Result<(), Error> {
        self.line.clear();
        match self.options {
            JsonlExport::Lines if item.is_reserved() => return Ok(()),
            JsonlExport::Lines if !is_one_line(&item.value) => {
                self.omitted.add(display_key(&item.key), OmitReason::NotOneRow);
                return Ok(());
            }
            JsonlExport::Lines => self.line.extend_from_slice(&item.value),
            JsonlExport::Pairs => {
                self.line.push(b'{');
                field(&mut self.line, "key", &item.key);
                self.line.push(b',');
                field(&mut self.line, "value", &item.value);
                self.line.push(b'}');
            }
        }
        self.line.push(b'\n');
        self.writer
            .write_all(&self.line)
            .map_err(|source: io::Error| Error::Io { name: self.name.clone(), source })
    }

    fn omitted(&self) -> &Omitted {
        &self.omitted
    }
}

fn field(line: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let (text, coded) = encode(bytes);
    let suffix = if coded { "_base64" } else { "" };
    line.extend_from_slice(format!("\"{name}{suffix}\":").as_bytes());
    serde_json::to_writer(line, &*text).expect("a string is JSON, and memory takes it");
}

/// Returns whether `value` is JSON that fits on one line.
fn is_one_line(value: &[u8]) -> bool {
    !is_blank(value)
        && !value.contains(&b'\n')
        && serde_json::from_slice::<IgnoredAny>(value).is_ok()
}
