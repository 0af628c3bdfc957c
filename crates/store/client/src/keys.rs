//! Ranges of the keys of an ordered table, and of the fields of an index.

use crate::error::Error;
use sprat_wire::index::{Field, IndexDefinition, IndexRecord, OWN_KEYS, push_escaped};
use sprat_wire::order::KeyRange;
use sprat_wire::value::ValueType;
use std::ops::{Bound, RangeBounds};

/// A range of the keys of an ordered table in the order of their bytes, or of the objects of a
/// table in the order of an [`Index`], and the direction in which to read it.
///
/// ```
/// use sprat_client::Keys;
/// let users = Keys::prefix(b"user:");
/// let newest_first = Keys::all().from(b"2026-01").to(b"2026-02").descending();
/// # assert_ne!(users, newest_first);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Keys {
    index: u32,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    descending: bool,
}

/// Returns the lower bound of what begins with these bytes, and of what is above all that.
fn ends_of(prefix: Vec<u8>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // The lowest key above all of them ends with the last byte that can be raised.
    let mut end = prefix.clone();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    let above = match end.last_mut() {
        None => Bound::Unbounded,
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
    };
    (Bound::Included(prefix), above)
}

impl Keys {
    fn of(index: u32, (from, to): (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Self {
        Self { index, from, to, descending: false }
    }

    /// All keys, from the lowest.
    #[must_use]
    pub fn all() -> Self {
        Self::of(OWN_KEYS, (Bound::Unbounded, Bound::Unbounded))
    }

    /// The keys that begin with these bytes.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self::of(OWN_KEYS, ends_of(prefix.to_vec()))
    }

    /// Begins with this key.
    #[must_use]
    pub fn from(self, key: &[u8]) -> Self {
        Self { from: Bound::Included(key.to_vec()), ..self }
    }

    /// Begins above this key.
    #[must_use]
    pub fn after(self, key: &[u8]) -> Self {
        Self { from: Bound::Excluded(key.to_vec()), ..self }
    }

    /// Ends below this key.
    #[must_use]
    pub fn to(self, key: &[u8]) -> Self {
        Self { to: Bound::Excluded(key.to_vec()), ..self }
    }

    /// Ends with this key.
    #[must_use]
    pub fn up_to(self, key: &[u8]) -> Self {
        Self { to: Bound::Included(key.to_vec()), ..self }
    }

    /// Reads the range from the highest key to the lowest.
    #[must_use]
    pub fn descending(self) -> Self {
        Self { descending: true, ..self }
    }

    /// Returns what is left when a scan has reached this key.
    pub(crate) fn behind(self, key: &[u8]) -> Self {
        if self.descending { self.to(key) } else { self.after(key) }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn range(&self) -> KeyRange<'_> {
        KeyRange {
            from: self.from.as_ref().map(Vec::as_slice),
            to: self.to.as_ref().map(Vec::as_slice),
            descending: self.descending,
        }
    }
}

/// A secondary index of a table.
///
/// It names ranges of the table's objects by a [`Field`] of their values, for
/// [`scan_keys`](crate::Client::scan_keys). Objects with the same field are in the order of their
/// keys.
///
/// ```
/// # use sprat_client::{Client, Error, FieldSource, IndexDefinition, Table, ValueType};
/// # fn main() {}
/// # fn adults(client: &mut Client, users: Table) -> Result<(), Error> {
/// let source = FieldSource::Json { path: "age".to_owned() };
/// let definition = IndexDefinition { source, field_type: ValueType::Integer };
/// let by_age = client.create_index("users", "by_age", &definition)?;
/// client.put(users, b"ada", br#"{"age": 36}"#)?;
/// let page = client.scan_keys(users, by_age.range(30..40)?, 100)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Index {
    id: u32,
    name: String,
    definition: IndexDefinition,
}

impl Index {
    pub(crate) fn of(record: IndexRecord) -> Self {
        let IndexRecord { id, name, definition } = record;
        Self { id, name, definition }
    }

    /// Returns the index's number, by which [`OrderStats`](crate::OrderStats) name it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the index's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the index finds in values.
    #[must_use]
    pub fn definition(&self) -> &IndexDefinition {
        &self.definition
    }

    /// All objects of the index, from the lowest field.
    #[must_use]
    pub fn all(&self) -> Keys {
        Keys::of(self.id, (Bound::Unbounded, Bound::Unbounded))
    }

    /// The objects with fields in this range.
    ///
    /// # Errors
    /// [`Error::FieldType`] when a field is of another type than those of the index.
    pub fn range<'f, F: Clone + Into<Field<'f>>>(
        &self,
        fields: impl RangeBounds<F>,
    ) -> Result<Keys, Error> {
        let ends = |field: &F| Ok::<_, Error>(ends_of(self.encode(field.clone().into())?));
        let from = match fields.start_bound() {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(field) => ends(field)?.0,
            Bound::Excluded(field) => match ends(field)?.1 {
                // Above all objects that have the field.
                Bound::Excluded(above) => Bound::Included(above),
                // Nothing is above the highest field.
                _ => return Ok(self.all().to(b"")),
            },
        };
        let to = match fields.end_bound() {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(field) => ends(field)?.1,
            Bound::Excluded(field) => Bound::Excluded(self.encode(field.clone().into())?),
        };
        Ok(Keys::of(self.id, (from, to)))
    }

    /// The objects with this field.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn equal<'f>(&self, field: impl Into<Field<'f>>) -> Result<Keys, Error> {
        Ok(Keys::of(self.id, ends_of(self.encode(field.into())?)))
    }

    /// The objects whose fields begin with these bytes.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix(&self, prefix: &[u8]) -> Result<Keys, Error> {
        self.encode(prefix.into())?;
        let mut begin = Vec::new();
        push_escaped(&mut begin, prefix);
        Ok(Keys::of(self.id, ends_of(begin)))
    }

    /// Leaves out what a scan of a range of this index reads before the object with this field and
    /// key, and that object.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn behind<'f>(
        &self,
        keys: Keys,
        field: impl Into<Field<'f>>,
        key: &[u8],
    ) -> Result<Keys, Error> {
        let mut last = self.encode(field.into())?;
        last.extend_from_slice(key);
        Ok(keys.behind(&last))
    }

    fn encode(&self, field: Field<'_>) -> Result<Vec<u8>, Error> {
        let (given, wanted) = (field.field_type(), self.definition.field_type);
        let field = match (field, wanted) {
            // Whole numbers are doubles, too.
            #[expect(clippy::cast_precision_loss, reason = "as the fields of the index")]
            (Field::Integer(number), ValueType::Double) => Field::Double(number as f64),
            (field, _) if given == wanted => field,
            _ => return Err(Error::FieldType { index: self.name.clone(), given, wanted }),
        };
        Ok(field.encode())
    }
}
