//! Messages of more than one packet.

pub(crate) mod incoming;
pub(crate) mod outgoing;

/// The call that a message belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Owner {
    pub(crate) session: u32,
    pub(crate) slot: usize,
    pub(crate) sequence: u32,
}
