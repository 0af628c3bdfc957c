//! Runs a load on Apache Cassandra through ScyllaDB's driver, which also supports Cassandra.

use crate::load::{Consistency, Load, LoadError, MIN_VALUE_BYTES, Workload};
use crate::operations::{Operation, SERIES_BUCKET};
use crate::schema::{keyspace, statements};
use crate::target::{Answer, Failure, LoadTarget};
use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Strategy;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency as Level, Statement};
use sprat_chance::Chance;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long connecting to an address may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the cluster may take to prepare a load: small machines take seconds to create a table.
const SETUP: Duration = Duration::from_secs(90);

/// Number of connections to each node, which all requests share.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(2).expect("not 0");

/// Number of different values. They are slices of random bytes, which do not compress.
const DIFFERENT_VALUES: usize = 4_096;

/// Stream of the random generator that makes the values.
const STREAM: u64 = 3;

/// A session with a cluster that has the tables of a workload.
#[derive(Debug)]
pub struct Cassandra {
    session: Session,
    write: PreparedStatement,
    read: PreparedStatement,
    rows: Vec<u64>,
    fill: Vec<u8>,
    value_bytes: usize,
}

impl Cassandra {
    /// Connects to the cluster of a checked load, and creates its keyspace and table if they are
    /// missing.
    ///
    /// # Errors
    /// No contact can be reached; the cluster lacks the datacenter, or enough nodes for the
    /// replicas; the keyspace exists with another replication; or the cluster refuses a statement
    /// or does not answer in 90 seconds.
    pub async fn connect(load: &Load) -> Result<Self, LoadError> {
        check_reachable(&load.contacts).await?;
        let contacts = load.contacts.join(", ");
        let late =
            LoadError::Session { contacts, error: format!("it has not answered for {SETUP:?}") };
        timeout(SETUP, Self::set_up(load)).await.unwrap_or(Err(late))
    }

    async fn set_up(load: &Load) -> Result<Self, LoadError> {
        let session = SessionBuilder::new()
            .known_nodes(&load.contacts)
            .connection_timeout(CONNECT)
            .pool_size(PoolSize::PerHost(CONNECTIONS))
            .disallow_shard_aware_port(true)
            .prefer_datacenter(load.datacenter.clone());
        let session = session.build().await.map_err(|error| LoadError::Session {
            contacts: load.contacts.join(", "),
            error: error.to_string(),
        })?;
        check_datacenter(&session, load)?;
        create(&session, keyspace(load)).await?;
        check_keyspace(&session, load)?;
        let statements = statements(load);
        create(&session, statements.table).await?;
        let write = prepare(&session, load, statements.write).await?;
        let read = prepare(&session, load, statements.read).await?;
        let rows = match (load.workload, statements.last) {
            (Workload::Wide { partitions }, Some(last)) => {
                rows(&session, &prepare(&session, load, last).await?, partitions).await?
            }
            _ => Vec::new(),
        };
        let mut chance = Chance::stream(load.seed, STREAM);
        let fill = (0..(load.value_bytes + DIFFERENT_VALUES).div_ceil(8))
            .flat_map(|_| chance.draw().to_le_bytes())
            .collect();
        Ok(Self { session, write, read, rows, fill, value_bytes: load.value_bytes })
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failure> {
        self.session.execute_unpaged(statement, values).await.map_err(|error| failure(&error))
    }

    async fn write(&self, values: impl SerializeRow) -> Result<Answer, Failure> {
        self.execute(&self.write, values).await.map(|_| Answer::Done)
    }

    async fn read(&self, values: impl SerializeRow) -> Result<Answer, Failure> {
        let rows = self
            .execute(&self.read, values)
            .await?
            .into_rows_result()
            .map_err(|error| unreadable(&error))?;
        Ok(if rows.rows_num() > 0 { Answer::Done } else { Answer::Nothing })
    }

    fn value(&self, which: u64) -> &[u8] {
        let from = usize::try_from(which % DIFFERENT_VALUES as u64).unwrap_or(0);
        &self.fill[from..from + self.value_bytes]
    }
}

impl LoadTarget for Cassandra {
    async fn perform(&self, operation: Operation) -> Result<Answer, Failure> {
        match operation {
            Operation::Put { key, stamp } => {
                let mut value = self.value(stamp).to_vec();
                value[..MIN_VALUE_BYTES].copy_from_slice(&stamp.to_be_bytes());
                self.write((key.cast_signed(), value, stamp.cast_signed())).await
            }
            Operation::Get { key } => self.read((key.cast_signed(),)).await,
            Operation::Append { sensor, at } => {
                self.write((sensor.cast_signed(), bucket(at), at.cast_signed(), self.value(at)))
                    .await
            }
            Operation::Newest { sensor, at } => self.read((sensor.cast_signed(), bucket(at))).await,
            Operation::Grow { partition, row } => {
                self.write((partition.cast_signed(), row.cast_signed(), self.value(row))).await
            }
            Operation::Slice { partition, row } => {
                self.read((partition.cast_signed(), row.cast_signed())).await
            }
        }
    }

    async fn stored(&self, key: u64) -> Result<Option<u64>, Failure> {
        let rows = self.execute(&self.read, (key.cast_signed(),)).await?;
        let rows = rows.into_rows_result().map_err(|error| unreadable(&error))?;
        let row = rows.maybe_first_row::<(Option<&[u8]>,)>().map_err(|error| unreadable(&error))?;
        // A value that is too short for a stamp was written by another program.
        Ok(row.and_then(|(value,)| value?.first_chunk().copied()).map(u64::from_be_bytes))
    }

