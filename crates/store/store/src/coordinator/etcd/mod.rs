//! Metadata in etcd, over its HTTP interface: what several coordinators share.
//!
//! ```text
//! /sprat/NAME/leader      who leads: a number drawn at its start, and its locator; the key's mod revision is its *term*
//! /sprat/NAME/rows/...    the rows of the catalog
//! ```
//!
//! Each request has a connection of its own: they are seldom, and one that has been idle since
//! before etcd's restart would leave it open whether a transaction was executed.

mod http;
mod metadata;
mod words;

pub use metadata::{APPLY_WAIT, LOAD_WAIT, MAX_CHANGES, MetadataEtcd};

use super::election::Holder;
use http::{Endpoint, Fault};
use serde_json::Value;
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

/// Most URLs of one etcd.
pub const MAX_URLS: usize = 16;

/// Longest name of a cluster within etcd, bytes.
pub const MAX_NAME: usize = 64;

/// How long it may take to learn who leads, or to become the one who does.
pub const REGISTER_WAIT: Duration = Duration::from_secs(1);

/// Why etcd cannot be used, or has not done what was asked.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// A URL that is of no use.
    #[error("--etcd {url}: {fault}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Not a name.
    #[error("--name {0:?}: a cluster's name has 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`")]
    Name(String),
    /// Nobody was asked: nothing is done.
    #[error("{0}; is etcd running there, and can it be reached from here?")]
    Unreachable(String),
    /// etcd refuses; nothing is done.
    #[error("{url} refuses: {reason}")]
    Refused {
        /// Which.
        url: String,
        /// In its words.
        reason: String,
    },
    /// Whether it is done is not known.
    #[error("{url} has not said whether it did what was asked: {reason}")]
    Unknown {
        /// Which.
        url: String,
        /// What came instead.
        reason: String,
    },
    /// The operating system refuses.
    #[error("cannot begin to speak to etcd: {0}")]
    System(io::Error),
}

/// Where a cluster's metadata is.
#[derive(Clone, Debug)]
pub struct EtcdPlace {
    endpoints: Vec<Endpoint>,
    prefix: String,
    /// Every question waits for its answer so long at least.
    least_wait: Duration,
}

impl EtcdPlace {
    /// The metadata of cluster `name` in the etcd of these URLs, with commas between them.
    ///
    /// # Errors
    /// [`EtcdError::Url`], [`EtcdError::Name`].
    pub fn new(urls: &str, name: &str) -> Result<Self, EtcdError> {
        let endpoints = urls
            .split(',')
            .map(|url| Endpoint::parse(url.trim()))
            .collect::<Result<Vec<_>, _>>()?;
        if endpoints.len() > MAX_URLS {
            return Err(EtcdError::Url {
                url: urls.to_owned(),
                fault: "16 URLs are the most that is taken",
            });
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(EtcdError::Name(name.to_owned()));
        }
        Ok(Self { endpoints, prefix: format!("/sprat/{name}/"), least_wait: Duration::ZERO })
    }

    /// Waits so long at least for every answer. A coordinator must not: its lease is over before
    /// ([`APPLY_WAIT`]). For tests whose etcd may be kept from the processor for seconds.
    #[must_use]
    pub fn waiting(self, least_wait: Duration) -> Self {
        Self { least_wait, ..self }
    }

    /// A way there; each thread has its own. Sends nothing yet.
    ///
    /// # Errors
    /// [`EtcdError::System`].
    pub fn open(&self) -> Result<Etcd, EtcdError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(EtcdError::System)?;
        Ok(Etcd { place: self.clone(), runtime, first: Cell::new(0) })
    }
}

/// A way to an etcd.
pub struct Etcd {
    place: EtcdPlace,
    runtime: Runtime,
    /// Who answered last.
    first: Cell<usize>,
}

/// A row as etcd has it.
struct Row {
    key: String,
    value: Vec<u8>,
    /// The revision in which it was written.
    written: u64,
}

