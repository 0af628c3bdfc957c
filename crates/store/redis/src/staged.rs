//! Changes that are kept back until all of them are known.
//!
//! The commands of a transaction, and those of a script, are executed on [`Staged`] objects. Their
//! changes are kept in memory, and what they read is the server's objects with these changes. At
//! the end [`Staged::commit`] makes the changes as one group of the log, whose length is known by
//! then. If a command finds that the server is not ready, if the changes are too long, or if a
//! script does not end, they are dropped, and nothing has happened.

use crate::call::{Call, ENTRY, Failure};
use crate::collections::collection_of;
use crate::objects::{Access, NO_NUMBER, Objects, Unready};
use sprat_log::Content;
use sprat_wire::elements::{
    CollectionId, CollectionKind, OwnerKey, number_of, place, position, sort_key,
};
use sprat_wire::entry::{Entry, Kind, entry_len};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::order::KeyRange;
use sprat_wire::value::ValueType;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

impl Call<'_> {
    /// Does `act`, which executes other commands, with their changes kept back; then makes the
    /// changes, all or none.
    ///
    /// # Errors
    /// Those of `act`; or the changes cannot be made, perhaps now. Then nothing has happened.
    pub(crate) fn staged(
        &mut self,
        act: impl FnOnce(&mut Call<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Call {
            command, name, objects, reply, session, server, resume, table, room, now, ..
        } = self;
        let (database, protocol) = (session.database, session.protocol);
        let published = server.channels.published.len();
        let mut staged = Staged::new(&mut **objects);
        let done = act(&mut Call {
            command: *command,
            name,
            objects: &mut staged,
            reply: reply.again(),
            session,
            server,
            resume,
            table: *table,
            room: *room,
            in_group: true,
            now: *now,
        });
        let done = done.and_then(|()| Ok(staged.commit()?));
        if done.is_err() {
            (session.database, session.protocol) = (database, protocol);
            server.channels.published.truncate(published);
        }
        done
    }
}

/// What an object is going to be.
#[derive(Debug)]
struct Object {
    /// Whether the server has an object with this key.
    exists: bool,
    /// `None` if it is going to be removed.
    next: Option<Value>,
}

#[derive(Debug)]
struct Value {
    bytes: Vec<u8>,
    value_type: ValueType,
    expires: Time,
}

/// What an element or an owner record is going to be.
#[derive(Debug)]
struct Element {
    /// The [key](sort_key) in the order of elements of what the server has.
    present: Option<Vec<u8>>,
    /// The value; `None` if it is going to be removed.
    next: Option<Vec<u8>>,
}

/// What a key in the order of elements is going to belong to.
#[derive(Debug)]
struct Place {
    /// Whether the server has an element there.
    exists: bool,
    /// The key of the element that is going to be there, if any.
    next: Option<Box<[u8]>>,
}

/// The changes of a table.
#[derive(Debug, Default)]
struct Changes {
    objects: BTreeMap<Box<[u8]>, Object>,
    elements: BTreeMap<Box<[u8]>, Element>,
    order: BTreeMap<Vec<u8>, Place>,
    /// Collections whose heads were removed or replaced. Other objects may be their heads now.
    left: BTreeSet<CollectionId>,
}

/// Objects with changes that are kept back.
struct Staged<'a> {
    base: &'a mut dyn Objects,
    /// The changes of tables. There are few tables.
    tables: Vec<(u32, Changes)>,
    /// Bytes of the changes in the log, at most.
    len: usize,
    /// Limit on these.
    most: usize,
    /// Why a change was refused for good.
    excess: Option<String>,
}

impl<'a> Staged<'a> {
    fn new(base: &'a mut dyn Objects) -> Self {
        let most = base.most_at_once();
        Self { base, tables: Vec::new(), len: 0, most, excess: None }
    }

    /// Makes the changes, all or none.
    ///
    /// # Errors
    /// [`Unready`] when there is no room for them now, or when they are too long.
    fn commit(self) -> Result<(), Unready> {
        let Self { base, mut tables, excess, .. } = self;
        if let Some(excess) = excess {
            return Err(Unready::Refused(excess));
        }
        tables.iter_mut().for_each(|(_, changes)| changes.drop_dead());
        let (mut count, mut len, mut only_removes) = (0, 0, true);
        for (_, changes) in &tables {
            for (key, object) in changes.objects.iter().filter(|(_, object)| object.counts()) {
                count += 1;
                len += object.len(key);
                only_removes &= object.next.is_none();
            }
            for (key, element) in changes.elements.iter().filter(|(_, element)| element.counts()) {
                count += 1;
                len += element.len(key);
                only_removes &= element.next.is_none();
            }
        }
        // One entry needs no group.
        let in_group = count > 1;
        if in_group {
            base.begin(len, only_removes)?;
        }
        let done = tables.iter().try_for_each(|(table, changes)| changes.make(*table, base));
        if in_group {
            // The room was taken before.
            done.expect("a group has room for its changes");
            base.end();
            return Ok(());
        }
        done
    }

