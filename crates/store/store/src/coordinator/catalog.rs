//! The coordinator's catalog: tables, their tablets, servers and moves. Every change is durable
//! before it is visible.

use super::copy;
use super::entries::{OwnedTablet, ServerEntry, TableEntry, TabletEntry};
use super::metadata::{Change, Metadata, MetadataError, MetadataMemory, REMEDY};
use super::rows::{
    COUNTERS, Checksums, Counters, Total, move_key, move_row, read_counters, read_move,
    read_server, read_table, seal, server_key, server_row, table_key, table_row, unseal,
};
use sprat_wire::index::{IndexDefinition, IndexRecord, MAX_INDEXES};
use sprat_wire::op::{
    MoveOrder, Status, TableOptions, TableRecord, TabletRecord, WhenFull, fits_record,
};
use sprat_wire::tablet::{MAX_TABLETS, Range, Tablet};
use std::collections::BTreeMap;

/// The largest number of tables in a cluster. At the limit the coordinator refuses to create
/// another.
pub const MAX_TABLES: usize = 4096;

/// The largest number of servers in a cluster. At the limit the coordinator refuses to enlist
/// another.
pub const MAX_SERVERS: usize = 1024;

/// The largest number of tablets of all tables together. At the limit no table is created and no
/// tablet is divided.
pub(super) const MAX_ALL_TABLETS: usize = 16_384;

/// The largest number of indexes of all tables together: lists of tables, and a server's
/// assignment, must fit into a message with all of them.
pub const MAX_ALL_INDEXES: usize = 4096;

/// The highest [`Catalog::incarnation`] that is drawn at random. Versions do not exceed it either.
const MAX_INCARNATION: u64 = (1 << 40) - 1;

/// The largest number of tablets that a new table gets by default. Up to it, the table gets one
/// tablet for each server that can serve a part of a table.
const DEFAULT_TABLETS: usize = 16;

/// Why a change was not made.
#[derive(Debug, Eq, PartialEq)]
pub enum Refusal {
    /// No live server can serve a table.
    NoServer,
    /// A limit is reached, or the request cannot be met; the text says which.
    Limit(&'static str),
    /// The metadata could not be changed, with the reason.
    Metadata(String),
    /// The metadata cannot be changed for the moment, with the reason: try again.
    Later(String),
    /// This coordinator was deposed, or does not know whether a change was made, with the reason.
    /// The catalog must be read again before it is used.
    Lost(String),
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        let message = error.to_string();
        match error {
            MetadataError::Failed { .. } => Self::Metadata(message),
            MetadataError::Unavailable { .. } => Self::Later(message),
            MetadataError::Fenced { .. } | MetadataError::Unknown { .. } => Self::Lost(message),
        }
    }
}

/// The tables, tablets, servers and moves of a cluster: in memory, and with the same contents in
/// its [`Metadata`].
///
/// A method that changes the catalog first writes the changed rows, together with the row of
/// counters. It changes memory only when that has succeeded; a [`Refusal`] other than
/// [`Refusal::Lost`] leaves memory and metadata as they were. Each change raises the
/// [`version`](Self::version), by which servers know whether they are up to date.
///
/// After [`Refusal::Lost`] memory and metadata may differ. Then [`lost`](Self::lost) returns the
/// reason, and the coordinator must drop the catalog and open it again in a new term. A coordinator
/// that does not lead holds an [`absent`](Self::absent) catalog.
pub struct Catalog<M> {
    /// `None` if the catalog is [absent](Catalog::absent).
    metadata: Option<M>,
    /// Why the catalog must be read again before it is used; `None` if it need not be.
    lost: Option<String>,
    pub(super) tables: BTreeMap<String, TableEntry>,
    pub(super) servers: BTreeMap<u32, ServerEntry>,
    /// The moves under way, by id.
    pub(super) moves: BTreeMap<u64, MoveOrder>,
    next_table: u32,
    next_server: u32,
    version: u64,
    /// The version of the copy from which these metadata were rebuilt; zero if they never were.
    rebuilt_from: u64,
    incarnation: u64,
    cluster: u64,
    checksums: Checksums,
    /// Whether the metadata were written before rows had checksums. If so, the next change adds the
    /// checksums to all rows.
    is_unsealed: bool,
}

