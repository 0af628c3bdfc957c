//! The time that a machine takes: the cycles of its instructions, and the transfers through the
//! host's interface.

use crate::board::Shape;

/// Measured rate, in bytes per second, at which a host writes to a board.
pub const WRITE_RATE: f64 = 2.5e9;

/// Measured rate, in bytes per second, at which a host reads from a board.
pub const READ_RATE: f64 = 1.6e9;

/// Bytes of a word in a transfer. The host uses 64-bit numbers, which hardware converts.
pub const WORD_BYTES: u64 = 8;

/// The cycles and transfers of a run. All chips work at the same time, so the cycles are those of
/// one chip.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timing {
    /// Cycles of loading local memories and initializing results.
    pub load_cycles: u64,
    /// Cycles of the loop.
    pub loop_cycles: u64,
    /// Cycles of writing results to broadcast memory.
    pub store_cycles: u64,
    /// Words that the host writes and that elements keep: i variables and constants, or a matrix.
    pub held_words: u64,
    /// Words that the host writes to broadcast memory for the loop.
    pub broadcast_words: u64,
    /// Words that the host reads.
    pub read_words: u64,
}

/// The times of a run in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// The time of all cycles.
    pub compute: f64,
    /// The time to transfer the words that elements keep.
    pub write_held: f64,
    /// The time to transfer the words for the loop.
    pub write_broadcast: f64,
    /// The time to transfer the results.
    pub read: f64,
    /// The time of the whole run. The words for the loop are transferred into one half of broadcast
    /// memory while the loop reads the other half. Nothing else overlaps.
    pub whole: f64,
}

impl Timing {
    /// Returns the number of all cycles.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.load_cycles + self.loop_cycles + self.store_cycles
    }

    /// Returns the sum of this run and a run after it.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            load_cycles: self.load_cycles + next.load_cycles,
            loop_cycles: self.loop_cycles + next.loop_cycles,
            store_cycles: self.store_cycles + next.store_cycles,
            held_words: self.held_words + next.held_words,
            broadcast_words: self.broadcast_words + next.broadcast_words,
            read_words: self.read_words + next.read_words,
        }
    }

    /// Converts the cycles and transfers to seconds on a machine.
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

/// Converts a count to a floating-point number. No count here reaches 2^53, so this is exact.
pub(crate) fn real(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let real = count as f64;
    real
}
