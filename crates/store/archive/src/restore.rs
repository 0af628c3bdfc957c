//! Stores tables of a point in a running store.

use crate::contents::{Segments, objects};
use crate::error::Error;
use crate::folder::Folder;
use crate::point::{Point, SegmentFile};
use crate::transactions::last_changes;
use sprat_client::{Batch, Client, Condition, Table, TableOptions, TableRecord, Ttl, ValueType};
use sprat_store::coordinator::{Catalog, MetadataMemory};
use sprat_wire::elements::{
    COLLECTION_ID_BYTES, CollectionId, ELEMENTS, OwnerKey, is_owner, owner_of,
};
use sprat_wire::entry::Entry;
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::tablet::position;
use sprat_wire::transaction::TransactionAction;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Number of objects, and of their bytes, that are sent together.
const BATCH_OBJECTS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

/// A table to restore.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableChoice {
    /// Its name in the backup.
    pub from: String,
    /// Its name in the running store, which has no such table yet.
    pub to: String,
}

/// What was restored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// The tables, by their names in the running store, with the number of objects of each.
    pub tables: BTreeMap<String, u64>,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Objects that have expired since the backup was made.
    pub expired: u64,
}

impl Restored {
    /// Returns the number of all objects.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.tables.values().sum()
    }
}

/// Creates the chosen tables, or all if `choices` is empty, and stores the objects that they had at
/// a point, with their versions, types and times of expiry. Verifies all that it reads. Calls
/// `show` with what is restored so far. If the folder is remote, first fetches the point's segments
/// into a temporary folder of this machine.
///
/// # Errors
/// Before anything is changed: [`Error::NoTable`], [`Error::TableExists`], and [`Error::Damaged`]
/// when a file of the backup is. Later [`Error::Client`] when the store cannot take the objects;
/// then the tables are incomplete.
pub fn restore(
    client: &mut Client,
    folder: &Folder,
    point: &Point,
    choices: &[TableChoice],
    show: &mut dyn FnMut(&Restored),
) -> Result<Restored, Error> {
    let catalog =
        point.catalog().map_err(|what| Error::damaged(folder.point_place(&point.name), what))?;
    let chosen = choose(client, &catalog, choices)?;
    let fetched = match folder.is_remote() {
        true => Some(Fetched::new(folder, point)?),
        false => None,
    };
    let segments: &dyn Segments = match &fetched {
        Some(fetched) => fetched,
        None => folder,
    };
    let changes = last_changes(segments, &point.servers, &catalog)?;
    let (tables, seeds) = (BTreeMap::new(), BTreeMap::new());
    let collections = HashMap::new();
    let mut sink = Sink { client, tables, seeds, collections, batch: Vec::new(), bytes: 0 };
    let mut restored = Restored::default();
    for (record, to) in &chosen {
        let tablets = if record.tablets.len() > 1 { record.tablets.len() } else { 0 };
        let options = TableOptions {
            tablets: u32::try_from(tablets).expect("at most MAX_TABLETS"),
            when_full: record.when_full,
            ordered: record.ordered,
        };
        let table = sink.create(to, options)?;
        sink.tables.insert(record.id, (table, to.clone()));
        restored.tables.insert(to.clone(), 0);
    }
    for record in sink.client.list_tables()? {
        sink.seeds.insert(record.id, record.seed);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Time::try_from(now.as_millis()).unwrap_or(Time::MAX);
    let ids: BTreeSet<u32> = sink.tables.keys().copied().collect();
    let is_chosen = |table| ids.contains(&table);
    objects(segments, &point.servers, &catalog, &is_chosen, &mut |entry| {
        if entry.expires != NEVER && entry.expires <= now {
            restored.expired += 1;
            return Ok(());
        }
        sink.put(entry, now, &mut restored)?;
        show(&restored);
        Ok(())
    })?;
    sink.flush(&mut restored)?;
    // Only now the new ids of collections are known, with which the keys of their elements begin.
    if !sink.collections.is_empty() {
        let is_chosen = |table| table & ELEMENTS != 0 && ids.contains(&(table & !ELEMENTS));
        objects(segments, &point.servers, &catalog, &is_chosen, &mut |entry| {
            sink.put_element(entry, &mut restored)?;
            show(&restored);
            Ok(())
        })?;
        sink.flush(&mut restored)?;
    }
    for change in &changes {
        let Some((table, to)) = sink.tables.get(&change.table) else { continue };
        let (table, key) = (*table, &change.key[..]);
        let client = &mut *sink.client;
        let before = client.get(table, key)?.is_some();
        let after = match change.action() {
            TransactionAction::Check => before,
            TransactionAction::Write(value, None) => client.put(table, key, value).map(|_| true)?,
            TransactionAction::Write(value, Some(ttl)) => {
                client.put_for(table, key, value, ttl, Condition::None).map(|_| true)?
            }
            TransactionAction::Remove => client.remove(table, key).map(|_| false)?,
        };
        let count = restored.tables.get_mut(to).expect("it was created");
        *count = *count + u64::from(after) - u64::from(before);
    }
    for (record, to) in &chosen {
        for index in &record.indexes {
            sink.client.create_index(to, &index.name, &index.definition)?;
        }
    }
    show(&restored);
    Ok(restored)
}

/// The segments of a point, on this machine. A restoration reads each several times.
struct Fetched<'a> {
    folder: &'a Folder,
    here: TempDir,
}