/// By how much the counters of rebuilt metadata are ahead of the copy. The copy may be a second
/// late, and in a second a coordinator uses up fewer ids of tables and servers, and fewer versions.
const REBUILD_TABLES: u32 = 10_000;
const REBUILD_SERVERS: u32 = 10_000;
const REBUILD_VERSIONS: u64 = 1_000_000;

impl<M: Metadata> Catalog<M> {
    /// Reads the catalog from its metadata and raises its version. Servers that have polled with
    /// the new version or a later one know this leader. If the metadata are empty, begins a cluster
    /// with id `new_cluster`.
    ///
    /// # Errors
    /// When the metadata cannot be read or written, or hold rows that this version does not
    /// understand.
    pub fn open(metadata: M, new_cluster: u64) -> Result<Self, String> {
        let mut catalog = Self::read(metadata, new_cluster)?;
        catalog.commit(Vec::new(), (0, 0)).map_err(|refusal| format!("{refusal:?}"))?;
        catalog.incarnation = catalog.version;
        Ok(catalog)
    }

    /// Reads the catalog of a coordinator that is the only one of its cluster. Unlike
    /// [`open`](Self::open) it writes nothing if there is a cluster already, so that a coordinator
    /// can start on a full disk. `life` is a random number, from which the
    /// [`incarnation`](Self::incarnation) is computed.
    ///
    /// # Errors
    /// When the metadata cannot be read or written, or hold rows that this version does not
    /// understand.
    pub fn open_standalone(metadata: M, new_cluster: u64, life: u64) -> Result<Self, String> {
        let mut catalog = Self::read(metadata, new_cluster)?;
        catalog.incarnation = life & MAX_INCARNATION;
        Ok(catalog)
    }

    fn read(metadata: M, new_cluster: u64) -> Result<Self, String> {
        assert!(new_cluster != 0, "zero stands for no cluster");
        let rows = metadata.load().map_err(|error| error.to_string())?;
        let place = metadata.place();
        let mut catalog = Self { metadata: Some(metadata), ..Self::absent() };
        if rows.is_empty() {
            catalog.cluster = new_cluster;
            let row = catalog.counters(1, 1, 1, Total::default());
            let metadata = catalog.metadata.as_mut().expect("just given");
            metadata.apply(&[row]).map_err(|error| error.to_string())?;
            return Ok(catalog);
        }
        catalog
            .read_rows(&rows)
            .map_err(|fault| format!("{place}: {fault}; nothing was changed: {REMEDY}"))?;
        Ok(catalog)
    }

    fn read_rows(&mut self, rows: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        let counters = rows.get(COUNTERS).ok_or("the row of counters is missing")?;
        let counters = read_counters(counters).ok_or("the row of counters is damaged")?;
        if counters.cluster == 0 {
            return Err("the row of counters names no cluster".into());
        }
        (self.cluster, self.version) = (counters.cluster, counters.version);
        (self.next_table, self.next_server) = (counters.next_table, counters.next_server);
        self.rebuilt_from = counters.rebuilt_from;
        self.is_unsealed = counters.total.is_none();
        for (key, sealed) in rows.iter().filter(|(key, _)| *key != COUNTERS) {
            // Adding checksums to many rows for the first time may have been interrupted. Then some
            // rows have checksums and others have none.
            let row = match unseal(key, sealed) {
                None if self.is_unsealed => sealed,
                row => row.ok_or_else(|| {
                    format!("row {key:?} is damaged: its checksum does not match")
                })?,
            };
            self.read_row(key, row).ok_or_else(|| format!("cannot parse row {key:?}"))?;
            self.checksums.change(&[(key.clone(), Some(row.to_vec()))]);
        }
        if counters.total.is_some_and(|total| total != self.checksums.total()) {
            let rows = rows.len() - 1;
            return Err(format!(
                "its {rows} rows do not match its counters: some are missing or outdated"
            ));
        }
        Ok(())
    }

