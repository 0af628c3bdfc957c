//! Ranks: processes, started by `mpirun`, that compute one thing together. Each rank does its part
//! of the work and passes its results to the others.
//!
//! Ranks communicate by MPI if MPI is built in (feature `mpi`). Without MPI there is a single rank,
//! and the same calls work. Every exchange begins with a round in which each rank says whether it
//! continues. If a rank cannot continue, it gives its reason, and all ranks stop: no rank waits for
//! a rank that has ended, and the error is reported once.
//!
//! ```
//! use sprat_ranks::Ranks;
//! let ranks = Ranks::join()?;
//! let squares: u64 = ranks.part(100).map(|at| (at * at) as u64).sum();
//! let all = ranks.gather(vec![squares])?;
//! assert_eq!(all.iter().flatten().sum::<u64>(), 328_350);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod launch;
#[cfg(not(feature = "mpi"))]
#[path = "nobody.rs"]
mod world;
#[cfg(feature = "mpi")]
mod world;

pub use error::{JoinError, Stopped};

use error::{StopReason, pack, unpack};
use std::ops::Range;
use std::sync::OnceLock;
use world::World;

/// The single rank of a process that was started alone.
pub static ALONE: Ranks = Ranks { several: None };

/// A rank that stops sends this value in place of its number of words.
const STOPS: u64 = u64::MAX;

/// Limit on the words of all ranks together in one exchange, because MPI counts them in 31 bits. A
/// larger exchange fails on every rank.
pub const MAX_WORDS: u64 = i32::MAX as u64;

/// This process as one of the ranks.
///
/// Call [`join`](Self::join) once, compute this rank's [`part`](Self::part), and exchange results
/// with [`gather`](Self::gather) and [`broadcast`](Self::broadcast). All ranks must call the
/// exchanges in the same order. Every rank calls [`end`](Self::end) last, with its success or its
/// error.
#[derive(Debug)]
pub struct Ranks {
    several: Option<Several>,
}

#[derive(Debug)]
struct Several {
    world: World,
    /// The reason for which all ranks have stopped; set once.
    stopped: OnceLock<Stopped>,
}

impl Ranks {
    /// Joins the other ranks, if `mpirun` has started some. Call it once per process.
    ///
    /// # Errors
    /// [`JoinError`] if this program was built without MPI and mpirun started several processes, if
    /// ranks were joined before, if the MPI library supports only single-threaded programs, or if
    /// MPI and mpirun disagree on the number of ranks.
    pub fn join() -> Result<Self, JoinError> {
        let count = launch::count();
        if count == 1 {
            return Ok(Self { several: None });
        }
        Ok(Self { several: Some(Several { world: World::join(count)?, stopped: OnceLock::new() }) })
    }

