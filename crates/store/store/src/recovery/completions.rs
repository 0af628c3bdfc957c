//! Completions of a log that is brought back, held until all else of it is here: the last of each
//! lane.

use sprat_log::{Full, Log};
use sprat_wire::once::{COMPLETION_KEY_BYTES, Completion, MAX_COMPLETION};
use std::collections::BTreeMap;

/// Names one: table of completions, key, sequence number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Named {
    /// Table of completions.
    pub table: u32,
    /// Client and lane.
    pub key: [u8; COMPLETION_KEY_BYTES],
    /// Number of the operation in its lane.
    pub sequence: u64,
    /// Where its object is in its table.
    pub position: u64,
}

/// As it stood in the log that is gone.
struct Told {
    sequence: u64,
    value: [u8; MAX_COMPLETION],
    len: usize,
}

/// By table of completions and key.
#[derive(Default)]
pub(super) struct Completions(BTreeMap<(u32, [u8; COMPLETION_KEY_BYTES]), Told>);

impl Completions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps what is known of a lane's last operation, by table of completions, key and sequence
    /// number.
    pub(super) fn hold(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
        completion: &Completion<'_>,
    ) {
        let key = key.try_into().expect("a completion's key");
        let mut told = Told { sequence, value: [0; MAX_COMPLETION], len: 0 };
        told.len = completion.encode(&mut told.value);
        let is_last = |known: &Told| {
            known.sequence < sequence || known.sequence == sequence && known.completion().is_begun()
        };
        if self.0.get(&(table, key)).is_none_or(is_last) {
            self.0.insert((table, key), told);
        }
    }

    /// Writes one of them into `log`, unless that knows as much; false when there are no more. One
    /// that may turn out not to count is added to `completed`.
    pub(super) fn write_one(
        &mut self,
        log: &mut Log,
        completed: &mut Vec<Named>,
    ) -> Result<bool, Full> {
        let Some(next) = self.0.first_entry() else { return Ok(false) };
        let (&(table, key), told) = (next.key(), next.get());
        let (sequence, completion) = (told.sequence, told.completion());
        let written = log.adopt_completion((table, &key, sequence), &completion)?;
        let position = completion.position.filter(|_| written);
        completed.extend(position.map(|position| Named { table, key, sequence, position }));
        next.remove();
        Ok(true)
    }
}

impl Told {
    fn completion(&self) -> Completion<'_> {
        Completion::parse(&self.value[..self.len]).expect("it was encoded")
    }
}
