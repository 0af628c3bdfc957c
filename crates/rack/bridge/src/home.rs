//! The home: a table of Apache Cassandra.

use crate::cell::Delivery;
use crate::error::Error;
use crate::keeper::HomeTable;
use crate::options::HomeOptions;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Statement;
use scylla::statement::prepared::PreparedStatement;
use std::time::Duration;
use tokio::time::timeout;

/// How long connecting to an instance may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the cluster may take to answer while a bridge opens: small machines take seconds to
/// create a table.
const SETUP: Duration = Duration::from_secs(90);

/// Bytes of a mutation in addition to key and value: table id, columns, timestamps, and some
/// reserve.
const MUTATION_OVERHEAD: usize = 256;

/// A row of the home table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HomeRow {
    /// The value of the row.
    pub value: Vec<u8>,
    /// The write timestamp of the row.
    pub stamp: i64,
}

/// A session with a table of Cassandra.
#[derive(Debug)]
pub struct Home {
    session: Session,
    read: PreparedStatement,
    write: PreparedStatement,
    delete: PreparedStatement,
    longest: usize,
}

impl Home {
    /// Connects to the cluster, and creates keyspace and table if they are missing.
    ///
    /// # Errors
    /// The options are invalid, the cluster cannot be reached or does not answer in 90 seconds, or
    /// it refuses a statement.
    pub async fn connect(options: &HomeOptions) -> Result<Self, Error> {
        options.check()?;
        let late = Error::Home {
            doing: options.contacts.join(", "),
            error: format!("no answer for {SETUP:?}"),
        };
        timeout(SETUP, Self::set_up(options)).await.unwrap_or(Err(late))
    }

    async fn set_up(options: &HomeOptions) -> Result<Self, Error> {
        let HomeOptions { keyspace, table, datacenter, replication, .. } = options;
        let session =
            SessionBuilder::new().known_nodes(&options.contacts).connection_timeout(CONNECT);
        let session = session.disallow_shard_aware_port(true).build().await;
        let session = session.map_err(|error| failed(&options.contacts.join(", "), &error))?;
        let state = session.get_cluster_state();
        if state.get_keyspace(keyspace).is_none() {
            let quoted = datacenter.replace('\'', "''");
            let text = format!(
                "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
                 {{'class': 'NetworkTopologyStrategy', '{quoted}': {replication}}}"
            );
            create(&session, text).await?;
        }
        let text = format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.{table} (key blob PRIMARY KEY, value blob)"
        );
        create(&session, text).await?;
        let read = format!("SELECT value, WRITETIME(value) FROM {keyspace}.{table} WHERE key = ?");
        let write =
            format!("INSERT INTO {keyspace}.{table} (key, value) VALUES (?, ?) USING TIMESTAMP ?");
        let delete = format!("DELETE FROM {keyspace}.{table} USING TIMESTAMP ? WHERE key = ?");
        Ok(Self {
            read: prepare(&session, options, read).await?,
            write: prepare(&session, options, write).await?,
            delete: prepare(&session, options, delete).await?,
            longest: longest(&session).await,
            session,
        })
    }

    /// Returns the largest number of bytes that key and value may have together in a row. The limit
    /// comes from the settings of one instance; it is `usize::MAX` if the settings cannot be read.
    /// Cassandra always refuses longer rows, so a bridge must not acknowledge them.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }
}

impl HomeTable for Home {
    async fn read(&self, key: &[u8]) -> Result<Option<HomeRow>, Error> {
        let rows = self
            .session
            .execute_unpaged(&self.read, (key,))
            .await
            .map_err(|error| failed("a read", &error))?;
        let rows = rows.into_rows_result().map_err(|error| failed("a read", &error))?;
        let row = rows.maybe_first_row::<(Option<Vec<u8>>, Option<i64>)>();
        let row = row.map_err(|error| failed("a read", &error))?;
        Ok(row
            .and_then(|(value, stamp)| value.zip(stamp))
            .map(|(value, stamp)| HomeRow { value, stamp }))
    }

    async fn apply(&self, key: &[u8], delivery: &Delivery<'_>) -> Result<(), Error> {
        let done = match delivery.value {
            Some(value) => {
                self.session.execute_unpaged(&self.write, (key, value, delivery.stamp)).await
            }
            None => self.session.execute_unpaged(&self.delete, (delivery.stamp, key)).await,
        };
        done.map(drop).map_err(|error| failed("a write", &error))
    }
}

async fn longest(session: &Session) -> usize {
    let mut longest = usize::MAX;
    for (setting, parts) in [("max_mutation_size", 1), ("commitlog_segment_size", 2)] {
        let text = format!("SELECT value FROM system_views.settings WHERE name = '{setting}'");
        // A setting that cannot be read is ignored: by default Cassandra allows longer rows than a
        // bridge does.
        let Ok(answer) = session.query_unpaged(text, ()).await else { continue };
        let Ok(rows) = answer.into_rows_result() else { continue };
        let Ok(Some((Some(value),))) = rows.maybe_first_row::<(Option<String>,)>() else {
            continue;
        };
        let Ok(bytes) = sprat_units::size(&value) else { continue };
        let most = usize::try_from(bytes / parts).unwrap_or(usize::MAX);
        longest = longest.min(most.saturating_sub(MUTATION_OVERHEAD));
    }
    longest
}

async fn create(session: &Session, text: String) -> Result<(), Error> {
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(SETUP));
    let made = session.query_unpaged(statement.clone(), ()).await;
    made.map(drop).map_err(|error| failed(&statement.contents, &error))
}

async fn prepare(
    session: &Session,
    options: &HomeOptions,
    text: String,
) -> Result<PreparedStatement, Error> {
    let mut prepared =
        session.prepare(text.as_str()).await.map_err(|error| failed(&text, &error))?;
    prepared.set_consistency(options.consistency);
    prepared.set_request_timeout(Some(options.timeout));
    // A delivery contains its complete value and timestamp, so repeating it is harmless.
    prepared.set_is_idempotent(true);
    Ok(prepared)
}

fn failed(doing: &str, error: &dyn std::error::Error) -> Error {
    Error::Home { doing: doing.to_owned(), error: error.to_string() }
}
