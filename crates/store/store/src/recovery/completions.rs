//! Holds the completions of a recovered log, the last one of each request slot, until all of its
//! objects are recovered.

use sprat_log::{Full, Log};
use sprat_wire::once::{COMPLETION_KEY_BYTES, Completion, MAX_COMPLETION};
use std::collections::BTreeMap;

/// Identifies a completion that a recovery has written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrittenCompletion {
    /// Table of completions.
    pub table: u32,
    /// Client and request slot.
    pub key: [u8; COMPLETION_KEY_BYTES],
    /// Sequence number of the operation in its slot.
    pub sequence: u64,
    /// Position, in the table, of the key of the object that the operation changed.
    pub position: u64,
}

/// A completion as the dead master's log had it.
struct Held {
    sequence: u64,
    value: [u8; MAX_COMPLETION],
    len: usize,
}

/// Completions to write, by table of completions and key.
#[derive(Default)]
pub(super) struct Completions(BTreeMap<(u32, [u8; COMPLETION_KEY_BYTES]), Held>);

impl Completions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Holds a completion, unless the same or a later completion of its slot is held. One that says
    /// only that the operation was begun is replaced by any other of the same operation. The
    /// completion is identified by its table, key and sequence number.
    pub(super) fn hold(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
        completion: &Completion<'_>,
    ) {
        let key = key.try_into().expect("a completion's key");
        let mut held = Held { sequence, value: [0; MAX_COMPLETION], len: 0 };
        held.len = completion.encode(&mut held.value);
        let is_last = |known: &Held| {
            known.sequence < sequence || known.sequence == sequence && known.completion().is_begun()
        };
        if self.0.get(&(table, key)).is_none_or(is_last) {
            self.0.insert((table, key), held);
        }
    }

    /// Writes one completion into `log`, unless the log has it or a later one. Returns false if
    /// there are no more. A completion that must not stay if the recovery fails is added to
    /// `completed`.
    pub(super) fn write_one(
        &mut self,
        log: &mut Log,
        completed: &mut Vec<WrittenCompletion>,
    ) -> Result<bool, Full> {
        let Some(next) = self.0.first_entry() else { return Ok(false) };
        let (&(table, key), held) = (next.key(), next.get());
        let (sequence, completion) = (held.sequence, held.completion());
        let written = log.adopt_completion((table, &key, sequence), &completion)?;
        let position = completion.position.filter(|_| written);
        completed.extend(position.map(|position| WrittenCompletion {
            table,
            key,
            sequence,
            position,
        }));
        next.remove();
        Ok(true)
    }
}

impl Held {
    fn completion(&self) -> Completion<'_> {
        Completion::parse(&self.value[..self.len]).expect("it was encoded")
    }
}
