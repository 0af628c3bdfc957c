//! Why ranks do not find each other, and why all of them stop.

use std::fmt;
use thiserror::Error;

/// Bytes of a reason, at most; what is longer is cut.
const MAX_REASON: usize = 4096;

/// Why the others cannot be spoken to.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The program has no MPI.
    #[error(
        "mpirun started {count} of these, and this program was built without MPI: each would do all the work and write the same files; \
         build it with --features sprat-cli/mpi, where Open MPI and libclang are"
    )]
    NotBuilt {
        /// How many were started.
        count: usize,
    },
    /// MPI was begun before, in this process.
    #[error("ranks were joined before in this process; that can be done once")]
    Again,
    /// The library was made for programs of one thread.
    #[error(
        "the MPI library of this machine does not allow programs with threads; Debian's Open MPI does"
    )]
    Threads,
    /// Not as many as were started.
    #[error("mpirun says that there are {told} ranks, MPI {found}; is it another MPI's mpirun?")]
    Others {
        /// What mpirun says.
        told: usize,
        /// What MPI says.
        found: usize,
    },
}

/// Why all ranks have stopped: what one of them said.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub struct Stopped {
    /// Who said it; nobody where all say the same.
    pub rank: Option<usize>,
    /// What it said.
    pub text: String,
    /// The exit code that goes with it.
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

/// What a rank says that stops, on its way to others.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl Told {
    /// The code, then the text.
    pub(crate) fn words(&self) -> Vec<u64> {
        let text = &self.text[..self.text.floor_char_boundary(MAX_REASON)];
        [vec![u64::from(self.code)], pack(text)].concat()
    }

    /// What [`Told::words`] made.
    pub(crate) fn of(words: &[u64]) -> Self {
        Self { code: u8::try_from(words[0]).expect("a code went in"), text: unpack(&words[1..]) }
    }
}

/// Text as words: how many bytes there are, then these.
pub(crate) fn pack(text: &str) -> Vec<u64> {
    let words = text.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    std::iter::once(text.len() as u64).chain(words).collect()
}

/// What [`pack`] made.
pub(crate) fn unpack(words: &[u64]) -> String {
    let mut bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(usize::try_from(words[0]).expect("no wider"));
    String::from_utf8(bytes).expect("text went in")
}

#[cfg(test)]
mod tests {
    use super::{MAX_REASON, Told};

    #[test]
    fn reasons_arrive() {
        for text in ["", "a", "eight888", "a longer one, of umlauts: äöü"] {
            let told = Told::of(&Told { text: text.to_owned(), code: 7 }.words());
            assert_eq!((told.text.as_str(), told.code), (text, 7));
        }
        let long =
            Told::of(&Told { text: format!("x{}", "ä".repeat(MAX_REASON)), code: 255 }.words());
        assert_eq!((long.text.len(), long.code), (MAX_REASON - 1, 255));
    }
}
