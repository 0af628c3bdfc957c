//! Remote procedure calls without I/O: sessions, fragments, grants, retransmission, and execution
//! at most once.
//!
//! An [`Endpoint`] is a state machine: its owner hands it frames, calls and the time, and it hands
//! frames to a [`Transmit`](sprat_net::Transmit) and results to a [`Handler`]. It has no socket,
//! clock, thread or randomness of its own, so the same seed and the same frames give the same
//! history. One endpoint plays both roles: client of some peers and server of others.
//!
//! A call without loss takes two packets: a request and a response. Each has a frame of its own or
//! shares one with other packets to its receiver. The handler reads the request, and the caller
//! reads the response, in the driver's receive buffer.
//!
//! # Sessions
//!
//! A session joins a client and a server. Its packets carry the session's index at the receiver,
//! and a 32-bit token that the server drew. An endpoint accepts a packet only if the index, the
//! token and the sender's address all match.
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
//! a client when that client has been silent for [`HOLDING_TTL`]. A client that asks for the
//! dropped response later is told that the session is over.
//!
//! A server that has [`Config::max_sessions`] ends a session to make room for a new one: an unused
//! session, or otherwise a session of the address with the most sessions. Among several it ends the
//! one that was silent for longest. If it can end none, it refuses the new session.
//!
//! A client with outstanding calls is never silent: it retransmits at least every [`MAX_RTO`]. A
//! client without calls pings only if its owner asks for that ([`Endpoint::keep_alive`]).
//!
//! # Slots
//!
//! A session has up to [`MAX_SLOTS`] slots, each with at most one outstanding call. A slot and a
//! sequence number name a call. The sequence number grows by one with each call, and a newer
//! request in a slot acknowledges the response before it. The server keeps for each slot only the
//! state of its newest request, and so executes each request at most once, unless the handler says
//! that it may be repeated:
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
//! The slot itself retains responses of up to [`INLINE_BYTES`]. For a longer response the endpoint
//! holds the body's memory and says so in the response; the client then acknowledges the response
//! at once. If that acknowledgement is lost, the slot's next request, a silence of [`HOLDING_TTL`]
//! or the end of the session releases the memory.
//!
//! # Long messages
//!
//! A message (request or response, up to [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE)) that is longer
//! than one packet is cut into fragments. Each has the session's mtu less the header, and the last
//! one is shorter. The sender sends [`UNSCHEDULED_BYTES`] without a grant, and the rest as the
//! receiver grants it, up to [`GRANT_WINDOW`] beyond what has arrived. A receiver grants at most
//! [`GRANTED_MESSAGES`] messages at once: those with the fewest bytes to come, and the oldest. A
//! sender sends the message with the fewest bytes left first, and stops for this poll once it has
//! sent [`BURST_BYTES`]. So a short message waits at most for a window of a long one.
//!
//! [`Config::max_reassembly`] bounds the reassembly memory of each role. A fragment of a response
//! that finds no memory is dropped, and sent again later. A request that finds no memory takes the
//! memory of a request that stalled, or else of the session that uses the most, if that session
//! uses more than the request's own session would then use. If there is no such memory, the server
//! answers `Retry`.
//!
//! # Loss
//!
//! The receiver of a long message asks for missing ranges (`Resend`) when no fragment has arrived
//! for a while; a `Resend` also grants the bytes that it names. The client does everything else. It
//! retransmits an unanswered request, or the first packet of a long one, after a timeout that
//! doubles up to [`MAX_RTO`]. The timeout is estimated from the round trips of requests that were
//! sent once (RFC 6298). `Busy`, `Grant` and `Resend` show that the server has the request. On a
//! reliable transport the timeout is at least [`RELIABLE_RTO`]: there the timers only recover from
//! broken connections.
//!
//! # What it costs
//!
//! A session costs the server 112 B, an index entry of about 64 B, and 96 B for each slot up to the
//! highest ever used (with 8-byte [`Handler::Body`]s). Clients use low slots first, so a client
//! with one call at a time costs the server under 300 B. Timers are one heap entry for each
//! session, which is changed once a timeout, not once a call. A small call allocates nothing once
//! its slot was used.
//!
//! Tokens distinguish stray packets from wanted ones. Only channels protect against an attacker who
//! reads the network.
//!
//! # Channels
//!
//! An endpoint with [`Credentials`] communicates only through channels, and only with peers that
//! have proven to be members of its cluster. Frames are sealed as a whole; the sessions and packets
//! in them are those described above. A session belongs to its channel: packets that arrive through
//! another channel do not match it. The handler receives the identity of each member
//! ([`Handler::admitted`]) and the sender of each request ([`RequestId::requester`]). A channel
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

pub use channel::{Credentials, Requester};
pub use config::*;
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use handler::{
    CallError, CallFailure, CallId, ConnectError, Handler, NoHandler, Outcome, Repeat, Reply,
    RequestId, Response, SessionId,
};
pub use sprat_wire::packet::Refusal;
