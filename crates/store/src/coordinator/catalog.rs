//! What a coordinator knows: tables, servers, who serves what. Every change is durable before it is visible.

use super::metadata::{Metadata, MetadataError};
use sprat_wire::op::{Records, ServerRecord, TableRecord, push_counter, push_server, push_table};
use std::collections::BTreeMap;

/// Most tables of a cluster.
pub const MAX_TABLES: usize = 4096;

/// Most servers of a cluster.
pub const MAX_SERVERS: usize = 1024;

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
    /// Whoever asked leads no more, or does not know what it leads: the catalog is to be read again before it is used.
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

/// A table and who serves it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owned {
    /// Table id.
    pub id: u32,
    /// Id of the server.
    pub server: u32,
    /// Entries of the table count from this segment of that server's log on: what it had of the table before is of the past.
    pub since: u64,
}

/// A server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Known {
    /// Where clients and other servers reach it.
    pub locator: String,
    /// Replicas that it keeps of its log on other servers; zero: its log is on its own disk, and nobody else can bring it back.
    pub copies: u8,
    /// Open heads of its log below this segment are void; zero when it never began a log.
    pub min_open: u64,
    /// It is gone; others bring back its tables.
    pub dead: bool,
}

/// The catalog, in memory as in the metadata.
pub struct Catalog<M> {
    /// `None` of one that is [absent](Catalog::absent).
    metadata: Option<M>,
    /// Why it is to be read again before it is used.
    lost: Option<String>,
    tables: BTreeMap<String, Owned>,
    servers: BTreeMap<u32, Known>,
    next_table: u32,
    next_server: u32,
    version: u64,
    cluster: u64,
}

type Change = (String, Option<Vec<u8>>);

const COUNTERS: &str = "counters";

impl<M: Metadata> Catalog<M> {
    /// Reads the catalog from its metadata; where there is none yet, a cluster of id `new_cluster` begins.
    ///
    /// # Errors
    /// When the metadata cannot be read, or holds what this version does not understand.
    pub fn open(metadata: M, new_cluster: u64) -> Result<Self, String> {
        assert!(new_cluster != 0, "zero stands for no cluster");
        let rows = metadata.load().map_err(|error| error.to_string())?;
        let mut catalog = Self { metadata: Some(metadata), ..Self::absent() };
        for (key, value) in &rows {
            catalog
                .read_row(key, value)
                .ok_or_else(|| format!("coordinator metadata: cannot understand row {key:?}"))?;
        }
        if catalog.cluster == 0 {
            catalog.cluster = new_cluster;
            let row = (COUNTERS.to_owned(), Some(catalog.counters(1, 1, 1)));
            let metadata = catalog.metadata.as_mut().expect("just given");
            metadata.apply(&[row]).map_err(|error| error.to_string())?;
        }
        Ok(catalog)
    }

