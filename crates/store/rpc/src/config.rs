//! Every limit of an endpoint.

use std::time::Duration;

use sprat_wire::packet;

/// The largest number of slots a session can have, and so of calls outstanding on it.
pub const MAX_SLOTS: usize = packet::MAX_SLOTS;

/// The smallest number of slots a server grants. This many calls may wait while a session is being
/// opened.
pub const MIN_SLOTS: usize = 8;

/// Sessions a server keeps by default.
pub const MAX_SESSIONS: usize = 4096;

/// Sessions an endpoint opens as a client, at most, by default.
pub const MAX_CLIENT_SESSIONS: usize = 4096;

/// Bytes of long messages in reassembly by default, for each of the two roles.
pub const MAX_REASSEMBLY: usize = 64 << 20;

/// Messages in reassembly at once, for each of the two roles.
pub const MAX_ASSEMBLIES: usize = 4096;

/// Bytes of a long message that its sender sends without a grant.
pub const UNSCHEDULED_BYTES: usize = 64 << 10;

/// Bytes granted to a sender ahead of what has arrived.
pub const GRANT_WINDOW: usize = 128 << 10;

/// Long messages that a receiver grants at once: all but one are those with the least to come, one
/// is the oldest.
pub const GRANTED_MESSAGES: usize = 4;

/// Bytes of long messages sent in one poll, for each of the two roles, so that the loop stays
/// responsive.
pub const BURST_BYTES: usize = 256 << 10;

/// Missing ranges that a receiver asks for at once, and that a sender remembers at once.
pub const MAX_RESEND_RANGES: usize = 16;

/// Times a server asks in vain for the rest of a request before it drops the fragments it has.
pub const MAX_RESEND_TRIES: u32 = 10;

/// Smallest frame that every peer must accept, bytes.
pub const MIN_MTU: usize = 576;

/// The largest frame used, in bytes: the limit of a packet's 16-bit payload length, with the
/// packet's header.
pub const MAX_MTU: usize = packet::HEADER_BYTES + 65_535;

/// The largest frame with which a client probes a path before a session uses the path, in bytes: a
/// jumbo frame of Ethernet. A driver that offers longer frames connects processes of one machine.
pub const PROBE_BYTES: usize = 9000;

/// Attempts to open a session with this end's largest frames before the client offers
/// [`NARROW_MTUS`] as well.
pub const WIDE_TRIES: u32 = 2;

/// Narrower frames that a client offers when wide ones get no answer, bytes, widest first: UDP over
/// IPv6 in Ethernet's common 1500-byte packets, and in the 1280 bytes that every IPv6 link carries
/// (RFC 8200).
pub const NARROW_MTUS: [u32; 2] = [1452, 1232];

/// Bytes of a response that the slot itself stores; a longer one needs a body.
pub const INLINE_BYTES: usize = 64;

/// Packets up to this size are copied into the frame being packed; the driver gathers longer ones
/// from their own memory.
pub const COPY_BYTES: usize = 1024;

/// A call's request buffer is kept for the next call in its slot up to this size.
pub const KEEP_BUFFER_BYTES: usize = 64 << 10;

/// The longest wait that a `Retry` answer can ask for; a client shortens a longer one to this.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// The wait that a draining server asks for, microseconds.
pub const DRAIN_RETRY_MICROS: u32 = 10_000;

/// How long a server remembers a session on which it received nothing but `Connect`.
pub const UNUSED_TTL: Duration = Duration::from_secs(3);

/// Silence of a client after which a server drops the responses that it holds for it: those not
/// acknowledged, and those not sent completely. A client that waits for an answer retransmits at
/// least every [`MAX_RTO`].
pub const HOLDING_TTL: Duration = Duration::from_secs(5);

/// Silence after which a server may end an idle session for a new one of the same address.
pub const IDLE_BEFORE_EVICTION: Duration = Duration::from_secs(1);

/// Times that a server asks for the rest of a request in vain before another request may take its
/// memory.
pub const STALLED_TRIES: u32 = 2;

/// The longest retransmission timeout: exponential backoff stops here.
pub const MAX_RTO: Duration = Duration::from_millis(500);

/// The shortest retransmission timeout over a driver that may lose packets.
pub const MIN_RTO: Duration = Duration::from_millis(2);

/// Time after which a packet counts as lost, before there is a measurement.
pub const INITIAL_RTO: Duration = Duration::from_millis(20);

/// The shortest retransmission timeout over a driver that loses packets only with a broken
/// connection.
pub const RELIABLE_RTO: Duration = Duration::from_millis(250);

/// The largest number of handshakes that are answered but not complete; a newer one replaces the
/// oldest.
pub const MAX_CHANNELS_HALF_OPEN: usize = 256;

/// Handshakes that an endpoint answers at once. Answering one takes some 0.2 ms.
pub const HANDSHAKES_AT_ONCE: u32 = 64;

/// Interval at which an endpoint answers further handshakes, after [`HANDSHAKES_AT_ONCE`].
pub const HANDSHAKE_EVERY: Duration = Duration::from_millis(1);

/// Silence on a channel after which a client that waits for an answer probes it.
pub const SUSPECT_AFTER: Duration = Duration::from_millis(50);

/// Times that a message of a handshake is sent.
pub const HANDSHAKE_TRIES: u32 = 12;

/// Interval at which an endpoint looks for unused channels.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The settings of an endpoint. `Default` suits a server and a client alike.
#[derive(Clone, Debug)]
pub struct Config {
    /// Slots that a client asks for and a server grants at most; [`MIN_SLOTS`] to [`MAX_SLOTS`].
    pub slots: usize,
    /// The largest number of sessions that the endpoint keeps as a server.
    pub max_sessions: usize,
    /// The largest number of sessions that the endpoint opens as a client; further ones are
    /// refused.
    pub max_client_sessions: usize,
    /// The largest number of bytes of long messages in reassembly, for each of the two roles.
    pub max_reassembly: usize,
    /// The largest frame used, in bytes, even if the driver carries larger ones: [`MIN_MTU`] to
    /// [`MAX_MTU`].
    pub mtu: usize,
    /// Silence after which a server forgets a session; 3 s to 18 h, whole seconds.
    pub session_ttl: Duration,
    /// Silence of a server after which a client fails the calls that wait for it.
    pub unreachable_after: Duration,
    /// `Retry` answers after which a call fails.
    pub max_retries: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slots: 32,
            max_sessions: MAX_SESSIONS,
            max_client_sessions: MAX_CLIENT_SESSIONS,
            max_reassembly: MAX_REASSEMBLY,
            mtu: MAX_MTU,
            session_ttl: sprat_wire::once::SESSION_TTL,
            unreachable_after: Duration::from_secs(5),
            max_retries: 64,
        }
    }
}

impl Config {
    /// Checks that every field is in its range.
    ///
    /// # Panics
    /// When a field is outside its range.
    pub(crate) fn check(&self) {
        assert!((MIN_SLOTS..=MAX_SLOTS).contains(&self.slots), "slots: {}", self.slots);
        assert!((MIN_MTU..=MAX_MTU).contains(&self.mtu), "mtu: {}", self.mtu);
        assert!(
            (3..=65_535).contains(&self.session_ttl.as_secs()),
            "session_ttl: {:?}",
            self.session_ttl
        );
        assert!(self.max_sessions <= 1 << 24 && self.max_client_sessions <= 1 << 24);
        assert!(self.unreachable_after > MAX_RTO);
    }
}