impl<'a> Fetched<'a> {
    fn new(folder: &'a Folder, point: &Point) -> Result<Self, Error> {
        let temporary = std::env::temp_dir();
        let place = temporary.display().to_string();
        let here = TempDir::with_prefix("sprat-restore-")
            .map_err(|source| Error::Io { place: place.clone(), source })?;
        for (server, segment) in point.segments() {
            let bytes = folder.bytes(server, segment)?;
            fs::write(here.path().join(segment.name(server)), bytes)
                .map_err(|source| Error::Io { place: place.clone(), source })?;
        }
        Ok(Self { folder, here })
    }
}

impl Segments for Fetched<'_> {
    fn bytes(&self, server: u32, segment: &SegmentFile) -> Result<Vec<u8>, Error> {
        let path = self.here.path().join(segment.name(server));
        fs::read(&path).map_err(|source| Error::Io { place: path.display().to_string(), source })
    }

    fn place(&self, server: u32, segment: &SegmentFile) -> String {
        self.folder.place(server, segment)
    }
}

/// Returns the tables to restore, with their new names.
fn choose(
    client: &mut Client,
    catalog: &Catalog<MetadataMemory>,
    choices: &[TableChoice],
) -> Result<Vec<(TableRecord, String)>, Error> {
    let chosen: Vec<(TableRecord, String)> = match choices {
        [] => catalog.tables().map(|table| (table.clone(), table.name)).collect(),
        choices => {
            let find = |choice: &TableChoice| match catalog.find_table(&choice.from) {
                Some(table) => Ok((table, choice.to.clone())),
                None => Err(Error::NoTable(choice.from.clone())),
            };
            choices.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    for (at, (_, to)) in chosen.iter().enumerate() {
        let is_twice = chosen[..at].iter().any(|(_, other)| other == to);
        let is_there = match client.table(to) {
            Ok(_) => true,
            Err(sprat_client::Error::NoSuchTable(_)) => false,
            Err(error) => return Err(error.into()),
        };
        if is_there || is_twice {
            return Err(Error::TableExists(to.clone()));
        }
    }
    Ok(chosen)
}

/// An object to restore.
struct Restorable {
    table: Table,
    /// Id of the table in the backup.
    from: u32,
    key: Vec<u8>,
    value: Vec<u8>,
    /// `None` for an element of a collection, or the record of its owner.
    value_type: Option<ValueType>,
    version: u64,
    ttl: Option<Ttl>,
}

/// Stores objects in the running store.
struct Sink<'a> {
    client: &'a mut Client,
    /// The tables by their ids in the backup, with their new names.
    tables: BTreeMap<u32, (Table, String)>,
    /// The seeds of the running store's tables, by their ids.
    seeds: BTreeMap<u32, u64>,
    /// The ids that collections have in the running store, by the ids of their tables and by their
    /// owner records in the backup.
    collections: HashMap<(u32, OwnerKey), CollectionId>,
    batch: Vec<Restorable>,
    /// Bytes of keys and values in the batch.
    bytes: usize,
}

impl Sink<'_> {
    /// Creates a table; if the servers cannot serve parts of it, as a whole.
    fn create(&mut self, name: &str, options: TableOptions) -> Result<Table, Error> {
        match self.client.create_table_with(name, options) {
            Err(sprat_client::Error::Refused { .. }) if options.tablets > 1 => {
                let whole = TableOptions { tablets: 0, ..options };
                Ok(self.client.create_table_with(name, whole)?)
            }
            created => Ok(created?),
        }
    }

    fn put(&mut self, entry: &Entry<'_>, now: Time, restored: &mut Restored) -> Result<(), Error> {
        let (from, table) = (entry.table, self.tables[&entry.table].0);
        let mut value = entry.value.to_vec();
        let before = CollectionId::of(&value);
        if let Some(before) = before.filter(|_| entry.value_type == ValueType::Collection) {
            // The place of a collection depends on the running store's seed.
            let at = position(self.seeds[&table.0], table.0, entry.key);
            let number = self.collections.len() as u64;
            let id = CollectionId::restored(before.kind(), at, number);
            let id = id.expect("fewer than 2^39");
            self.collections.insert((from, before.owner()), id);
            value = id.bytes().to_vec();
        }
        self.add(
            Restorable {
                table,
                from,
                key: entry.key.to_vec(),
                value,
                value_type: Some(entry.value_type),
                version: entry.version,
                ttl: Ttl::left(now, entry.expires),
            },
            restored,
        )
    }

    /// Stores an element or an owner record, unless the collection's head is gone.
    fn put_element(&mut self, entry: &Entry<'_>, restored: &mut Restored) -> Result<(), Error> {
        let from = entry.table & !ELEMENTS;
        let owner = owner_of(entry.key);
        let id = owner.and_then(|owner| self.collections.get(&(from, owner)));
        let Some(id) = id else { return Ok(()) };
        let key = match is_owner(entry.key) {
            Some(true) => id.owner().to_vec(),
            _ => id.element(&entry.key[COLLECTION_ID_BYTES..]),
        };
        self.add(
            Restorable {
                table: self.tables[&from].0,
                from,
                key,
                value: entry.value.to_vec(),
                value_type: None,
                version: entry.version,
                ttl: None,
            },
            restored,
        )
    }

    fn add(&mut self, object: Restorable, restored: &mut Restored) -> Result<(), Error> {
        self.bytes += object.key.len() + object.value.len();
        self.batch.push(object);
        match self.batch.len() >= BATCH_OBJECTS || self.bytes >= BATCH_BYTES {
            true => self.flush(restored),
            false => Ok(()),
        }
    }

    fn flush(&mut self, restored: &mut Restored) -> Result<(), Error> {
        let objects = std::mem::take(&mut self.batch);
        let mut batch = Batch::new();
        for Restorable { table, key, value, value_type, version, ttl, .. } in &objects {
            match value_type {
                Some(value_type) => {
                    batch.restore(*table, key, (value, *value_type), *version, *ttl)
                }
                None => batch.restore_element(*table, key, value, *version),
            };
        }
        self.client.batch(&batch).into_iter().try_for_each(|result| result.map(drop))?;
        for object in objects.iter().filter(|object| object.value_type.is_some()) {
            let (_, to) = &self.tables[&object.from];
            *restored.tables.get_mut(to).expect("it was created") += 1;
        }
        restored.bytes += std::mem::take(&mut self.bytes) as u64;
        Ok(())
    }
}
