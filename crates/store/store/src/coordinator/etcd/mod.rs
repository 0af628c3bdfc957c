//! Metadata in etcd, which several coordinators share. Requests go through etcd's HTTP gateway.
//!
//! ```text
//! /sprat/NAME/leader      the leader: a number drawn at its start, and its locator;
//!                         the key's mod revision is the leader's *term*
//! /sprat/NAME/rows/...    the rows of the catalog
//! ```
//!
//! Each request opens a connection of its own. Requests are rare. If a request used a connection
//! that was idle while etcd restarted, it would be unknown whether its transaction was executed.

mod http;
mod metadata;
mod words;

pub use metadata::{APPLY_WAIT, LOAD_WAIT, MAX_CHANGES, MetadataEtcd};

use super::election::LeaderRecord;
use http::{Endpoint, Fault, Limits};
use serde_json::Value;
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

/// The largest number of URLs of an etcd cluster; more are refused.
pub const MAX_URLS: usize = 16;

/// The longest name of a Sprat cluster within etcd, in bytes.
pub const MAX_NAME: usize = 64;

/// How long reading or writing the leader's key may take.
pub const REGISTER_WAIT: Duration = Duration::from_secs(1);

/// Why etcd cannot be used, or a request failed.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// A URL is not valid.
    #[error("--etcd {url}: {fault}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with the URL.
        fault: &'static str,
    },
    /// The name of a cluster is not valid.
    #[error("--name {0:?}: a cluster's name has 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`")]
    Name(String),
    /// No endpoint could be reached: nothing was executed.
    #[error("{0}; is etcd running there, and can it be reached from here?")]
    Unreachable(String),
    /// etcd refused the request: nothing was executed.
    #[error("{url} refuses: {reason}")]
    Refused {
        /// The endpoint.
        url: String,
        /// etcd's message.
        reason: String,
    },
    /// It is not known whether the request was executed.
    #[error("{url} may or may not have executed the request: {reason}")]
    Unknown {
        /// The endpoint.
        url: String,
        /// The error in place of a response.
        reason: String,
    },
    /// The operating system returned an error.
    #[error("cannot start the etcd client: {0}")]
    System(io::Error),
}

/// Where a cluster's metadata is in etcd: URLs and a name.
#[derive(Clone, Debug)]
pub struct EtcdPlace {
    endpoints: Vec<Endpoint>,
    prefix: String,
    /// The shortest time limit of any request.
    min_wait: Duration,
}

impl EtcdPlace {
    /// Returns the place of the metadata of cluster `name` in the etcd at `urls`, which are
    /// separated by commas.
    ///
    /// # Errors
    /// [`EtcdError::Url`] when a URL cannot be parsed or there are more than `MAX_URLS`, and
    /// [`EtcdError::Name`] when the name is empty, longer than `MAX_NAME` or has other characters
    /// than ASCII letters, digits, `-`, `_` and `.`.
    pub fn new(urls: &str, name: &str) -> Result<Self, EtcdError> {
        let endpoints = urls
            .split(',')
            .map(|url| Endpoint::parse(url.trim()))
            .collect::<Result<Vec<_>, _>>()?;
        if endpoints.len() > MAX_URLS {
            return Err(EtcdError::Url {
                url: urls.to_owned(),
                fault: "more than 16 URLs, the limit",
            });
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(EtcdError::Name(name.to_owned()));
        }
        Ok(Self { endpoints, prefix: format!("/sprat/{name}/"), min_wait: Duration::ZERO })
    }

    /// Raises the time limit of every request to at least `min_wait`. It is for tests, whose etcd
    /// may get no processor for seconds. A coordinator must not use it: leases would expire while
    /// it waits ([`APPLY_WAIT`]).
    #[must_use]
    pub fn waiting(self, min_wait: Duration) -> Self {
        Self { min_wait, ..self }
    }

    /// Makes a client, one for each thread that uses it. Nothing is sent yet.
    ///
    /// # Errors
    /// [`EtcdError::System`] when the system refuses what an event loop needs.
    pub fn open(&self) -> Result<Etcd, EtcdError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(EtcdError::System)?;
        Ok(Etcd { place: self.clone(), runtime, first: Cell::new(0) })
    }
}

