//! Completions of operations that take effect once.

use crate::log::{Appender, Content, Full, Log, Ref};
use sprat_wire::elements::{self, ELEMENTS};
use sprat_wire::entry::{Entry, HEADER_BYTES, Kind};
use sprat_wire::expiry::{NEVER, TIME_CLIENT};
use sprat_wire::once::{
    COMPLETION_KEY_BYTES, COMPLETIONS, Completion, MAX_COMPLETION, OperationId,
};
use sprat_wire::op::Status;
use sprat_wire::value::ValueType;

/// An operation that is being executed: its id, and its result without the object's version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation<'a> {
    /// The operation's id.
    pub id: OperationId,
    /// The result, up to [`sprat_wire::once::MAX_RESULT`] bytes.
    pub result: &'a [u8],
}

impl Operation<'_> {
    /// Returns the number of bytes that the operation's completion takes in the log.
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_BYTES + COMPLETION_KEY_BYTES + 7 + self.result.len()
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Log {
    /// Returns the completion of the last operation of `id`'s slot on a table, if it is still kept.
    /// It is an object whose version is the operation's sequence number and whose value is a
    /// [`Completion`].
    #[must_use]
    pub fn completion(&self, table: u32, id: &OperationId) -> Option<Ref> {
        self.find(table | COMPLETIONS, &id.key())
    }

    /// Prefetches the memory that [`Log::completion`] looks at first.
    #[inline]
    pub fn prefetch_completion(&self, table: u32, id: &OperationId) {
        self.prefetch(self.hash(table | COMPLETIONS, &id.key()));
    }

    /// Returns whether completions of a client can be kept: the client is known already, or fewer
    /// than [`crate::MAX_CLIENTS`] clients are known.
    #[must_use]
    pub fn takes_client(&self, client: u64) -> bool {
        self.clients.has_room() || self.clients.knows(client)
    }

    /// Adds a completion from another log, given by its table of completions, key and sequence
    /// number. Writes nothing if this log knows a later operation of the slot, or if `completion`
    /// adds nothing to what this log knows of the operation. Returns whether the completion was
    /// written.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the completion, perhaps only until more of
    /// the log is durable or until pins are released. The log is unchanged then.
    pub fn adopt_completion(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
        completion: &Completion<'_>,
    ) -> Result<bool, Full> {
        let known = self.known(table, key).is_some_and(|(known, is_begun)| {
            known > sequence || known == sequence && (!is_begun || completion.is_begun())
        });
        if known {
            return Ok(false);
        }
        self.write_completion((table, key, sequence), completion, Appender::Writer).map(|()| true)
    }

    /// Revokes a completion that was [adopted](Self::adopt_completion) and turned out not to count:
    /// from then on the log only knows that the operation was begun. Does nothing if the table was
    /// dropped, or if the log knows a later operation of the slot.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the entry that replaces the completion,
    /// perhaps only until more of the log is durable or until pins are released. The log is
    /// unchanged then.
    pub fn forget_completion(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
    ) -> Result<(), Full> {
        if self.tables.is_dropped(table) || self.known(table, key) != Some((sequence, false)) {
            return Ok(());
        }
        self.write_completion((table, key, sequence), &Completion::BEGUN, Appender::Writer)
    }

    /// Writes the completion of an operation on a key, when the operation changed nothing.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the completion, perhaps only until more of
    /// the log is durable or until pins are released. The log is unchanged then.
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
        let entry = (table | COMPLETIONS, &id.key()[..], id.sequence);
        self.write_completion(entry, &completion, Appender::Writer)
    }

    /// Returns the sequence number of the last operation of a slot that is known, and whether it is
    /// only known that this operation was begun.
    fn known(&self, table: u32, key: &[u8]) -> Option<(u64, bool)> {
        let known = self.entry(self.find(table, key)?);
        Some((known.version, Completion::of(&known).is_some_and(|known| known.is_begun())))
    }

    /// Writes a completion that counts although no entry follows it.
    pub(crate) fn write_completion(
        &mut self,
        (table, key, sequence): (u32, &[u8], u64),
        completion: &Completion<'_>,
        appender: Appender,
    ) -> Result<(), Full> {
        let mut value = [0; MAX_COMPLETION];
        let len = Completion { joined: false, ..*completion }.encode(&mut value);
        self.write(table, key, Content::bytes(&value[..len]), Some(sequence), None, appender)?;
        self.note_completion(key, sequence);
        Ok(())
    }

    /// Records that a completion was written or restored.
    pub(crate) fn note_completion(&mut self, key: &[u8], sequence: u64) {
        match OperationId::client_of(key) {
            TIME_CLIENT => self.expiry.raise(sequence),
            client => self.clients.note_heard(client),
        }
    }

    /// Forgets the clients that were not heard from since the last call; [`Log::clean`] then frees
    /// their completions. Keeps the clients of prepared operations, whose completions say how these
    /// were decided.
    pub fn age_clients(&mut self) {
        for client in self.prepared().map(|(_, id)| id.client).collect::<Vec<_>>() {
            self.clients.note_heard(client);
        }
        if self.clients.age() {
            self.cleaner.purge_from_start();
        }
    }

    /// Writes an operation's completion at `address`, and adds it to the hash table.
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
        let entry = Entry {
            kind: Kind::Object,
            successor: false,
            table,
            version,
            key,
            value,
            value_type,
            expires: NEVER,
        };
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
        self.clients.note_heard(id.client);
    }

    /// Returns whether an object is dead although the hash table points to it: its table or tablet
    /// was dropped, or it is a completion whose client is gone.
    #[inline]
    pub(crate) fn is_gone(&self, table: u32, key: &[u8], hash: u64) -> bool {
        let forgotten =
            || table & COMPLETIONS != 0 && !self.clients.knows(OperationId::client_of(key));
        let position = || match table & ELEMENTS {
            0 => hash.reverse_bits(),
            _ => elements::position(key),
        };
        self.tables.is_dropped(table)
            || self.tables.has_dropped_tablets() && self.tables.is_dropped_at(table, position())
            || forgotten()
    }
}
