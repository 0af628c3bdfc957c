//! Messages that take more than one packet.

pub(crate) mod incoming;
pub(crate) mod outgoing;

/// Whose message it is, to the table that holds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Owner {
    pub(crate) session: u32,
    pub(crate) slot: usize,
    pub(crate) sequence: u32,
}
