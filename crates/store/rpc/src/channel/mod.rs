//! Encrypted channels, below sessions, between members that have proven their identities.
//!
//! ```text
//! initiator                                         responder
//! Calling ── Hello{psk, e, payload} ──►              without the door key: counted, no answer
//!                                                    names an open channel: empty sealed frame
//! Open ◄── Answer{e, ee, s, es, certificate} ──      Answered: one of few half-open
//! (unconfirmed) ── Proof{s, se, certificate} ──►     Open: an empty sealed frame
//! Open ◄── any sealed frame
//! ```
//!
//! The initiator sends Hello and Proof again until they are answered. When it gets no answers on an
//! open channel, it *probes*: it sends a Hello that names this channel. If the responder no longer
//! has the channel, the handshake opens a new channel in its place, and the sessions of the old
//! channel are lost.

mod half;
mod noise;
mod seal;
mod shake;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sprat_key::{Certificate, Identity, Role};
use sprat_net::{Nanos, Transmit};
use sprat_wire::certificate::KEY_BYTES;
use sprat_wire::channel::{CHANNEL_HEADER_BYTES, NO_CHANNEL, SealedHeader};
use zerocopy::FromBytes;

use crate::config::{Config, MAX_CHANNELS_HALF_OPEN, SWEEP_EVERY};
use crate::counters::Counters;
use crate::slab::Slab;
use half::HandshakePace;
use noise::{Noise, Seed};
use seal::{Opening, Rejected, Sealing};

/// A member's identity, and the randomness and time that an endpoint needs to prove it.
pub struct Credentials {
    identity: Arc<Identity>,
    seed: Seed,
    /// Seconds since 1970 at [`Nanos`] zero.
    unix: u64,
}

impl Credentials {
    /// Makes the credentials of the member with this identity. `seed` must be random and used for
    /// nothing else. `unix` is the number of seconds since 1970 at the endpoint's time zero.
    #[must_use]
    pub fn new(identity: Arc<Identity>, seed: &[u8; KEY_BYTES], unix: u64) -> Self {
        Self { identity, seed: Seed::new(seed), unix }
    }

    fn unix_at(&self, now: Nanos) -> u64 {
        self.unix.saturating_add(now.0 / 1_000_000_000)
    }

    /// Converts seconds since 1970 to the endpoint's time.
    fn to_nanos(&self, unix: u64) -> Nanos {
        Nanos(unix.saturating_sub(self.unix).saturating_mul(1_000_000_000))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The sender of a request: the member at the other end of a channel, or anyone if the endpoint
/// uses no channels. It is small and cheap to copy.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Requester {
    role: Option<Role>,
    number: u32,
}

impl Requester {
    /// Any sender: the endpoint uses no channels and checks no identities.
    pub const ANYONE: Self = Self { role: None, number: NO_CHANNEL };

    /// Returns the member's role; `None` if the endpoint checks no identities.
    #[inline]
    #[must_use]
    pub fn role(self) -> Option<Role> {
        self.role
    }

    /// Returns whether the peer may send what servers send each other: it is a server, or the
    /// endpoint checks no identities.
    #[inline]
    #[must_use]
    pub fn serves(self) -> bool {
        matches!(self.role, None | Some(Role::Server))
    }

    /// Returns whether the peer may administer the cluster: it is an administrator, or the endpoint
    /// checks no identities.
    #[inline]
    #[must_use]
    pub fn administers(self) -> bool {
        matches!(self.role, None | Some(Role::Admin))
    }

