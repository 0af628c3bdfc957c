//! Collections: their heads, their elements, and what connections remember of them. See
//! [`sprat_wire::elements`].

use crate::call::{Call, ENTRY, Failure, TOO_LONG};
use crate::objects::{Access, Objects};
use sprat_log::Content;
use sprat_wire::elements::{COLLECTION_ID_BYTES, CollectionId, CollectionKind, sort_key};
use sprat_wire::entry::Entry;
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::order::KeyRange;
use sprat_wire::value::ValueType;
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::borrow::Cow;
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

/// An element: the name behind the collection's id in its key, and its value.
pub(crate) type Element = (Vec<u8>, Vec<u8>);

/// A range of elements by their [keys](sort_key), in one direction.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) from: Bound<Vec<u8>>,
    pub(crate) to: Bound<Vec<u8>>,
    pub(crate) descending: bool,
}

impl Span {
    /// All elements of a collection.
    pub(crate) fn of(id: CollectionId) -> Self {
        let [first, end] = id.range().map(Vec::from);
        Self { from: Bound::Included(first), to: Bound::Excluded(end), descending: false }
    }

    /// Turns the range round if `descending`, so that the last element comes first.
    pub(crate) fn directed(self, descending: bool) -> Self {
        Self { descending, ..self }
    }

    /// Leaves out an element with this key, and those before it.
    pub(crate) fn begin_after(&mut self, key: Vec<u8>) {
        let begin = if self.descending { &mut self.to } else { &mut self.from };
        *begin = Bound::Excluded(key);
    }

    fn range(&self) -> KeyRange<'_> {
        let Self { from, to, descending } = self;
        let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        KeyRange { from, to, descending: *descending }
    }

    /// Passes up to `limit` of the elements to `visit`, after the first `skip`.
    pub(crate) fn visit(
        &self,
        objects: &mut dyn Objects,
        table: u32,
        skip_and_limit: (usize, usize),
        visit: &mut dyn FnMut(&Entry<'_>),
    ) {
        objects.visit_elements(table, &self.range(), skip_and_limit, visit);
    }
}

/// Limits on the elements that are copied at once while all are looked at.
const PAGE: usize = 256;
const PAGE_BYTES: usize = 1 << 20;