    fn rows(&self) -> Vec<u64> {
        self.rows.clone()
    }
}

/// Checks that one of the contacts accepts connections. Its error says more than the driver's.
async fn check_reachable(contacts: &[String]) -> Result<(), LoadError> {
    let mut tried = Vec::new();
    for contact in contacts {
        match timeout(CONNECT, TcpStream::connect(contact)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => tried.push(format!("{contact} ({error})")),
            Err(_) => tried.push(format!("{contact} (no answer for {CONNECT:?})")),
        }
    }
    Err(LoadError::Unreachable { tried: tried.join(", ") })
}

fn check_datacenter(session: &Session, load: &Load) -> Result<(), LoadError> {
    let state = session.get_cluster_state();
    let datacenters =
        || state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref());
    match datacenters().filter(|name| *name == load.datacenter).count() {
        0 => Err(LoadError::Datacenter {
            contacts: load.contacts.join(", "),
            wanted: load.datacenter.clone(),
            there: datacenters()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(", "),
        }),
        nodes if nodes < load.replication => Err(LoadError::Nodes {
            replication: load.replication,
            datacenter: load.datacenter.clone(),
            nodes,
        }),
        _ => Ok(()),
    }
}

/// Checks that an existing keyspace has the replication of the load.
fn check_keyspace(session: &Session, load: &Load) -> Result<(), LoadError> {
    let state = session.get_cluster_state();
    let strategy = state.get_keyspace(&load.keyspace).map(|keyspace| &keyspace.strategy);
    let right = match strategy {
        Some(Strategy::NetworkTopologyStrategy { datacenter_repfactors: factors }) => {
            factors.get(&load.datacenter) == Some(&load.replication)
        }
        _ => false,
    };
    match right {
        true => Ok(()),
        false => Err(LoadError::Keyspace {
            keyspace: load.keyspace.clone(),
            there: strategy.map_or_else(
                || "nothing that was found".to_owned(),
                |strategy| format!("{strategy:?}"),
            ),
            wanted: format!("{} in {}", load.replication, load.datacenter),
        }),
    }
}

async fn create(session: &Session, text: String) -> Result<(), LoadError> {
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(SETUP));
    let made = session.query_unpaged(statement.clone(), ()).await;
    made.map(drop).map_err(|error| LoadError::Statement {
        statement: statement.contents,
        error: error.to_string(),
    })
}

async fn prepare(
    session: &Session,
    load: &Load,
    text: String,
) -> Result<PreparedStatement, LoadError> {
    let mut prepared = session
        .prepare(text.as_str())
        .await
        .map_err(|error| LoadError::Statement { statement: text, error: error.to_string() })?;
    prepared.set_consistency(match load.consistency {
        Consistency::One => Level::One,
        Consistency::LocalQuorum => Level::LocalQuorum,
        Consistency::Quorum => Level::Quorum,
        Consistency::All => Level::All,
    });
    prepared.set_request_timeout(Some(load.timeout));
    // A write names all columns of its row, so repeating it is harmless and the driver may try
    // another node.
    prepared.set_is_idempotent(true);
    Ok(prepared)
}

/// Returns the number of rows that each partition has.
async fn rows(
    session: &Session,
    last: &PreparedStatement,
    partitions: u64,
) -> Result<Vec<u64>, LoadError> {
    let wrong =
        |error: String| LoadError::Statement { statement: last.get_statement().to_owned(), error };
    let mut counts = Vec::new();
    for partition in 0..partitions {
        let found = session.execute_unpaged(last, (partition.cast_signed(),)).await;
        let found = found.map_err(|error| wrong(error.to_string()))?;
        let found = found.into_rows_result().map_err(|error| wrong(error.to_string()))?;
        let row = found.maybe_first_row::<(i64,)>().map_err(|error| wrong(error.to_string()))?;
        counts.push(row.map_or(0, |(row,)| row.saturating_add(1).max(0).cast_unsigned()));
    }
    Ok(counts)
}

/// Returns the partition of a sensor's value whose time is `at`, in ns since 1970.
fn bucket(at: u64) -> i32 {
    let seconds = Duration::from_nanos(at).as_secs();
    i32::try_from(seconds / SERIES_BUCKET.as_secs()).expect("centuries of hours fit")
}

fn unreadable(error: &dyn std::error::Error) -> Failure {
    Failure { kind: "unreadable answer", text: error.to_string() }
}

fn failure(error: &ExecutionError) -> Failure {
    let kind = match error {
        ExecutionError::RequestTimeout(_) => "no answer in time",
        ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => "no connection",
        ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_)) => {
            "connection broken"
        }
        ExecutionError::LastAttemptError(RequestAttemptError::UnableToAllocStreamId) => {
            "connection full"
        }
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => match error {
            DbError::Unavailable { .. } => "replicas unavailable",
            DbError::Overloaded => "overloaded",
            DbError::IsBootstrapping => "bootstrapping",
            DbError::ReadTimeout { .. } => "read timeout",
            DbError::WriteTimeout { .. } => "write timeout",
            DbError::ReadFailure { .. } => "read failure",
            DbError::WriteFailure { .. } => "write failure",
            _ => "refused",
        },
        _ => "other",
    };
    Failure { kind, text: error.to_string() }
}