/// A client of an etcd cluster. Its calls block until the response has arrived or the time limit is
/// over.
pub struct Etcd {
    place: EtcdPlace,
    runtime: Runtime,
    /// Index of the endpoint that answered last, which is tried first.
    first: Cell<usize>,
}

/// A key, its value, and the revision of the last write.
struct Row {
    key: String,
    value: Vec<u8>,
    mod_revision: u64,
}

impl Etcd {
    /// Returns the URLs, separated by commas.
    #[must_use]
    pub fn urls(&self) -> String {
        self.place.endpoints.iter().map(Endpoint::url).collect::<Vec<_>>().join(",")
    }

    /// Reads the leader's key; `None` if no coordinator ever led.
    ///
    /// # Errors
    /// [`EtcdError`] when etcd cannot be reached in time or refuses, or when its response or the
    /// key's value cannot be parsed.
    pub fn leader(&self) -> Result<Option<LeaderRecord>, EtcdError> {
        let rows = self.range(&words::one(&self.leader_key()), REGISTER_WAIT)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let nonsense = || self.nonsense("the leader's key has a value that no coordinator wrote");
        LeaderRecord::parse(row.mod_revision, &row.value).map(Some).ok_or_else(nonsense)
    }

    /// Writes the leader's key if its term is still `over` (zero: if there is no leader). Returns
    /// the new term; `None` if another coordinator wrote the key first.
    ///
    /// # Errors
    /// [`EtcdError`] when etcd cannot be reached in time or refuses, or when it is not known
    /// whether the key was written ([`EtcdError::Unknown`]). In the last case call
    /// [`leader`](Self::leader) to find out.
    pub fn claim(&self, over: u64, life: u64, locator: &str) -> Result<Option<u64>, EtcdError> {
        let key = self.leader_key();
        let change = (key.clone(), Some(LeaderRecord::encode(life, locator)));
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

    fn range(&self, request: &Value, wait: Duration) -> Result<Vec<Row>, EtcdError> {
        let response = self.request("/v3/kv/range", request, wait, true)?;
        words::rows(&response).ok_or_else(|| self.nonsense("an invalid answer"))
    }

    /// Makes changes on condition that `key` was last written at `mod_revision` (zero: that it does
    /// not exist). Returns the revision of the change; `None` if the condition did not hold.
    fn transact(
        &self,
        (key, mod_revision): (&str, u64),
        changes: &[(String, Option<Vec<u8>>)],
        wait: Duration,
    ) -> Result<Option<u64>, EtcdError> {
        let request = words::transaction((key, mod_revision), changes);
        let response = self.request("/v3/kv/txn", &request, wait, false)?;
        let unknown =
            || EtcdError::Unknown { url: self.urls(), reason: "an invalid answer".into() };
        words::outcome(&response).ok_or_else(unknown)
    }

    /// Sends a request to one endpoint after the other until one responds. A request that is not
    /// `idempotent` is sent to only one endpoint: the first that accepts a connection.
    fn request(
        &self,
        path: &str,
        request: &Value,
        wait: Duration,
        idempotent: bool,
    ) -> Result<Value, EtcdError> {
        let endpoints = &self.place.endpoints;
        let until = Instant::now() + wait.max(self.place.min_wait);
        let mut last = EtcdError::Unreachable("no request was sent".into());
        for (tried, at) in (0..endpoints.len())
            .map(|number| (self.first.get() + number) % endpoints.len())
            .enumerate()
        {
            let endpoint = &endpoints[at];
            let left = until.saturating_duration_since(Instant::now());
            // A silent endpoint must not use up the time of the others.
            let share = left / u32::try_from(endpoints.len() - tried).expect("few");
            let limits = Limits { connect: share, in_all: if idempotent { share } else { left } };
            match self.runtime.block_on(http::post(endpoint, path, request.to_string(), limits)) {
                Ok(response) => {
                    self.first.set(at);
                    return Ok(response);
                }
                Err(Fault::NotSent(reason)) => {
                    last = EtcdError::Unreachable(format!("{}: {reason}", endpoint.url()))
                }
                Err(Fault::Refused(reason)) => {
                    return Err(EtcdError::Refused { url: endpoint.url(), reason });
                }
                Err(Fault::Unknown(reason)) => {
                    last = EtcdError::Unknown { url: endpoint.url(), reason };
                    if !idempotent {
                        return Err(last);
                    }
                }
            }
        }
        Err(last)
    }
}
