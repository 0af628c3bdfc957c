//! Remote procedure calls without I/O: sessions, fragments, grants, retransmission, at most once.
//!
//! An [`Endpoint`] is a state machine: its owner hands it frames, calls and the time, and it hands
//! frames to a [`Transmit`](sprat_net::Transmit) and results to a [`Handler`]. It has no socket,
//! clock, thread or randomness of its own, so the same seed and the same frames give the same
//! history. One endpoint plays both roles: client of some peers and server of others.
//!
//! A call without loss takes two packets, each in one frame or sharing one with others to the same
//! peer. The handler reads the request, and the caller the response, in the driver's receive
//! buffer.
//!
//! # Sessions
//!
//! A session joins a client and a server; its packets carry the receiver's index of it and a 32-bit
//! token that the server drew. An endpoint drops a packet unless index, token and sender's address
//! all match.
//!
//! ```text
//! client                                            server
//! Idle ── call ──► Connecting ── Connect{nonce} ──►  (address, index, nonce) known?
//!                                                   the same answer : a new session
//!                  Open ◄── Accept{session, token, slots, mtu, ttl} ──
//!                  Idle ◄── Refuse{Version, Full, Draining} ── waiting calls fail: Refused
//! Open ── silent for ttl/3, then call ──► Verifying ── Ping ──►
//!                  Open ◄── Pong
//!                  Connecting ◄── Refuse{UnknownSession}: waiting calls do not notice
//! Open ── Refuse{UnknownSession} or Close ──► sent calls fail: Lost
//!                                             Connecting if calls wait, otherwise Idle
//! any  ── unheard for unreachable_after while waiting ──► Idle, calls fail: Unreachable
//! ```
//!
//! A server forgets a session that is silent for its `ttl` (60 s unless configured), or for
//! [`UNUSED_TTL`] if it received nothing but `Connect` on it. It drops a response that it holds for
//! a client when that client has been silent for [`HOLDING_TTL`]; a client that asks for it later
//! learns that the session is over. A server that has [`Config::max_sessions`] makes room for a new
//! one: it ends an unused session, otherwise one of the address with the most sessions, in either
//! case the one silent for longest; if there is none to end, it refuses the new one. A client with
//! calls outstanding is never silent: it retransmits at least every [`MAX_RTO`]. An idle one pings
//! only if its owner asks for that ([`Endpoint::keep_alive`]).
//!
//! # Slots
//!
//! A session has up to [`MAX_SLOTS`] slots, each with at most one call outstanding. Slot and
//! sequence name a call; the sequence grows by one a call, and a newer request in a slot
//! acknowledges the response before it. The server keeps for each slot only the state of its newest
//! request, and so executes each at most once:
//!
//! ```text
//! arrives            newest request of the slot        then
//! newer sequence     Running                           Busy: bounds the work for a session
//! newer sequence     any other                         forget the older; accept
//! same sequence      Open (turned away, or dropped)    accept
//!                    Receiving                         add the fragment
//!                    Running                           Busy
//!                    Retained, Sending                 repeat the response or its first packet
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
//! Responses up to [`INLINE_BYTES`] are retained in the slot. For longer ones the endpoint holds
//! the body's memory and says so in the response; the client then acknowledges it at once. If that
//! acknowledgement is lost, the slot's next request or the end of the session takes its place.
//!
//! # Long messages
//!
//! A sender cuts a message (either way, up to [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE)) that is
//! longer than one packet into fragments of the session's mtu less the header, the last one
//! shorter. It sends [`UNSCHEDULED_BYTES`] without a grant, and the rest as the receiver grants it:
//! up to [`GRANT_WINDOW`] ahead of what has arrived, to at most [`GRANTED_MESSAGES`] messages at
//! once, those with the least to come and the oldest. Senders too send the shortest remainder
//! first, at most [`BURST_BYTES`] a poll. So a short message waits for a window of a long one at
//! most, not for the long one. [`Config::max_reassembly`] bounds the reassembly memory of each
//! role; a fragment of a response for which there is none is dropped, and sent again later. A
//! request takes the memory of a request that stalled, or of the session that uses the most if that
//! is more than its own; if there is neither, the server answers `Retry`.
//!
//! # Loss
//!
//! The receiver of a long message asks for missing ranges (`Resend`) when no fragment has come for
//! a while; a `Resend` also grants the bytes it names. Everything else is up to the client: it
//! retransmits an unanswered request, or its first packet, after a timeout estimated from round
//! trips (RFC 6298, with samples of requests sent once only), doubling up to [`MAX_RTO`]; `Busy`,
//! `Grant` and `Resend` show that the server has the request. On a reliable transport the timeout
//! is at least [`RELIABLE_RTO`]: there the timers only recover from broken connections.
//!
//! # What it costs
//!
//! A session costs the server 112 B, an index entry of about 64 B, and 96 B for each slot up to the
//! highest ever used (with 8-byte [`Handler::Body`]s); clients use low slots first, so a client
//! with one call at a time costs under 300 B. Timers are one heap entry a session, touched once a
//! timeout, not once a call. Nothing is allocated for a small call once its slot was used.
//!
//! Tokens distinguish stray packets from wanted ones; they do not protect against an attacker who
//! reads the network. Channels do.
//!
//! # Channels
//!
//! An endpoint with [`Credentials`] speaks only through channels, and only to peers that have
//! proven to be members of its cluster. Frames are sealed whole; sessions and packets within are as
//! above. A session belongs to its channel: packets that arrive through another one do not match
//! it. The handler learns who is at the other end ([`Handler::admitted`]) and who sent a request
//! ([`RequestId::requester`]). A channel costs 2.5 KB.

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

pub use channel::{Credentials, Requester};
pub use config::*;
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use handler::{
    CallError, CallFailure, CallId, ConnectError, Handler, NoHandler, Outcome, Repeat, Reply,
    RequestId, Response, SessionId,
};
pub use sprat_wire::packet::Refusal;