    /// Returns the member's number at this endpoint. The number is small, constant while the
    /// member's channel lasts, and reused afterwards. It has a meaning only when
    /// [`role`](Self::role) is not `None`.
    #[inline]
    #[must_use]
    pub fn number(self) -> usize {
        self.number as usize
    }
}

/// The effect of a frame of a handshake.
pub(crate) enum HandshakeEvent {
    /// The endpoint has nothing to do.
    None,
    /// A member has proven its identity.
    Admitted(Requester, Box<Certificate>),
    /// A channel begun here is open; the channel with the second number, if there is one, is gone.
    Opened(u32, Option<u32>),
}

enum Stage {
    /// This end has sent a Hello.
    Calling(Calling),
    /// This end has sent an Answer.
    Answered(Noise, Vec<u8>),
    /// The peer has proven its identity. At the initiator, its own Proof may not have arrived yet.
    Open(Box<Open>),
}

struct Calling {
    noise: Noise,
    /// The Hello, which this end sends again until it is answered.
    hello: Retransmission,
    /// The open channel that this handshake probes, if it was begun for that.
    old: Option<u32>,
}

/// A frame that is sent again until it is answered.
struct Retransmission {
    frame: Vec<u8>,
    tries: u32,
    at: Nanos,
}

struct Open {
    sealing: Sealing,
    opening: Opening,
    /// The channel's name, known to both ends.
    name: [u8; 8],
    /// The end of the Proof that opened the channel at this end.
    proof: [u8; 16],
    /// At the initiator: the Proof, until an answer shows that it arrived.
    unconfirmed: Option<Retransmission>,
    /// The handshake that probes this channel, by its number.
    probe: Option<u32>,
}

struct Channel {
    peer: SocketAddr,
    /// The channel's number at the peer.
    peer_index: u32,
    nonce: u32,
    /// Whether this end began the channel.
    begun_here: bool,
    requester: Requester,
    last_heard: Nanos,
    /// When the first of both ends' certificates expires; the channel ends then.
    until: Nanos,
    stage: Stage,
}

/// The channels of an endpoint.
pub(crate) struct Channels {
    credentials: Credentials,
    all: Slab<Channel>,
    /// Channels begun here, by peer.
    to: HashMap<SocketAddr, u32>,
    /// Channels begun by peers, by the peer's address, and by the channel's number there and the
    /// nonce, which are in the Hello.
    from: HashMap<(SocketAddr, u32, u32), u32>,
    /// Channels answered but not open yet, and their nonces, oldest first.
    half_open: VecDeque<(u32, u32)>,
    /// Channels begun here whose Hello or Proof may have to be sent again.
    waiting: Vec<u32>,
    pace: HandshakePace,
    sweep_at: Nanos,
    ttl: Duration,
    /// Buffer in which frames are decrypted.
    buffer: Vec<u8>,
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels")
            .field("credentials", &self.credentials)
            .field("count", &self.all.len())
            .finish()
    }
}

impl Channels {
    pub(crate) fn new(config: &Config, credentials: Credentials) -> Self {
        Self {
            credentials,
            all: Slab::new(
                config.max_sessions + config.max_client_sessions + MAX_CHANNELS_HALF_OPEN,
            ),
            to: HashMap::new(),
            from: HashMap::new(),
            half_open: VecDeque::new(),
            waiting: Vec::new(),
            pace: HandshakePace::default(),
            sweep_at: Nanos::NEVER,
            ttl: config.session_ttl,
            buffer: Vec::new(),
        }
    }

    /// Returns the member at the other end of a channel.
    #[inline]
    pub(crate) fn requester(&self, index: u32) -> Requester {
        self.all
            .get(index)
            .map_or(Requester { role: Some(Role::Client), number: index }, |channel| {
                channel.requester
            })
    }

    /// Returns the number of channels, open or not.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether the channel is open, so that frames can be sealed for its peer.
    pub(crate) fn is_open(&self, index: u32) -> bool {
        self.all.get(index).is_some_and(|channel| matches!(channel.stage, Stage::Open(_)))
    }

    /// Seals a frame whose first [`CHANNEL_HEADER_BYTES`] the caller left free. Returns whether the
    /// frame may be sent to `address`.
    #[inline]
    pub(crate) fn seal(&mut self, index: u32, address: SocketAddr, frame: &mut Vec<u8>) -> bool {
        match self.all.get_mut(index) {
            Some(Channel { peer, peer_index, stage: Stage::Open(open), .. })
                if *peer == address =>
            {
                open.sealing.seal(*peer_index, frame)
            }
            _ => false,
        }
    }