    /// Changes an object. An object that the server does not have, and never will, leaves nothing.
    fn set(&mut self, table: u32, key: &[u8], next: Option<Value>) -> Result<(), Unready> {
        let found = self.base.find(table, key, Access::Change)?;
        let (exists, head) = (found.is_some(), found.as_ref().and_then(collection_of));
        let object = Object { exists, next };
        let changes = changes_to(&mut self.tables, table);
        let before = changes.objects.get(key);
        let len = self.len + object.len(key) - before.map_or(0, |before| before.len(key));
        if len > self.most {
            return Err(self.refuse(len));
        }
        changes.left.extend(before.map_or(head, Object::head));
        changes.objects.insert(key.into(), object);
        self.len = len;
        Ok(())
    }

    /// Changes an element or an owner record.
    fn set_element(
        &mut self,
        table: u32,
        key: &[u8],
        next: Option<Vec<u8>>,
    ) -> Result<(), Unready> {
        let present = self.base.find_element(table, key);
        let present = present.and_then(|it| sort_key(it.key, it.value).map(Cow::into_owned));
        let element = Element { present, next };
        let changes = changes_to(&mut self.tables, table);
        let before = changes.elements.get(key);
        let len = self.len + element.len(key) - before.map_or(0, |before| before.len(key));
        if len > self.most {
            return Err(self.refuse(len));
        }
        let order = &mut changes.order;
        // The place that it has now, and the one that it gets.
        let place = match before {
            Some(before) => before.place(key),
            None => element.present.clone(),
        };
        if let Some(place) = place {
            if element.present.as_ref() == Some(&place) {
                order.insert(place, Place { exists: true, next: None });
            } else {
                order.remove(&place);
            }
        }
        if let Some(place) = element.place(key) {
            let exists = element.present.as_ref() == Some(&place);
            order.insert(place, Place { exists, next: Some(key.into()) });
        }
        changes.elements.insert(key.into(), element);
        self.len = len;
        Ok(())
    }

    fn refuse(&mut self, len: usize) -> Unready {
        let most = self.most;
        let reason = format!("ERR {len} bytes of keys and values at once; the limit is {most}");
        self.excess = Some(reason.clone());
        Unready::Refused(reason)
    }
}

/// Returns the changes of a table, if there are any.
fn changes_of(tables: &[(u32, Changes)], table: u32) -> Option<&Changes> {
    tables.iter().find(|(id, _)| *id == table).map(|(_, changes)| changes)
}

/// Returns the changes of a table, to add one.
fn changes_to(tables: &mut Vec<(u32, Changes)>, table: u32) -> &mut Changes {
    let at = tables.iter().position(|(id, _)| *id == table).unwrap_or_else(|| {
        tables.push((table, Changes::default()));
        tables.len() - 1
    });
    &mut tables[at].1
}

impl Object {
    /// Returns whether the change has an effect.
    fn counts(&self) -> bool {
        self.exists || self.next.is_some()
    }

    /// Returns the bytes in the log, at most.
    fn len(&self, key: &[u8]) -> usize {
        match &self.next {
            Some(value) => entry_len(key.len(), value.bytes.len(), value.expires),
            None => ENTRY + key.len(),
        }
    }

    /// Returns the collection whose head it is going to be.
    fn head(&self) -> Option<CollectionId> {
        let value = self.next.as_ref()?;
        let is_head = value.value_type == ValueType::Collection;
        CollectionId::of(&value.bytes).filter(|_| is_head)
    }
}

impl Element {
    fn counts(&self) -> bool {
        self.present.is_some() || self.next.is_some()
    }

    fn len(&self, key: &[u8]) -> usize {
        match &self.next {
            Some(value) => entry_len(key.len(), value.len(), NEVER),
            None => ENTRY + key.len(),
        }
    }

    /// Returns where it is going to be in the order of elements.
    fn place(&self, key: &[u8]) -> Option<Vec<u8>> {
        sort_key(key, self.next.as_ref()?).map(Cow::into_owned)
    }
}

