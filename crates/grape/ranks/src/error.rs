//! Why ranks cannot join, and why they stop.

use std::fmt;
use thiserror::Error;

/// Limit on the length of a reason, in bytes. A longer one is cut before the character that would
/// exceed it.
const MAX_REASON: usize = 4096;

/// Why this process cannot communicate with the other ranks.
#[derive(Debug, Error)]
pub enum JoinError {
    /// mpirun started several processes of a program that was built without MPI.
    #[error(
        "mpirun started {count} of these, and this program was built without MPI: each would do \
         all the work and write the same files; build it with --features sprat-cli/mpi, where Open \
         MPI and libclang are"
    )]
    NotBuilt {
        /// The number of processes that were started.
        count: usize,
    },
    /// MPI was initialised before in this process.
    #[error("ranks were joined before in this process; that can be done once")]
    Again,
    /// The MPI library supports only single-threaded programs.
    #[error(
        "the MPI library of this machine does not allow programs with threads; Debian's Open MPI \
         does"
    )]
    Threads,
    /// MPI and mpirun disagree on the number of ranks.
    #[error(
        "mpirun says that there are {expected} ranks, MPI {found}; is it another MPI's mpirun?"
    )]
    Others {
        /// The number according to mpirun.
        expected: usize,
        /// The number according to MPI.
        found: usize,
    },
}

/// The error of the exchange at which the ranks stop, and of every exchange after it. If several
/// ranks stop at that exchange, the error has the reason of the one with the lowest number.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub struct Stopped {
    /// The rank that gave the reason; `None` if all ranks gave the same reason, if there is only
    /// one rank, or if an exchange exceeded [`MAX_WORDS`](crate::MAX_WORDS).
    pub rank: Option<usize>,
    /// The reason, as text for the user.
    pub text: String,
    /// The exit code for the reason.
    pub code: u8,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// The reason for which a rank stops, in the form in which it is sent to the others.
#[derive(Debug)]
pub(crate) struct StopReason {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl StopReason {
    /// Encodes the code, then the text.
    pub(crate) fn words(&self) -> Vec<u64> {
        let text = &self.text[..self.text.floor_char_boundary(MAX_REASON)];
        [vec![u64::from(self.code)], pack(text)].concat()
    }

    /// Decodes the result of [`StopReason::words`].
    pub(crate) fn of(words: &[u64]) -> Self {
        Self { code: u8::try_from(words[0]).expect("a code went in"), text: unpack(&words[1..]) }
    }
}

/// Encodes text as words: the number of bytes, then the bytes.
pub(crate) fn pack(text: &str) -> Vec<u64> {
    let words = text.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    std::iter::once(text.len() as u64).chain(words).collect()
}

/// Decodes the result of [`pack`].
pub(crate) fn unpack(words: &[u64]) -> String {
    let mut bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(usize::try_from(words[0]).expect("no wider"));
    String::from_utf8(bytes).expect("text went in")
}

#[cfg(test)]
mod tests {
    use super::{MAX_REASON, StopReason};

    #[test]
    fn reasons_arrive() {
        for text in ["", "a", "eight888", "a longer one, of umlauts: äöü"] {
            let reason = StopReason::of(&StopReason { text: text.to_owned(), code: 7 }.words());
            assert_eq!((reason.text.as_str(), reason.code), (text, 7));
        }
        let long = StopReason::of(
            &StopReason { text: format!("x{}", "ä".repeat(MAX_REASON)), code: 255 }.words(),
        );
        assert_eq!((long.text.len(), long.code), (MAX_REASON - 1, 255));
    }
}