    /// The catalog of a coordinator that does not lead: it knows nothing, and changes nothing.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            metadata: None,
            lost: None,
            tables: BTreeMap::new(),
            servers: BTreeMap::new(),
            next_table: 1,
            next_server: 1,
            version: 1,
            cluster: 0,
        }
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

    /// A new version, with nothing else changed: by it those are known that have heard of this leader.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn begin_reign(&mut self) -> Result<(), Refusal> {
        self.commit(Vec::new(), (0, 0))
    }

    /// The cluster's id, drawn when it began: a server with another cluster's data is not let in.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    fn counters(&self, next_table: u32, next_server: u32, version: u64) -> Vec<u8> {
        let mut row = Vec::new();
        push_counter(&mut row, "cluster", self.cluster);
        push_counter(&mut row, "next_table", u64::from(next_table));
        push_counter(&mut row, "next_server", u64::from(next_server));
        push_counter(&mut row, "version", version);
        row
    }

    fn read_row(&mut self, key: &str, value: &[u8]) -> Option<()> {
        let mut records = Records::new(value);
        if key == COUNTERS {
            for _ in 0..4 {
                let (name, number) = records.counter()?;
                match name {
                    "cluster" => self.cluster = number,
                    "next_table" => self.next_table = number.try_into().ok()?,
                    "next_server" => self.next_server = number.try_into().ok()?,
                    "version" => self.version = number,
                    _ => return None,
                }
            }
        } else if key.starts_with("table/") {
            let table = records.table()?;
            // Rows of a cluster without replicas, and all there were before there were any, end here.
            let since = if records.is_done() { 0 } else { records.named("since")? };
            self.tables.insert(table.name, Owned { id: table.id, server: table.server, since });
        } else if key.starts_with("server/") {
            let server = records.server()?;
            let mut known = Known { locator: server.locator, ..Known::default() };
            if !records.is_done() {
                known.copies = records.named("copies")?.try_into().ok()?;
                known.min_open = records.named("min_open")?;
                known.dead = records.named("dead")? != 0;
            }
            self.servers.insert(server.id, known);
        } else {
            return None;
        }
        records.is_done().then_some(())
    }

    /// Version of the tablet map; grows with every change of it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The table of a name.
    pub fn find(&self, name: &str) -> Option<TableRecord> {
        self.tables.get(name).map(|&owned| self.record(name, owned))
    }

    /// Every table, by name.
    pub fn tables(&self) -> impl Iterator<Item = TableRecord> {
        self.tables.iter().map(|(name, &owned)| self.record(name, owned))
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

    /// The tables of a server, ascending by id.
    pub fn tables_of(&self, server: u32) -> Vec<Owned> {
        let mut tables: Vec<_> = self.tables.values().copied().filter(|owned| owned.server == server).collect();
        tables.sort_unstable_by_key(|owned| owned.id);
        tables
    }

    fn record(&self, name: &str, owned: Owned) -> TableRecord {
        let locator = self.servers.get(&owned.server).map(|known| known.locator.clone()).unwrap_or_default();
        TableRecord { id: owned.id, server: owned.server, name: name.to_owned(), locator }
    }

    /// Makes a table, served by whom among `candidates` serves the fewest; or finds it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn create(&mut self, name: &str, candidates: &[u32]) -> Result<TableRecord, Refusal> {
        if let Some(table) = self.find(name) {
            return Ok(table);
        }
        if self.tables.len() >= MAX_TABLES {
            return Err(Refusal::Limit("the cluster has 4096 tables, the most it can have"));
        }
        let serves = |id: u32| self.tables.values().filter(|owned| owned.server == id).count();
        let server = *candidates.iter().min_by_key(|&&id| serves(id)).ok_or(Refusal::NoServer)?;
        let owned = Owned { id: self.next_table, server, since: 0 };
        self.commit(vec![table_row(name, owned)], (1, 0))?;
        self.tables.insert(name.to_owned(), owned);
        Ok(self.record(name, owned))
    }

    /// Drops a table; `None` when there is none of that name.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn drop_table(&mut self, name: &str) -> Result<Option<Owned>, Refusal> {
        let Some(&owned) = self.tables.get(name) else { return Ok(None) };
        self.commit(vec![(format!("table/{name}"), None)], (0, 0))?;
        self.tables.remove(name);
        Ok(Some(owned))
    }

    /// A server says where it serves: with the id it had, or zero for a new one. Returns its id.
    ///
    /// One whose log is kept by others has nothing left when it starts: it gets a new id, and who it was is dead.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enlist(&mut self, id: u32, locator: &str, copies: u8) -> Result<u32, Refusal> {
        let before = self.servers.get(&id);
        if before.is_some_and(|known| known.locator == locator && known.copies == copies && copies == 0) {
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
        let known = Known { locator: locator.to_owned(), copies, ..Known::default() };
        changes.push(server_row(new, &known));
        self.commit(changes, (0, u32::from(!stays)))?;
        self.servers.extend(gone.map(|gone| (id, gone)));
        self.servers.insert(new, known);
        Ok(new)
    }

    /// A server is gone; one without tables is forgotten.
    ///
    /// # Errors
    /// [`Refusal`].
    ///
    /// # Panics
    /// When there is no such server.
    pub fn bury(&mut self, id: u32) -> Result<(), Refusal> {
        let known = Known { dead: true, ..self.servers[&id].clone() };
        if self.tables_of(id).is_empty() {
            self.commit(vec![(server_key(id), None)], (0, 0))?;
            self.servers.remove(&id);
        } else {
            self.commit(vec![server_row(id, &known)], (0, 0))?;
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

    /// Tables of a server that is gone are another's now, entries of whose log count for them from segment `since` on. When
    /// those were its last it is forgotten. Many are written down in portions, each of which would do for itself: what is left of
    /// them when that is interrupted is still to be brought back.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn take_over(&mut self, gone: u32, tables: &[u32], by: u32, since: u64) -> Result<(), Refusal> {
        let taken = |owned: &Owned| owned.server == gone && tables.contains(&owned.id);
        let moved: Vec<_> =
            self.tables.iter().filter(|(_, owned)| taken(owned)).map(|(name, _)| name.clone()).collect();
        let last = self.tables.values().all(|owned| owned.server != gone || taken(owned));
        // Room for the counters, and for the row of the server that is forgotten.
        let portion = self.metadata.as_ref().map_or(usize::MAX, M::most_changes) - 2;
        let mut left = &moved[..];
        loop {
            let (now, later) = left.split_at(left.len().min(portion));
            let forget = last && later.is_empty();
            let owned = |name: &String| Owned { server: by, since, ..self.tables[name] };
            let mut changes: Vec<_> = now.iter().map(|name| table_row(name, owned(name))).collect();
            changes.extend(forget.then(|| (server_key(gone), None)));
            self.commit(changes, (0, 0))?;
            for name in now {
                let owned = self.tables.get_mut(name).expect("just seen");
                (owned.server, owned.since) = (by, since);
            }
            if forget {
                self.servers.remove(&gone);
            }
            if later.is_empty() {
                return Ok(());
            }
            left = later;
        }
    }

    /// Changes rows and the counters with them; in memory only the counters.
    fn commit(&mut self, mut changes: Vec<Change>, taken: (u32, u32)) -> Result<(), Refusal> {
        let (next_table, next_server, version) =
            (self.next_table + taken.0, self.next_server + taken.1, self.version + 1);
        changes.push((COUNTERS.to_owned(), Some(self.counters(next_table, next_server, version))));
        let metadata = self.metadata.as_mut().ok_or(Refusal::Later("this coordinator does not lead".into()))?;
        if let Err(error) = metadata.apply(&changes) {
            let refusal = error.into();
            if let Refusal::Lost(why) = &refusal {
                self.lost = Some(why.clone());
            }
            return Err(refusal);
        }
        (self.next_table, self.next_server, self.version) = (next_table, next_server, version);
        Ok(())
    }
}

fn server_key(id: u32) -> String {
    format!("server/{id:010}")
}

fn server_row(id: u32, known: &Known) -> Change {
    let mut row = Vec::new();
    push_server(&mut row, &ServerRecord { id, silent_ms: 0, locator: known.locator.clone() });
    if known.copies > 0 {
        push_counter(&mut row, "copies", known.copies.into());
        push_counter(&mut row, "min_open", known.min_open);
        push_counter(&mut row, "dead", known.dead.into());
    }
    (server_key(id), Some(row))
}

fn table_row(name: &str, owned: Owned) -> Change {
    let Owned { id, server, since } = owned;
    let mut row = Vec::new();
    push_table(&mut row, &TableRecord { id, server, name: name.to_owned(), locator: String::new() });
    if since > 0 {
        push_counter(&mut row, "since", since);
    }
    (format!("table/{name}"), Some(row))
}