impl Changes {
    /// Forgets what would be written of collections that are going to have no heads. What the
    /// server has of them is removed later.
    fn drop_dead(&mut self) {
        let heads: BTreeSet<_> = self.objects.values().filter_map(Object::head).collect();
        for id in self.left.difference(&heads) {
            self.elements.remove(&id.owner()[..]);
            let [first, end] = id.range().map(Box::<[u8]>::from);
            let keys: Vec<_> =
                self.elements.range(first..end).map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.elements.remove(&key);
            }
        }
    }

    fn make(&self, table: u32, base: &mut dyn Objects) -> Result<(), Unready> {
        for (key, element) in self.elements.iter().filter(|(_, element)| element.counts()) {
            match &element.next {
                Some(value) => base.put_element(table, key, value)?,
                None => base.remove_element(table, key)?,
            }
        }
        for (key, object) in self.objects.iter().filter(|(_, object)| object.counts()) {
            match &object.next {
                Some(Value { bytes, value_type, expires }) => {
                    let (value_type, expires) = (*value_type, *expires);
                    base.put(table, key, Content { value: bytes, value_type, expires })?;
                }
                None => base.remove(table, key)?,
            }
        }
        Ok(())
    }

    /// Returns the places that are going to change in a range, in its order.
    fn places<'c>(&'c self, range: &KeyRange<'c>) -> Vec<(&'c [u8], &'c Place)> {
        if range.is_empty() {
            return Vec::new();
        }
        let found = self.order.range::<[u8], _>((range.from, range.to));
        let found = found.map(|(place, change)| (place.as_slice(), change));
        match range.descending {
            true => found.rev().collect(),
            false => found.collect(),
        }
    }
}

/// Returns an entry for an object or element that is not in the log yet.
fn entry<'e>(table: u32, key: &'e [u8], value: &'e [u8]) -> Entry<'e> {
    Entry {
        kind: Kind::Object,
        successor: false,
        table,
        version: 0,
        key,
        value,
        value_type: ValueType::Bytes,
        expires: NEVER,
    }
}

/// Returns the part of a range before this key in the range's direction.
fn before<'k>(range: KeyRange<'k>, key: &'k [u8]) -> KeyRange<'k> {
    match range.descending {
        false => KeyRange { to: Bound::Excluded(key), ..range },
        true => KeyRange { from: Bound::Excluded(key), ..range },
    }
}

