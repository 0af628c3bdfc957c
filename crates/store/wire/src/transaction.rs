//! Transactions: operations on several objects that take effect together or not at all.
//!
//! Each operation of a transaction has an [id](OperationId) of its own, and names all operations of
//! the transaction: its *participants*. So the tablets of a transaction may part company at any
//! time. After RIFL (Lee et al., SOSP 2015) and Sinfonia (Aguilera et al., SOSP 2007).
//!
//! # How a transaction commits
//! 1. The client sends [`Request::Prepare`](crate::op::Request::Prepare) for each operation. The
//!    server checks the operation's condition and writes its [`Plan`] to the log, as a *prepared
//!    entry*. From then on the operation locks its object. The server answers when the entry is
//!    durable.
//! 2. When all operations are prepared, the transaction *is* committed, whatever happens to the
//!    client: its caller learns so at once. If one is refused, the transaction is aborted.
//! 3. The client sends [`Decision::Commit`] or [`Decision::Abort`] for each operation. The server
//!    writes the operation's [completion](crate::once::Completion), and if the decision is to
//!    commit also the change, and unlocks the object.
//! 4. When every server has acknowledged the decision, the client sends [`Decision::End`], and each
//!    server removes its prepared entry. Until then the entry and the completion prove to the other
//!    participants how the transaction was decided, however long these are away.
//!
//! If one batch has the prepares of all operations, in the order of the participants, and all
//! succeed, then the server does the rest by itself. It says in the answer to the last of them how
//! far it has come: see [`Preparation`]. A transaction that changes a single object needs no
//! prepare: the client sends the change, with its condition.
//!
//! If the client is silent, any server that has a prepared entry does the same in its place. It
//! first asks all participants ([`Decision::Vote`]). A server that never prepared the operation
//! writes that the operation is aborted before it answers so, and refuses to prepare it later.
//!
//! A client must not use an operation's slot again before the operation was ended.
//!
//! An operation on a table that was dropped meanwhile counts as prepared: it may have been, and the
//! transaction may have been acknowledged. The table of an operation that was refused may be
//! dropped as well, before the others are aborted. So a client whose transaction is refused, and
//! has operations on other tables, tells its caller only when their servers have acknowledged to
//! abort them.
//!
//! # In the log
//! A prepared entry is an object of a second table, see [`PREPARED`]. Its key is the locked
//! object's key and then the operation's id; its value is the [`Plan`]. Its position is that of the
//! locked object, so it moves, and is recovered, with the object's tablet. An operation is named by
//! its table and its id.

use crate::expiry::{TTL_BYTES, Ttl};
use crate::once::{OPERATION_ID_BYTES, OperationId};
use crate::{MAX_KEY, MAX_VALUE};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The bit that distinguishes the id of the table of prepared entries from the id of the table
/// whose objects they lock. The bit is clear in every table's own id.
pub const PREPARED: u32 = 1 << 30;

/// The largest number of operations of a transaction.
pub const MAX_TRANSACTION: usize = 100;

/// The longest key of an object in a transaction, in bytes: the key of a prepared entry has the
/// operation's id, too.
pub const MAX_TRANSACTION_KEY: usize = MAX_KEY - OPERATION_ID_BYTES;

/// The largest number of bytes of a transaction's keys and values together.
pub const MAX_TRANSACTION_BYTES: usize = MAX_VALUE - (4 << 10);

/// The layout of a participant in a plan.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct ParticipantBytes {
    table: U32,
    position: U64,
    id: [u8; OPERATION_ID_BYTES],
}

/// Bytes of a participant in a plan.
pub const PARTICIPANT_BYTES: usize = size_of::<ParticipantBytes>();

/// Bytes of a plan before its participants: the action, and the number of participants. The time to
/// live, if the action has one, and the value follow the participants.
const PLAN_BYTES: usize = 2;

const _: () = assert!(
    PLAN_BYTES + MAX_TRANSACTION * PARTICIPANT_BYTES + TTL_BYTES + MAX_TRANSACTION_BYTES
        <= MAX_VALUE
);
const _: () = assert!(MAX_TRANSACTION <= u8::MAX as usize);

