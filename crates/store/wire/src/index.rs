//! Secondary indexes: the objects of a table in the order of a field of their values.
//!
//! An index finds one [`Field`] in each value: bytes, an integer or a double. Its *key* for an
//! object is the encoded field, and then the object's own key. Encoded fields are in the order of
//! the fields, byte by byte, and none begins with another. So the keys of an index are in the order
//! of the fields, objects with the same field are in the order of their own keys, and a
//! [range of keys](crate::order) can be one of fields. An object whose value has no such field has
//! no key in the index.
//!
//! ```
//! use sprat_wire::index::{Field, FieldSource, IndexDefinition};
//! use sprat_wire::value::ValueType;
//!
//! let source = FieldSource::Json { path: "address.city".to_owned() };
//! let by_city = IndexDefinition { source, field_type: ValueType::Bytes };
//! let value = br#"{"name": "Ada", "address": {"city": "London"}}"#;
//! assert_eq!(by_city.field(value), Some(Field::from("London")));
//! assert_eq!(by_city.field(b"no JSON"), None);
//! ```

use crate::op::{Records, push_text};
use crate::value::{NUMBER_BYTES, ValueType};
use crate::{MAX_KEY, MAX_VALUE};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use thiserror::Error;

/// The largest number of indexes of a table.
pub const MAX_INDEXES: usize = 16;

/// The longest field of bytes. An index of such fields does not have objects with longer ones.
pub const MAX_FIELD: usize = 1024;

/// The longest value that an index reads as JSON. Servers read values whenever they compare keys of
/// an index; a megabyte of JSON takes them some milliseconds, during which nothing else goes on.
pub const MAX_JSON: usize = 64 << 10;

/// The longest path of a field in JSON, and the longest name of an index, in bytes.
pub const MAX_INDEX_NAME: usize = 255;

/// The longest key of an index, in bytes: each byte of the field may be encoded as two, two end it,
/// and the object's own key follows.
pub const MAX_INDEX_KEY: usize = 2 * MAX_FIELD + 2 + MAX_KEY;

/// The number of the order of a table's own keys, among the orders of the table. Indexes have
/// others.
pub const OWN_KEYS: u32 = 0;

/// What an index is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub enum Field<'a> {
    /// Bytes, in the order of their values; a shorter field comes before those that it begins.
    Bytes(Cow<'a, [u8]>),
    /// An integer.
    Integer(i64),
    /// A double that is a number. Zero and minus zero are the same.
    Double(f64),
}

impl From<i64> for Field<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<i32> for Field<'_> {
    fn from(number: i32) -> Self {
        i64::from(number).into()
    }
}

impl From<u32> for Field<'_> {
    fn from(number: u32) -> Self {
        i64::from(number).into()
    }
}

impl From<f64> for Field<'_> {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl<'a> From<&'a [u8]> for Field<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Self {
        text.as_bytes().into()
    }
}

impl Field<'_> {
    /// Returns the type.
    #[must_use]
    pub fn field_type(&self) -> ValueType {
        match self {
            Self::Bytes(_) => ValueType::Bytes,
            Self::Integer(_) => ValueType::Integer,
            Self::Double(_) => ValueType::Double,
        }
    }

    /// Returns the encoded field, with which the keys of an index begin.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.push_to(&mut out);
        out
    }

    fn push_to(&self, out: &mut Vec<u8>) {
        const SIGN: u64 = 1 << 63;
        match self {
            Self::Bytes(bytes) => {
                push_escaped(out, bytes);
                // Less than any byte of a longer field, and than the second byte of a zero in one.
                out.extend([0, 0]);
            }
            Self::Integer(number) => {
                out.extend((number.cast_unsigned() ^ SIGN).to_be_bytes());
            }
            Self::Double(number) => {
                // Minus zero plus zero is zero.
                let bits = (number + 0.0).to_bits();
                let bits = if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
                out.extend(bits.to_be_bytes());
            }
        }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.escape_ascii().fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
        }
    }
}

/// Appends bytes of a field, as they are encoded: a zero byte becomes `00 ff`.
///
/// Without an end, what is appended is what the keys of all fields begin with that begin with these
/// bytes.
pub fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(u8::MAX);
        }
    }
}

