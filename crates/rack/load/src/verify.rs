//! Reads all keys, and compares their values with the acknowledged writes.

use crate::acknowledged::{AcknowledgedWrites, Verification};
use crate::load::LoadError;
use crate::running::Shared;
use crate::target::{Failure, LoadTarget};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit on the keys that may remain unread. With one more, verification ends with an error.
pub const MAX_UNREAD: u64 = 1_000;

/// Number of concurrent reads.
const READERS: u64 = 64;

/// The number of times that a key is read before it counts as unread.
const TRIES: u32 = 3;

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) async fn verify<T: LoadTarget>(
    shared: &Arc<Shared<T>>,
) -> Result<Verification, LoadError> {
    let keys = shared.acknowledged.as_ref().ok_or(LoadError::NotRemembered)?.keys();
    let next = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let readers: Vec<_> = (0..READERS.min(keys))
        .map(|_| tokio::spawn(read(Arc::clone(shared), Arc::clone(&next))))
        .collect();
    let (mut verified, mut example) = (Verification::default(), None);
    for reader in readers {
        let (found, failure) = reader.await.map_err(std::io::Error::from)?;
        verified.merge(found);
        example = example.or(failure);
    }
    match verified.unread > MAX_UNREAD || verified.unread == keys {
        true => Err(LoadError::Unread {
            unread: verified.unread,
            example: example.map_or_else(String::new, |failure| failure.text),
        }),
        false => Ok(verified),
    }
}

/// Reads one key after another, until all are read or too many could not be read.
async fn read<T: LoadTarget>(
    shared: Arc<Shared<T>>,
    next: Arc<(AtomicU64, AtomicU64)>,
) -> (Verification, Option<Failure>) {
    let (next, unread) = &*next;
    let acknowledged = shared.acknowledged.as_ref().expect("the caller has looked");
    let (mut verified, mut example) = (Verification::default(), None);
    loop {
        let key = next.fetch_add(1, Ordering::Relaxed);
        if key >= acknowledged.keys() || unread.load(Ordering::Relaxed) > MAX_UNREAD {
            return (verified, example);
        }
        if let Err(failure) = check(&shared.target, acknowledged, key, &mut verified).await {
            unread.fetch_add(1, Ordering::Relaxed);
            verified.unread += 1;
            example.get_or_insert(failure);
        }
    }
}

async fn check<T: LoadTarget>(
    target: &T,
    acknowledged: &AcknowledgedWrites,
    key: u64,
    verified: &mut Verification,
) -> Result<(), Failure> {
    // This is taken before the read, whose answer need not include writes acknowledged later.
    let highest = acknowledged.highest(key);
    let mut tries = 1;
    loop {
        match target.stored(key).await {
            Ok(found) => {
                verified.add(acknowledged.compare(key, highest, found));
                return Ok(());
            }
            Err(failure) if tries == TRIES => return Err(failure),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        tries += 1;
    }
}
