//! The worker's end of a capture.

use super::block;
use super::writer::{Shared, Slab};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

/// Age in nanoseconds from which [`Recorder::flush`] passes a slab to the writer even if it is not
/// full.
pub const FLUSH_NANOS: u64 = 200_000_000;

/// A packet to record.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket {
    /// Index of the interface.
    pub interface: usize,
    /// Time at which the packet arrived, in nanoseconds since 1970.
    pub at: u64,
    /// The packet's length in bytes, from the Ethernet header on.
    pub length: u32,
    /// For a super-packet: how many frames it would be on a wire, and the bytes of payload in each
    /// frame except the last.
    pub segments: Option<(u32, u16)>,
}

/// Records packets without ever blocking. Each worker has a recorder of its own.
#[derive(Debug)]
pub struct Recorder {
    pub(super) number: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) full: SyncSender<Slab>,
    pub(super) empty: Receiver<Vec<u8>>,
    pub(super) filling: Option<Vec<u8>>,
    pub(super) comment: String,
    /// Time stamp of the first packet in the current slab.
    pub(super) since: u64,
}

impl Recorder {
    /// Records a packet, whose bytes are passed in parts. Returns `false` if there was no memory
    /// for the packet, which then counts as dropped. Allocates nothing.
    ///
    /// # Panics
    /// There is no such interface, or the parts are shorter than the packet.
    pub fn record<'a>(
        &mut self,
        packet: &CapturedPacket,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let counts = &self.shared.counts[packet.interface];
        counts.seen.fetch_add(1, Ordering::Relaxed);
        let captured = usize::try_from(packet.length.min(self.shared.snap)).expect("32 bits fit");
        if !self.make_room(block::packet_room(captured), packet.at) {
            self.shared.counts[packet.interface].dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.comment.clear();
        if let Some((count, size)) = packet.segments {
            let _ = write!(
                self.comment,
                "super-packet: {count} segments of up to {size} bytes of payload"
            );
        }
        let interface = u32::try_from(packet.interface).expect("interfaces are few");
        let to = self.filling.as_mut().expect("has room");
        block::packet(to, interface, packet.at, (captured, packet.length), parts, &self.comment);
        true
    }

    /// Passes the current slab to the writer if its first packet is at least [`FLUSH_NANOS`] old.
    /// Call it when no packets pass.
    pub fn flush(&mut self, now: u64) {
        if now.saturating_sub(self.since) >= FLUSH_NANOS {
            self.hand_over();
        }
    }

    fn make_room(&mut self, room: usize, at: u64) -> bool {
        if self.filling.as_ref().is_some_and(|slab| slab.capacity() - slab.len() < room) {
            self.hand_over();
        }
        if self.filling.is_none() {
            self.filling = self.empty.try_recv().ok();
            self.since = at;
        }
        self.filling.is_some()
    }

    fn hand_over(&mut self) {
        match self.filling.take() {
            Some(slab) if !slab.is_empty() => {
                // The channel has room for every slab that exists. So this fails only if the writer
                // has ended, and the writer reports that itself.
                let _ = self.full.try_send(Slab { from: self.number, bytes: slab });
            }
            unused => self.filling = unused,
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand_over();
    }
}
