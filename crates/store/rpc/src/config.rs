//! Every limit of an endpoint.

use std::time::Duration;

use sprat_wire::packet;

/// The largest number of slots that a session can have, and thus the largest number of outstanding
/// calls on it.
pub const MAX_SLOTS: usize = packet::MAX_SLOTS;

/// The smallest number of slots that a server grants. At most this many calls may wait while a
/// session is being opened.
pub const MIN_SLOTS: usize = 8;

/// Number of sessions that a server keeps at most, by default.
pub const MAX_SESSIONS: usize = 4096;

/// Number of sessions that an endpoint opens as a client at most, by default.
pub const MAX_CLIENT_SESSIONS: usize = 4096;

/// Limit on the bytes of long messages in reassembly, for each of the two roles, by default.
pub const MAX_REASSEMBLY: usize = 64 << 20;

/// Limit on the number of messages in reassembly at once, for each of the two roles.
pub const MAX_ASSEMBLIES: usize = 4096;

/// Bytes of a long message after which its sender needs a grant. Without a grant, the sender stops
/// once it has sent at least this number of bytes.
pub const UNSCHEDULED_BYTES: usize = 64 << 10;

/// Bytes that a receiver grants a sender beyond those that have arrived.
pub const GRANT_WINDOW: usize = 128 << 10;

/// Number of long messages that a receiver grants at once: the oldest one, and otherwise those with
/// the fewest bytes to come.
pub const GRANTED_MESSAGES: usize = 4;

/// One poll stops sending long messages once it has sent this number of bytes, for each of the two
/// roles, so that the loop stays responsive. The last packet may exceed this number.
pub const BURST_BYTES: usize = 256 << 10;

/// Limit on the missing ranges of one message that its receiver requests together, and on those
/// that its sender keeps in order to send them again.
pub const MAX_RESEND_RANGES: usize = 16;

/// Number of times that a server asks in vain for the rest of a request before it drops the
/// fragments that it has.
pub const MAX_RESEND_TRIES: u32 = 10;

/// Shortest frame limit that an endpoint may have, in bytes. Every peer accepts frames of this
/// length.
pub const MIN_MTU: usize = 576;

/// The largest frame in use, in bytes: a packet's header, and the largest payload that its 16-bit
/// length field can count.
pub const MAX_MTU: usize = packet::HEADER_BYTES + 65_535;

/// The longest frame, in bytes, with which a client probes a path before a session uses the path: a
/// jumbo frame of Ethernet. A driver that offers longer frames connects processes of one machine.
pub const PROBE_BYTES: usize = 9000;

/// Number of attempts to open a session with only this end's largest frames. After them the client
/// offers [`NARROW_MTUS`] as well.
pub const WIDE_TRIES: u32 = 2;

/// Narrower frames that a client offers when wide frames get no answer, in bytes, widest first.
/// They carry UDP over IPv6 in Ethernet's common packets of 1500 bytes, and in the 1280 bytes that
/// every IPv6 link carries (RFC 8200).
pub const NARROW_MTUS: [u32; 2] = [1452, 1232];

/// Bytes of a response that the slot itself can store; a longer response needs a body.
pub const INLINE_BYTES: usize = 64;

/// Largest payload in bytes that is copied into the frame being packed; the driver gathers larger
/// ones from their own memory. Frames that are to be sealed get copies of all payloads.
pub const COPY_BYTES: usize = 1024;

/// Largest request buffer, in bytes, that a slot keeps for its next call.
pub const KEEP_BUFFER_BYTES: usize = 64 << 10;

/// The longest wait that a `Retry` answer can ask for; a client shortens a longer one to this.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// The wait that a draining server asks for, in microseconds.
pub const DRAIN_RETRY_MICROS: u32 = 10_000;

/// Silence after which a server forgets a session on which it received nothing but `Connect`.
pub const UNUSED_TTL: Duration = Duration::from_secs(3);

/// Silence of a client after which a server drops the responses whose bodies it holds for this
/// client: those not acknowledged, and those not sent completely. A client that waits for an answer
/// is never silent for this long, as it retransmits at least every [`MAX_RTO`].
pub const HOLDING_TTL: Duration = Duration::from_secs(5);

/// Silence after which a server may end an idle session to make room for a new session of an
/// address that would then have at least as many sessions.
pub const IDLE_BEFORE_EVICTION: Duration = Duration::from_secs(1);

/// Number of times that a server asks in vain for the rest of a request before another request may
/// take its memory.
pub const STALLED_TRIES: u32 = 2;

/// The longest retransmission timeout: exponential backoff stops here.
pub const MAX_RTO: Duration = Duration::from_millis(500);

/// The shortest retransmission timeout with a driver that may lose packets.
pub const MIN_RTO: Duration = Duration::from_millis(2);

/// Retransmission timeout before any round trip was measured, with a driver that may lose packets.
pub const INITIAL_RTO: Duration = Duration::from_millis(20);

/// The shortest retransmission timeout with a driver that loses packets only when a connection
/// breaks.
pub const RELIABLE_RTO: Duration = Duration::from_millis(250);

/// The largest number of handshakes that an endpoint has answered and that are not complete. At the
/// limit, a new handshake replaces the oldest.
pub const MAX_CHANNELS_HALF_OPEN: usize = 256;

/// Number of handshakes that an endpoint answers in one burst. Answering one takes some 0.2 ms.
pub const HANDSHAKES_AT_ONCE: u32 = 64;

/// Interval at which an endpoint answers further handshakes, after a burst of
/// [`HANDSHAKES_AT_ONCE`].
pub const HANDSHAKE_EVERY: Duration = Duration::from_millis(1);

/// Silence on a channel after which a client that waits for an answer probes it.
pub const SUSPECT_AFTER: Duration = Duration::from_millis(50);

/// Number of times that an endpoint sends a message of a handshake before it gives up.
pub const HANDSHAKE_TRIES: u32 = 12;

/// Interval at which an endpoint looks for unused channels, and removes them.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The settings of an endpoint. `Default` suits a server and a client alike.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of slots that a client asks for, and that a server grants at most; from [`MIN_SLOTS`]
    /// to [`MAX_SLOTS`].
    pub slots: usize,
    /// The largest number of sessions that the endpoint keeps as a server, at most 2^24.
    pub max_sessions: usize,
    /// The largest number of sessions that the endpoint opens as a client, at most 2^24; it refuses
    /// to open more.
    pub max_client_sessions: usize,
    /// The largest number of bytes of long messages in reassembly, for each of the two roles.
    pub max_reassembly: usize,
    /// Limit on the length of a frame, in bytes, from [`MIN_MTU`] to [`MAX_MTU`]. It applies even
    /// if the driver carries longer frames.
    pub mtu: usize,
    /// Silence of a client after which a server forgets its session: whole seconds, from 3 to
    /// 65,535.
    pub session_ttl: Duration,
    /// Silence of a server after which a client fails the calls that wait for this server; above
    /// [`MAX_RTO`].
    pub unreachable_after: Duration,
    /// The largest number of `Retry` answers to one call; one more fails the call.
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
