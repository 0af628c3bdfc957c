//! Reads and tunes the properties of tables.

use crate::change::{Candidate, Change, Class};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Timeout of a statement: small machines take seconds to alter a table.
const PATIENCE: Duration = Duration::from_secs(90);

/// Limit on the length of `keyspace.table`, in bytes. A longer name is refused.
const MAX_NAME: usize = 128;

/// The properties that are tuned, as ALTER TABLE names them.
const COMPRESSION: &str = "compression";
const COMPACTION: &str = "compaction";
const SPECULATION: &str = "speculative_retry";

/// The properties of a table, in CQL.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Table {
    /// `keyspace.table`.
    pub name: String,
    /// Values by property.
    pub properties: BTreeMap<String, String>,
}

impl Table {
    /// Returns the candidates for this table.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut all = Vec::new();
        let mut want = |class, property: &str, value: String, why| {
            let present = self.properties.get(property).cloned().unwrap_or_default();
            if present != value {
                all.push(Candidate {
                    class,
                    proposed: format!("{} {property} = {value}", self.name),
                    present: format!("{} {property} = {present}", self.name),
                    why,
                    changes: vec![Change::Table {
                        table: self.name.clone(),
                        property: property.to_owned(),
                        value,
                    }],
                });
            }
        };
        let chunks = literal(&[
            ("chunk_length_in_kb", "4"),
            ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
        ]);
        want(Class::Chunks, COMPRESSION, chunks, "a read decompresses a whole chunk for one row");
        let unified = literal(&[
            ("class", "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy"),
            ("max_threshold", "32"),
            ("min_threshold", "4"),
            ("scaling_parameters", "T4"),
        ]);
        want(Class::Strategy, COMPACTION, unified, "compactions are smaller, and run in parallel");
        want(
            Class::Speculation,
            SPECULATION,
            "'75p'".to_owned(),
            "reads do not wait for a replica that is stalled",
        );
        all
    }
}

/// A session with a running cluster. Its methods block.
#[derive(Debug)]
pub struct Tables {
    runtime: Runtime,
    session: Session,
}

impl Tables {
    /// Connects to a cluster. Call it from the network of its instances.
    ///
    /// # Errors
    /// The runtime cannot be built, no contact can be reached, or none answers in time.
    pub fn connect(contacts: &[String]) -> Result<Self, String> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let builder = SessionBuilder::new().known_nodes(contacts).disallow_shard_aware_port(true);
        let session = runtime.block_on(async { timeout(PATIENCE, builder.build()).await });
        let late =
            |_| format!("{}: no answer within {} s", contacts.join(", "), PATIENCE.as_secs());
        let session =
            session.map_err(late)?.map_err(|error| format!("{}: {error}", contacts.join(", ")))?;
        Ok(Self { runtime, session })
    }

    /// Reads a table's properties.
    ///
    /// # Errors
    /// `name` is not of the form KEYSPACE.TABLE, there is no such table, the query fails, or the
    /// cluster does not answer in time.
    pub fn table(&self, name: &str) -> Result<Table, String> {
        let (keyspace, table) = parts(name)?;
        let query = "SELECT compression, compaction, speculative_retry FROM system_schema.tables \
                     WHERE keyspace_name = ? AND table_name = ?";
        let rows = self
            .wait(self.session.query_unpaged(query, (keyspace, table)))?
            .map_err(|error| format!("{name}: {error}"))?;
        let rows = rows.into_rows_result().map_err(|error| format!("{name}: {error}"))?;
        type Row = (HashMap<String, String>, HashMap<String, String>, String);
        let row = rows.maybe_first_row::<Row>().map_err(|error| format!("{name}: {error}"))?;
        let (compression, compaction, speculation) =
            row.ok_or_else(|| format!("there is no table {name}"))?;
        let map = |map: HashMap<String, String>| {
            let sorted: BTreeMap<_, _> = map.into_iter().collect();
            literal(
                &sorted
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect::<Vec<_>>(),
            )
        };
        let properties = [
            (COMPRESSION, map(compression)),
            (COMPACTION, map(compaction)),
            (SPECULATION, format!("'{}'", speculation.replace('\'', "''"))),
        ];
        let properties = properties.map(|(key, value)| (key.to_owned(), value)).into();
        Ok(Table { name: name.to_owned(), properties })
    }

    /// Sets a property of a table.
    ///
    /// # Errors
    /// `name` is not of the form KEYSPACE.TABLE, tuning does not change this property, the
    /// statement fails, or the cluster does not answer in time.
    pub fn set(&self, name: &str, property: &str, value: &str) -> Result<(), String> {
        parts(name)?;
        if ![COMPRESSION, COMPACTION, SPECULATION].contains(&property) {
            return Err(format!("{name}: no property {property} is tuned"));
        }
        let statement = format!("ALTER TABLE {name} WITH {property} = {value}");
        let done = self.wait(self.session.query_unpaged(statement.as_str(), ()))?;
        done.map(drop).map_err(|error| format!("{statement}: {error}"))
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, String> {
        let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
        self.runtime.block_on(async { timeout(PATIENCE, future).await }).map_err(late)
    }
}

/// Formats a map in CQL.
fn literal(map: &[(&str, &str)]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let all: Vec<_> =
        map.iter().map(|(key, value)| format!("{}: {}", quoted(key), quoted(value))).collect();
    format!("{{{}}}", all.join(", "))
}

/// Splits a table's name into keyspace and table, and checks both: statements contain them
/// unquoted.
fn parts(name: &str) -> Result<(&str, &str), String> {
    let plain = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let parts = name
        .split_once('.')
        .filter(|(keyspace, table)| plain(keyspace) && plain(table) && name.len() <= MAX_NAME);
    parts.ok_or_else(|| {
        format!("{name:?}: want KEYSPACE.TABLE, in small letters, digits and underscores")
    })
}
