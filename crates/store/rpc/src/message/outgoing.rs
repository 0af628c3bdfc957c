//! Long messages being sent.

use crate::config::{MAX_RESEND_RANGES, UNSCHEDULED_BYTES};
use crate::message::Owner;
use crate::slab::Slab;

#[derive(Debug)]
struct Outgoing {
    owner: Owner,
    total: usize,
    /// Number of message bytes in one packet.
    fragment: usize,
    /// Offset of the first byte that was never sent.
    sent: usize,
    /// Offset up to which the message may be sent.
    granted: usize,
    /// Ranges to send again, as start and end; the last of them is next.
    resends: Vec<(usize, usize)>,
    /// Whether the message is in [`Sender::ready`].
    ready: bool,
}

impl Outgoing {
    fn sendable(&self) -> bool {
        self.sent < self.granted || !self.resends.is_empty()
    }
}

/// The long messages that one role of an endpoint sends; the one with the fewest bytes left goes
/// first.
#[derive(Debug)]
pub(crate) struct Sender {
    messages: Slab<Outgoing>,
    /// Messages that may have something to send.
    ready: Vec<u32>,
}

impl Sender {
    /// Makes room for `limit` messages.
    pub(crate) fn new(limit: usize) -> Self {
        Self { messages: Slab::new(limit), ready: Vec::new() }
    }

    /// Begins a message of more than one packet. There is always room, because the limit is the
    /// number of slots that can exist.
    pub(crate) fn begin(&mut self, owner: Owner, total: usize, fragment: usize) -> u32 {
        assert!(total > fragment);
        let granted = total.min(UNSCHEDULED_BYTES);
        let message =
            Outgoing { owner, total, fragment, sent: 0, granted, resends: Vec::new(), ready: true };
        let index = self.messages.insert(message).expect("one message a slot");
        self.ready.push(index);
        index
    }

    /// Removes a message, whether all of it was sent or not.
    pub(crate) fn end(&mut self, index: u32) {
        if let Some(message) = self.messages.remove(index)
            && message.ready
        {
            self.ready.retain(|&other| other != index);
        }
    }

    /// Notes that the receiver has granted the bytes before `offset`.
    pub(crate) fn grant(&mut self, index: u32, offset: usize) {
        if let Some(message) = self.messages.get_mut(index) {
            message.granted = message.granted.max(offset.min(message.total));
            self.wake(index);
        }
    }

    /// Notes that the receiver lacks `len` bytes from `offset`. Returns whether any of them were
    /// sent before.
    pub(crate) fn resend(&mut self, index: u32, offset: usize, len: usize) -> bool {
        let Some(message) = self.messages.get_mut(index) else { return false };
        let end = offset.saturating_add(len).min(message.total);
        // A Resend also grants the bytes that it names: the grant itself may have been lost.
        message.granted = message.granted.max(end);
        let end = end.min(message.sent);
        let start = offset / message.fragment * message.fragment;
        let again = start < end;
        let known = message.resends.contains(&(start, end));
        if again && !known && message.resends.len() < MAX_RESEND_RANGES {
            message.resends.push((start, end));
        }
        self.wake(index);
        again
    }

    fn wake(&mut self, index: u32) {
        if let Some(message) = self.messages.get_mut(index)
            && !message.ready
            && message.sendable()
        {
            message.ready = true;
            self.ready.push(index);
        }
    }

    /// Returns whether some message may have something to send.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns, of the messages that may have something to send, the one with the fewest bytes
    /// left: its number and owner.
    pub(crate) fn shortest(&self) -> Option<(u32, Owner)> {
        let remaining =
            |&&index: &&u32| self.messages.get(index).map(|message| message.total - message.sent);
        let &index = self.ready.iter().min_by_key(remaining)?;
        Some((index, self.messages.get(index)?.owner))
    }

    /// Returns the next packet of a message to send, as offset and length; `None` once there is
    /// nothing to send for now.
    pub(crate) fn next(&mut self, index: u32) -> Option<(usize, usize)> {
        let message = self.messages.get_mut(index)?;
        let offset = if let Some((start, end)) = message.resends.pop() {
            if start + message.fragment < end {
                message.resends.push((start + message.fragment, end));
            }
            start
        } else if message.sent < message.granted {
            let offset = message.sent;
            message.sent = (offset + message.fragment).min(message.total);
            offset
        } else {
            message.ready = false;
            self.ready.retain(|&other| other != index);
            return None;
        };
        Some((offset, message.fragment.min(message.total - offset)))
    }
}