impl Etcd {
    /// The URLs, as they were given.
    #[must_use]
    pub fn urls(&self) -> String {
        self.place.endpoints.iter().map(Endpoint::url).collect::<Vec<_>>().join(",")
    }

    /// Who leads.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn holder(&self) -> Result<Option<Holder>, EtcdError> {
        let rows = self.range(&words::one(&self.leader_key()), REGISTER_WAIT)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let nonsense = || self.nonsense("the leader's key holds nothing that a coordinator wrote");
        Holder::parse(row.written, &row.value).map(Some).ok_or_else(nonsense)
    }

    /// Leads from here on, if the leader is still the one of term `over` (zero: if there is none).
    /// Returns the new term; `None` when it was somebody else's by then.
    ///
    /// # Errors
    /// [`EtcdError`]; when that is [`EtcdError::Unknown`], [`holder`](Self::holder) tells.
    pub fn claim(&self, over: u64, life: u64, locator: &str) -> Result<Option<u64>, EtcdError> {
        let key = self.leader_key();
        let change = (key.clone(), Some(Holder::encode(life, locator)));
        self.transact((&key, over), &[change], REGISTER_WAIT)
    }

    fn leader_key(&self) -> String {
        format!("{}leader", self.place.prefix)
    }

    fn rows_prefix(&self) -> String {
        format!("{}rows/", self.place.prefix)
    }

    fn nonsense(&self, reason: &str) -> EtcdError {
        EtcdError::Refused { url: self.urls(), reason: reason.to_owned() }
    }

    fn range(&self, question: &Value, wait: Duration) -> Result<Vec<Row>, EtcdError> {
        let answer = self.ask("/v3/kv/range", question, wait, true)?;
        words::rows(&answer).ok_or_else(|| self.nonsense("an answer that makes no sense"))
    }

    /// Makes changes if a key was written in this revision (zero: if there is no such key). Returns
    /// the revision of the change.
    fn transact(
        &self,
        (key, written): (&str, u64),
        changes: &[(String, Option<Vec<u8>>)],
        wait: Duration,
    ) -> Result<Option<u64>, EtcdError> {
        let answer =
            self.ask("/v3/kv/txn", &words::transaction((key, written), changes), wait, false)?;
        let unknown = || EtcdError::Unknown {
            url: self.urls(),
            reason: "an answer that makes no sense".into(),
        };
        words::outcome(&answer).ok_or_else(unknown)
    }

    /// Asks one after the other, until one answers; what must not be done twice is asked of one
    /// only, once it is connected.
    fn ask(
        &self,
        path: &str,
        question: &Value,
        wait: Duration,
        again: bool,
    ) -> Result<Value, EtcdError> {
        let endpoints = &self.place.endpoints;
        let until = Instant::now() + wait.max(self.place.least_wait);
        let mut last = EtcdError::Unreachable("nobody was asked".into());
        for (tried, at) in (0..endpoints.len())
            .map(|number| (self.first.get() + number) % endpoints.len())
            .enumerate()
        {
            let endpoint = &endpoints[at];
            let left = until.saturating_duration_since(Instant::now());
            // One that is silent does not use up the time of the others.
            let share = left / u32::try_from(endpoints.len() - tried).expect("few");
            let limits = (share, if again { share } else { left });
            match self.runtime.block_on(http::post(endpoint, path, question.to_string(), limits)) {
                Ok(answer) => {
                    self.first.set(at);
                    return Ok(answer);
                }
                Err(Fault::NotSent(reason)) => {
                    last = EtcdError::Unreachable(format!("{}: {reason}", endpoint.url()))
                }
                Err(Fault::Refused(reason)) => {
                    return Err(EtcdError::Refused { url: endpoint.url(), reason });
                }
                Err(Fault::Perhaps(reason)) => {
                    last = EtcdError::Unknown { url: endpoint.url(), reason };
                    if !again {
                        return Err(last);
                    }
                }
            }
        }
        Err(last)
    }
}
