//! The counters of a driver.

/// The numbers of frames that one driver has carried and lost since it was opened, and related
/// counts. The driver's thread owns them; copy them to show them on another thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames passed to the node.
    pub frames_in: u64,
    /// Bytes of the frames handed to the node, without the headers below them.
    pub bytes_in: u64,
    /// Frames passed to the kernel or device, or kept until a connection or device accepts them.
    /// Frames that are dropped after that count as dropped too.
    pub frames_out: u64,
    /// Bytes of the frames in `frames_out`.
    pub bytes_out: u64,
    /// Frames not sent because a queue or buffer was full (`EAGAIN`, `ENOBUFS`, or a limit of the
    /// driver).
    pub dropped_full: u64,
    /// Frames not sent because they are longer than the driver or path carries (`EMSGSIZE`), or
    /// empty.
    pub dropped_size: u64,
    /// Frames not sent because the peer cannot be reached: there is no route, the kernel forbids
    /// the address, the address is of the wrong family, the peer's hardware address is unknown, a
    /// connection could not be begun, or the driver waits to reconnect.
    pub dropped_unreachable: u64,
    /// Frames lost because the peer refused them, or because its connection was closed before the
    /// kernel took them. If the kernel took some of the frames that waited together, they count
    /// too.
    pub dropped_refused: u64,
    /// Frames not sent for another reason.
    pub dropped_other: u64,
    /// Datagrams that arrived truncated, empty or without a sender's address, frames with
    /// inconsistent headers, and invalid length prefixes in a stream.
    pub malformed: u64,
    /// Frames addressed to another host, or of a kind this host does not understand. Only drivers
    /// that see whole frames count them.
    pub foreign: u64,
    /// Frames with a wrong checksum. Only drivers that see whole frames count them.
    pub corrupt: u64,
    /// How often a sample, taken once a millisecond, found no free frame in a device's pool. Frames
    /// that arrive at such a time wait in the device, or are lost. Only drivers with frame pools
    /// count this.
    pub no_buffer: u64,
    /// Errors that the kernel reported when the driver received, or accepted a connection, and
    /// after which the driver continues.
    pub receive_errors: u64,
    /// System calls to send. With shared memory, the number of flushes that showed frames to the
    /// peer; with DPDK, the number of calls that offered frames to the device; with the network in
    /// memory, the number of frames.
    pub sends: u64,
    /// Successful calls that sent several frames as one buffer, which the kernel or the device
    /// split (UDP segmentation offload).
    pub segmented: u64,
    /// Connections opened to peers.
    pub connected: u64,
    /// Connections accepted from peers.
    pub accepted: u64,
    /// Incoming connections closed because there were too many, and times that the driver stopped
    /// accepting because no descriptor or memory was left.
    pub rejected: u64,
    /// Attempts to connect that failed.
    pub connect_failed: u64,
    /// Established connections that ended, for any reason.
    pub closed: u64,
}

impl Counters {
    /// Returns the number of frames that were dropped, for any reason.
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
