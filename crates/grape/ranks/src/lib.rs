//! Processes that compute one thing together: ranks, as `mpirun` starts them. Each does its part of
//! the work, and hands the others what it has.
//!
//! They speak by MPI, where that was built in (feature `mpi`); else there is one rank, and nothing
//! changes. Every exchange begins with a round in which each rank says whether it goes on. One that
//! cannot go on says why, and then all stop with that: no rank waits for one that is gone, and what
//! went wrong is told once.
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

use error::{Told, pack, unpack};
use std::ops::Range;
use std::sync::OnceLock;
use world::World;

/// One rank: what everybody is who was not started together with others.
pub static ALONE: Ranks = Ranks { several: None };

/// What a rank says that does not go on, instead of how many words it has.
const STOPS: u64 = u64::MAX;

/// Words that ranks hand each other at once, all together: MPI counts them in 31 bits.
pub const MAX_WORDS: u64 = i32::MAX as u64;

/// This rank among all.
#[derive(Debug)]
pub struct Ranks {
    several: Option<Several>,
}

#[derive(Debug)]
struct Several {
    world: World,
    /// Why all have stopped.
    stopped: OnceLock<Stopped>,
}

impl Ranks {
    /// Finds the others, if `mpirun` started this process together with some. Once in a process.
    ///
    /// # Errors
    /// [`JoinError`]: they cannot be spoken to.
    pub fn join() -> Result<Self, JoinError> {
        let count = launch::count();
        if count == 1 {
            return Ok(Self { several: None });
        }
        Ok(Self { several: Some(Several { world: World::join(count)?, stopped: OnceLock::new() }) })
    }

    /// Which this is, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.several.as_ref().map_or(0, |several| several.world.rank())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.several.as_ref().map_or(1, |several| several.world.count())
    }

    /// Whether this is the first: the one that reads, writes and prints.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// This rank's part of so many: parts follow each other in the order of ranks, and differ by
    /// one at most.
    #[must_use]
    pub fn part(&self, all: usize) -> Range<usize> {
        self.part_of(all, self.rank())
    }

    /// Another rank's part.
    ///
    /// # Panics
    /// A rank that there is not.
    #[must_use]
    pub fn part_of(&self, all: usize, rank: usize) -> Range<usize> {
        assert!(rank < self.count(), "a rank that there is not");
        part(all, rank, self.count())
    }

    /// Hands words of the first rank to all; those of others are dropped.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn broadcast(&self, words: Vec<u64>) -> Result<Vec<u64>, Stopped> {
        let Some(several) = &self.several else { return Ok(words) };
        let lens = several.round(Ok(words.len()))?;
        let mut all = if self.is_first() { words } else { vec![0; lens[0]] };
        several.world.broadcast(&mut all);
        Ok(all)
    }

    /// Hands text of the first rank to all.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn broadcast_text(&self, text: String) -> Result<String, Stopped> {
        if self.several.is_none() {
            return Ok(text);
        }
        Ok(unpack(&self.broadcast(pack(&text))?))
    }

    /// Hands words of each rank to all: those of all ranks, in their order.
    ///
    /// # Errors
    /// [`Stopped`]; also where there are more than [`MAX_WORDS`] of them.
    pub fn gather(&self, words: Vec<u64>) -> Result<Vec<Vec<u64>>, Stopped> {
        let Some(several) = &self.several else { return Ok(vec![words]) };
        let lens = several.round(Ok(words.len()))?;
        Ok(several.world.gather(&words, &lens))
    }

    /// Whether any rank says so.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn any(&self, mine: bool) -> Result<bool, Stopped> {
        let Some(several) = &self.several else { return Ok(mine) };
        Ok(several.round(Ok(usize::from(mine)))?.contains(&1))
    }

    /// The last round: each rank says that it is done, or why it is not, with the exit code that it
    /// would have. Whoever does not come to an exchange that others wait in comes here, and
    /// takes part in theirs.
    ///
    /// # Errors
    /// [`Stopped`]: what the first of those says that are not done.
    pub fn end(&self, mine: Result<(), (String, u8)>) -> Result<(), Stopped> {
        let Some(several) = &self.several else {
            return mine.map_err(|(text, code)| Stopped { rank: None, text, code });
        };
        several.round(mine.map(|()| 0)).map(drop)
    }
}

impl Several {
    /// Each rank's number of words, if all go on.
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

    /// What the first rank says of those that stop; without its name where all say the same.
    fn reasons(&self, mine: Option<(String, u8)>) -> Stopped {
        let mine = mine.map_or_else(Vec::new, |(text, code)| Told { text, code }.words());
        let lens: Vec<usize> = self
            .world
            .each(mine.len() as u64)
            .iter()
            .map(|len| usize::try_from(*len).expect("no wider"))
            .collect();
        let all = self.world.gather(&mine, &lens);
        let rank = all.iter().position(|words| !words.is_empty()).expect("one of them stops");
        let same = all.iter().all(|words| *words == all[rank]);
        let Told { text, code } = Told::of(&all[rank]);
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