    /// Adds checksums to all rows of metadata that were written before rows had checksums, except
    /// to the counters' row. That row gets its checksum last, with the next change, which shows
    /// that all rows have checksums.
    fn seal_rows(&mut self) -> Result<(), Refusal> {
        let rows = self.rows();
        let metadata = self.metadata.as_mut().ok_or_else(Self::not_leading)?;
        for portion in rows.chunks(metadata.most_changes()) {
            let sealed: Vec<Change> = portion.iter().cloned().map(seal).collect();
            metadata.apply(&sealed)?;
        }
        self.checksums = Checksums::default();
        self.checksums.change(&rows);
        self.is_unsealed = false;
        Ok(())
    }

    fn not_leading() -> Refusal {
        Refusal::Later("this coordinator does not lead".into())
    }

    /// Returns the catalog of a coordinator that does not lead: it is empty and refuses all
    /// changes.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            metadata: None,
            lost: None,
            tables: BTreeMap::new(),
            servers: BTreeMap::new(),
            moves: BTreeMap::new(),
            next_table: 1,
            next_server: 1,
            version: 1,
            rebuilt_from: 0,
            incarnation: 1,
            cluster: 0,
            checksums: Checksums::default(),
            is_unsealed: false,
        }
    }

    /// Names the catalog's metadata in messages: see [`Metadata::place`].
    pub(super) fn place(&self) -> String {
        self.metadata.as_ref().map_or_else(String::new, M::place)
    }

    /// Returns whether the catalog was opened, and is not [`absent`](Self::absent).
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.metadata.is_some()
    }

    /// Returns why the catalog must be read again before it is used; `None` if it need not be. See
    /// [`Refusal::Lost`].
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Reads the catalog from a copy that a server kept: see [`copy`](Self::copy).
    ///
    /// # Errors
    /// A description of what is wrong with the bytes.
    pub fn from_copy(bytes: &[u8]) -> Result<Catalog<MetadataMemory>, String> {
        let rows = copy::decode(bytes).ok_or("it is damaged, or not a copy of a catalog")?;
        let mut catalog =
            Catalog { metadata: Some(MetadataMemory::default()), ..Catalog::absent() };
        catalog.read_rows(&rows)?;
        match catalog.is_unsealed {
            true => Err("its rows have no checksums".into()),
            false => Ok(catalog),
        }
    }

    /// Encodes all rows with their checksums. Servers keep such copies, from which lost metadata
    /// can be [rebuilt](Self::rebuild).
    pub fn copy(&self) -> Vec<u8> {
        let rows = self.rows();
        let counters =
            self.counters(self.next_table, self.next_server, self.version, Total::of(&rows));
        copy::encode(rows.into_iter().map(seal).chain([counters]))
    }

    /// Returns every row except that of the counters, without checksums.
    fn rows(&self) -> Vec<Change> {
        let tables = self.tables.iter().map(|(name, parts)| table_row(name, parts));
        let servers = self.servers.iter().map(|(&id, entry)| server_row(id, entry));
        tables.chain(servers).chain(self.moves.values().map(move_row)).collect()
    }

    /// Writes all rows into empty metadata, to continue the cluster from a copy of its catalog. The
    /// copy may be older than the last ids and version that the coordinator gave out, so the new
    /// ids and version begin far above those in the copy. Servers that have seen a version in
    /// between are refused.
    ///
    /// # Errors
    /// If the metadata are not empty, or cannot be written.
    pub fn rebuild<N: Metadata>(mut self, mut metadata: N) -> Result<Catalog<N>, String> {
        let place = metadata.place();
        if !metadata.load().map_err(|error| error.to_string())?.is_empty() {
            return Err(format!("{place}: has rows already: nothing was changed"));
        }
        let next_server =
            self.next_server.saturating_add(REBUILD_SERVERS).min(sprat_wire::MAX_SERVER_ID);
        let (next_table, version) =
            (self.next_table + REBUILD_TABLES, self.version + REBUILD_VERSIONS);
        self.rebuilt_from = self.version;
        let rows = self.rows();
        let counters = self.counters(next_table, next_server, version, Total::of(&rows));
        let sealed: Vec<Change> = rows.into_iter().map(seal).collect();
        // The counters are written last, because no catalog can be opened without them if this is
        // interrupted.
        for portion in sealed.chunks(metadata.most_changes()) {
            metadata.apply(portion).map_err(|error| error.to_string())?;
        }
        metadata.apply(&[counters]).map_err(|error| error.to_string())?;
        Catalog::read(metadata, self.cluster)
    }

    /// Returns the id of the next table to be created. No entry in a log has this id or a higher
    /// one.
    pub fn next_table(&self) -> u32 {
        self.next_table
    }

    /// Returns the cluster's id, which was drawn at random when the cluster began. Servers with
    /// another cluster's data are refused.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Makes the row of counters, with its checksum. `total` is the total of the other rows.
    fn counters(&self, next_table: u32, next_server: u32, version: u64, total: Total) -> Change {
        let counters = Counters {
            cluster: self.cluster,
            next_table,
            next_server,
            version,
            rebuilt_from: self.rebuilt_from,
            total: Some(total),
        };
        seal((COUNTERS.to_owned(), Some(counters.encode())))
    }

    fn read_row(&mut self, key: &str, value: &[u8]) -> Option<()> {
        if key.starts_with("table/") {
            let (name, parts) = read_table(value)?;
            self.tables.insert(name, parts);
        } else if key.starts_with("server/") {
            let (id, entry) = read_server(value)?;
            self.servers.insert(id, entry);
        } else if key.starts_with("move/") {
            let order = read_move(value)?;
            self.moves.insert(order.id, order);
        } else {
            return None;
        }
        Some(())
    }

    /// Returns a number that no other coordinator of this cluster has or will have: the version
    /// that [`open`](Self::open) began, or the number computed by
    /// [`open_standalone`](Self::open_standalone).
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the version of the catalog, which every change raises.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the version of the copy from which these metadata were rebuilt, if a server that has
    /// seen version `seen` has seen changes that the copy did not have. Such a server may hold
    /// tablets that these metadata ascribe to another, and would drop their objects.
    pub(super) fn lacks(&self, seen: u64) -> Option<u64> {
        let rebuilt_from = self.rebuilt_from;
        let is_lost = seen > rebuilt_from && seen < rebuilt_from + REBUILD_VERSIONS;
        (rebuilt_from > 0 && is_lost).then_some(rebuilt_from)
    }

    /// Finds a table by its name.
    pub fn find_table(&self, name: &str) -> Option<TableRecord> {
        self.tables.get(name).map(|parts| self.record(name, parts))
    }

    /// Returns all tables, in the order of their names.
    pub fn tables(&self) -> impl Iterator<Item = TableRecord> {
        self.tables.iter().map(|(name, parts)| self.record(name, parts))
    }

    /// Returns the number of tables.
    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// Returns all servers in the order of their ids, including dead ones whose tablets are not
    /// recovered yet.
    pub fn servers(&self) -> impl Iterator<Item = (u32, &ServerEntry)> {
        self.servers.iter().map(|(&id, entry)| (id, entry))
    }

    /// Finds a server by its id.
    pub fn server(&self, id: u32) -> Option<&ServerEntry> {
        self.servers.get(&id)
    }

    /// Returns the id of the next server to be added.
    pub fn next_server(&self) -> u32 {
        self.next_server
    }

    /// Returns all tablets, in the order of their tables' names.
    pub(super) fn all_tablets(&self) -> impl Iterator<Item = OwnedTablet> {
        self.tables.values().flat_map(TableEntry::tablets)
    }

    /// Returns the number of tablets of all tables.
    pub fn tablet_count(&self) -> usize {
        self.tables.values().map(|parts| parts.parts.len()).sum()
    }

    /// Returns the number of tablets of a table.
    pub fn tablet_count_of(&self, table: u32) -> usize {
        self.tables.values().find(|parts| parts.id == table).map_or(0, |parts| parts.parts.len())
    }

    /// Returns the tablets of a server, in ascending order.
    pub fn tablets_of(&self, server: u32) -> Vec<OwnedTablet> {
        let mut tablets: Vec<_> =
            self.all_tablets().filter(|owned| owned.server == server).collect();
        tablets.sort_unstable();
        tablets
    }

    /// Returns the id and name of each table of which a server has tablets.
    pub fn names_of(&self, server: u32) -> Vec<(u32, String)> {
        let its = self.tables.iter().filter(|(_, parts)| parts.is_on(server));
        its.map(|(name, parts)| (parts.id, name.clone())).collect()
    }

    /// Returns the tables of which a server has tablets, or gets some by a move. `recovers` says of
    /// which it gets some by a recovery.
    pub(super) fn tables_of(
        &self,
        server: u32,
        recovers: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = &TableEntry> {
        let arrives = move |id: u32| {
            self.moves.values().any(|order| order.to == server && order.tablet.table == id)
        };
        self.tables
            .values()
            .filter(move |parts| parts.is_on(server) || arrives(parts.id) || recovers(parts.id))
    }

    fn record(&self, name: &str, parts: &TableEntry) -> TableRecord {
        let locator = |server| {
            self.servers.get(&server).map(|entry| entry.locator.clone()).unwrap_or_default()
        };
        let tablet = |part: &TabletEntry| TabletRecord {
            first: part.first,
            server: part.server,
            locator: locator(part.server),
        };
        let tablets = parts.parts.iter().map(tablet).collect();
        TableRecord {
            id: parts.id,
            name: name.to_owned(),
            seed: self.cluster,
            when_full: parts.when_full,
            ordered: parts.ordered,
            indexes: parts.indexes.clone(),
            tablets,
        }
    }

    /// Creates a table, or finds it if there is a table of that name. The number of tablets is
    /// lowered to [`MAX_TABLETS`]; zero means one for each candidate that is used, but at most 16.
    /// Each tablet goes to the candidate that has the fewest tablets. Candidates that are being
    /// drained are used only if there are no others. A server whose log is only on its own disk can
    /// serve only whole tables, and is used only if no candidate replicates its log.
    ///
    /// # Errors
    /// [`Refusal::NoServer`] when no candidate can serve a table; [`Refusal::Limit`] when the
    /// cluster has as many tables or tablets as it can have, several tablets are requested and no
    /// candidate replicates its log, or the table exists and has another order or another
    /// [`when_full`](TableOptions::when_full); other [`Refusal`]s when the metadata cannot be
    /// changed.
    pub fn create(
        &mut self,
        name: &str,
        options: TableOptions,
        candidates: &[u32],
    ) -> Result<TableRecord, Refusal> {
        let TableOptions { tablets, when_full, ordered } = options;
        if let Some(table) = self.find_table(name) {
            match (table.ordered, ordered) {
                (false, true) => {
                    return Err(Refusal::Limit(
                        "the table exists, and is not ordered: drop it first, or omit --ordered",
                    ));
                }
                (true, false) => {
                    return Err(Refusal::Limit(
                        "the table exists, and is ordered: drop it first, or add --ordered",
                    ));
                }
                _ => {}
            }
            return match (table.when_full, when_full) {
                (WhenFull::Refuse, WhenFull::Evict) => Err(Refusal::Limit(
                    "the table exists, and keeps its objects when memory is full: drop it first, \
                     or omit --when-full evict",
                )),
                (WhenFull::Evict, WhenFull::Refuse) => Err(Refusal::Limit(
                    "the table exists, and loses objects when memory is full: drop it first, or \
                     add --when-full evict",
                )),
                _ => Ok(table),
            };
        }
        if self.tables.len() >= MAX_TABLES {
            return Err(Refusal::Limit("the cluster has 4096 tables, the most it can have"));
        }
        let is_replicated = |id: &&u32| self.servers.get(id).is_some_and(|entry| entry.copies > 0);
        let mut replicated: Vec<u32> = candidates.iter().filter(is_replicated).copied().collect();
        if replicated.iter().any(|&id| !self.drains(id)) {
            replicated.retain(|&id| !self.drains(id));
        }
        let (candidates, count) = match (replicated.is_empty(), tablets as usize) {
            (true, 0..=1) => (candidates, 1),
            (true, _) => {
                return Err(Refusal::Limit(
                    "only tables of servers with -r can have several tablets",
                ));
            }
            (false, 0) => (&replicated[..], replicated.len().min(DEFAULT_TABLETS)),
            (false, count) => (&replicated[..], count.min(MAX_TABLETS)),
        };
        self.check_room(count)?;
        let mut counts: BTreeMap<u32, usize> = candidates.iter().map(|&id| (id, 0)).collect();
        for owned in self.all_tablets() {
            counts.entry(owned.server).and_modify(|count| *count += 1);
        }
        let mut loads: Vec<(usize, u32)> =
            counts.into_iter().map(|(id, count)| (count, id)).collect();
        let mut parts = Vec::with_capacity(count);
        for range in Range::ALL.parts(count as u64) {
            let (tablets, server) = loads.iter_mut().min().ok_or(Refusal::NoServer)?;
            *tablets += 1;
            parts.push(TabletEntry { first: range.first, server: *server, since: 0 });
        }
        let id = self.next_table;
        let parts = TableEntry { id, when_full, ordered, parts, ..TableEntry::default() };
        self.commit(vec![table_row(name, &parts)], (1, 0))?;
        let record = self.record(name, &parts);
        self.tables.insert(name.to_owned(), parts);
        Ok(record)
    }

    /// Makes an index of a table, or finds it if the table has one of that name. The inner error is
    /// the status of the answer if there is no such table.
    ///
    /// # Errors
    /// [`Refusal::Limit`] when the table or the cluster has as many indexes as it can have, or the
    /// table has one of that name with another definition; other [`Refusal`]s when the metadata
    /// cannot be changed.
    pub fn create_index(
        &mut self,
        table: &str,
        name: &str,
        definition: IndexDefinition,
    ) -> Result<Result<TableRecord, Status>, Refusal> {
        let Some(mut entry) = self.tables.get(table).cloned() else {
            return Ok(Err(Status::NoSuchTable));
        };
        if let Some(known) = entry.indexes.iter().find(|index| index.name == name) {
            return match known.definition == definition {
                true => Ok(Ok(self.record(table, &entry))),
                false => Err(Refusal::Limit(
                    "the table has an index of that name that finds other fields: drop it first, \
                     or choose another name",
                )),
            };
        }
        if entry.indexes.len() >= MAX_INDEXES {
            return Err(Refusal::Limit("the table has 16 indexes, the most it can have"));
        }
        let all: usize = self.tables.values().map(|entry| entry.indexes.len()).sum();
        if all >= MAX_ALL_INDEXES {
            return Err(Refusal::Limit("the cluster has 4096 indexes, the most it can have"));
        }
        let id = entry.next_index;
        entry.next_index += 1;
        entry.indexes.push(IndexRecord { id, name: name.to_owned(), definition });
        self.replace_table(table, entry).map(Ok)
    }

    /// Drops an index of a table. The inner error is the status of the answer if there is no such
    /// table or index.
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    pub fn drop_index(
        &mut self,
        table: &str,
        name: &str,
    ) -> Result<Result<TableRecord, Status>, Refusal> {
        let Some(mut entry) = self.tables.get(table).cloned() else {
            return Ok(Err(Status::NoSuchTable));
        };
        let Some(at) = entry.indexes.iter().position(|index| index.name == name) else {
            return Ok(Err(Status::NoSuchIndex));
        };
        entry.indexes.remove(at);
        self.replace_table(table, entry).map(Ok)
    }

    fn replace_table(&mut self, name: &str, entry: TableEntry) -> Result<TableRecord, Refusal> {
        self.commit(vec![table_row(name, &entry)], (0, 0))?;
        let record = self.record(name, &entry);
        self.tables.insert(name.to_owned(), entry);
        Ok(record)
    }

    fn check_room(&self, tablets: usize) -> Result<(), Refusal> {
        match self.tablet_count() + tablets > MAX_ALL_TABLETS {
            true => Err(Refusal::Limit("the cluster has 16384 tablets, the most it can have")),
            false => Ok(()),
        }
    }

    /// Drops a table. Returns the servers that had tablets of it; `None` if there is no such table.
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    pub fn drop_table(&mut self, name: &str) -> Result<Option<Vec<u32>>, Refusal> {
        let Some(parts) = self.tables.get(name) else { return Ok(None) };
        let servers = parts.parts.iter().map(|part| part.server).collect();
        let id = parts.id;
        self.commit_ending(vec![(table_key(name), None)], (0, 0), |order| {
            order.tablet.table == id
        })?;
        self.tables.remove(name);
        Ok(Some(servers))
    }

    /// Adds a server, or updates its locator and rack. `id` is the id that it had before, or zero
    /// for a new server. Returns the id that it has from now on.
    ///
    /// A server whose log is kept by other servers has lost its memory when it starts. So it gets a
    /// new id, and its old id is declared dead, so that other servers recover its tablets.
    ///
    /// # Errors
    /// [`Refusal::Limit`] when locator and rack are too long for a record, or the cluster has
    /// `MAX_SERVERS` servers already; other [`Refusal`]s when the metadata cannot be changed.
    pub fn enlist(
        &mut self,
        id: u32,
        (locator, rack): (&str, &str),
        copies: u8,
    ) -> Result<u32, Refusal> {
        if !fits_record(locator, rack) {
            return Err(Refusal::Limit("a locator and a rack of more than 254 bytes together"));
        }
        let before = self.servers.get(&id);
        let is_here = |entry: &ServerEntry| entry.locator == locator && entry.rack == rack;
        if before.is_some_and(|entry| is_here(entry) && entry.copies == copies && copies == 0) {
            return Ok(id);
        }
        let stays = copies == 0 && before.is_some();
        if !stays && self.servers.len() >= MAX_SERVERS {
            return Err(Refusal::Limit("the cluster has 1024 servers, the most it can have"));
        }
        let mut changes = Vec::new();
        let gone = before.filter(|entry| entry.copies > 0 && !entry.dead).cloned();
        let gone = gone.map(|entry| ServerEntry { dead: true, ..entry });
        changes.extend(gone.as_ref().map(|gone| server_row(id, gone)));
        // A server that claims an id that the catalog does not know gets another id.
        let new = if stays { id } else { self.next_server };
        let entry = ServerEntry {
            locator: locator.to_owned(),
            rack: rack.to_owned(),
            copies,
            ..ServerEntry::default()
        };
        changes.push(server_row(new, &entry));
        let is_its = |order: &MoveOrder| gone.is_some() && order.concerns(id);
        self.commit_ending(changes, (0, u32::from(!stays)), is_its)?;
        self.servers.extend(gone.map(|gone| (id, gone)));
        self.servers.insert(new, entry);
        Ok(new)
    }

    /// Declares a server dead, or removes it if it has no tablets. Moves from it and to it end.
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn mark_dead(&mut self, id: u32) -> Result<(), Refusal> {
        let entry = ServerEntry { dead: true, ..self.servers[&id].clone() };
        let is_its = |order: &MoveOrder| order.concerns(id);
        if self.tablets_of(id).is_empty() {
            self.commit_ending(vec![(server_key(id), None)], (0, 0), is_its)?;
            self.servers.remove(&id);
        } else {
            self.commit_ending(vec![server_row(id, &entry)], (0, 0), is_its)?;
            self.servers.insert(id, entry);
        }
        Ok(())
    }

    /// Records that recovery must not use open heads of a server's log below `segment`: see
    /// [`ServerEntry::min_open`].
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn void(&mut self, id: u32, segment: u64) -> Result<(), Refusal> {
        let entry = &self.servers[&id];
        if entry.min_open >= segment {
            return Ok(());
        }
        let entry = ServerEntry { min_open: segment, ..entry.clone() };
        self.commit(vec![server_row(id, &entry)], (0, 0))?;
        self.servers.insert(id, entry);
        Ok(())
    }

    /// Gives tablets of the dead server `gone`, or parts of them, to the server `by`, which has
    /// recovered them. Entries in the log of `by` count for these tablets from segment `since` on.
    /// If no tablet of the dead server is left, the server is removed.
    ///
    /// If there are more changes than the metadata accept at once, they are made in portions. If
    /// that is interrupted, the tablets that are left still belong to the dead server, and are
    /// recovered again.
    ///
    /// # Errors
    /// [`Refusal`] when the metadata cannot be changed.
    pub fn take_over(
        &mut self,
        gone: u32,
        tablets: &[Tablet],
        by: u32,
        since: u64,
    ) -> Result<(), Refusal> {
        let taken = |parts: &TableEntry| {
            let ours = tablets.iter().filter(|tablet| tablet.table == parts.id);
            ours.fold(parts.clone(), |parts, tablet| {
                let take = |part: TabletEntry| {
                    if part.server == gone {
                        TabletEntry { server: by, since, ..part }
                    } else {
                        part
                    }
                };
                parts.with(tablet.range, take)
            })
        };
        let changed: Vec<(String, TableEntry)> = self
            .tables
            .iter()
            .map(|(name, parts)| (name.clone(), taken(parts)))
            .filter(|(name, parts)| self.tables[name] != *parts)
            .collect();
        let keeps_some = |(name, parts): (&String, &TableEntry)| match changed
            .iter()
            .find(|(other, _)| other == name)
        {
            Some((_, parts)) => parts.is_on(gone),
            None => parts.is_on(gone),
        };
        let last = !self.tables.iter().any(keeps_some);
        // Each portion leaves room for the counters, and for the row of the server to be removed.
        let portion = self.metadata.as_ref().map_or(usize::MAX, M::most_changes) - 2;
        let mut rest = &changed[..];
        loop {
            let (now, later) = rest.split_at(rest.len().min(portion));
            let forget = last && later.is_empty();
            let mut changes: Vec<_> =
                now.iter().map(|(name, parts)| table_row(name, parts)).collect();
            changes.extend(forget.then(|| (server_key(gone), None)));
            self.commit(changes, (0, 0))?;
            self.tables.extend(now.iter().cloned());
            if forget {
                self.servers.remove(&gone);
            }
            if later.is_empty() {
                return Ok(());
            }
            rest = later;
        }
    }

    /// Commits changes, as [`commit`](Self::commit) does. In the same commit it ends the moves that
    /// `ends` selects.
    fn commit_ending(
        &mut self,
        mut changes: Vec<Change>,
        taken: (u32, u32),
        ends: impl Fn(&MoveOrder) -> bool,
    ) -> Result<(), Refusal> {
        changes.extend(
            self.moves.values().filter(|order| ends(order)).map(|order| (move_key(order.id), None)),
        );
        self.commit(changes, taken)?;
        self.moves.retain(|_, order| !ends(order));
        Ok(())
    }

    /// Writes changes of rows together with the counters. `taken` is the number of table ids and of
    /// server ids that the changes use up. If this succeeds, the caller changes the tables and
    /// servers in memory.
    pub(super) fn commit(
        &mut self,
        changes: Vec<Change>,
        taken: (u32, u32),
    ) -> Result<(), Refusal> {
        let committed = self.commit_sealed(changes, taken);
        if let Err(Refusal::Lost(why)) = &committed {
            self.lost = Some(why.clone());
        }
        committed
    }

    fn commit_sealed(&mut self, changes: Vec<Change>, taken: (u32, u32)) -> Result<(), Refusal> {
        if self.is_unsealed {
            self.seal_rows()?;
        }
        let (next_table, next_server, version) =
            (self.next_table + taken.0, self.next_server + taken.1, self.version + 1);
        let counters =
            self.counters(next_table, next_server, version, self.checksums.total_after(&changes));
        let sealed: Vec<Change> = changes.iter().cloned().map(seal).chain([counters]).collect();
        self.metadata.as_mut().ok_or_else(Self::not_leading)?.apply(&sealed)?;
        self.checksums.change(&changes);
        (self.next_table, self.next_server, self.version) = (next_table, next_server, version);
        Ok(())
    }
}
