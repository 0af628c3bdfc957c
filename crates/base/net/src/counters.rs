//! What a driver counts.

/// What one driver has carried and lost since it was opened. Plain numbers: the driver's thread
/// owns them, and whoever wants to show them copies them out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames handed to the node.
    pub frames_in: u64,
    /// Bytes of those frames, without the headers below them.
    pub bytes_in: u64,
    /// Frames handed to the kernel, or kept for a connection that has yet to take them.
    pub frames_out: u64,
    /// Bytes of those frames.
    pub bytes_out: u64,
    /// Frames not sent because a queue or buffer was full (`EAGAIN`, `ENOBUFS`, or a limit of the
    /// driver).
    pub dropped_full: u64,
    /// Frames not sent because they are longer than the driver or path carries (`EMSGSIZE`), or
    /// empty.
    pub dropped_size: u64,
    /// Frames not sent because there is no way to the peer: no route, wrong address family,
    /// waiting to reconnect.
    pub dropped_unreachable: u64,
    /// Frames lost because the peer refused them or its connection broke before they had left.
    pub dropped_refused: u64,
    /// Frames not sent for another reason.
    pub dropped_other: u64,
    /// Datagrams that came truncated or empty, and stream lengths that no frame has.
    pub malformed: u64,
    /// Frames that were for somebody else, or of a kind that means nothing to us. Of drivers that
    /// see whole frames.
    pub foreign: u64,
    /// Frames whose checksums do not fit. Of drivers that see whole frames.
    pub corrupt: u64,
    /// Looks at devices, one a millisecond, at which every frame was in use: what arrives then is
    /// kept by the device, or lost. Of drivers that have frames of their own.
    pub no_buffer: u64,
    /// Errors of single peers that showed while receiving.
    pub receive_errors: u64,
    /// Calls of the kernel to send (or to the hub, one a frame).
    pub sends: u64,
    /// Runs of frames that left in one call, cut apart by the kernel or device.
    pub segmented: u64,
    /// Connections opened to peers.
    pub connected: u64,
    /// Connections accepted from peers.
    pub accepted: u64,
    /// Connections from peers turned away because there were too many.
    pub rejected: u64,
    /// Attempts to connect that failed.
    pub connect_failed: u64,
    /// Connections that ended, for whatever reason.
    pub closed: u64,
}

impl Counters {
    /// Frames that were to be sent and were not.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_full
            + self.dropped_size
            + self.dropped_unreachable
            + self.dropped_refused
            + self.dropped_other
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.frames_in += 1;
        self.bytes_in += bytes as u64;
    }

    pub(crate) fn sent(&mut self, frames: usize, bytes: usize) {
        self.frames_out += frames as u64;
        self.bytes_out += bytes as u64;
    }
}
