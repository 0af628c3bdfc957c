//! Import of JSONL: one JSON object on each line.

use super::base64_text::decode_into;
use super::quoting::is_blank;
use super::rows::Rows;
use super::{Error, Item, ItemSource, LargePolicy, Omitted, RowError};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::borrow::Cow;
use std::fmt;
use std::io::BufRead;

/// The longest line accepted when a field is the value, in bytes; longer lines are treated as
/// `large` says. It is enough for a value of control characters only, each of which takes six bytes
/// in JSON.
const MAX_LINE: usize = 8 << 20;

/// Suffix of the name of a field that is base64.
const BASE64_SUFFIX: &str = "_base64";

/// The part of a line that becomes the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JsonlValue {
    /// The whole line, byte for byte.
    Line,
    /// One field. The value is the text of a JSON string, and the bytes as written of any other
    /// JSON. The line may instead give the field, and the key, in base64 under `NAME_base64`.
    Field(String),
}

/// How to read a JSONL file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonlImport {
    /// The name of the key's field. The key is the text of a JSON string, and the bytes as written
    /// of a number.
    pub key: String,
    /// The part of a line that is the value.
    pub value: JsonlValue,
    /// How to treat values over the limit.
    pub large: LargePolicy,
}

impl JsonlImport {
    /// Reads a file that [`JsonlExport::Pairs`](super::JsonlExport::Pairs) wrote.
    #[must_use]
    pub fn pairs() -> Self {
        let value = JsonlValue::Field("value".to_owned());
        Self { key: "key".to_owned(), value, large: LargePolicy::Refuse }
    }
}

/// Yields items from a JSONL stream.
pub struct JsonlSource<R> {
    rows: Rows<R>,
    options: JsonlImport,
    row: Vec<u8>,
    total: Option<u64>,
}

impl<R: BufRead> JsonlSource<R> {
    /// Makes a source that reads `reader`. `name` stands for the file in errors; `total` is the
    /// file's length in bytes, if known.
    pub fn new(reader: R, name: &str, total: Option<u64>, options: JsonlImport) -> Self {
        let limit = match options.value {
            JsonlValue::Line => MAX_VALUE,
            JsonlValue::Field(_) => MAX_LINE,
        };
        let rows = Rows::new(reader, name, None, limit, options.large);
        Self { rows, options, row: Vec::new(), total }
    }

    fn take(&self, item: &mut Item) -> Result<(), RowError> {
        item.key.clear();
        item.value.clear();
        match &self.options.value {
            JsonlValue::Line => {
                let [key] = pick(&self.row, [&self.options.key])?;
                let key = key.ok_or_else(|| RowError::NoField(self.options.key.clone()))?;
                take_key(key, &mut item.key)?;
                item.value.extend_from_slice(&self.row);
            }
            JsonlValue::Field(value) => {
                let coded = [&self.options.key, value].map(|name| format!("{name}{BASE64_SUFFIX}"));
                let names = [&self.options.key, value, &coded[0], &coded[1]];
                let [key, plain, key_coded, plain_coded] = pick(&self.row, names)?;
                match (key, key_coded) {
                    (Some(key), None) => take_key(key, &mut item.key)?,
                    (None, Some(key)) => take_coded(key, &coded[0], &mut item.key)?,
                    (None, None) => return Err(RowError::NoField(self.options.key.clone())),
                    (Some(_), Some(_)) => return Err(RowError::Twice(self.options.key.clone())),
                }
                match (plain, plain_coded) {
                    (Some(value), None) => take_text(value, &mut item.value)?,
                    (None, Some(value)) => take_coded(value, &coded[1], &mut item.value)?,
                    (None, None) => return Err(RowError::NoField(value.clone())),
                    (Some(_), Some(_)) => return Err(RowError::Twice(value.clone())),
                }
            }
        }
        match item.key.len() {
            _ if item.is_reserved() && self.options.value == JsonlValue::Line => {
                Err(RowError::Reserved)
            }
            0..=MAX_KEY => Ok(()),
            len => Err(RowError::LongKey(len)),
        }
    }
}

impl<R: BufRead> ItemSource for JsonlSource<R> {
    fn next(&mut self, item: &mut Item) -> Result<bool, Error> {
        while self.rows.next(&mut self.row)? {
            if is_blank(&self.row) {
                continue;
            }
            self.take(item).map_err(|error| self.rows.row_error(error))?;
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

fn take_key(raw: &RawValue, out: &mut Vec<u8>) -> Result<(), RowError> {
    match raw.get().as_bytes()[0] {
        b'"' | b'-' | b'0'..=b'9' => take_text(raw, out),
        _ => Err(RowError::KeyType),
    }
}

fn take_text(raw: &RawValue, out: &mut Vec<u8>) -> Result<(), RowError> {
    if raw.get().starts_with('"') {
        let text: String = serde_json::from_str(raw.get())?;
        out.extend_from_slice(text.as_bytes());
    } else {
        out.extend_from_slice(raw.get().as_bytes());
    }
    Ok(())
}

fn take_coded(raw: &RawValue, name: &str, out: &mut Vec<u8>) -> Result<(), RowError> {
    let text: String = serde_json::from_str(raw.get())?;
    decode_into(text.as_bytes(), out).ok_or_else(|| RowError::Base64(name.to_owned()))
}

/// Returns the fields `names` of the object in `line`, each as it is written there.
fn pick<'a, const N: usize>(
    line: &'a [u8],
    names: [&String; N],
) -> Result<[Option<&'a RawValue>; N], RowError> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = json.deserialize_map(Pick { names })?;
    json.end()?;
    found
}

struct Pick<'n, const N: usize> {
    names: [&'n String; N],
}

impl<'de, const N: usize> Visitor<'de> for Pick<'_, N> {
    type Value = Result<[Option<&'de RawValue>; N], RowError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        let mut twice = None;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match self.names.iter().position(|wanted| **wanted == *name) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(index) => {
                    if found[index].replace(map.next_value()?).is_some() {
                        twice = Some(name.into_owned());
                    }
                }
            }
        }
        Ok(twice.map_or(Ok(found), |name| Err(RowError::Twice(name))))
    }
}
