//! The catalog's rows in etcd.

use super::super::members::{LEASE, RENEWAL};
use super::super::metadata::{Metadata, MetadataError};
use super::{Etcd, EtcdError, words};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a change may take. The coordinator's node waits for it meanwhile and renews no lease,
/// and the oldest has so much left, and a little more: what takes longer ends as not known, and the
/// coordinator begins anew.
pub const APPLY_WAIT: Duration = Duration::from_millis(300);

const _: () = assert!(APPLY_WAIT.as_millis() + RENEWAL.as_millis() < LEASE.as_millis());

/// How long reading all of it may take.
pub const LOAD_WAIT: Duration = Duration::from_secs(5);

/// Most changes made at once: what etcd takes in one transaction, unless it was told otherwise.
pub const MAX_CHANGES: usize = 128;

/// Metadata in etcd, for as long as a term lasts: every change is made only if the leader's key was
/// last written by the claim that began this term. So a coordinator that was deposed changes
/// nothing, whatever it takes itself for; and what it had on its way when it began a new term comes
/// to nothing too.
pub struct MetadataEtcd {
    etcd: Etcd,
    term: u64,
}

impl MetadataEtcd {
    /// Metadata of the coordinator that leads in this term.
    #[must_use]
    pub fn new(etcd: Etcd, term: u64) -> Self {
        Self { etcd, term }
    }

    fn fault(&self, error: &EtcdError) -> MetadataError {
        let (place, cause) = (self.etcd.urls(), error.to_string());
        match error {
            EtcdError::Unknown { .. } => MetadataError::Unknown { place, cause },
            EtcdError::Unreachable(_) => MetadataError::Unavailable { place, cause },
            _ => MetadataError::Failed { place, cause },
        }
    }
}

impl Metadata for MetadataEtcd {
    fn place(&self) -> String {
        self.etcd.urls()
    }

    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError> {
        let prefix = self.etcd.rows_prefix();
        let rows =
            self.etcd.range(&words::all(&prefix), LOAD_WAIT).map_err(|error| self.fault(&error))?;
        let named = rows
            .into_iter()
            .map(|row| Some((row.key.strip_prefix(&prefix)?.to_owned(), row.value)));
        let all: Option<_> = named.collect();
        all.ok_or_else(|| self.fault(&self.etcd.nonsense("rows that were not asked for")))
    }

    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError> {
        assert!(
            changes.len() <= MAX_CHANGES,
            "{} changes at once; whoever makes them knows the limit",
            changes.len()
        );
        let prefix = self.etcd.rows_prefix();
        let changes: Vec<_> =
            changes.iter().map(|(key, value)| (format!("{prefix}{key}"), value.clone())).collect();
        match self.etcd.transact((&self.etcd.leader_key(), self.term), &changes, APPLY_WAIT) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(MetadataError::Fenced { place: self.etcd.urls() }),
            // Most likely it is full, or has no leader: the cluster waits until somebody has seen
            // to it.
            Err(error @ EtcdError::Refused { .. }) => {
                tracing::error!("{error}");
                Err(MetadataError::Unavailable {
                    place: self.etcd.urls(),
                    cause: error.to_string(),
                })
            }
            Err(error) => Err(self.fault(&error)),
        }
    }

    fn most_changes(&self) -> usize {
        MAX_CHANGES
    }
}