/// Limit on the bytes of elements that a command moves, removes or copies.
const MAX_COPIED: usize = 16 << 20;

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
        self.objects.put(table, key, content)?;
        if matches!(id.kind(), CollectionKind::List | CollectionKind::SortedSet) {
            let database = self.server.tables.iter().position(|its| *its == Some(table));
            self.server.waiting.note(database.expect("a database's table"), key);
        }
        Ok(())
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
            let element = id.element(name);
            if self.objects.find_element(self.table, &element).is_some() {
                found.push(element);
            }
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Ok(0);
        }
        let mut seen = 0;
        self.visit(&Span::of(id), (0, found.len() + 1), &mut |_| seen += 1);
        self.remove_found(key, id, &found, seen == found.len())?;
        Ok(found.len())
    }

    /// Removes elements at the beginning of a range, all or none, and the collection with the last
    /// one. Returns them, for the reply.
    ///
    /// # Errors
    /// The reply has no room for several of them: they stay where they are.
    pub(crate) fn take_elements(
        &mut self,
        key: &[u8],
        id: CollectionId,
        span: &Span,
        count: usize,
    ) -> Result<Vec<Element>, Failure> {
        let mut found = self.elements(span, (0, count.saturating_add(1)))?;
        let is_all = found.len() <= count;
        found.truncate(count);
        if found.len() > 1 {
            let len = |(name, value): &Element| ENTRY + name.len() + value.len();
            self.add_to_reply(found.iter().map(len).sum())?;
        }
        if !found.is_empty() {
            let keys: Vec<_> = found.iter().map(|(name, _)| id.element(name)).collect();
            self.remove_found(key, id, &keys, is_all)?;
        }
        Ok(found)
    }

    /// Removes elements that were found, given their keys, all or none; and the collection if they
    /// are all that it has.
    fn remove_found(
        &mut self,
        key: &[u8],
        id: CollectionId,
        found: &[Vec<u8>],
        is_all: bool,
    ) -> Result<(), Failure> {
        self.server.changes.note(self.table, id);
        if is_all {
            // The elements of a collection without a head are removed later.
            return Ok(self.objects.remove(self.table, key)?);
        }
        let remove = |call: &mut Self| {
            found.iter().try_for_each(|element| {
                call.objects.remove_element(call.table, element)?;
                Ok(())
            })
        };
        if let [_] = found {
            return remove(self);
        }
        let len: usize = found.iter().map(|element| ENTRY + element.len()).sum();
        self.together((len, true), remove)
    }

    /// Returns the number of elements of a collection.
    pub(crate) fn count(&mut self, id: CollectionId) -> usize {
        self.count_in(&Span::of(id))
    }

    /// Returns the number of elements in a range.
    pub(crate) fn count_in(&mut self, span: &Span) -> usize {
        self.objects.count_elements(self.table, &span.range())
    }

    /// Passes up to `limit` elements in a range to `visit`, after the first `skip`.
    pub(crate) fn visit(
        &mut self,
        span: &Span,
        (skip, limit): (usize, usize),
        visit: &mut dyn FnMut(&Entry<'_>),
    ) {
        span.visit(self.objects, self.table, (skip, limit), visit);
    }

    /// Returns up to `limit` elements in a range, after the first `skip`.
    ///
    /// # Errors
    /// They have too many bytes.
    pub(crate) fn elements(
        &mut self,
        span: &Span,
        skip_and_limit: (usize, usize),
    ) -> Result<Vec<Element>, Failure> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        self.visit(span, skip_and_limit, &mut |entry| {
            bytes += ELEMENT + entry.key.len() + entry.value.len();
            if bytes <= MAX_COPIED {
                found.push((name_of(entry).to_vec(), entry.value.to_vec()));
            }
        });
        if bytes <= MAX_COPIED {
            return Ok(found);
        }
        let name = self.name.to_ascii_uppercase();
        Err(format!("ERR {name} of {bytes} bytes at once; the limit is {MAX_COPIED}").into())
    }

    /// Passes the elements in a range to `act`, until it returns `false`.
    pub(crate) fn each_element(
        &mut self,
        mut span: Span,
        mut act: impl FnMut(&mut Self, Element) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        loop {
            let (mut page, mut bytes, mut last) = (Vec::new(), 0, None);
            self.visit(&span, (0, PAGE), &mut |entry| {
                if bytes < PAGE_BYTES {
                    bytes += entry.key.len() + entry.value.len();
                    page.push((name_of(entry).to_vec(), entry.value.to_vec()));
                    last = sort_key(entry.key, entry.value).map(Cow::into_owned);
                }
            });
            let is_last = page.len() < PAGE && bytes < PAGE_BYTES;
            for element in page {
                if !act(self, element)? {
                    return Ok(());
                }
            }
            match last {
                Some(last) if !is_last => span.begin_after(last),
                _ => return Ok(()),
            }
        }
    }

    /// Removes up to `limit` elements in a range, after the first `skip`, all or none, and the
    /// collection with the last one. Returns their number.
    pub(crate) fn remove_span(
        &mut self,
        key: &[u8],
        id: CollectionId,
        span: &Span,
        (skip, limit): (usize, usize),
    ) -> Result<usize, Failure> {
        if limit == self.count(id) {
            self.server.changes.note(self.table, id);
            self.objects.remove(self.table, key)?;
            return Ok(limit);
        }
        self.check_count(limit)?;
        let found = self.elements(span, (skip, limit))?;
        self.remove_elements(key, id, found.iter().map(|(name, _)| name.as_slice()))
    }

    /// Makes a collection of these elements for a key that was looked for, perhaps of another
    /// database's table, and together with that does `then`, which needs `then_len` bytes of the
    /// log.
    pub(crate) fn make_collection(
        &mut self,
        (table, key): (u32, &[u8]),
        (kind, expires): (CollectionKind, Time),
        elements: &[Element],
        then_len: usize,
        then: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let len = |(name, value): &Element| ELEMENT + name.len() + value.len();
        let bytes: usize = elements.iter().map(len).sum();
        let id = self.objects.new_collection(table, key, kind)?;
        self.together((bytes + making_len(key) + then_len, false), |call| {
            call.put_head((table, key), id, expires)?;
            for (name, value) in elements {
                call.objects.put_element(table, &id.element(name), value)?;
            }
            then(call)
        })
    }

    /// Replaces what a key has by a collection of these elements, or by nothing if there are none.
    pub(crate) fn store(
        &mut self,
        key: &[u8],
        kind: CollectionKind,
        elements: &[Element],
    ) -> Result<(), Failure> {
        let exists = self.find(key, Access::Change)?.is_some();
        if !elements.is_empty() {
            self.check_count(elements.len())?;
            return self.make_collection((self.table, key), (kind, NEVER), elements, 0, |_| Ok(()));
        }
        if exists {
            self.objects.remove(self.table, key)?;
        }
        Ok(())
    }

    /// Copies a collection to a key that was looked for, perhaps of another database's table, and
    /// together with that does `then`, which needs `then_len` bytes of the log.
    ///
    /// # Errors
    /// It has too many elements.
    pub(crate) fn copy_collection(
        &mut self,
        id: CollectionId,
        to: (u32, &[u8]),
        expires: Time,
        then_len: usize,
        then: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let count = self.count(id);
        self.check_count(count)?;
        let elements = self.elements(&Span::of(id), (0, count))?;
        self.make_collection(to, (id.kind(), expires), &elements, then_len, then)
    }

    /// Checks that a command may write or remove this number of elements that are not among its
    /// arguments.
    ///
    /// # Errors
    /// They are too many.
    pub(crate) fn check_count(&self, count: usize) -> Result<(), Failure> {
        if count <= MAX_AT_ONCE {
            return Ok(());
        }
        let name = self.name.to_ascii_uppercase();
        Err(format!("ERR {name} of {count} elements at once; the limit is {MAX_AT_ONCE}").into())
    }
}

/// The largest number of elements that a command writes or removes which are not among its
/// arguments.
pub(crate) const MAX_AT_ONCE: usize = 16 << 10;

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

    pub(crate) fn note(&mut self, table: u32, id: CollectionId) {
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
