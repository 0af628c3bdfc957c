//! All ranks, through MPI.
//!
//! The results of MPI's calls are not checked, because MPI's default error handler ends all ranks.

use crate::JoinError;
use mpi::Threading;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};
use sprat_host::lock;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// Limit on the words of one message: 1 GiB. A longer broadcast is sent in several messages.
const MESSAGE: usize = 1 << 27;

/// The exit code of a rank that panics, like that of any Rust program.
const PANICKED: i32 = 101;

/// All ranks. Dropping this finalises MPI, which waits for the others.
pub(crate) struct World {
    /// The lock lets one thread at a time call MPI.
    universe: Mutex<Universe>,
    rank: usize,
    count: usize,
}

impl World {
    pub(crate) fn join(expected: usize) -> Result<Self, JoinError> {
        let (universe, threads) =
            mpi::initialize_with_threading(Threading::Serialized).ok_or(JoinError::Again)?;
        let world = universe.world();
        let number = |of: i32| usize::try_from(of).expect("MPI counts from 0");
        let (rank, found) = (number(world.rank()), number(world.size()));
        if threads < Threading::Serialized {
            return Err(JoinError::Threads);
        }
        if found != expected {
            return Err(JoinError::Others { expected, found });
        }
        Ok(Self { universe: Mutex::new(universe), rank, count: found })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Sends one word to all ranks, and returns one word of each rank.
    pub(crate) fn each(&self, mine: u64) -> Vec<u64> {
        let mut all = vec![0; self.count];
        self.universe().world().all_gather_into(&mine, &mut all[..]);
        all
    }

    /// Sends this rank's words to all ranks, and returns the words of each rank. `lens` gives the
    /// number of words of each rank: at most [`crate::MAX_WORDS`] in all.
    pub(crate) fn gather(&self, mine: &[u64], lens: &[usize]) -> Vec<Vec<u64>> {
        let counts: Vec<i32> =
            lens.iter().map(|len| i32::try_from(*len).expect("below MAX_WORDS")).collect();
        let begins: Vec<i32> = counts
            .iter()
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum - count)
            })
            .collect();
        let mut all = vec![0; lens.iter().sum()];
        let mut parts = PartitionMut::new(&mut all[..], counts, begins);
        self.universe().world().all_gather_varcount_into(mine, &mut parts);
        let mut rest = &all[..];
        let parts = lens.iter().map(|&len| {
            let (part, after) = rest.split_at(len);
            rest = after;
            part.to_vec()
        });
        parts.collect()
    }

    /// Overwrites `words` on every rank with those of the first rank.
    pub(crate) fn broadcast(&self, words: &mut [u64]) {
        let universe = self.universe();
        for message in words.chunks_mut(MESSAGE) {
            universe.world().process_at_rank(0).broadcast_into(message);
        }
    }

    fn universe(&self) -> MutexGuard<'_, Universe> {
        lock(&self.universe)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("rank", &self.rank)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Drop for World {
    /// Finalising MPI waits for all ranks. If this rank panics, others may wait for it forever, so
    /// it aborts all ranks instead.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.universe().world().abort(PANICKED);
        }
    }
}
