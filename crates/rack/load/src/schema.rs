//! Keyspace, tables and statements of each workload.

use crate::load::{Load, Workload};
use crate::operations::SLICE_ROWS;

/// The statements of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    pub(crate) table: String,
    pub(crate) write: String,
    pub(crate) read: String,
    /// Selects the last row of a partition of [`Workload::Wide`].
    pub(crate) last: Option<String>,
}

/// Returns the statement that creates the keyspace, unless it exists.
pub(crate) fn keyspace(load: &Load) -> String {
    let Load { keyspace, datacenter, replication, .. } = load;
    format!(
        "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', '{datacenter}': {replication}}}"
    )
}

pub(crate) fn statements(load: &Load) -> Statements {
    let keyspace = &load.keyspace;
    let create = "CREATE TABLE IF NOT EXISTS";
    match load.workload {
        Workload::KeyValue { .. } => Statements {
            table: format!("{create} {keyspace}.kv (key bigint PRIMARY KEY, value blob)"),
            write: format!(
                "INSERT INTO {keyspace}.kv (key, value) VALUES (?, ?) USING TIMESTAMP ?"
            ),
            read: format!("SELECT value FROM {keyspace}.kv WHERE key = ?"),
            last: None,
        },
        Workload::Series { .. } => Statements {
            table: format!(
                "{create} {keyspace}.series (sensor bigint, bucket int, at bigint, value blob, \
                 PRIMARY KEY ((sensor, bucket), at)) WITH CLUSTERING ORDER BY (at DESC)"
            ),
            write: format!(
                "INSERT INTO {keyspace}.series (sensor, bucket, at, value) VALUES (?, ?, ?, ?)"
            ),
            read: format!(
                "SELECT at, value FROM {keyspace}.series WHERE sensor = ? AND bucket = ? LIMIT \
                 {SLICE_ROWS}"
            ),
            last: None,
        },
        Workload::Wide { .. } => Statements {
            table: format!(
                "{create} {keyspace}.wide (part bigint, row bigint, value blob, PRIMARY KEY (part, \
                 row))"
            ),
            write: format!("INSERT INTO {keyspace}.wide (part, row, value) VALUES (?, ?, ?)"),
            read: format!(
                "SELECT row, value FROM {keyspace}.wide WHERE part = ? AND row >= ? LIMIT \
                 {SLICE_ROWS}"
            ),
            last: Some(format!(
                "SELECT row FROM {keyspace}.wide WHERE part = ? ORDER BY row DESC LIMIT 1"
            )),
        },
    }
}
