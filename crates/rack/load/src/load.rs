//! The description of a load.

use crate::windows::MAX_WINDOWS;
use serde::Serialize;
use std::time::Duration;

/// Limit on the contact addresses of a load. [`Load::check`] refuses more.
pub const MAX_CONTACTS: usize = 64;

/// Limit on the number of [`Load::steps`].
pub const MAX_STEPS: usize = 10_000;

/// The highest rate, in operations per second. At this rate the numbers of operations grow no
/// faster than microseconds, so that write timestamps of a later run are above those of an earlier
/// run.
pub const MAX_RATE: f64 = 1e6;

/// Limit on the keys of [`Workload::KeyValue`], and on the sensors of [`Workload::Series`].
pub const MAX_KEYS: u64 = 1 << 40;

/// Limit on the keys of a load that remembers acknowledged writes: at 8 bytes for each key, 128
/// MiB.
pub const MAX_REMEMBERED: u64 = 1 << 24;

/// Limit on the partitions of [`Workload::Wide`]: before a run, the last row of each partition is
/// read.
pub const MAX_PARTITIONS: u64 = 4_096;

/// Lower limit on the length of a value, in bytes: each value begins with the stamp of its write.
pub const MIN_VALUE_BYTES: usize = 8;

/// Limit on the length of a value, in bytes (1 MiB).
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Limit on the replication factor.
pub const MAX_REPLICATION: usize = 9;

/// Lower limit on the timeout of an operation.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(10);

/// Upper limit on the timeout of an operation. The histograms measure times of up to twice this
/// limit.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Lower limit on the length of a window: a window's histograms take 400 KB while its operations
/// are outstanding.
pub const MIN_WINDOW: Duration = Duration::from_millis(250);

/// Limit on the length of a window.
pub const MAX_WINDOW: Duration = Duration::from_secs(3_600);

/// The default of [`Load::outstanding`].
pub const DEFAULT_OUTSTANDING: usize = 32_768;

/// Limit on [`Load::outstanding`].
pub const MAX_OUTSTANDING: usize = 262_144;

/// Limit on the names of the keyspace and the datacenter, in bytes.
const MAX_NAME: usize = 48;

/// A load: which operations to run on which cluster, at what rate and for how long. [`Load::new`]
/// gives sensible defaults. Set the fields to change, then pass the load to
/// [`RunningLoad::start`](crate::RunningLoad::start), which checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Addresses of the cluster, each `host:port`. The load needs one that answers.
    pub contacts: Vec<String>,
    /// The rates, each for its duration, one after the other.
    pub steps: Vec<Step>,
    /// The distribution of the operations' starts.
    pub arrivals: Arrivals,
    /// What the operations write and read.
    pub workload: Workload,
    /// Share of reads, from 0 to 1; all other operations are writes.
    pub reads: f64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Consistency level of all operations.
    pub consistency: Consistency,
    /// The keyspace, which is created if it is missing.
    pub keyspace: String,
    /// The datacenter whose nodes are used.
    pub datacenter: String,
    /// Replication factor in that datacenter.
    pub replication: usize,
    /// Timeout of an operation, counted from when it was sent. It includes the driver's retries on
    /// other nodes.
    pub timeout: Duration,
    /// Length of a window. Each operation is counted in the window of its scheduled start.
    pub window: Duration,
    /// Limit on the outstanding operations. An operation that would exceed the limit is counted as
    /// not sent, and is never sent later.
    pub outstanding: usize,
    /// Seed of all random choices: the same seed gives the same operations at the same times.
    pub seed: u64,
    /// Whether to remember acknowledged writes for verification; only for [`Workload::KeyValue`].
    pub remember: bool,
}

/// A rate for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Operations per second; 0 is a pause.
    pub rate: f64,
    /// Duration of the step.
    pub duration: Duration,
}

/// How the operations' starts are distributed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrivals {
    /// At equal distances.
    Even,
    /// As a Poisson process, like the requests of many independent clients.
    Poisson,
}

/// What operations write and read. The key, sensor or partition of each is chosen at random with
/// equal probability.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Workload {
    /// Keys with one value each, which is overwritten.
    KeyValue {
        /// Number of keys.
        keys: u64,
    },
    /// Sensors whose values are appended; reads fetch the newest values.
    Series {
        /// Number of sensors.
        sensors: u64,
    },
    /// Partitions that grow with each write, also from run to run; reads fetch rows from a random
    /// position.
    Wide {
        /// Number of partitions.
        partitions: u64,
    },
}