/// Where an index finds a field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FieldSource {
    /// These bytes of the value. Numbers are 8 bytes long and little-endian, as those of counters.
    Offset {
        /// The number of bytes before the field.
        at: u32,
        /// The length of the field.
        length: u16,
    },
    /// A member of a value that is a JSON object of at most [`MAX_JSON`] bytes: a text, or a
    /// number.
    Json {
        /// The names of the objects that contain the member, and its own, divided by dots.
        path: String,
    },
    /// One of the keys that the client put [in front](with_index_keys) of the value. Numbers are 8
    /// bytes long and little-endian.
    Front {
        /// How many keys are before this one.
        number: u8,
    },
}

/// What an index finds in values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IndexDefinition {
    /// Where the field is.
    pub source: FieldSource,
    /// The type of the field. Objects with fields of another type are not in the index.
    pub field_type: ValueType,
}

/// Why an index cannot be made.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum IndexError {
    /// The path has no names, an empty name, or too many bytes.
    #[error(
        "the path of a field in JSON must be 1 to 255 bytes of names with dots between them, and \
         none of them empty"
    )]
    Path,
    /// The field does not lie in any value, or is too long.
    #[error("the field must have 1 to {MAX_FIELD} bytes, within the {MAX_VALUE} bytes of a value")]
    Offset,
    /// A field of a number that does not have 8 bytes.
    #[error("a field that is a number must have 8 bytes, not {0}")]
    Number(u16),
}

const FROM_OFFSET: u32 = 1;
const FROM_JSON: u32 = 2;
const FROM_FRONT: u32 = 3;

impl IndexDefinition {
    /// Checks that objects with such a field are possible.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn check(&self) -> Result<(), IndexError> {
        match &self.source {
            FieldSource::Offset { at, length } => {
                let len = usize::from(*length);
                let is_within = (1..=MAX_FIELD).contains(&len)
                    && usize::try_from(*at).is_ok_and(|at| at + len <= MAX_VALUE);
                match self.field_type {
                    _ if !is_within => Err(IndexError::Offset),
                    ValueType::Bytes => Ok(()),
                    _ if len == NUMBER_BYTES => Ok(()),
                    _ => Err(IndexError::Number(*length)),
                }
            }
            FieldSource::Json { path } => {
                let is_valid =
                    path.len() <= MAX_INDEX_NAME && path.split('.').all(|n| !n.is_empty());
                if is_valid { Ok(()) } else { Err(IndexError::Path) }
            }
            FieldSource::Front { .. } => Ok(()),
        }
    }

    /// Returns the field of a value; `None` if it has none.
    #[must_use]
    pub fn field<'a>(&self, value: &'a [u8]) -> Option<Field<'a>> {
        match &self.source {
            FieldSource::Offset { at, length } => {
                let at = usize::try_from(*at).ok()?;
                self.of_bytes(value.get(at..at + usize::from(*length))?)
            }
            FieldSource::Json { path } => self.of_json(member(value, path)?),
            FieldSource::Front { number } => {
                let (keys, _) = split_index_keys(value)?;
                self.of_bytes(keys.get(usize::from(*number))?)
            }
        }
    }

    /// Returns the key of an object in the index; `None` if its value has no field.
    #[must_use]
    pub fn key_of(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let field = self.field(value)?;
        let mut out = Vec::with_capacity(NUMBER_BYTES + key.len());
        field.push_to(&mut out);
        out.extend_from_slice(key);
        Some(out)
    }

    fn of_bytes<'a>(&self, bytes: &'a [u8]) -> Option<Field<'a>> {
        match self.field_type {
            ValueType::Bytes => (bytes.len() <= MAX_FIELD).then(|| bytes.into()),
            ValueType::Integer => Some(i64::from_le_bytes(bytes.try_into().ok()?).into()),
            ValueType::Double => {
                let number = f64::from_le_bytes(bytes.try_into().ok()?);
                (!number.is_nan()).then(|| number.into())
            }
            ValueType::Collection => None,
        }
    }

    fn of_json<'a>(&self, found: Scalar<'a>) -> Option<Field<'a>> {
        match (self.field_type, found) {
            (ValueType::Bytes, Scalar::Text(text)) => {
                (text.len() <= MAX_FIELD).then_some(Field::Bytes(text))
            }
            (ValueType::Integer, Scalar::Integer(number)) => Some(number.into()),
            #[expect(clippy::cast_precision_loss, reason = "as any reader of JSON takes it")]
            (ValueType::Double, Scalar::Integer(number)) => Some((number as f64).into()),
            (ValueType::Double, Scalar::Double(number)) => Some(number.into()),
            _ => None,
        }
    }

    /// Appends the definition to a body.
    ///
    /// # Panics
    /// When the path is too long.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        let (code, one, other, path) = match &self.source {
            FieldSource::Offset { at, length } => (FROM_OFFSET, *at, u32::from(*length), ""),
            FieldSource::Json { path } => (FROM_JSON, 0, 0, &path[..]),
            FieldSource::Front { number } => (FROM_FRONT, u32::from(*number), 0, ""),
        };
        for number in [code, self.field_type.code(), one, other] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        push_text(out, path);
    }

    /// Reads a definition; `None` if it is malformed, or not [valid](Self::check).
    pub fn read(records: &mut Records<'_>) -> Option<Self> {
        let (code, field_type) = (records.u32()?, records.u32()?);
        let (one, other, path) = (records.u32()?, records.u32()?, records.text()?);
        let source = match (code, one, other, path) {
            (FROM_OFFSET, at, length, "") => {
                FieldSource::Offset { at, length: length.try_into().ok()? }
            }
            (FROM_JSON, 0, 0, path) => FieldSource::Json { path: path.to_owned() },
            (FROM_FRONT, number, 0, "") => FieldSource::Front { number: number.try_into().ok()? },
            _ => return None,
        };
        let field_type = match field_type {
            0..=2 => ValueType::of_code(field_type),
            _ => return None,
        };
        Some(Self { source, field_type }).filter(|definition| definition.check().is_ok())
    }
}

