//! Tables: what is worth a try, and what they are set to.

use crate::change::{Candidate, Change, Class};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How long a cluster may take for a statement: small machines take seconds to change a table.
const PATIENCE: Duration = Duration::from_secs(90);

/// Longest name of a table, with its keyspace's.
const MAX_NAME: usize = 128;

/// Properties that are tuned, as ALTER TABLE has them.
const COMPRESSION: &str = "compression";
const COMPACTION: &str = "compaction";
const SPECULATION: &str = "speculative_retry";

/// A table's properties, in CQL.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Table {
    /// `keyspace.table`.
    pub name: String,
    /// What it is set to, by property.
    pub properties: BTreeMap<String, String>,
}

impl Table {
    /// What is worth a try.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut all = Vec::new();
        let mut want = |class, property: &str, value: String, why| {
            let present = self.properties.get(property).cloned().unwrap_or_default();
            if present != value {
                all.push(Candidate {
                    class,
                    what: format!("{} {property} = {value}", self.name),
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
        want(Class::Strategy, COMPACTION, unified, "compactions are smaller, and side by side");
        want(
            Class::Speculation,
            SPECULATION,
            "'75p'".to_owned(),
            "a replica that stands still is not waited for",
        );
        all
    }
}

/// Tables of a cluster that runs.
#[derive(Debug)]
pub struct Tables {
    runtime: Runtime,
    session: Session,
}

impl Tables {
    /// Finds the cluster. To be called where its instances can be reached.
    ///
    /// # Errors
    /// Nobody answers.
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

    /// What a table is set to.
    ///
    /// # Errors
    /// It is not there, or nobody answers.
    pub fn table(&self, name: &str) -> Result<Table, String> {
        let (keyspace, table) = parts(name)?;
        let asked = "SELECT compression, compaction, speculative_retry FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
        let rows = self
            .wait(self.session.query_unpaged(asked, (keyspace, table)))?
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

    /// Sets a property.
    ///
    /// # Errors
    /// It is refused, or nobody answers.
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

/// A map as CQL writes it.
fn literal(map: &[(&str, &str)]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let all: Vec<_> =
        map.iter().map(|(key, value)| format!("{}: {}", quoted(key), quoted(value))).collect();
    format!("{{{}}}", all.join(", "))
}

/// Keyspace and table of a name, which goes into statements as it is.
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
