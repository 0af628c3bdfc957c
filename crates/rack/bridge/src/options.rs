//! What a bridge joins.

use crate::error::Error;
use scylla::statement::Consistency;
use std::time::Duration;

/// Where the home is.
#[derive(Clone, Debug)]
pub struct HomeOptions {
    /// Instances to begin with: HOST:PORT.
    pub contacts: Vec<String>,
    /// Keyspace. Made where it is not there.
    pub keyspace: String,
    /// Table of keys and values, both blobs. Made where it is not there.
    pub table: String,
    /// Datacenter of the keyspace, where it has to be made.
    pub datacenter: String,
    /// Replicas in it, where it has to be made.
    pub replication: usize,
    /// Replicas that must have answered. A read must meet every write: `LOCAL_QUORUM` for both.
    pub consistency: Consistency,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// A bridge.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store.
    pub store: sprat_client::Options,
    /// The table in it: the bridge's alone. Made where it is not there.
    pub table: String,
    /// Its home.
    pub home: HomeOptions,
    /// Bytes of the store's memory that the table may take before what is at home leaves it.
    pub memory: u64,
    /// How often all of the table is looked through.
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
