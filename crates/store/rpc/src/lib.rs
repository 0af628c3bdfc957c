//! Remote procedure calls without I/O: sessions, fragments, grants, retransmission, at most once.
//!
//! An [`Endpoint`] is a state machine: it is handed frames, calls and the time, and hands frames to
//! a [`Transmit`](sprat_net::Transmit) and results to a [`Handler`]. It has no socket, clock,
//! thread or randomness of its own, so the same seed and the same frames give the same history. One
//! endpoint plays both roles, client of some peers and server of others.
//!
//! When all is well a call is two packets, each in one frame or sharing one with others to the same
//! peer; the request is handled, and the response delivered, where the driver received it.
//!
//! # Sessions
//!
//! A session joins a client and a server; its packets carry the receiver's index of it and a 32-bit
//! token that the server drew. A packet must match index, token and sender's address, else it
//! concerns no one here.
//!
//! ```text
//! client                                            server
//! Idle ── call ──► Connecting ── Connect{nonce} ──►  (address, index, nonce) known? same answer : new session
//!                  Open ◄── Accept{session, token, slots, mtu, ttl} ──
//!                  Idle ◄── Refuse{Version, Full, Draining} ── waiting calls fail: Refused
//! Open ── silent for ttl/3, then call ──► Verifying ── Ping ──►
//!                  Open ◄── Pong;  Connecting ◄── Refuse{UnknownSession}: waiting calls do not notice
//! Open ── Refuse{UnknownSession} or Close ──► sent calls fail: Lost;  Connecting if calls wait, else Idle
//! any  ── unheard for unreachable_after while waiting ──► Idle, calls fail: Unreachable
//! ```
//!
//! A server forgets a session silent for its `ttl` (60 s unless configured), or for [`UNUSED_TTL`]
//! if nothing but `Connect` ever came. A response that is held for a client is dropped when that
//! has been silent for [`HOLDING_TTL`]; a client that asks for it later learns that the session is
//! over. When a server has [`Config::max_sessions`], the longest unused one gives way to a
//! newcomer, or the longest idle one of the address that has most; if there is none the newcomer is
//! refused. A client with calls outstanding is never silent: it asks again at least
//! every [`MAX_RTO`]. An idle one pings only if told to ([`Endpoint::keep_alive`]).
//!
//! # Slots
//!
//! A session has up to [`MAX_SLOTS`] slots, each with at most one call outstanding. A call is named
//! by slot and sequence, which grows by one a call; a newer request in a slot acknowledges the
//! response before it. The server keeps for each slot only where its newest request stands, and so
//! executes each at most once:
//!
//! ```text
//! arrives            newest request of the slot        then
//! newer sequence     Running                           Busy: the handler's work per session stays bounded
//! newer sequence     else                              forget the older; accept
//! same sequence      Open (turned away, or dropped)    accept
//!                    Receiving                         add the fragment
//!                    Running                           Busy
//!                    Retained, Sending                 the response again, or its first packet
//!                    Repeatable                        accept: it is executed again
//!                    Acknowledged                      drop
//!                    Dropped (client was silent)       Close: the session ends
//! older sequence     any                               drop
//!
//! accept: one packet ──► Running ── Reply{Retain} ──► Retained          ── Ack ──► Acknowledged
//!         fragment ──► Receiving ──► Running ── long Reply ──► Sending  ── Ack ──► Acknowledged
//!                                            ── Reply{Reexecute} ──► Repeatable
//!                                            ── Retry ──► Open
//! ```
//!
//! Responses up to [`INLINE_BYTES`] are retained in the slot. For longer ones the body's memory is
//! held, and the response says so; its client then acknowledges it at once. An acknowledgement that
//! is lost is made up for by the slot's next request, or by the end of the session.
//!
//! # Long messages
//!
//! A message (either way, up to [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE)) longer than one packet is
//! cut into fragments of the session's mtu less the header, the last one shorter. Its sender sends
//! [`UNSCHEDULED_BYTES`] unasked, and the rest as the receiver grants it: up to [`GRANT_WINDOW`]
//! ahead of what has arrived, to at most [`GRANTED_MESSAGES`] messages at once, those with the
//! least to come and the oldest. Senders too send the shortest remainder first, at most
//! [`BURST_BYTES`] a poll. So a short message waits for a window of a long one at most, not for the
//! long one. Reassembly memory is bounded by [`Config::max_reassembly`] a role; a fragment of a
//! response for which there is none is dropped and comes again. A request takes the memory of one
//! whose rest does not come, or of the session with the most, if that has more; if none does, it is
//! answered `Retry`.
//!
//! # Loss
//!
//! The receiver of a long message asks for missing ranges (`Resend`) when no fragment has come for
//! a while; who asks for bytes thereby grants them. Everything else is up to the client: an
//! unanswered request, or its first packet, is sent again after a timeout estimated from round
//! trips (RFC 6298, samples of requests sent once only), doubling up to [`MAX_RTO`]; `Busy`,
//! `Grant` and `Resend` show that the server is at it. On a transport that calls itself reliable
//! the timeout is at least [`RELIABLE_RTO`]: there the timers only heal broken connections.
//!
//! # What it costs
//!
//! A session costs the server 112 B, an index entry of about 64 B, and 96 B for each slot up to the
//! highest ever used (with 8-byte [`Handler::Body`]s); clients use low slots first, so a client
//! with one call at a time costs under 300 B. Timers are one heap entry a session, touched once a
//! timeout, not once a call. Nothing is allocated for a small call once its slot was used.
//!
//! Tokens tell strays from members; they are no defence against one who reads the network. Against
//! that there are channels.
//!
//! # Channels
//!
//! An endpoint that is given [`Credentials`] speaks only by channels, to ends that have proven to
//! be members of its cluster. Frames are sealed whole; sessions and packets are as above, within. A
//! session belongs to its channel: what comes by another does not concern it. The handler learns
//! who is at the other end ([`Handler::admitted`]) and who asks ([`RequestId::who`]). A channel
//! costs 2.5 KB.

mod channel;
mod client;
mod config;
mod counters;
mod endpoint;
mod grants;
mod handler;
mod link;
mod message;
mod rtt;
mod scout;
mod server;
mod slab;
mod timer;

pub use channel::{Credentials, Who};
pub use config::*;
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use handler::{
    CallError, CallFailure, CallId, ConnectError, Handler, NoHandler, Outcome, Repeat, Reply,
    RequestId, Response, SessionId,
};
pub use sprat_wire::packet::Refusal;