/// A consistency level: how many replicas must answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Consistency {
    /// One replica.
    One,
    /// A majority of the replicas in the datacenter.
    LocalQuorum,
    /// A majority of all replicas.
    Quorum,
    /// All replicas.
    All,
}

/// Why a load cannot run, or cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A value is out of range.
    #[error("{key} = {value}: want {want}")]
    Value {
        /// The name of the value.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that are allowed.
        want: String,
    },
    /// No contact accepts connections.
    #[error(
        "no Cassandra answers at {tried}: check that it runs, and rpc_address and \
         native_transport_port in its cassandra.yaml"
    )]
    Unreachable {
        /// Each address with the error from it.
        tried: String,
    },
    /// A contact accepts connections, but does not answer as Cassandra does, or not in time.
    #[error(
        "cannot connect to {contacts}: {error}; check that Cassandra has started there and \
         requires no password"
    )]
    Session {
        /// The addresses.
        contacts: String,
        /// The driver's error.
        error: String,
    },
    /// The datacenter does not exist.
    #[error("Cassandra at {contacts} has no datacenter {wanted}, only {there}")]
    Datacenter {
        /// The addresses.
        contacts: String,
        /// The datacenter in the load.
        wanted: String,
        /// The datacenters that exist.
        there: String,
    },
    /// There are fewer nodes than replicas.
    #[error(
        "{replication} replicas in {datacenter}, which has {nodes} nodes: use {nodes} at most, or \
         add nodes"
    )]
    Nodes {
        /// The replication factor.
        replication: usize,
        /// The datacenter.
        datacenter: String,
        /// The number of nodes in the datacenter.
        nodes: usize,
    },
    /// The keyspace exists with another replication.
    #[error(
        "keyspace {keyspace} is replicated as {there}, not {wanted}: name another one, or DROP \
         KEYSPACE {keyspace}"
    )]
    Keyspace {
        /// The keyspace.
        keyspace: String,
        /// The replication that it has.
        there: String,
        /// The replication in the load.
        wanted: String,
    },
    /// The keyspace or table could not be created, a statement could not be prepared, or the last
    /// row of a partition could not be read.
    #[error("{statement}: {error}")]
    Statement {
        /// The statement.
        statement: String,
        /// The error.
        error: String,
    },
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] std::io::Error),
    /// The load did not remember acknowledged writes, so they cannot be verified.
    #[error("acknowledged writes were not remembered: set `remember` before the load")]
    NotRemembered,
    /// Too many keys could not be read.
    #[error(
        "{unread} keys could not be read, the first because: {example}; verify again when the \
         cluster answers"
    )]
    Unread {
        /// Number of keys that could not be read, until verification gave up.
        unread: u64,
        /// The first error.
        example: String,
    },
}

impl Load {
    /// Creates a load on a cluster with these rates. All other fields have defaults: 100,000 keys
    /// with values of 100 bytes, reads for half of the operations, LOCAL_QUORUM with three replicas
    /// in `dc1`, a timeout of 10 s, windows of 1 s.
    #[must_use]
    pub fn new<C: Into<String>>(contacts: impl IntoIterator<Item = C>, steps: Vec<Step>) -> Self {
        Self {
            contacts: contacts.into_iter().map(Into::into).collect(),
            steps,
            arrivals: Arrivals::Even,
            workload: Workload::KeyValue { keys: 100_000 },
            reads: 0.5,
            value_bytes: 100,
            consistency: Consistency::LocalQuorum,
            keyspace: "sprat_load".to_owned(),
            datacenter: "dc1".to_owned(),
            replication: 3,
            timeout: Duration::from_secs(10),
            window: Duration::from_secs(1),
            outstanding: DEFAULT_OUTSTANDING,
            seed: 1,
            remember: false,
        }
    }

