//! What is to be done.

use crate::windows::MAX_WINDOWS;
use serde::Serialize;
use std::time::Duration;

/// Most addresses by which a cluster is found.
pub const MAX_CONTACTS: usize = 64;

/// Most steps of the rate.
pub const MAX_STEPS: usize = 10_000;

/// Highest rate, operations a second: numbers of operations stay behind microseconds, so that a
/// later run's write timestamps are above an earlier one's.
pub const MAX_RATE: f64 = 1e6;

/// Most keys, and most sensors.
pub const MAX_KEYS: u64 = 1 << 40;

/// Most keys of which acknowledged writes are remembered: 8 bytes each, 128 MiB.
pub const MAX_REMEMBERED: u64 = 1 << 24;

/// Most partitions of [`Workload::Wide`]: each is asked for its last row before a run.
pub const MAX_PARTITIONS: u64 = 4_096;

/// Shortest value, bytes: a key's value begins with its stamp.
pub const MIN_VALUE_BYTES: usize = 8;

/// Longest value, bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Most replicas of data.
pub const MAX_REPLICATION: usize = 9;

/// Shortest time for an answer that can be asked for.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(10);

/// Longest time for an answer: histograms tell times up to twice of it.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Shortest window: while some of its operations have no answer, it takes 400 KB of histograms.
pub const MIN_WINDOW: Duration = Duration::from_millis(250);

/// Longest window.
pub const MAX_WINDOW: Duration = Duration::from_secs(3_600);

/// Operations under way at once, unless told.
pub const OUTSTANDING: usize = 32_768;

/// Most operations under way that can be allowed.
pub const MAX_OUTSTANDING: usize = 262_144;

/// Longest name, bytes.
const MAX_NAME: usize = 48;

/// A load: what to do, how often, for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Where the cluster is found: `host:port`; one that answers is enough.
    pub contacts: Vec<String>,
    /// Rates, one after the other.
    pub steps: Vec<Step>,
    /// How starts follow one another.
    pub arrivals: Arrivals,
    /// What is written and read.
    pub workload: Workload,
    /// Share of reads, 0 to 1; the others are writes.
    pub reads: f64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// How many replicas must have answered.
    pub consistency: Consistency,
    /// The keyspace, which is made where there is none.
    pub keyspace: String,
    /// The datacenter whose nodes are asked.
    pub datacenter: String,
    /// Replicas of each row there.
    pub replication: usize,
    /// How long an answer may take, the driver's retries on other nodes included, from when the
    /// operation was sent.
    pub timeout: Duration,
    /// How long a window is.
    pub window: Duration,
    /// Most operations under way; those that would be beyond are counted as not sent, and are not
    /// sent later.
    pub outstanding: usize,
    /// Where chance comes from: the same seed gives the same operations at the same times.
    pub seed: u64,
    /// Whether to remember which writes were acknowledged, for verification. Of
    /// [`Workload::KeyValue`] only.
    pub remember: bool,
}

/// A rate for some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Operations a second; 0: a pause.
    pub rate: f64,
    /// How long.
    pub duration: Duration,
}

/// How starts follow one another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrivals {
    /// Evenly.
    Even,
    /// By chance, as those of many who know nothing of each other.
    Poisson,
}

/// What is written and read. Keys, sensors and partitions are picked by chance, each as often as
/// the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Workload {
    /// Keys with one value each, which is overwritten.
    KeyValue {
        /// How many.
        keys: u64,
    },
    /// Sensors whose values are appended; reads ask for the newest ones.
    Series {
        /// How many.
        sensors: u64,
    },
    /// Partitions that grow with each write, from run to run; reads ask for rows from anywhere in
    /// one.
    Wide {
        /// How many.
        partitions: u64,
    },
}

/// How many replicas must have answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Consistency {
    /// One.
    One,
    /// Most of those in the datacenter.
    LocalQuorum,
    /// Most.
    Quorum,
    /// All.
    All,
}

/// Why a load cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A value means nothing.
    #[error("{key} = {value}: want {want}")]
    Value {
        /// Which.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        want: String,
    },
    /// Nobody listens.
    #[error(
        "no Cassandra at {tried}: see that it runs, and that rpc_address and native_transport_port in its cassandra.yaml are these"
    )]
    Unreachable {
        /// Each address, with what came of it.
        tried: String,
    },
    /// Somebody listens who does not answer as Cassandra does.
    #[error(
        "{contacts} cannot be talked to: {error}; see that Cassandra is there and has started, and asks for no password"
    )]
    Session {
        /// The addresses.
        contacts: String,
        /// What the driver says.
        error: String,
    },
    /// The datacenter is not there.
    #[error("no datacenter {wanted} behind {contacts}: there is {there}")]
    Datacenter {
        /// The addresses.
        contacts: String,
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: String,
    },
    /// There are too few nodes.
    #[error(
        "{replication} replicas in {datacenter}, which has {nodes} nodes: ask for {nodes} at most, or add nodes"
    )]
    Nodes {
        /// Replicas that were asked for.
        replication: usize,
        /// Where.
        datacenter: String,
        /// How many nodes it has.
        nodes: usize,
    },
    /// The keyspace is there, with other replicas.
    #[error(
        "keyspace {keyspace} is replicated as {there}, not {wanted}: name another one, or DROP KEYSPACE {keyspace}"
    )]
    Keyspace {
        /// Its name.
        keyspace: String,
        /// How it is.
        there: String,
        /// How it was to be.
        wanted: String,
    },
    /// Tables could not be made, or not be prepared for.
    #[error("{statement}: {error}")]
    Statement {
        /// What was asked.
        statement: String,
        /// What was said.
        error: String,
    },
    /// Threads could not be started.
    #[error("threads cannot be started: {0}")]
    Threads(#[from] std::io::Error),
    /// There is nothing to verify.
    #[error("acknowledged writes were not remembered: set `remember` before the load")]
    NotRemembered,
    /// Too many keys could not be read.
    #[error(
        "{unread} keys could not be read, the first because: {example}; verify again when the cluster answers"
    )]
    Unread {
        /// How many, until it was given up.
        unread: u64,
        /// What was said of the first.
        example: String,
    },
}

impl Load {
    /// On a cluster, with these rates; all else is as one asks for it without thinking: 100,000
    /// keys with 100 bytes each, half reads, local quorums of three replicas in `dc1`, 10 s for
    /// an answer, windows of 1 s.
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
            outstanding: OUTSTANDING,
            seed: 1,
            remember: false,
        }
    }

    /// How long operations are asked for.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.steps.iter().fold(Duration::ZERO, |sum, step| sum.saturating_add(step.duration))
    }

    /// Whether it can be done.
    ///
    /// # Errors
    /// The first value that means nothing, with what would do.
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
        // Both go into statements.
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
                return Err(value("duration of a step", "0", "more than nothing"));
            }
        }
        Ok(())
    }
}

impl Step {
    /// As many steps as said from one rate to another, each as long as said.
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