impl Objects for Staged<'_> {
    fn find(
        &mut self,
        table: u32,
        key: &[u8],
        access: Access,
    ) -> Result<Option<Entry<'_>>, Unready> {
        let Self { base, tables, .. } = self;
        let changes = changes_of(tables, table);
        let Some((key, object)) = changes.and_then(|it| it.objects.get_key_value(key)) else {
            return base.find(table, key, access);
        };
        // Perhaps it was only read before, and is to be changed now.
        base.find(table, key, access)?;
        let now = base.time();
        let next = object.next.as_ref().filter(|it| it.expires == NEVER || it.expires > now);
        Ok(next.map(|Value { bytes, value_type, expires }| Entry {
            value_type: *value_type,
            expires: *expires,
            ..entry(table, key, bytes)
        }))
    }

    fn put(&mut self, table: u32, key: &[u8], content: Content<'_>) -> Result<(), Unready> {
        let Content { value, value_type, expires } = content;
        self.set(table, key, Some(Value { bytes: value.to_vec(), value_type, expires }))
    }

    fn remove(&mut self, table: u32, key: &[u8]) -> Result<(), Unready> {
        self.set(table, key, None)
    }

    /// Takes the changes of a script in a transaction.
    fn begin(&mut self, len: usize, _only_removes: bool) -> Result<(), Unready> {
        self.check_room(len)
    }

    fn most_at_once(&self) -> usize {
        self.most
    }

    fn check_room(&mut self, len: usize) -> Result<(), Unready> {
        match self.len + len > self.most {
            true => Err(self.refuse(self.len + len)),
            false => Ok(()),
        }
    }

    fn end(&mut self) {}

    fn new_collection(
        &mut self,
        table: u32,
        key: &[u8],
        kind: CollectionKind,
    ) -> Result<CollectionId, Unready> {
        let id = self.base.new_collection(table, key, kind)?;
        // The server does not know of the collections that the changes make at the same place.
        let position = position(&id.bytes());
        let [from, to] = place(position);
        let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let changes = changes_of(&self.tables, table);
        let last = changes.and_then(|it| it.elements.range::<[u8], _>(range).next_back());
        let Some(last) = last.and_then(|(key, _)| number_of(key)) else { return Ok(id) };
        CollectionId::new(kind, position, id.number().max(last + 1))
            .ok_or_else(|| Unready::Refused(NO_NUMBER.to_owned()))
    }

    fn find_element(&mut self, table: u32, key: &[u8]) -> Option<Entry<'_>> {
        let changes = changes_of(&self.tables, table);
        let Some((key, element)) = changes.and_then(|it| it.elements.get_key_value(key)) else {
            return self.base.find_element(table, key);
        };
        element.next.as_ref().map(|value| entry(table, key, value))
    }

    fn put_element(&mut self, table: u32, key: &[u8], value: &[u8]) -> Result<(), Unready> {
        self.set_element(table, key, Some(value.to_vec()))
    }

    fn remove_element(&mut self, table: u32, key: &[u8]) -> Result<(), Unready> {
        self.set_element(table, key, None)
    }

    fn count_elements(&mut self, table: u32, range: &KeyRange<'_>) -> usize {
        let mut count = self.base.count_elements(table, range);
        let places = changes_of(&self.tables, table).map(|changes| changes.places(range));
        for (_, place) in places.unwrap_or_default() {
            count = count + usize::from(place.next.is_some()) - usize::from(place.exists);
        }
        count
    }

    fn visit_elements(
        &mut self,
        table: u32,
        range: &KeyRange<'_>,
        (mut skip, mut limit): (usize, usize),
        visit: &mut dyn FnMut(&Entry<'_>),
    ) {
        let Self { base, tables, .. } = self;
        let changes = changes_of(tables, table);
        let mut rest = *range;
        for (key, place) in changes.map(|changes| changes.places(range)).unwrap_or_default() {
            if limit == 0 {
                return;
            }
            pass(&mut **base, table, &before(rest, key), (&mut skip, &mut limit), visit);
            rest = rest.after(key);
            let Some(element) = &place.next else { continue };
            if skip > 0 {
                skip -= 1;
            } else if limit > 0 {
                limit -= 1;
                let value = &changes.expect("it has places").elements[element].next;
                visit(&entry(table, element, value.as_ref().expect("it is there")));
            }
        }
        base.visit_elements(table, &rest, (skip, limit), visit);
    }

    fn has_elements(&self, table: u32) -> bool {
        self.base.has_elements(table)
    }

    fn take_gone_collection(&mut self) -> Option<(u32, OwnerKey)> {
        self.base.take_gone_collection()
    }

    fn forgot_gone_collections(&mut self) -> bool {
        self.base.forgot_gone_collections()
    }

    fn keys(
        &mut self,
        table: u32,
        after: Option<u64>,
        limit: usize,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<Option<u64>, Unready> {
        let begin = found.len();
        let next = self.base.keys(table, after, limit, found)?;
        let Some(changes) = changes_of(&self.tables, table) else { return Ok(next) };
        let mut page = found.split_off(begin);
        let objects = &changes.objects;
        page.retain(|key| objects.get(key.as_slice()).is_none_or(|it| it.next.is_some()));
        found.append(&mut page);
        // New keys have no positions yet: they come with the first ones.
        if after.is_none() {
            let new = objects.iter().filter(|(_, it)| !it.exists && it.next.is_some());
            found.extend(new.map(|(key, _)| key.to_vec()));
        }
        Ok(next)
    }

    fn count(&self, table: u32) -> u64 {
        let objects = changes_of(&self.tables, table).map(|changes| changes.objects.values());
        let (mut added, mut removed) = (0, 0);
        for object in objects.into_iter().flatten() {
            added += u64::from(!object.exists && object.next.is_some());
            removed += u64::from(object.exists && object.next.is_none());
        }
        self.base.count(table) + added - removed
    }

    fn time(&mut self) -> Time {
        self.base.time()
    }

    fn take_position(&mut self) -> u64 {
        self.base.take_position()
    }

    fn durable(&self) -> u64 {
        self.base.durable()
    }

    fn stopped(&self) -> Option<String> {
        self.base.stopped()
    }
}

/// Passes elements of the server in a range to `visit`, after the first `skip`, at most `limit`,
/// and takes their numbers from both.
fn pass(
    base: &mut dyn Objects,
    table: u32,
    range: &KeyRange<'_>,
    (skip, limit): (&mut usize, &mut usize),
    visit: &mut dyn FnMut(&Entry<'_>),
) {
    if *skip > 0 {
        let count = base.count_elements(table, range);
        if count <= *skip {
            *skip -= count;
            return;
        }
    }
    let mut visited = 0;
    base.visit_elements(table, range, (*skip, *limit), &mut |entry| {
        visited += 1;
        visit(entry);
    });
    (*skip, *limit) = (0, *limit - visited);
}