    /// Returns the duration of all steps.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.steps.iter().fold(Duration::ZERO, |sum, step| sum.saturating_add(step.duration))
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`LoadError::Value`] for the first value that is out of range or malformed, for `remember`
    /// with another workload than [`Workload::KeyValue`], and for a duration of more than 86,400
    /// windows.
    pub fn check(&self) -> Result<(), LoadError> {
        within("contacts", self.contacts.len(), 1, MAX_CONTACTS)?;
        for contact in &self.contacts {
            let port = contact
                .rsplit_once(':')
                .filter(|(host, _)| !host.is_empty())
                .and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none_or(|port| port == 0) || contact.len() > 256 {
                return Err(value("contact", contact, "host:port, as 10.0.0.3:9042"));
            }
        }
        self.check_steps()?;
        match self.workload {
            Workload::KeyValue { keys } => {
                within("keys", keys, 1, MAX_KEYS)?;
                if self.remember {
                    within("keys that are remembered", keys, 1, MAX_REMEMBERED)?;
                }
            }
            Workload::Series { sensors } => within("sensors", sensors, 1, MAX_KEYS)?,
            Workload::Wide { partitions } => within("partitions", partitions, 1, MAX_PARTITIONS)?,
        }
        if self.remember && !matches!(self.workload, Workload::KeyValue { .. }) {
            return Err(value(
                "remember",
                "true",
                "keys and values as the workload: others are not verified",
            ));
        }
        if !(0.0..=1.0).contains(&self.reads) {
            return Err(value("reads", self.reads, "a share from 0 to 1"));
        }
        within("value bytes", self.value_bytes, MIN_VALUE_BYTES, MAX_VALUE_BYTES)?;
        within("replication", self.replication, 1, MAX_REPLICATION)?;
        within("outstanding", self.outstanding, 1, MAX_OUTSTANDING)?;
        // Both names go into statements unquoted.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let lower = self.keyspace.starts_with(|c: char| c.is_ascii_lowercase());
        if !lower || self.keyspace.len() > MAX_NAME || !self.keyspace.chars().all(plain) {
            let want = "a letter, then up to 47 letters, digits and underscores, all of them small";
            return Err(value("keyspace", &self.keyspace, want));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !(1..=MAX_NAME).contains(&self.datacenter.len()) || !self.datacenter.chars().all(plain) {
            return Err(value(
                "datacenter",
                &self.datacenter,
                "1 to 48 letters, digits, dashes, dots and underscores",
            ));
        }
        let times = [
            ("timeout", self.timeout, MIN_TIMEOUT, MAX_TIMEOUT),
            ("window", self.window, MIN_WINDOW, MAX_WINDOW),
        ];
        for (key, time, least, most) in times {
            if !(least..=most).contains(&time) {
                return Err(value(key, format!("{time:?}"), format!("{least:?} to {most:?}")));
            }
        }
        let most = self.window.saturating_mul(u32::try_from(MAX_WINDOWS).unwrap_or(u32::MAX));
        if self.duration() > most {
            let want =
                format!("{most:?} at most with windows of {:?}, or longer windows", self.window);
            return Err(value("duration", format!("{:?}", self.duration()), want));
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<(), LoadError> {
        within("steps", self.steps.len(), 1, MAX_STEPS)?;
        for step in &self.steps {
            if !(0.0..=MAX_RATE).contains(&step.rate) {
                return Err(value(
                    "rate",
                    step.rate,
                    format!("0 to {MAX_RATE} operations a second"),
                ));
            }
            if step.duration.is_zero() {
                return Err(value("duration of a step", "0", "more than 0"));
            }
        }
        Ok(())
    }
}

impl Step {
    /// Returns steps of equal duration whose rates go evenly from `from` to `to`. A single step has
    /// the rate `from`.
    #[must_use]
    pub fn ramp(from: f64, to: f64, steps: usize, each: Duration) -> Vec<Self> {
        let last = steps.saturating_sub(1).max(1) as f64;
        let rate = |step: usize| from + (to - from) * step as f64 / last;
        (0..steps).map(|step| Self { rate: rate(step), duration: each }).collect()
    }
}

fn value(key: &'static str, value: impl ToString, want: impl Into<String>) -> LoadError {
    LoadError::Value { key, value: value.to_string(), want: want.into() }
}

fn within<N: Copy + PartialOrd + std::fmt::Display>(
    key: &'static str,
    count: N,
    least: N,
    most: N,
) -> Result<(), LoadError> {
    match least <= count && count <= most {
        true => Ok(()),
        false => Err(value(key, count, format!("{least} to {most}"))),
    }
}
