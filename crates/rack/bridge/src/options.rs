//! Options of a bridge.

use crate::error::Error;
use scylla::statement::Consistency;
use std::time::Duration;

/// The home table.
#[derive(Clone, Debug)]
pub struct HomeOptions {
    /// Addresses of Cassandra's instances, each `HOST:PORT`.
    pub contacts: Vec<String>,
    /// The keyspace, which is created if it is missing.
    pub keyspace: String,
    /// The table of keys and values, both blobs, which is created if it is missing.
    pub table: String,
    /// Datacenter of the keyspace's replicas, used if the keyspace must be created.
    pub datacenter: String,
    /// Replication factor in that datacenter, used if the keyspace must be created.
    pub replication: usize,
    /// Consistency level of reads and writes. Use `LOCAL_QUORUM`: a read must see every earlier
    /// write.
    pub consistency: Consistency,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// The options of a bridge.
#[derive(Clone, Debug)]
pub struct Options {
    /// How to connect to the store.
    pub store: sprat_client::Options,
    /// The table in the store. Only bridges may use it; it is created if it is missing.
    pub table: String,
    /// The home of the table.
    pub home: HomeOptions,
    /// Limit on the bytes of the store's memory that the table takes. If the table takes more, a
    /// sweep evicts objects that are also in the home.
    pub memory: u64,
    /// Interval between sweeps over the whole table.
    pub sweep: Duration,
}

impl HomeOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.contacts.is_empty() {
            return Err(Error::NoContacts);
        }
        for name in [&self.keyspace, &self.table] {
            let fine =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            if name.len() > 48
                || !name.starts_with(|first: char| first.is_ascii_lowercase())
                || !name.bytes().all(fine)
            {
                return Err(Error::Name(name.clone()));
            }
        }
        Ok(())
    }
}
