//! What a coordinator knows: tables, servers, who serves what. Every change is durable before it is
//! visible.

use super::copy;
use super::entries::{Known, Owned, Part, Parts};
use super::metadata::{Change, Metadata, MetadataError, MetadataMemory, REMEDY};
use super::rows::{
    COUNTERS, Checksums, Counters, Total, move_key, move_row, read_counters, read_move,
    read_server, read_table, seal, server_key, server_row, table_key, table_row, unseal,
};
use sprat_wire::op::{MoveOrder, TableRecord, TabletRecord, fits_record};
use sprat_wire::tablet::{MAX_TABLETS, Range, Tablet};
use std::collections::BTreeMap;

/// Most tables of a cluster.
pub const MAX_TABLES: usize = 4096;

/// Most servers of a cluster.
pub const MAX_SERVERS: usize = 1024;

/// Most tablets of all tables together.
pub(super) const MAX_ALL_TABLETS: usize = 16_384;

/// Lives are numbered up to here, as versions are.
const MAX_LIFE: u64 = (1 << 40) - 1;

/// Tablets that a table begins with, at most, when nobody says how many.
const USUAL_TABLETS: usize = 16;

/// A change refused.
#[derive(Debug, Eq, PartialEq)]
pub enum Refusal {
    /// There is nobody to serve a table.
    NoServer,
    /// [`MAX_TABLES`] or [`MAX_SERVERS`] is reached.
    Limit(&'static str),
    /// The metadata could not be changed; why.
    Metadata(String),
    /// The metadata cannot be changed for the moment; why.
    Later(String),
    /// Whoever asked leads no more, or does not know what it leads: the catalog is to be read again
    /// before it is used.
    Lost(String),
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        let words = error.to_string();
        match error {
            MetadataError::Failed { .. } => Self::Metadata(words),
            MetadataError::Unavailable { .. } => Self::Later(words),
            MetadataError::Fenced { .. } | MetadataError::Unknown { .. } => Self::Lost(words),
        }
    }
}

/// The catalog, in memory as in the metadata.
pub struct Catalog<M> {
    /// `None` of one that is [absent](Catalog::absent).
    metadata: Option<M>,
    /// Why it is to be read again before it is used.
    lost: Option<String>,
    pub(super) tables: BTreeMap<String, Parts>,
    pub(super) servers: BTreeMap<u32, Known>,
    /// By their ids.
    pub(super) moves: BTreeMap<u64, MoveOrder>,
    next_table: u32,
    next_server: u32,
    version: u64,
    /// The version with which it was opened.
    begun: u64,
    cluster: u64,
    checksums: Checksums,
    /// The metadata are from before rows had checksums; the next change seals all of them.
    is_unsealed: bool,
}

/// How far the counters of metadata that are made again are ahead of the copy: more tables, servers
/// and changes than a coordinator gives out in the second by which a copy may be late.
const REBUILD_TABLES: u32 = 10_000;
const REBUILD_SERVERS: u32 = 10_000;
const REBUILD_VERSIONS: u64 = 1_000_000;

impl<M: Metadata> Catalog<M> {
    /// Reads the catalog from its metadata, and begins a version of its own: by it those are known
    /// that have heard of whoever opened it. Where there is none yet, a cluster of id
    /// `new_cluster` begins.
    ///
    /// # Errors
    /// When the metadata cannot be read, or holds what this version does not understand.
    pub fn open(metadata: M, new_cluster: u64) -> Result<Self, String> {
        let mut catalog = Self::read(metadata, new_cluster)?;
        catalog.commit(Vec::new(), (0, 0)).map_err(|refusal| format!("{refusal:?}"))?;
        catalog.begun = catalog.version;
        Ok(catalog)
    }

    /// The same for a coordinator that is alone: nothing is written, so that it starts on a full
    /// disk too. What others have by the version with which they began, it has by `life`, a
    /// number that is drawn.
    ///
    /// # Errors
    /// When the metadata cannot be read, or holds what this version does not understand.
    pub fn open_alone(metadata: M, new_cluster: u64, life: u64) -> Result<Self, String> {
        let mut catalog = Self::read(metadata, new_cluster)?;
        catalog.begun = life & MAX_LIFE;
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
            .map_err(|what| format!("{place}: {what}; nothing was changed: {REMEDY}"))?;
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
        self.is_unsealed = counters.total.is_none();
        for (key, sealed) in rows.iter().filter(|(key, _)| *key != COUNTERS) {
            // When many rows are sealed for the first time, that may be interrupted.
            let row = match unseal(key, sealed) {
                None if self.is_unsealed => sealed,
                row => row.ok_or_else(|| {
                    format!("row {key:?} is damaged: its checksum is not its own")
                })?,
            };
            self.read_row(key, row).ok_or_else(|| format!("cannot understand row {key:?}"))?;
            self.checksums.change(&[(key.clone(), Some(row.to_vec()))]);
        }
        if counters.total.is_some_and(|total| total != self.checksums.total()) {
            let rows = rows.len() - 1;
            return Err(format!(
                "its {rows} rows are not those that its counters tell of: some are missing, or older"
            ));
        }
        Ok(())
    }

