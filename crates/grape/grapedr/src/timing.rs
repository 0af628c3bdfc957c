//! How long a machine takes: cycles of its instructions, and bytes through the host's interface.

use crate::board::Shape;

/// Bytes a second that a host writes to a board, as measured.
pub const WRITE_RATE: f64 = 2.5e9;

/// Bytes a second that a host reads from a board, as measured.
pub const READ_RATE: f64 = 1.6e9;

/// Bytes of a word on its way: the host's are of 64 bits, and hardware converts them.
pub const WORD_BYTES: u64 = 8;

/// What a run took of the machine. All chips work at once, so cycles are those of one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timing {
    /// Cycles that bring what is held into local memories, and begin results.
    pub load_cycles: u64,
    /// Cycles of the loop.
    pub loop_cycles: u64,
    /// Cycles that bring results out of elements.
    pub store_cycles: u64,
    /// Words that are held, from the host: i variables and constants, or a matrix.
    pub held_words: u64,
    /// Words that are broadcast, from the host.
    pub broadcast_words: u64,
    /// Words that the host reads.
    pub read_words: u64,
}

/// The same in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// All cycles.
    pub compute: f64,
    /// Of what is held, through the interface.
    pub write_held: f64,
    /// Of what is broadcast.
    pub write_broadcast: f64,
    /// Of results.
    pub read: f64,
    /// From the first word to the last: what is broadcast is sent while the loop goes over what
    /// was sent before, into the other half of broadcast memory, and nothing else overlaps.
    pub whole: f64,
}

impl Timing {
    /// All cycles.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.load_cycles + self.loop_cycles + self.store_cycles
    }

    /// With another run after this one.
    #[must_use]
    pub fn with(self, next: Self) -> Self {
        Self {
            load_cycles: self.load_cycles + next.load_cycles,
            loop_cycles: self.loop_cycles + next.loop_cycles,
            store_cycles: self.store_cycles + next.store_cycles,
            held_words: self.held_words + next.held_words,
            broadcast_words: self.broadcast_words + next.broadcast_words,
            read_words: self.read_words + next.read_words,
        }
    }

    /// In seconds, on a machine.
    #[must_use]
    pub fn seconds(&self, shape: Shape) -> Seconds {
        let cycles = |cycles| real(cycles) / shape.clock();
        let written = |words| real(words * WORD_BYTES) / WRITE_RATE;
        let (write_held, write_broadcast) =
            (written(self.held_words), written(self.broadcast_words));
        let read = real(self.read_words * WORD_BYTES) / READ_RATE;
        let around = cycles(self.load_cycles) + cycles(self.store_cycles);
        let whole = write_held + around + cycles(self.loop_cycles).max(write_broadcast) + read;
        Seconds { compute: cycles(self.cycles()), write_held, write_broadcast, read, whole }
    }
}

/// A count as a number; nothing here counts to 2 to the power of 53.
pub(crate) fn real(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let real = count as f64;
    real
}