    /// Decrypts a sealed frame. Returns its channel, and a buffer with its header and packets that
    /// the caller must [give back](Self::give_back). `None`, and counts the frame, if it cannot be
    /// decrypted or is a repetition.
    #[inline]
    pub(crate) fn open(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        frame: &[u8],
        counters: &mut Counters,
    ) -> Option<(u32, Vec<u8>)> {
        let (lead, _) = SealedHeader::ref_from_prefix(frame).ok()?;
        let index = lead.to.get();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(frame);
        let channel =
            self.all.get_mut(index).filter(|channel| channel.peer == from && now < channel.until);
        let opened = match channel {
            Some(Channel { stage: Stage::Open(open), last_heard, .. }) => {
                match open.opening.open(&mut buffer) {
                    Ok(packets) => {
                        let len = packets.len();
                        *last_heard = now;
                        Ok((len, open.unconfirmed.take().is_some(), open.probe.take()))
                    }
                    Err(rejected) => Err(rejected),
                }
            }
            _ => Err(Rejected::Forged),
        };
        match opened {
            Ok((len, confirmed, probe)) => {
                if confirmed {
                    self.waiting.retain(|&other| other != index);
                }
                if let Some(probe) = probe {
                    self.remove(probe);
                }
                buffer.truncate(CHANNEL_HEADER_BYTES + len);
                Some((index, buffer))
            }
            Err(rejected) => {
                match rejected {
                    Rejected::Forged => counters.sealed_forged += 1,
                    Rejected::Repeated => counters.sealed_repeated += 1,
                }
                self.buffer = buffer;
                None
            }
        }
    }

    /// Takes back the buffer that [`open`](Self::open) returned.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Sends an empty sealed frame, which shows the peer that the channel is open here.
    fn send_empty<T: Transmit + ?Sized>(&mut self, index: u32, tx: &mut T) {
        let Some(address) = self.all.get(index).map(|channel| channel.peer) else { return };
        let mut frame = vec![0; CHANNEL_HEADER_BYTES];
        if self.seal(index, address, &mut frame) {
            tx.send(address, &[IoSlice::new(&frame)]);
        }
    }

    /// Forgets a channel.
    fn remove(&mut self, index: u32) {
        let Some(channel) = self.all.remove(index) else { return };
        self.waiting.retain(|&other| other != index);
        if channel.begun_here {
            if self.to.get(&channel.peer) == Some(&index) {
                self.to.remove(&channel.peer);
            }
        } else {
            self.from.remove(&(channel.peer, channel.peer_index, channel.nonce));
        }
        match channel.stage {
            Stage::Calling(Calling { old: Some(old), .. }) => {
                if let Some(Channel { stage: Stage::Open(open), .. }) = self.all.get_mut(old) {
                    open.probe = None;
                }
            }
            Stage::Open(open) => {
                if let Some(probe) = open.probe {
                    self.remove(probe);
                }
            }
            _ => {}
        }
    }

    /// Sends again the frames that are due. Removes channels whose Hello or Proof was not answered,
    /// that have expired, or that were unused for long, and returns them. `used` says whether a
    /// channel begun here still has sessions.
    pub(crate) fn poll<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        tx: &mut T,
        counters: &mut Counters,
        used: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut gone = self.retransmit_due(now, tx);
        if now >= self.sweep_at {
            let old = |&(index, channel): &(u32, &Channel)| {
                let silent = now.since(channel.last_heard) >= self.ttl;
                now >= channel.until
                    || (silent
                        && !matches!(channel.stage, Stage::Calling(_))
                        && !(channel.begun_here && used(index)))
            };
            let ended: Vec<u32> = self.all.iter().filter(old).map(|(index, _)| index).collect();
            for &index in &ended {
                counters.channels_ended += 1;
                self.remove(index);
            }
            gone.extend(ended);
            self.sweep_at = if self.all.len() == 0 { Nanos::NEVER } else { now + SWEEP_EVERY };
        }
        gone
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let again = self.waiting.iter().filter_map(|&index| self.retransmit_at(index)).min();
        again.into_iter().chain([self.sweep_at]).min().filter(|&at| at < Nanos::NEVER)
    }
}
