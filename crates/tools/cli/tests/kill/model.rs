//! A model of the store's promises: after a kill, everything that was acknowledged or returned by a
//! read must exist.

use sprat_chance::Chance;
use sprat_client::Row;
use std::collections::HashMap;

/// A value, represented by the seed and length from which it is generated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Value {
    pub(crate) seed: u64,
    pub(crate) len: usize,
}

impl Value {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut random = Chance::new(self.seed);
        let mut bytes = Vec::with_capacity(self.len + 8);
        while bytes.len() < self.len {
            bytes.extend_from_slice(&random.draw().to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }
}

/// A change whose answer is pending.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    Put(Value),
    Remove,
}

/// A key that only one writer changes, one change at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owned {
    /// Version and value that were acknowledged or returned by a read; `None` if the object is
    /// absent.
    pub(crate) certain: Option<(u64, Value)>,
    /// Highest version that was ever returned. Later versions are higher, even after a removal.
    pub(crate) floor: u64,
    pub(crate) pending: Option<Intent>,
    /// Number of changes. A read compares it to find out whether another change began after the
    /// read did.
    pub(crate) changes: u64,
}

impl Owned {
    /// Records the result of a read during which no change but `pending` was in flight. The result
    /// is certain from now on.
    pub(crate) fn record_read(&mut self, name: &str, seen: Option<(u64, &[u8])>) {
        if let (None, None) = (seen, self.certain) {
            return;
        }
        if let (Some((version, bytes)), Some((certain, value))) = (seen, self.certain)
            && version == certain
        {
            assert_eq!(bytes, value.bytes(), "{name}: another value under the same version");
            return;
        }
        match (seen, self.pending) {
            // Reads that began before this one ended may still return the previous state; `changes`
            // identifies them.
            (None, Some(Intent::Remove)) => {
                self.certain = None;
                self.changes += 1;
            }
            (Some((version, bytes)), Some(Intent::Put(value))) if version > self.floor => {
                assert_eq!(bytes, value.bytes(), "{name}: a value that nobody wrote");
                self.certain = Some((version, value));
                self.floor = version;
                self.changes += 1;
            }
            _ => panic!(
                "{name}: found version {:?}, promised was {:?} (floor {}), under way {:?}",
                seen.map(|(version, _)| version),
                self.certain,
                self.floor,
                self.pending
            ),
        }
    }

    /// Records that the pending change was acknowledged.
    pub(crate) fn record_acknowledgement(&mut self, name: &str, version: Option<u64>) {
        match (self.pending.take().expect("one was under way"), version) {
            (Intent::Put(value), Some(version)) => {
                // A read may have returned the change before its acknowledgement.
                let seen = self.certain == Some((version, value));
                assert!(
                    seen || version > self.floor,
                    "{name}: version {version} after {}",
                    self.floor
                );
                self.floor = version;
                self.certain = Some((version, value));
            }
            (Intent::Remove, removed) => {
                if let (Some(removed), Some((version, _))) = (removed, self.certain) {
                    assert_eq!(removed, version, "{name}: removed another version than was there");
                }
                self.certain = None;
            }
            (Intent::Put(_), None) => panic!("{name}: a put without a version"),
        }
    }
}

/// A number that all writers increment by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    /// Number of acknowledged increments, and number of increments with an unknown outcome.
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
    /// Highest sum and version that were returned.
    pub(crate) sum: i64,
    pub(crate) version: u64,
}

impl Counter {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.sum = self.sum.max(other.sum);
        self.version = self.version.max(other.version);
    }

    /// Checks the object that was found after a restart, and continues from its state.
    pub(crate) fn check(&mut self, name: &str, found: Option<(u64, &[u8])>) {
        let (version, sum) = match found {
            Some((version, bytes)) => {
                (version, i64::from_le_bytes(bytes.try_into().expect("a number")))
            }
            None => (0, 0),
        };
        let least = i64::try_from(self.acknowledged).expect("few");
        let most = i64::try_from(self.acknowledged + self.unknown).expect("few");
        assert!((least..=most).contains(&sum), "{name}: {sum} is not within {least} and {most}");
        assert!(
            sum >= self.sum && version >= self.version,
            "{name}: went back to {sum}, version {version}: {self:?}"
        );
        *self =
            Self { acknowledged: u64::try_from(sum).expect("positive"), unknown: 0, sum, version };
    }
}

/// An object that all writers replace on condition of its version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Register {
    /// Version and value of the last acknowledged write.
    pub(crate) certain: Option<(u64, Vec<u8>)>,
    /// Values of writes with an unknown outcome.
    pub(crate) unknown: Vec<Vec<u8>>,
    /// Every acknowledged version. Each version must be acknowledged only once.
    pub(crate) versions: Vec<u64>,
}

impl Register {
    pub(crate) fn merge(&mut self, other: Self) {
        if other.certain.as_ref().map(|(version, _)| *version)
            > self.certain.as_ref().map(|(version, _)| *version)
        {
            self.certain = other.certain;
        }
        self.unknown.extend(other.unknown);
        self.versions.extend(other.versions);
    }

    pub(crate) fn check(&mut self, name: &str, found: Option<(u64, &[u8])>) {
        let won = self.versions.len();
        self.versions.sort_unstable();
        self.versions.dedup();
        assert_eq!(won, self.versions.len(), "{name}: a version was won twice");
        let promised = self.certain.as_ref().map_or(0, |(version, _)| *version);
        let (version, bytes) = found.unwrap_or((0, b""));
        assert!(version >= promised, "{name}: went back from version {promised} to {version}");
        if version > promised {
            assert!(
                self.unknown.iter().any(|value| value == bytes),
                "{name}: a value that nobody wrote"
            );
        } else if let Some((_, value)) = &self.certain {
            assert_eq!(bytes, value, "{name}: another value under the same version");
        }
        *self = Self {
            certain: found.map(|(version, bytes)| (version, bytes.to_vec())),
            ..Self::default()
        };
    }
}

/// All rows of the table, by key.
pub(crate) type Found = HashMap<Vec<u8>, Row>;

/// Removes a key's row from `found`, and returns it.
pub(crate) fn take(found: &mut Found, key: &str) -> Option<Row> {
    found.remove(key.as_bytes())
}
