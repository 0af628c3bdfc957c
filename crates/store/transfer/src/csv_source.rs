//! Import of CSV.

use super::base64_text::decode_into;
use super::quoting::{Fields, is_blank};
use super::rows::Rows;
use super::{CSV_HEADER_KEY, Error, Item, ItemSource, LargePolicy, Omitted, RowError};
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::io::BufRead;

/// The longest row accepted when a column is the value, in bytes; longer rows are treated as
/// `large` says. It is enough for a key and a value at their limits, in base64 and quoted.
const MAX_ROW: usize = 4 << 20;

/// A column of a CSV file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Column {
    /// The column of this name in the header row.
    Name(String),
    /// The column of this index, counted from 0.
    Index(usize),
}

/// The part of a row that becomes the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CsvValue {
    /// The whole row, byte for byte.
    Row,
    /// One column, without its quotes.
    Column(Column),
}

/// How to read a CSV file. Make one with [`rows`](Self::rows), [`pairs`](Self::pairs) or
/// [`headless_pairs`](Self::headless_pairs), then change the fields that differ for your file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CsvImport {
    /// The column of the key.
    pub key: Column,
    /// The part of a row that is the value.
    pub value: CsvValue,
    /// The column that says whether the key or value is base64: it is empty, `key`, `value` or
    /// `both`. Without this column, or if the header row lacks it, nothing is base64.
    pub encoding: Option<Column>,
    /// Whether the first row contains the names of the columns.
    pub header: bool,
    /// Whether to store the header under [`CSV_HEADER_KEY`]; only exports of whole rows need it.
    pub keep_header: bool,
    /// The byte between fields, such as a comma, a semicolon or a tab.
    pub delimiter: u8,
    /// How to treat values over the limit.
    pub large: LargePolicy,
}

impl CsvImport {
    /// Reads whole rows under a header row; each is stored under its field in column `key`.
    #[must_use]
    pub fn rows(key: Column) -> Self {
        Self {
            key,
            value: CsvValue::Row,
            encoding: None,
            header: true,
            keep_header: true,
            delimiter: b',',
            large: LargePolicy::Refuse,
        }
    }

    /// Reads a file that [`CsvExport::Pairs`](super::CsvExport::Pairs) wrote.
    #[must_use]
    pub fn pairs() -> Self {
        let column = |name: &str| Column::Name(name.to_owned());
        Self {
            value: CsvValue::Column(column("value")),
            encoding: Some(column("encoding")),
            keep_header: false,
            ..Self::rows(column("key"))
        }
    }

    /// Reads pairs from the first two columns of a file without a header row.
    #[must_use]
    pub fn headless_pairs() -> Self {
        let value = CsvValue::Column(Column::Index(1));
        Self { value, header: false, keep_header: false, ..Self::rows(Column::Index(0)) }
    }
}

/// The indices of the columns.
#[derive(Clone, Copy, Debug)]
struct Indices {
    key: usize,
    value: Option<usize>,
    encoding: Option<usize>,
}

/// Yields items from a CSV stream.
pub struct CsvSource<R> {
    rows: Rows<R>,
    options: CsvImport,
    row: Vec<u8>,
    fields: Fields,
    indices: Option<Indices>,
    /// Number of fields in the header or, without one, in the first row. If a column is the value,
    /// a row with another number is refused: an unquoted field may contain a delimiter.
    count: Option<usize>,
    total: Option<u64>,
}

impl<R: BufRead> CsvSource<R> {
    /// Makes a source that reads `reader`. `name` stands for the file in errors; `total` is the
    /// file's length in bytes, if known.
    pub fn new(reader: R, name: &str, total: Option<u64>, options: CsvImport) -> Self {
        let limit = match options.value {
            CsvValue::Row => MAX_VALUE,
            CsvValue::Column(_) => MAX_ROW,
        };
        Self {
            rows: Rows::new(reader, name, Some(options.delimiter), limit, options.large),
            options,
            row: Vec::new(),
            fields: Fields::default(),
            indices: None,
            count: None,
            total,
        }
    }

