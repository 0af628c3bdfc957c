//! Operations that take effect once: what is kept of those that did.

use crate::log::{Full, Log, Ref};
use sprat_wire::entry::{Entry, HEADER_BYTES, Kind};
use sprat_wire::once::{
    COMPLETION_KEY_BYTES, COMPLETIONS, Completion, MAX_COMPLETION, OperationId,
};
use sprat_wire::op::Status;
use sprat_wire::value::ValueType;

/// An operation that is being done, and what it answers beside the object's version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation<'a> {
    /// Which one.
    pub id: OperationId,
    /// Up to [`sprat_wire::once::MAX_RESULT`] bytes.
    pub result: &'a [u8],
}

impl Operation<'_> {
    /// Bytes of log that its completion takes.
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_BYTES + COMPLETION_KEY_BYTES + 7 + self.result.len()
    }

    /// It is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Log {
    /// The completion of the last operation of a lane that was done on a table, if that is still
    /// known: an object whose version is the operation's sequence number and whose value is a
    /// [`Completion`].
    #[must_use]
    pub fn completion(&self, table: u32, id: &OperationId) -> Option<Ref> {
        self.find(table | COMPLETIONS, &id.key())
    }

    /// Brings near what [`Log::completion`] will look at first.
    #[inline]
    pub fn prefetch_completion(&self, table: u32, id: &OperationId) {
        self.prefetch(self.hash(table | COMPLETIONS, &id.key()));
    }

    /// Whether completions of a client can be kept: not of more than [`crate::MAX_CLIENTS`] at
    /// once.
    #[must_use]
    pub fn takes_client(&self, client: u64) -> bool {
        self.clients.has_room() || self.clients.knows(client)
    }

    /// Takes in what another log has of an operation, by table of completions, key and sequence
    /// number, unless as much is known here; returns whether it was written.
    ///
    /// # Errors
    /// [`Full`]; nothing was changed then.
    pub fn adopt_completion(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
        what: &Completion<'_>,
    ) -> Result<bool, Full> {
        let known = self.known(table, key).is_some_and(|(known, is_begun)| {
            known > sequence || known == sequence && (!is_begun || what.is_begun())
        });
        if known {
            return Ok(false);
        }
        self.write_completion((table, key, sequence), what).map(|()| true)
    }

    /// What came of an operation was [adopted](Self::adopt_completion), and turns out not to count:
    /// of it nothing is known again.
    ///
    /// # Errors
    /// [`Full`]; nothing was changed then.
    pub fn forget_completion(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
    ) -> Result<(), Full> {
        if self.tables.is_dropped(table) || self.known(table, key) != Some((sequence, false)) {
            return Ok(());
        }
        self.write_completion((table, key, sequence), &Completion::BEGUN)
    }

    /// Keeps of an operation on a key that it changed nothing, and why.
    ///
    /// # Errors
    /// [`Full`]; nothing was changed then.
    pub fn complete_alone(
        &mut self,
        (table, key): (u32, &[u8]),
        id: &OperationId,
        status: Status,
        number: u64,
    ) -> Result<(), Full> {
        let position = Some(self.hash(table, key).reverse_bits());
        let completion =
            Completion { joined: false, status, version: number, position, result: &[] };
        self.write_completion((table | COMPLETIONS, &id.key(), id.sequence), &completion)
    }

    /// The last operation of a lane that is known of, and whether no more is known of it than that
    /// it was begun.
    fn known(&self, table: u32, key: &[u8]) -> Option<(u64, bool)> {
        let known = self.entry(self.find(table, key)?);
        Some((known.version, Completion::of(&known).is_some_and(|known| known.is_begun())))
    }

    /// Writes a completion with nothing behind it that it would need.
    fn write_completion(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
        what: &Completion<'_>,
    ) -> Result<(), Full> {
        let mut value = [0; MAX_COMPLETION];
        let len = Completion { joined: false, ..*what }.encode(&mut value);
        self.write(table, key, (ValueType::Bytes, &value[..len]), Some(sequence), None)?;
        self.clients.hear(OperationId::client_of(key));
        Ok(())
    }

    /// Forgets the clients that were not heard of since this was last called; [`Log::clean`] frees
    /// their completions by and by.
    pub fn age_clients(&mut self) {
        if self.clients.age() {
            self.cleaner.purge_from_start();
        }
    }

    /// Writes an operation's completion at `address`, and has it found there.
    pub(crate) fn complete(
        &mut self,
        address: usize,
        table: u32,
        version: u64,
        operation: &Operation<'_>,
    ) {
        let Operation { id, result } = operation;
        let (table, key) = (table | COMPLETIONS, &id.key()[..]);
        let mut value = [0; MAX_COMPLETION];
        let completion =
            Completion { joined: true, status: Status::Ok, version, position: None, result };
        let len = completion.encode(&mut value);
        let value = &value[..len];
        let (version, value_type) = (id.sequence, ValueType::Bytes);
        let entry =
            Entry { kind: Kind::Object, successor: false, table, version, key, value, value_type };
        let len = entry.encode(&mut self.memory.bytes[address..address + operation.len()]);
        let hash = self.hash(table, key);
        match self.lookup(hash, table, key) {
            Some((place, old)) => {
                let known = self.entry(old);
                let is_begun = || Completion::of(&known).is_some_and(|known| known.is_begun());
                let is_new =
                    known.version < id.sequence || known.version == id.sequence && is_begun();
                assert!(is_new, "an operation is done once");
                self.table.set(place, hash, address);
                self.memory.owner_mut(old.address).live -= old.len;
                self.account_removed(table, old.len);
            }
            None => self.table_insert(hash, address),
        }
        self.memory.owner_mut(address).live += len;
        self.account_added(table, len);
        self.clients.hear(id.client);
    }

    /// Whether an object is nobody's any more: of a table or tablet that was dropped, or the
    /// completion of a client that has gone.
    #[inline]
    pub(crate) fn is_gone(&self, table: u32, key: &[u8], hash: u64) -> bool {
        let forgotten =
            || table & COMPLETIONS != 0 && !self.clients.knows(OperationId::client_of(key));
        self.tables.is_dropped(table)
            || self.tables.is_dropped_at(table, hash.reverse_bits())
            || forgotten()
    }
}
