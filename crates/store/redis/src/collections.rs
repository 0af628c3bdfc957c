//! Collections: their heads, their elements, and what connections remember of them. See
//! [`sprat_wire::elements`].

use crate::call::{Call, ENTRY, Failure, TOO_LONG};
use crate::objects::{Access, Objects};
use sprat_log::Content;
use sprat_wire::elements::{COLLECTION_ID_BYTES, CollectionId, CollectionKind};
use sprat_wire::entry::Entry;
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::order::KeyRange;
use sprat_wire::value::ValueType;
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::collections::{HashMap, VecDeque};
use std::ops::Bound;

/// The reply to a command on a key that has a value of another kind.
pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The largest number of bytes of an element in the log, besides those of its name and value.
pub(crate) const ELEMENT: usize = ENTRY + COLLECTION_ID_BYTES;

/// The longest name of a field or member.
const MAX_NAME: usize = MAX_KEY - COLLECTION_ID_BYTES;

/// Returns the collection whose head an object is; `None` if it is a string.
pub(crate) fn collection_of(entry: &Entry<'_>) -> Option<CollectionId> {
    match entry.value_type {
        ValueType::Collection => CollectionId::of(entry.value),
        _ => None,
    }
}

/// Passes on what was found, if it is a string.
///
/// # Errors
/// It is a collection.
pub(crate) fn string(entry: Option<Entry<'_>>) -> Result<Option<Entry<'_>>, Failure> {
    match entry.as_ref().and_then(collection_of) {
        Some(_) => Err(WRONG_TYPE.into()),
        None => Ok(entry),
    }
}

/// Returns the name of an element of hashes and sets: its field or member.
pub(crate) fn name_of<'a>(entry: &Entry<'a>) -> &'a [u8] {
    &entry.key[COLLECTION_ID_BYTES..]
}

/// Passes the range of the keys of all elements of a collection to `act`.
pub(crate) fn with_range<T>(id: CollectionId, act: impl FnOnce(&KeyRange<'_>) -> T) -> T {
    let [first, end] = id.range();
    let (from, to) = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
    act(&KeyRange { from, to, descending: false })
}

impl Call<'_> {
    /// Finds the collection of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// The key has a value of another kind.
    pub(crate) fn collection(
        &mut self,
        key: &[u8],
        kind: CollectionKind,
        access: Access,
    ) -> Result<Option<CollectionId>, Failure> {
        match self.find(key, access)? {
            None => Ok(None),
            Some(entry) => match collection_of(&entry).filter(|id| id.kind() == kind) {
                Some(id) => Ok(Some(id)),
                None => Err(WRONG_TYPE.into()),
            },
        }
    }

    /// Makes changes that count together or not at all to the collection of a key, which is made if
    /// there is none. `count` elements are written, which have at most `len` bytes in the log.
    pub(crate) fn change_collection(
        &mut self,
        key: &[u8],
        kind: CollectionKind,
        (count, len): (usize, usize),
        change: impl FnOnce(&mut Self, CollectionId) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.collection(key, kind, Access::Change)? {
            // One entry needs no group.
            Some(id) if count == 1 => return change(self, id),
            Some(id) => return self.together((len, false), |call| change(call, id)),
            None => {}
        }
        let id = self.objects.new_collection(self.table, key, kind)?;
        self.together((len + making_len(key), false), |call| {
            call.put_head((call.table, key), id, NEVER)?;
            change(call, id)
        })
    }

    /// Writes the head of a collection, and the record of its owner.
    pub(crate) fn put_head(
        &mut self,
        (table, key): (u32, &[u8]),
        id: CollectionId,
        expires: Time,
    ) -> Result<(), Failure> {
        let content = Content { value: &id.bytes(), value_type: ValueType::Collection, expires };
        self.objects.put_element(table, &id.owner(), key)?;
        Ok(self.objects.put(table, key, content)?)
    }

    /// Finds an element of a collection.
    pub(crate) fn element(&mut self, id: CollectionId, name: &[u8]) -> Option<Entry<'_>> {
        // No element has such a name.
        if name.len() > MAX_NAME {
            return None;
        }
        self.objects.find_element(self.table, &id.element(name))
    }

    /// Writes an element of a collection. Returns whether there was none with this name.
    pub(crate) fn put_element(
        &mut self,
        id: CollectionId,
        name: &[u8],
        value: &[u8],
    ) -> Result<bool, Failure> {
        check_element(name, value)?;
        let key = id.element(name);
        let is_new = self.objects.find_element(self.table, &key).is_none();
        self.objects.put_element(self.table, &key, value)?;
        self.server.changes.note(self.table, id);
        Ok(is_new)
    }

    /// Removes elements of a collection, all or none, and the collection with the last one. Returns
    /// the number of those that were there.
    pub(crate) fn remove_elements<'n>(
        &mut self,
        key: &[u8],
        id: CollectionId,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<usize, Failure> {
        let mut found: Vec<Vec<u8>> = Vec::new();
        for name in names.filter(|name| name.len() <= MAX_NAME) {
            let key = id.element(name);
            if self.objects.find_element(self.table, &key).is_some() {
                found.push(key);
            }
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Ok(0);
        }
        let is_all = found.len() == self.count(id);
        let remove = |call: &mut Self| {
            for element in &found {
                call.objects.remove_element(call.table, element)?;
            }
            if is_all {
                call.objects.remove(call.table, key)?;
            }
            Ok(())
        };
        if found.len() == 1 && !is_all {
            remove(self)?;
        } else {
            let len: usize = found.iter().map(|key| ENTRY + key.len()).sum();
            self.together((len + ENTRY + key.len(), true), remove)?;
        }
        self.server.changes.note(self.table, id);
        Ok(found.len())
    }

    /// Returns the number of elements of a collection.
    pub(crate) fn count(&mut self, id: CollectionId) -> usize {
        with_range(id, |range| self.objects.count_elements(self.table, range))
    }

    /// Passes up to `limit` elements of a collection to `visit`, in order, after the first `skip`.
    pub(crate) fn visit(
        &mut self,
        id: CollectionId,
        (skip, limit): (usize, usize),
        visit: &mut dyn FnMut(&Entry<'_>),
    ) {
        with_range(id, |range| {
            self.objects.visit_elements(self.table, range, (skip, limit), visit);
        });
    }

    /// Copies a collection to a key that was looked for, perhaps of another database's table, and
    /// together with that does `then`, which needs `then_len` bytes of the log.
    ///
    /// # Errors
    /// It has too many elements.
    pub(crate) fn copy_collection(
        &mut self,
        id: CollectionId,
        (table, to): (u32, &[u8]),
        expires: Time,
        then_len: usize,
        then: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let name = self.name.to_ascii_uppercase();
        let count = self.count(id);
        if count > MAX_COPIED {
            return Err(format!(
                "ERR {name} of a collection with {count} elements; the limit is {MAX_COPIED}"
            )
            .into());
        }
        let bytes = elements_len(self.objects, self.table, id);
        let mut elements = Vec::new();
        self.visit(id, (0, count), &mut |entry| {
            elements.push((name_of(entry).to_vec(), entry.value.to_vec()));
        });
        let copy = self.objects.new_collection(table, to, id.kind())?;
        self.together((bytes + making_len(to) + then_len, false), |call| {
            call.put_head((table, to), copy, expires)?;
            for (name, value) in &elements {
                call.objects.put_element(table, &copy.element(name), value)?;
            }
            then(call)
        })
    }
}