    /// Returns this rank's number, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.several.as_ref().map_or(0, |several| several.world.rank())
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.several.as_ref().map_or(1, |several| several.world.count())
    }

    /// Returns whether this is the first rank, which reads, writes and prints.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Returns this rank's part of `all` items. Parts follow each other in the order of ranks, and
    /// their lengths differ by at most one.
    #[must_use]
    pub fn part(&self, all: usize) -> Range<usize> {
        self.part_of(all, self.rank())
    }

    /// Returns another rank's part of `all` items.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn part_of(&self, all: usize, rank: usize) -> Range<usize> {
        assert!(rank < self.count(), "a rank that there is not");
        part(all, rank, self.count())
    }

    /// Sends the first rank's words to all ranks. The words that other ranks pass are dropped.
    ///
    /// # Errors
    /// [`Stopped`] if a rank has failed, or if all ranks together pass more than [`MAX_WORDS`]
    /// words, including those that are dropped.
    pub fn broadcast(&self, words: Vec<u64>) -> Result<Vec<u64>, Stopped> {
        let Some(several) = &self.several else { return Ok(words) };
        let lens = several.round(Ok(words.len()))?;
        let mut all = if self.is_first() { words } else { vec![0; lens[0]] };
        several.world.broadcast(&mut all);
        Ok(all)
    }

    /// Sends the first rank's text to all ranks.
    ///
    /// # Errors
    /// [`Stopped`] if a rank has failed, or if the texts are too long for [`Ranks::broadcast`].
    pub fn broadcast_text(&self, text: String) -> Result<String, Stopped> {
        if self.several.is_none() {
            return Ok(text);
        }
        Ok(unpack(&self.broadcast(pack(&text))?))
    }

    /// Sends each rank's words to all ranks. Returns the words of all ranks, in the order of ranks.
    ///
    /// # Errors
    /// [`Stopped`] if a rank has failed, or if there are more than [`MAX_WORDS`] words in all.
    pub fn gather(&self, words: Vec<u64>) -> Result<Vec<Vec<u64>>, Stopped> {
        let Some(several) = &self.several else { return Ok(vec![words]) };
        let lens = several.round(Ok(words.len()))?;
        Ok(several.world.gather(&words, &lens))
    }

    /// Returns whether any rank passes `true`.
    ///
    /// # Errors
    /// [`Stopped`] if a rank has failed.
    pub fn any(&self, mine: bool) -> Result<bool, Stopped> {
        let Some(several) = &self.several else { return Ok(mine) };
        Ok(several.round(Ok(usize::from(mine)))?.contains(&1))
    }

    /// Ends the communication: each rank reports either success or the reason and exit code of its
    /// failure. A rank that fails calls this in place of the exchange for which the others wait.
    ///
    /// # Errors
    /// [`Stopped`] with the reason of the rank with the lowest number among those that have failed.
    pub fn end(&self, mine: Result<(), (String, u8)>) -> Result<(), Stopped> {
        let Some(several) = &self.several else {
            return mine.map_err(|(text, code)| Stopped { rank: None, text, code });
        };
        several.round(mine.map(|()| 0)).map(drop)
    }
}

impl Several {
    /// Exchanges the numbers of words and returns one per rank, or stops if a rank stops or the sum
    /// exceeds [`MAX_WORDS`].
    fn round(&self, mine: Result<usize, (String, u8)>) -> Result<Vec<usize>, Stopped> {
        if let Some(stopped) = self.stopped.get() {
            return Err(stopped.clone());
        }
        let word = mine.as_ref().map_or(STOPS, |len| *len as u64);
        let words = self.world.each(word);
        let stopped = match words.contains(&STOPS) {
            true => self.reasons(mine.err()),
            false => {
                let all = words.iter().fold(0_u64, |sum, len| sum.saturating_add(*len));
                if all <= MAX_WORDS {
                    return Ok(words
                        .iter()
                        .map(|len| usize::try_from(*len).expect("no wider"))
                        .collect());
                }
                let text = format!(
                    "{all} numbers are more than ranks can hand each other at once: {MAX_WORDS}"
                );
                Stopped { rank: None, text, code: 1 }
            }
        };
        Err(self.stopped.get_or_init(|| stopped).clone())
    }

    /// Returns the reason of the rank with the lowest number among those that stop. The number is
    /// left out if all ranks give the same reason.
    fn reasons(&self, mine: Option<(String, u8)>) -> Stopped {
        let mine = mine.map_or_else(Vec::new, |(text, code)| StopReason { text, code }.words());
        let lens: Vec<usize> = self
            .world
            .each(mine.len() as u64)
            .iter()
            .map(|len| usize::try_from(*len).expect("no wider"))
            .collect();
        let all = self.world.gather(&mine, &lens);
        let rank = all.iter().position(|words| !words.is_empty()).expect("one of them stops");
        let same = all.iter().all(|words| *words == all[rank]);
        let StopReason { text, code } = StopReason::of(&all[rank]);
        Stopped { rank: (!same).then_some(rank), text, code }
    }
}

fn part(all: usize, rank: usize, count: usize) -> Range<usize> {
    let (each, more) = (all / count, all % count);
    let begin = |rank: usize| rank * each + rank.min(more);
    begin(rank)..begin(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_all_of_it_in_order() {
        for count in 1..9 {
            for all in 0..40 {
                let parts: Vec<_> = (0..count).map(|rank| part(all, rank, count)).collect();
                assert!(parts.iter().cloned().flatten().eq(0..all), "{parts:?}");
                let lens = parts.iter().map(ExactSizeIterator::len);
                assert!(lens.clone().max().unwrap() - lens.min().unwrap() <= 1, "{parts:?}");
            }
        }
    }
}