/// Returns the bytes with which a client names and defines a new index; none if the name or the
/// definition is not valid.
#[must_use]
pub fn new_index(name: &str, definition: &IndexDefinition) -> Vec<u8> {
    let mut out = Vec::new();
    if (1..=MAX_INDEX_NAME).contains(&name.len()) && definition.check().is_ok() {
        push_text(&mut out, name);
        definition.push_to(&mut out);
    }
    out
}

/// Parses the bytes of a [new index](new_index).
#[must_use]
pub fn parse_new_index(bytes: &[u8]) -> Option<(&str, IndexDefinition)> {
    let mut records = Records::new(bytes);
    let name = records.text().filter(|name| !name.is_empty())?;
    let definition = IndexDefinition::read(&mut records)?;
    records.is_done().then_some((name, definition))
}

/// An index of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IndexRecord {
    /// The index's number, which no other index of the table ever has; not [`OWN_KEYS`].
    pub id: u32,
    /// The index's name, which no other index of the table has at the same time.
    pub name: String,
    /// What it finds.
    pub definition: IndexDefinition,
}

impl IndexRecord {
    /// Appends the record to a body.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        push_text(out, &self.name);
        self.definition.push_to(out);
    }

    /// Reads a record; `None` if it is malformed.
    pub fn read(records: &mut Records<'_>) -> Option<Self> {
        let (id, name) = (records.u32().filter(|&id| id != OWN_KEYS)?, records.text()?.to_owned());
        Some(Self { id, name, definition: IndexDefinition::read(records)? })
    }
}

/// An order of a table's objects, which a server keeps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SortOrder {
    /// Table id.
    pub table: u32,
    /// The number of the index, or [`OWN_KEYS`].
    pub index: u32,
    /// What the index finds; `None`: the order is that of the objects' own keys.
    pub definition: Option<IndexDefinition>,
}

impl SortOrder {
    /// Appends the order to a body.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        for number in [self.table, self.index] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(definition) = &self.definition {
            definition.push_to(out);
        }
    }

    /// Reads an order; `None` if it is malformed.
    pub fn read(records: &mut Records<'_>) -> Option<Self> {
        let (table, index) = (records.u32()?, records.u32()?);
        let definition =
            if index == OWN_KEYS { None } else { Some(IndexDefinition::read(records)?) };
        Some(Self { table, index, definition })
    }
}

/// The size of an order of a table's objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OrderStats {
    /// The number of the index, or [`OWN_KEYS`].
    pub index: u32,
    /// Number of objects in the order.
    pub objects: u64,
    /// Number of objects that are not in it, because their values have no field that the index can
    /// have.
    pub without_key: u64,
    /// Bytes of memory that the order takes, without what the allocator adds.
    pub bytes: u64,
    /// About how many objects are still to be put in order: until it is zero, the order cannot be
    /// scanned.
    pub left: u64,
}