    /// Seals the rows of metadata from before there were checksums, but for the counters, which end
    /// it.
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

    /// The catalog of a coordinator that does not lead: it knows nothing, and changes nothing.
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
            begun: 1,
            cluster: 0,
            checksums: Checksums::default(),
            is_unsealed: false,
        }
    }

    /// Where its metadata are, for messages.
    pub(super) fn place(&self) -> String {
        self.metadata.as_ref().map_or_else(String::new, M::place)
    }

    /// Whether it is that of a coordinator that leads, or of one that is alone.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.metadata.is_some()
    }

    /// Why it is to be read again before it is used, if it is.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The catalog that a server kept a copy of: see [`copy`](Self::copy).
    ///
    /// # Errors
    /// What is wrong with the bytes, in words.
    pub fn of_copy(bytes: &[u8]) -> Result<Catalog<MetadataMemory>, String> {
        let rows = copy::rows_of(bytes).ok_or("it is damaged, or no copy of a catalog")?;
        let mut catalog =
            Catalog { metadata: Some(MetadataMemory::default()), ..Catalog::absent() };
        catalog.read_rows(&rows)?;
        match catalog.is_unsealed {
            true => Err("its rows have no checksums".into()),
            false => Ok(catalog),
        }
    }

    /// All rows as bytes, with checksums: what servers keep a copy of, from which the metadata can
    /// be made again.
    pub fn copy(&self) -> Vec<u8> {
        let rows = self.rows();
        let counters =
            self.counters(self.next_table, self.next_server, self.version, Total::of(&rows));
        copy::encode(rows.into_iter().map(seal).chain([counters]))
    }

    /// Every row but the counters', not sealed.
    fn rows(&self) -> Vec<Change> {
        let tables = self.tables.iter().map(|(name, parts)| table_row(name, parts));
        let servers = self.servers.iter().map(|(&id, known)| server_row(id, known));
        tables.chain(servers).chain(self.moves.values().map(move_row)).collect()
    }

    /// Writes all rows into metadata that have none, as those of a cluster that goes on: its ids
    /// and its version are far above those in a copy, which may be older than what the
    /// coordinator last gave out.
    ///
    /// # Errors
    /// When there are rows already, or they cannot be written.
    pub fn rebuild<N: Metadata>(&self, mut metadata: N) -> Result<Catalog<N>, String> {
        let place = metadata.place();
        if !metadata.load().map_err(|error| error.to_string())?.is_empty() {
            return Err(format!("{place}: has rows already: nothing was changed"));
        }
        let next_server =
            self.next_server.saturating_add(REBUILD_SERVERS).min(sprat_wire::MAX_SERVER_ID);
        let (next_table, version) =
            (self.next_table + REBUILD_TABLES, self.version + REBUILD_VERSIONS);
        let rows = self.rows();
        let counters = self.counters(next_table, next_server, version, Total::of(&rows));
        let sealed: Vec<Change> = rows.into_iter().map(seal).collect();
        // The counters come last: without them there is no catalog, if that is interrupted.
        for portion in sealed.chunks(metadata.most_changes()) {
            metadata.apply(portion).map_err(|error| error.to_string())?;
        }
        metadata.apply(&[counters]).map_err(|error| error.to_string())?;
        Catalog::read(metadata, self.cluster)
    }

    /// The id that the next table will have: no entry of a log is of this or a higher one.
    pub fn next_table(&self) -> u32 {
        self.next_table
    }

    /// The cluster's id, drawn when it began: a server with another cluster's data is not let in.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// The sealed row of counters beside other rows of this total.
    fn counters(&self, next_table: u32, next_server: u32, version: u64, total: Total) -> Change {
        let counters = Counters {
            cluster: self.cluster,
            next_table,
            next_server,
            version,
            total: Some(total),
        };
        seal((COUNTERS.to_owned(), Some(counters.encode())))
    }

    fn read_row(&mut self, key: &str, value: &[u8]) -> Option<()> {
        if key.starts_with("table/") {
            let (name, parts) = read_table(value)?;
            self.tables.insert(name, parts);
        } else if key.starts_with("server/") {
            let (id, known) = read_server(value)?;
            self.servers.insert(id, known);
        } else if key.starts_with("move/") {
            let order = read_move(value)?;
            self.moves.insert(order.id, order);
        } else {
            return None;
        }
        Some(())
    }

    /// The version with which it was opened, or the number of its life: no two have the same.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Version of the tablet map; grows with every change of it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The table of a name.
    pub fn find(&self, name: &str) -> Option<TableRecord> {
        self.tables.get(name).map(|parts| self.record(name, parts))
    }

    /// Every table, by name.
    pub fn tables(&self) -> impl Iterator<Item = TableRecord> {
        self.tables.iter().map(|(name, parts)| self.record(name, parts))
    }

    /// How many tables there are.
    pub fn count(&self) -> usize {
        self.tables.len()
    }

    /// Every server by id, those that are gone and not yet forgotten among them.
    pub fn servers(&self) -> impl Iterator<Item = (u32, &Known)> {
        self.servers.iter().map(|(&id, known)| (id, known))
    }

    /// A server.
    pub fn server(&self, id: u32) -> Option<&Known> {
        self.servers.get(&id)
    }

    /// The id that the next server will have.
    pub fn next_server(&self) -> u32 {
        self.next_server
    }

    /// Every tablet, by its table's name.
    pub(super) fn all(&self) -> impl Iterator<Item = Owned> {
        self.tables.values().flat_map(Parts::tablets)
    }

    /// How many tablets there are.
    pub fn tablets(&self) -> usize {
        self.tables.values().map(|parts| parts.parts.len()).sum()
    }

    /// How many tablets a table has.
    pub fn tablets_in(&self, table: u32) -> usize {
        self.tables.values().find(|parts| parts.id == table).map_or(0, |parts| parts.parts.len())
    }

    /// The tablets of a server, ascending.
    pub fn tablets_of(&self, server: u32) -> Vec<Owned> {
        let mut tablets: Vec<_> = self.all().filter(|owned| owned.server == server).collect();
        tablets.sort_unstable();
        tablets
    }

    /// The tables of which a server has something, by id, with their names.
    pub fn names_of(&self, server: u32) -> Vec<(u32, String)> {
        let is_its = |parts: &Parts| parts.parts.iter().any(|part| part.server == server);
        let its = self.tables.iter().filter(|(_, parts)| is_its(parts));
        its.map(|(name, parts)| (parts.id, name.clone())).collect()
    }

    fn record(&self, name: &str, parts: &Parts) -> TableRecord {
        let locator = |server| {
            self.servers.get(&server).map(|known| known.locator.clone()).unwrap_or_default()
        };
        let tablet = |part: &Part| TabletRecord {
            first: part.first,
            server: part.server,
            locator: locator(part.server),
        };
        let tablets = parts.parts.iter().map(tablet).collect();
        TableRecord { id: parts.id, name: name.to_owned(), seed: self.cluster, tablets }
    }

    /// Makes a table, in so many tablets (zero: one for each candidate), each served by whom among
    /// `candidates` serves the fewest; or finds it. Servers that keep their log themselves
    /// serve tables as a whole: where there are others, those are passed over.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn create(
        &mut self,
        name: &str,
        tablets: usize,
        candidates: &[u32],
    ) -> Result<TableRecord, Refusal> {
        if let Some(table) = self.find(name) {
            return Ok(table);
        }
        if self.tables.len() >= MAX_TABLES {
            return Err(Refusal::Limit("the cluster has 4096 tables, the most it can have"));
        }
        let is_kept = |id: &&u32| self.servers.get(id).is_some_and(|known| known.copies > 0);
        let mut kept: Vec<u32> = candidates.iter().filter(is_kept).copied().collect();
        if kept.iter().any(|&id| !self.drains(id)) {
            kept.retain(|&id| !self.drains(id));
        }
        let (candidates, count) = match (kept.is_empty(), tablets) {
            (true, 0..=1) => (candidates, 1),
            (true, _) => {
                return Err(Refusal::Limit(
                    "only tables of servers with -r can have several tablets",
                ));
            }
            (false, 0) => (&kept[..], kept.len().min(USUAL_TABLETS)),
            (false, count) => (&kept[..], count.min(MAX_TABLETS)),
        };
        self.has_room(count)?;
        let mut counts: BTreeMap<u32, usize> = candidates.iter().map(|&id| (id, 0)).collect();
        for owned in self.all() {
            counts.entry(owned.server).and_modify(|count| *count += 1);
        }
        let mut serves: Vec<(usize, u32)> =
            counts.into_iter().map(|(id, count)| (count, id)).collect();
        let mut parts = Vec::with_capacity(count);
        for range in Range::ALL.parts(count as u64) {
            let (tablets, server) = serves.iter_mut().min().ok_or(Refusal::NoServer)?;
            *tablets += 1;
            parts.push(Part { first: range.first, server: *server, since: 0 });
        }
        let parts = Parts { id: self.next_table, parts };
        self.commit(vec![table_row(name, &parts)], (1, 0))?;
        let record = self.record(name, &parts);
        self.tables.insert(name.to_owned(), parts);
        Ok(record)
    }

    fn has_room(&self, tablets: usize) -> Result<(), Refusal> {
        match self.tablets() + tablets > MAX_ALL_TABLETS {
            true => Err(Refusal::Limit("the cluster has 16384 tablets, the most it can have")),
            false => Ok(()),
        }
    }

    /// Drops a table; `None` when there is none of that name, else the servers that had it.
    ///
    /// # Errors
    /// [`Refusal`].
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

    /// A server says where it serves: with the id it had, or zero for a new one. Returns its id.
    ///
    /// One whose log is kept by others has nothing left when it starts: it gets a new id, and who
    /// it was is dead.
    ///
    /// # Errors
    /// [`Refusal`].
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
        let is_here = |known: &Known| known.locator == locator && known.rack == rack;
        if before.is_some_and(|known| is_here(known) && known.copies == copies && copies == 0) {
            return Ok(id);
        }
        let stays = copies == 0 && before.is_some();
        if !stays && self.servers.len() >= MAX_SERVERS {
            return Err(Refusal::Limit("the cluster has 1024 servers, the most it can have"));
        }
        let mut changes = Vec::new();
        let gone = before.filter(|known| known.copies > 0 && !known.dead).cloned();
        let gone = gone.map(|known| Known { dead: true, ..known });
        changes.extend(gone.as_ref().map(|gone| server_row(id, gone)));
        // A server that this coordinator does not know keeps no claim to its old number.
        let new = if stays { id } else { self.next_server };
        let known = Known {
            locator: locator.to_owned(),
            rack: rack.to_owned(),
            copies,
            ..Known::default()
        };
        changes.push(server_row(new, &known));
        let is_its = |order: &MoveOrder| gone.is_some() && order.concerns(id);
        self.commit_ending(changes, (0, u32::from(!stays)), is_its)?;
        self.servers.extend(gone.map(|gone| (id, gone)));
        self.servers.insert(new, known);
        Ok(new)
    }

    /// A server is gone; one without tables is forgotten. What was to move from it or to it stays
    /// where it is.
    ///
    /// # Errors
    /// [`Refusal`].
    ///
    /// # Panics
    /// When there is no such server.
    pub fn bury(&mut self, id: u32) -> Result<(), Refusal> {
        let known = Known { dead: true, ..self.servers[&id].clone() };
        let is_its = |order: &MoveOrder| order.concerns(id);
        if self.tablets_of(id).is_empty() {
            self.commit_ending(vec![(server_key(id), None)], (0, 0), is_its)?;
            self.servers.remove(&id);
        } else {
            self.commit_ending(vec![server_row(id, &known)], (0, 0), is_its)?;
            self.servers.insert(id, known);
        }
        Ok(())
    }

    /// Open heads of a server's log below `segment` are void.
    ///
    /// # Errors
    /// [`Refusal`].
    ///
    /// # Panics
    /// When there is no such server.
    pub fn void(&mut self, id: u32, segment: u64) -> Result<(), Refusal> {
        let known = &self.servers[&id];
        if known.min_open >= segment {
            return Ok(());
        }
        let known = Known { min_open: segment, ..known.clone() };
        self.commit(vec![server_row(id, &known)], (0, 0))?;
        self.servers.insert(id, known);
        Ok(())
    }

    /// Tablets of a server that is gone, or parts of such, are another's now, entries of whose log
    /// count for them from segment `since` on. When those were its last it is forgotten. Many
    /// are written down in portions, each of which would do for itself: what is left
    /// of them when that is interrupted is still to be brought back.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn take_over(
        &mut self,
        gone: u32,
        tablets: &[Tablet],
        by: u32,
        since: u64,
    ) -> Result<(), Refusal> {
        let taken = |parts: &Parts| {
            let ours = tablets.iter().filter(|tablet| tablet.table == parts.id);
            ours.fold(parts.clone(), |parts, tablet| {
                let take = |part: Part| {
                    if part.server == gone { Part { server: by, since, ..part } } else { part }
                };
                parts.with(tablet.range, take)
            })
        };
        let changed: Vec<(String, Parts)> = self
            .tables
            .iter()
            .map(|(name, parts)| (name.clone(), taken(parts)))
            .filter(|(name, parts)| self.tables[name] != *parts)
            .collect();
        let is_left = |parts: &Parts| parts.parts.iter().any(|part| part.server == gone);
        let left =
            |name: &String, parts: &Parts| match changed.iter().find(|(other, _)| other == name) {
                Some((_, parts)) => is_left(parts),
                None => is_left(parts),
            };
        let last = !self.tables.iter().any(|(name, parts)| left(name, parts));
        // Room for the counters, and for the row of the server that is forgotten.
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

    /// As [`commit`](Self::commit), and ends some moves with it.
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

    /// Changes rows and the counters with them; in memory only the counters.
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