/// The largest number of elements of a collection that `COPY` and `MOVE` copy.
const MAX_COPIED: usize = 16 << 10;

/// Returns the bytes of the elements of a collection in the log, if it can be copied.
pub(crate) fn elements_len(objects: &mut dyn Objects, table: u32, id: CollectionId) -> usize {
    let mut bytes = 0;
    let mut add = |entry: &Entry<'_>| bytes += ENTRY + entry.key.len() + entry.value.len();
    with_range(id, |range| objects.visit_elements(table, range, (0, MAX_COPIED), &mut add));
    bytes
}

/// Returns the bytes of the head and the owner record of a key's collection in the log.
pub(crate) fn making_len(key: &[u8]) -> usize {
    2 * (ENTRY + key.len() + COLLECTION_ID_BYTES)
}

/// Checks that an element can be written.
///
/// # Errors
/// It is too long.
pub(crate) fn check_element(name: &[u8], value: &[u8]) -> Result<(), Failure> {
    if name.len() > MAX_NAME {
        let len = name.len();
        return Err(
            format!("ERR a field or member has {len} bytes; the limit is {MAX_NAME}").into()
        );
    }
    match value.len() > MAX_VALUE {
        true => Err(TOO_LONG.into()),
        false => Ok(()),
    }
}

/// Limit on the collections of which the last change is remembered.
const MAX_CHANGES: usize = 64 << 10;

/// When collections were last changed, for `WATCH`: the change of an element leaves the version of
/// the head as it is.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Number of changes since a client first watched a collection.
    count: u64,
    watched: bool,
    last: HashMap<(u32, CollectionId), u64>,
    /// The collections that are not remembered have not changed since.
    forgotten: u64,
}

impl Changes {
    /// Returns what a connection that watches collections from now on must remember.
    pub(crate) fn watch(&mut self) -> u64 {
        self.watched = true;
        self.count
    }

    /// Returns whether a collection may have changed since a connection watched it.
    pub(crate) fn has_changed(&self, table: u32, id: CollectionId, since: u64) -> bool {
        self.last.get(&(table, id)).copied().unwrap_or(self.forgotten) > since
    }

    fn note(&mut self, table: u32, id: CollectionId) {
        if !self.watched {
            return;
        }
        self.count += 1;
        if self.last.len() >= MAX_CHANGES {
            self.last.clear();
            self.forgotten = self.count;
        }
        self.last.insert((table, id), self.count);
    }
}

/// Limits on the scans that are remembered, and on the bytes of what they found last.
const MAX_CURSORS: usize = 4096;
const MAX_CURSOR_BYTES: usize = 4 << 20;

/// How far the scans of collections have come. A cursor of `HSCAN` has no room for the name that
/// was found last, and the number of names before it says little once some of them are removed.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    /// The cursors, ascending, with the keys of the elements that were found last.
    cursors: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
    next: u64,
}

impl Cursors {
    /// Returns a new cursor of a scan that found an element last.
    pub(crate) fn add(&mut self, key: &[u8]) -> u64 {
        self.next += 1;
        self.bytes += key.len();
        self.cursors.push_back((self.next, key.into()));
        while self.cursors.len() > MAX_CURSORS || self.bytes > MAX_CURSOR_BYTES {
            let (_, forgotten) = self.cursors.pop_front().expect("there are some");
            self.bytes -= forgotten.len();
        }
        self.next
    }

    /// Returns the key of the element at which a cursor is; `None` if the cursor is not known any
    /// more. Then the scan begins again: it may find an element twice, but it misses none.
    pub(crate) fn find(&self, cursor: u64) -> Option<&[u8]> {
        let at = self.cursors.binary_search_by_key(&cursor, |(cursor, _)| *cursor).ok()?;
        Some(&self.cursors[at].1)
    }
}