/// Returns the key of the prepared entry of an operation on an object.
#[must_use]
pub fn prepared_key(key: &[u8], id: &OperationId) -> Vec<u8> {
    [key, &id.unmarked().bytes()].concat()
}

/// Returns the parts of a prepared entry's key: the locked object's key, and the operation's id.
/// `None` for keys of other entries, which are too short.
#[must_use]
pub fn parse_prepared_key(key: &[u8]) -> Option<(&[u8], OperationId)> {
    let (key, id) = key.split_last_chunk()?;
    Some((key, OperationId::of_bytes(id)))
}

/// An operation of a transaction, and the place of the object that it concerns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Participant {
    /// The object's table.
    pub table: u32,
    /// The position of the object's key in the table, by which the server that has it is found. The
    /// log of a server whose tables are whole may hash keys with another seed.
    pub position: u64,
    /// The operation's id.
    pub id: OperationId,
}

impl Participant {
    /// Returns whether this is the operation with that id on an object of that table.
    #[must_use]
    pub fn is(&self, table: u32, id: &OperationId) -> bool {
        self.table == table && self.id == id.unmarked()
    }

    fn bytes(&self) -> [u8; PARTICIPANT_BYTES] {
        let (table, position) = (U32::new(self.table), U64::new(self.position));
        zerocopy::transmute!(ParticipantBytes { table, position, id: self.id.bytes() })
    }

    fn of(bytes: &[u8; PARTICIPANT_BYTES]) -> Self {
        let ParticipantBytes { table, position, id } = zerocopy::transmute!(*bytes);
        let id = OperationId::of_bytes(&id).unmarked();
        Self { table: table.get(), position: position.get(), id }
    }
}

/// What an operation of a transaction does to its object, once the transaction is committed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransactionAction<'a> {
    /// Nothing. The transaction depends on the object: it must not change before the transaction is
    /// decided.
    Check,
    /// Writes this value. The object expires this long after the server has written it, or never.
    Write(&'a [u8], Option<Ttl>),
    /// Removes the object, if there is one.
    Remove,
}

const CHECK: u8 = 0;
const WRITE: u8 = 1;
const REMOVE: u8 = 2;
const WRITE_FOR: u8 = 3;

impl TransactionAction<'_> {
    /// Returns whether the action changes the object. Operations that change nothing do not exclude
    /// one another.
    #[must_use]
    pub fn changes(&self) -> bool {
        *self != TransactionAction::Check
    }
}

/// What an operation of a transaction does, and all operations of the transaction; borrowed from
/// the bytes that contain them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan<'a> {
    bytes: &'a [u8],
    participants: &'a [[u8; PARTICIPANT_BYTES]],
    action: TransactionAction<'a>,
}

impl<'a> Plan<'a> {
    /// Encodes a plan.
    ///
    /// # Panics
    /// When there are more than [`MAX_TRANSACTION`] participants.
    #[must_use]
    pub fn encode(action: TransactionAction<'_>, participants: &[Participant]) -> Vec<u8> {
        assert!(participants.len() <= MAX_TRANSACTION);
        let (code, value, ttl) = match action {
            TransactionAction::Check => (CHECK, &[][..], None),
            TransactionAction::Write(value, None) => (WRITE, value, None),
            TransactionAction::Write(value, Some(ttl)) => (WRITE_FOR, value, Some(ttl)),
            TransactionAction::Remove => (REMOVE, &[][..], None),
        };
        let mut bytes = vec![code, participants.len().to_le_bytes()[0]];
        participants.iter().for_each(|participant| bytes.extend(participant.bytes()));
        bytes.extend(ttl.iter().flat_map(|ttl| ttl.bytes()));
        bytes.extend_from_slice(value);
        bytes
    }

