//! The tickets that identify completed disk operations.

/// Tickets of operations. The lower half of a ticket for a frame is the frame's number, because
/// each frame has at most one operation of a kind under way.
pub(super) const TICKET_SYNC: u64 = 1;
pub(super) const TICKET_GROW: u64 = 2;
pub(super) const TICKET_HEADER: u64 = 3;
pub(super) const TICKET_RAISE: u64 = 4;
pub(super) const TICKET_WRITE: u64 = 1 << 32;
pub(super) const TICKET_RETIRE: u64 = 2 << 32;
pub(super) const TICKET_READ: u64 = 3 << 32;

/// Splits a ticket for a frame into its kind and the frame.
pub(super) fn of_frame(ticket: u64) -> (u64, u32) {
    let frame = u32::try_from(ticket & u64::from(u32::MAX)).expect("32 bits");
    (ticket - u64::from(frame), frame)
}
