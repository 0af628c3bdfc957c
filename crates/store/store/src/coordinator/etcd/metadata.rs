//! The catalog's rows in etcd, changed only by the leader.

use super::super::members::{LEASE, RENEWAL};
use super::super::metadata::{Metadata, MetadataError};
use super::{Etcd, EtcdError, words};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a change may take. The coordinator's node blocks meanwhile and renews no lease, so this
/// time plus [`RENEWAL`] must be shorter than [`LEASE`]. If etcd got a change and does not answer
/// in this time, the outcome is unknown: the coordinator resigns and reads the catalog again in a
/// new term.
pub const APPLY_WAIT: Duration = Duration::from_millis(300);

const _: () = assert!(APPLY_WAIT.as_millis() + RENEWAL.as_millis() < LEASE.as_millis());

/// How long reading all rows may take.
pub const LOAD_WAIT: Duration = Duration::from_secs(5);

/// The largest number of changes in one call, which is etcd's default limit for a transaction. A
/// call with more changes panics.
pub const MAX_CHANGES: usize = 128;

/// Metadata in etcd, for one term of a leader.
///
/// Every change is a transaction on condition that the leader's key was last written by the claim
/// that began this term. So a coordinator that was deposed changes nothing, even if it does not
/// know that it was deposed. If a coordinator begins a new term while a change of its old term is
/// on its way, that change fails as well.
pub struct MetadataEtcd {
    etcd: Etcd,
    term: u64,
}

impl MetadataEtcd {
    /// Returns the metadata for the coordinator that leads in `term`.
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
        all.ok_or_else(|| self.fault(&self.etcd.nonsense("rows that were not requested")))
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
            // Most likely etcd is full, or has no leader: the coordinator keeps leading and refuses
            // changes until an operator has fixed that.
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