    /// Reads the next row that is not blank and splits it into fields; returns `false` at the end.
    fn read_row(&mut self) -> Result<bool, Error> {
        while self.rows.next(&mut self.row)? {
            if !is_blank(&self.row) {
                self.fields.split(&self.row, self.options.delimiter);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the columns, in the header row if there is one. Returns `true` when `item` now holds
    /// the header as an item.
    fn begin(&mut self, item: &mut Item) -> Result<bool, Error> {
        let with_header = self.options.header && self.read_row()?;
        if with_header && self.row.starts_with("\u{feff}".as_bytes()) {
            // A byte order mark is not part of the first column's name, but stays in the row.
            self.fields.split(&self.row[3..], self.options.delimiter);
        }
        if with_header || !self.options.header {
            self.indices = Some(Indices {
                key: self.find(&self.options.key)?,
                value: match &self.options.value {
                    CsvValue::Row => None,
                    CsvValue::Column(column) => Some(self.find(column)?),
                },
                encoding: self.options.encoding.as_ref().and_then(|column| self.position(column)),
            });
            self.count = with_header.then(|| self.fields.count());
        }
        let keep = with_header && self.options.keep_header;
        if keep {
            fill(&mut item.key, CSV_HEADER_KEY);
            fill(&mut item.value, &self.row);
        }
        Ok(keep)
    }

    fn find(&self, column: &Column) -> Result<usize, Error> {
        let name = || match column {
            Column::Index(index) => format!("number {index}"),
            Column::Name(name) => name.clone(),
        };
        self.position(column).ok_or_else(|| self.rows.row_error(RowError::NoField(name())))
    }

    fn position(&self, column: &Column) -> Option<usize> {
        match column {
            Column::Index(index) => Some(*index),
            Column::Name(name) => self.fields.position(name.as_bytes()),
        }
    }

    fn field(&self, index: usize) -> Result<&[u8], Error> {
        self.fields
            .get(index)
            .ok_or_else(|| self.rows.row_error(RowError::NoField(format!("number {index}"))))
    }

    /// Fills `item` from the last row that was read.
    fn take(&self, indices: Indices, item: &mut Item) -> Result<(), Error> {
        let encoding = match indices.encoding {
            None => &b""[..],
            Some(index) => self.field(index)?,
        };
        let (key_coded, value_coded) = match encoding {
            b"" => (false, false),
            b"key" => (true, false),
            b"value" => (false, true),
            b"both" => (true, true),
            other => {
                let error = RowError::Encoding(String::from_utf8_lossy(other).into_owned());
                return Err(self.rows.row_error(error));
            }
        };
        self.take_field(self.field(indices.key)?, key_coded, &mut item.key, "key")?;
        match indices.value {
            None => fill(&mut item.value, &self.row),
            Some(index) => {
                self.take_field(self.field(index)?, value_coded, &mut item.value, "value")?;
                let (found, first) = (self.fields.count(), self.count);
                if let Some(first) = first.filter(|&first| first != found) {
                    return Err(self.rows.row_error(RowError::Fields { found, first }));
                }
            }
        }
        Ok(())
    }

    fn take_field(
        &self,
        field: &[u8],
        coded: bool,
        out: &mut Vec<u8>,
        name: &str,
    ) -> Result<(), Error> {
        out.clear();
        if !coded {
            out.extend_from_slice(field);
            return Ok(());
        }
        decode_into(field, out)
            .ok_or_else(|| self.rows.row_error(RowError::Base64(name.to_owned())))
    }
}

impl<R: BufRead> ItemSource for CsvSource<R> {
    fn next(&mut self, item: &mut Item) -> Result<bool, Error> {
        if self.indices.is_none() && self.begin(item)? {
            return Ok(true);
        }
        // The file is empty, and so has no header from which to find the indices.
        let Some(indices) = self.indices else { return Ok(false) };
        while self.read_row()? {
            self.count.get_or_insert(self.fields.count());
            self.take(indices, item)?;
            if item.key.len() > MAX_KEY {
                return Err(self.rows.row_error(RowError::LongKey(item.key.len())));
            }
            if item.is_reserved() && indices.encoding.is_none() {
                return Err(self.rows.row_error(RowError::Reserved));
            }
            if item.value.len() <= MAX_VALUE {
                return Ok(true);
            }
            self.rows.too_large(item.value.len() as u64)?;
        }
        Ok(false)
    }

    fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    fn consumed_bytes(&self) -> u64 {
        self.rows.consumed()
    }

    fn omitted(&self) -> &Omitted {
        self.rows.omitted()
    }
}

fn fill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}