    /// Parses a plan. `None` when the bytes are cut short, the action is unknown, there are no
    /// participants or more than [`MAX_TRANSACTION`], the time to live is outside its limits, or
    /// the value is over [`MAX_TRANSACTION_BYTES`], or present although the action has none.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[code, count], rest) = bytes.split_first_chunk::<PLAN_BYTES>()?;
        let count = usize::from(count);
        if !(1..=MAX_TRANSACTION).contains(&count) {
            return None;
        }
        let (participants, value) = rest.split_at_checked(count * PARTICIPANT_BYTES)?;
        let action = match code {
            CHECK if value.is_empty() => TransactionAction::Check,
            WRITE if value.len() <= MAX_TRANSACTION_BYTES => TransactionAction::Write(value, None),
            WRITE_FOR if value.len() <= TTL_BYTES + MAX_TRANSACTION_BYTES => {
                let (ttl, value) = value.split_first_chunk()?;
                TransactionAction::Write(value, Some(Ttl::of_bytes(ttl).ok()?))
            }
            REMOVE if value.is_empty() => TransactionAction::Remove,
            _ => return None,
        };
        let (participants, _) = participants.as_chunks();
        Some(Self { bytes, participants, action })
    }

    /// Returns the bytes of the plan.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns what the operation does.
    #[must_use]
    pub fn action(&self) -> TransactionAction<'a> {
        self.action
    }

    /// Returns the operation that has this plan, given its table and id.
    #[must_use]
    pub fn participant(&self, table: u32, id: &OperationId) -> Option<Participant> {
        self.participants().find(|one| one.is(table, id))
    }

    /// Returns an operation of the transaction.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn participant_at(&self, index: usize) -> Participant {
        Participant::of(&self.participants[index])
    }

    /// Returns whether another plan is for an operation of the same transaction.
    #[must_use]
    pub fn has_same_participants(&self, other: &Self) -> bool {
        self.participants == other.participants
    }

    /// Returns all operations of the transaction.
    pub fn participants(&self) -> impl ExactSizeIterator<Item = Participant> + use<'a> {
        self.participants.iter().map(Participant::of)
    }
}

/// How far a server has brought a transaction when it answers the prepare of an operation: the
/// `number` of the answer.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Preparation {
    /// The operation is prepared.
    #[default]
    Prepared = 0,
    /// All operations are prepared, and the server will commit them. The client still has to send
    /// its decisions before it uses the operations' slots again, but nothing waits for them.
    Decided = 1,
    /// All operations are committed and ended.
    Ended = 2,
}

impl Preparation {
    /// Returns the preparation of this code; an unknown one counts as [`Preparation::Prepared`].
    #[must_use]
    pub fn of(code: u64) -> Self {
        match code {
            1 => Self::Decided,
            2 => Self::Ended,
            _ => Self::Prepared,
        }
    }
}

/// What a server is to do with an operation of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Decision {
    /// Answer whether the operation is prepared. If it is neither prepared nor decided, abort it
    /// first.
    Vote = 0,
    /// Commit it: all operations of the transaction are prepared, or one of them is committed.
    Commit = 1,
    /// Abort it: one operation of the transaction is aborted, or was refused.
    Abort = 2,
    /// Remove the prepared entry: all operations of the transaction are decided.
    End = 3,
}

impl Decision {
    const ALL: [Self; 4] = [Self::Vote, Self::Commit, Self::Abort, Self::End];

    pub(crate) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The state of an operation of a transaction, after its server has carried out a [`Decision`]: the
/// `number` of the answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum OperationState {
    /// The server has nothing of the operation any more.
    Ended = 0,
    /// The operation is prepared, and not decided.
    Prepared = 1,
    /// The operation is committed.
    Committed = 2,
    /// The operation is aborted.
    Aborted = 3,
}

impl OperationState {
    const ALL: [Self; 4] = [Self::Ended, Self::Prepared, Self::Committed, Self::Aborted];

    /// Returns the state of this code; `None` for an unknown one.
    #[must_use]
    pub fn of(code: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// The votes of a transaction's participants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Votes {
    committed: bool,
    missing: bool,
}

impl Votes {
    /// Adds the answer to [`Decision::Vote`] of a participant.
    pub fn add(&mut self, state: OperationState) {
        match state {
            OperationState::Prepared => {}
            OperationState::Committed => self.committed = true,
            OperationState::Aborted | OperationState::Ended => self.missing = true,
        }
    }

    /// Returns the decision, once all participants have voted: to commit if all operations are
    /// prepared, or if one is committed already. In that case a server that has nothing of another
    /// operation has forgotten it, since that operation was ended.
    #[must_use]
    pub fn decision(&self) -> Decision {
        if self.missing && !self.committed { Decision::Abort } else { Decision::Commit }
    }
}