impl OrderStats {
    /// Appends the size to a body.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        let Self { index, objects, without_key, bytes, left } = *self;
        for number in [index.into(), objects, without_key, bytes, left] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads a size; `None` if it is malformed.
    pub fn read(records: &mut Records<'_>) -> Option<Self> {
        Some(Self {
            index: records.u64()?.try_into().ok()?,
            objects: records.u64()?,
            without_key: records.u64()?,
            bytes: records.u64()?,
            left: records.u64()?,
        })
    }

    /// Adds what another server has of the same order.
    pub fn add(&mut self, other: &Self) {
        // Saturating, because the numbers come from servers.
        self.objects = self.objects.saturating_add(other.objects);
        self.without_key = self.without_key.saturating_add(other.without_key);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.left = self.left.saturating_add(other.left);
    }
}

/// Puts keys for indexes in front of a value: how many there are, and for each its length (2 bytes)
/// and its bytes. An index with [`FieldSource::Front`] finds them there.
///
/// ```
/// use sprat_wire::index::{split_index_keys, with_index_keys};
/// let value = with_index_keys(&[b"London", b"1815"], b"the value");
/// let (keys, rest) = split_index_keys(&value).unwrap();
/// assert_eq!((keys, rest), (vec![&b"London"[..], b"1815"], &b"the value"[..]));
/// ```
///
/// # Panics
/// When there are more than 255 keys, or one has more than 65,535 bytes.
#[must_use]
pub fn with_index_keys(keys: &[&[u8]], value: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(keys.len()).expect("at most 255 keys for indexes")];
    for key in keys {
        let len = u16::try_from(key.len()).expect("a key for an index of at most 65,535 bytes");
        out.extend(len.to_le_bytes());
        out.extend_from_slice(key);
    }
    out.extend_from_slice(value);
    out
}

/// Returns the keys that are [in front](with_index_keys) of a value, and the rest of the value.
/// `None` if it does not begin in this way.
#[must_use]
pub fn split_index_keys(value: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (&count, mut rest) = value.split_first()?;
    let mut keys = Vec::with_capacity(count.into());
    for _ in 0..count {
        let (len, behind) = rest.split_first_chunk()?;
        let (key, behind) = behind.split_at_checked(u16::from_le_bytes(*len).into())?;
        keys.push(key);
        rest = behind;
    }
    Some((keys, rest))
}

/// A member of a JSON object that an index can have.
enum Scalar<'a> {
    Text(Cow<'a, [u8]>),
    Integer(i64),
    Double(f64),
}

/// Finds a member in a value that is JSON, by its path; `None` if the value is no JSON, or has no
/// such member that is a text or a number.
fn member<'a>(value: &'a [u8], path: &str) -> Option<Scalar<'a>> {
    if value.len() > MAX_JSON {
        return None;
    }
    let mut json = serde_json::Deserializer::from_slice(value);
    let found = Member { path: Some(path) }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    found
}

/// Reads JSON to its end, and keeps the member with this path; an empty path is what is read
/// itself. If there are several, the last one counts, as for most readers of JSON.
#[derive(Clone, Copy)]
struct Member<'p> {
    path: Option<&'p str>,
}

impl<'a> Member<'_> {
    fn keep<E>(self, found: Scalar<'a>) -> Result<Option<Scalar<'a>>, E> {
        Ok(self.path.is_none().then_some(found))
    }
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<Scalar<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<Scalar<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        self.keep(Scalar::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        #[expect(clippy::cast_precision_loss, reason = "as any reader of JSON takes it")]
        let double = || Scalar::Double(number as f64);
        self.keep(i64::try_from(number).map_or_else(|_| double(), Scalar::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        self.keep(Scalar::Double(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        self.keep(Scalar::Text(text.as_bytes().into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        self.keep(Scalar::Text(text.as_bytes().to_vec().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (name, path) = match self.path.map(|path| (path, path.split_once('.'))) {
            None => (None, None),
            Some((name, None)) => (Some(name), None),
            Some((_, Some((name, path)))) => (Some(name), Some(path)),
        };
        let mut found = None;
        while let Some(is_wanted) = members.next_key_seed(IsName(name))? {
            if is_wanted {
                found = members.next_value_seed(Member { path })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Reads the name of a member, and compares it.
struct IsName<'n>(Option<&'n str>);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(self.0 == Some(name))
    }
}
