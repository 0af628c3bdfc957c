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
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error.to_string())
    }
}

/// A table and who serves it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owned {
    /// Table id.
    pub id: u32,
    /// Id of the server.
    pub server: u32,
}

/// The catalog, in memory as in the metadata.
pub struct Catalog<M> {
    metadata: M,
    tables: BTreeMap<String, Owned>,
    servers: BTreeMap<u32, String>,
    next_table: u32,
    next_server: u32,
    version: u64,
    cluster: u64,
}

const COUNTERS: &str = "counters";

impl<M: Metadata> Catalog<M> {
    /// Reads the catalog from its metadata; where there is none yet, a cluster of id `new_cluster` begins.
    ///
    /// # Errors
    /// When the metadata cannot be read, or holds what this version does not understand.
    pub fn open(metadata: M, new_cluster: u64) -> Result<Self, String> {
        assert!(new_cluster != 0, "zero stands for no cluster");
        let rows = metadata.load().map_err(|error| error.to_string())?;
        let mut catalog = Self {
            metadata,
            tables: BTreeMap::new(),
            servers: BTreeMap::new(),
            next_table: 1,
            next_server: 1,
            version: 1,
            cluster: 0,
        };
        for (key, value) in &rows {
            catalog
                .read_row(key, value)
                .ok_or_else(|| format!("coordinator metadata: cannot understand row {key:?}"))?;
        }
        if catalog.cluster == 0 {
            catalog.cluster = new_cluster;
            let row = (COUNTERS.to_owned(), Some(catalog.counters(1, 1, 1)));
            catalog.metadata.apply(&[row]).map_err(|error| error.to_string())?;
        }
        Ok(catalog)
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
            self.tables.insert(table.name, Owned { id: table.id, server: table.server });
        } else if key.starts_with("server/") {
            let server = records.server()?;
            self.servers.insert(server.id, server.locator);
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

    /// Every server: id and locator.
    pub fn servers(&self) -> impl Iterator<Item = (u32, &str)> {
        self.servers.iter().map(|(&id, locator)| (id, locator.as_str()))
    }

    /// Whether a server of this id has enlisted.
    pub fn knows_server(&self, id: u32) -> bool {
        self.servers.contains_key(&id)
    }

    fn record(&self, name: &str, owned: Owned) -> TableRecord {
        let locator = self.servers.get(&owned.server).cloned().unwrap_or_default();
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
        let owned = Owned { id: self.next_table, server };
        let record = TableRecord { id: owned.id, server, name: name.to_owned(), locator: String::new() };
        let mut row = Vec::new();
        push_table(&mut row, &record);
        self.commit(format!("table/{name}"), Some(row), (1, 0))?;
        self.tables.insert(name.to_owned(), owned);
        Ok(self.record(name, owned))
    }

    /// Drops a table; `None` when there is none of that name.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn drop_table(&mut self, name: &str) -> Result<Option<Owned>, Refusal> {
        let Some(&owned) = self.tables.get(name) else { return Ok(None) };
        self.commit(format!("table/{name}"), None, (0, 0))?;
        self.tables.remove(name);
        Ok(Some(owned))
    }

    /// A server says where it serves: with the id it had, or zero for a new one. Returns its id.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enlist(&mut self, id: u32, locator: &str) -> Result<u32, Refusal> {
        if self.servers.get(&id).is_some_and(|known| known == locator) {
            return Ok(id);
        }
        let known = self.servers.contains_key(&id);
        if !known && self.servers.len() >= MAX_SERVERS {
            return Err(Refusal::Limit("the cluster has 1024 servers, the most it can have"));
        }
        // A server that this coordinator does not know keeps no claim to its old number.
        let id = if known { id } else { self.next_server };
        let mut row = Vec::new();
        push_server(&mut row, &ServerRecord { id, silent_ms: 0, locator: locator.to_owned() });
        self.commit(format!("server/{id:010}"), Some(row), (0, u32::from(!known)))?;
        self.servers.insert(id, locator.to_owned());
        Ok(id)
    }

    /// Changes one row and the counters with it; in memory only the counters.
    fn commit(&mut self, key: String, row: Option<Vec<u8>>, taken: (u32, u32)) -> Result<(), Refusal> {
        let (next_table, next_server, version) =
            (self.next_table + taken.0, self.next_server + taken.1, self.version + 1);
        let counters = self.counters(next_table, next_server, version);
        self.metadata.apply(&[(key, row), (COUNTERS.to_owned(), Some(counters))])?;
        (self.next_table, self.next_server, self.version) = (next_table, next_server, version);
        Ok(())
    }
}
