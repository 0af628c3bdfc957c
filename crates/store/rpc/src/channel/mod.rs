//! Channels: below sessions, between ends that have proven who they are.
//!
//! ```text
//! who begins                                        who answers
//! Calling ── Hello{psk, e, greeting} ──►             not of the door key: counted, nothing else
//!                                                    names a channel that is there: a sealed frame of nothing, in it
//! Open ◄── Answer{e, ee, s, es, certificate} ──      Answered: one of few half done
//! (unconfirmed) ── Proof{s, se, certificate} ──►     Open: a sealed frame of nothing
//! Open ◄── any sealed frame
//! ```
//!
//! Hello and Proof are sent again until they are answered. An end that began and is not answered on
//! an open channel *knocks*: a Hello that names it. If it is there no more, the new channel takes
//! its place, and sessions of the old one are lost.

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
use sprat_wire::channel::{LEAD_BYTES, Lead, NO_CHANNEL};
use zerocopy::FromBytes;

use crate::config::{Config, MAX_CHANNELS_HALF_OPEN, SWEEP_EVERY};
use crate::counters::Counters;
use crate::slab::Slab;
use half::Half;
use noise::{Noise, Seed};
use seal::{Opening, Rejected, Sealing};

/// Who an endpoint is, and what it needs to prove it.
pub struct Credentials {
    identity: Arc<Identity>,
    seed: Seed,
    /// Seconds since 1970 at [`Nanos`] zero.
    unix: u64,
}

impl Credentials {
    /// Of that member of a cluster. `seed` is random and used for nothing else; `unix` are the
    /// seconds since 1970 at the endpoint's time zero.
    #[must_use]
    pub fn new(identity: Arc<Identity>, seed: &[u8; KEY_BYTES], unix: u64) -> Self {
        Self { identity, seed: Seed::new(seed), unix }
    }

    fn unix_at(&self, now: Nanos) -> u64 {
        self.unix.saturating_add(now.0 / 1_000_000_000)
    }

    /// When that second since 1970 comes.
    fn when(&self, unix: u64) -> Nanos {
        Nanos(unix.saturating_sub(self.unix).saturating_mul(1_000_000_000))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Who asks: the member at the other end of a channel, or anyone where there are no channels. Cheap
/// to carry and to look at.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Who {
    role: Option<Role>,
    number: u32,
}

impl Who {
    /// Nobody has to prove anything here.
    pub const ANYONE: Self = Self { role: None, number: NO_CHANNEL };

    /// What it is to the cluster; `None` where nobody has to prove anything.
    #[inline]
    #[must_use]
    pub fn role(self) -> Option<Role> {
        self.role
    }

    /// Whether it may do what servers do: it is one, or nobody has to prove anything.
    #[inline]
    #[must_use]
    pub fn serves(self) -> bool {
        matches!(self.role, None | Some(Role::Server))
    }

    /// Whether it may do what those do who run the cluster.
    #[inline]
    #[must_use]
    pub fn administers(self) -> bool {
        matches!(self.role, None | Some(Role::Admin))
    }

    /// Its number at this endpoint: small, the same as long as its channel lasts, and used again.
    /// Of [`Role`]s alone.
    #[inline]
    #[must_use]
    pub fn number(self) -> usize {
        self.number as usize
    }
}

/// What became of a handshake's frame.
pub(crate) enum News {
    /// Nothing that concerns anybody else.
    None,
    /// Somebody has proven who he is.
    Admitted(Who, Box<Certificate>),
    /// A channel that was begun here is open; that of the other number is no more.
    Opened(u32, Option<u32>),
}

enum Stage {
    /// Hello was sent.
    Calling(Calling),
    /// Answer was sent.
    Answered(Noise, Vec<u8>),
    /// Both ends know one another.
    Open(Box<Open>),
}

struct Calling {
    noise: Noise,
    /// To be sent again.
    hello: Again,
    /// The channel here that is doubted.
    old: Option<u32>,
}

/// A frame that is sent until it is answered.
struct Again {
    frame: Vec<u8>,
    tries: u32,
    at: Nanos,
}

struct Open {
    sealing: Sealing,
    opening: Opening,
    /// What names it at both ends.
    name: [u8; 8],
    /// The end of the Proof by which it was opened here.
    proof: [u8; 16],
    /// The Proof, until it is known to have arrived; of who began.
    unconfirmed: Option<Again>,
    /// The channel by which it is asked whether this is still there.
    knock: Option<u32>,
}

struct Channel {
    peer: SocketAddr,
    /// Its number there.
    theirs: u32,
    nonce: u32,
    /// Whether it was begun here.
    ours: bool,
    who: Who,
    last_heard: Nanos,
    /// When a certificate expires, and the channel with it.
    until: Nanos,
    stage: Stage,
}

/// The channels of an endpoint.
pub(crate) struct Channels {
    credentials: Credentials,
    all: Slab<Channel>,
    /// Those begun here, by whom they lead to.
    to: HashMap<SocketAddr, u32>,
    /// Those begun elsewhere, by what their Hello said: peer, number there, nonce.
    from: HashMap<(SocketAddr, u32, u32), u32>,
    /// Answered and no more, oldest first.
    half: VecDeque<(u32, u32)>,
    /// Begun here, and something is to be sent again for them.
    waiting: Vec<u32>,
    pace: Half,
    sweep_at: Nanos,
    ttl: Duration,
    /// Where frames are opened.
    room: Vec<u8>,
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
            half: VecDeque::new(),
            waiting: Vec::new(),
            pace: Half::default(),
            sweep_at: Nanos::NEVER,
            ttl: config.session_ttl,
            room: Vec::new(),
        }
    }

    /// Who is at the other end.
    #[inline]
    pub(crate) fn who(&self, index: u32) -> Who {
        self.all
            .get(index)
            .map_or(Who { role: Some(Role::Client), number: index }, |channel| channel.who)
    }

    /// How many there are, open or not.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether frames can be sealed for it.
    pub(crate) fn is_open(&self, index: u32) -> bool {
        self.all.get(index).is_some_and(|channel| matches!(channel.stage, Stage::Open(_)))
    }

    /// Seals a frame whose first bytes are left for that. Returns whether it may be sent to that
    /// address.
    #[inline]
    pub(crate) fn seal(&mut self, index: u32, address: SocketAddr, frame: &mut Vec<u8>) -> bool {
        match self.all.get_mut(index) {
            Some(Channel { peer, theirs, stage: Stage::Open(open), .. }) if *peer == address => {
                open.sealing.seal(*theirs, frame)
            }
            _ => false,
        }
    }

    /// Opens a sealed frame: the channel that it came by, and its packets, whose memory is to be
    /// [given back](Self::give_back).
    #[inline]
    pub(crate) fn open(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        frame: &[u8],
        counters: &mut Counters,
    ) -> Option<(u32, Vec<u8>)> {
        let (lead, _) = Lead::ref_from_prefix(frame).ok()?;
        let index = lead.to.get();
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend_from_slice(frame);
        let channel =
            self.all.get_mut(index).filter(|channel| channel.peer == from && now < channel.until);
        let opened = match channel {
            Some(Channel { stage: Stage::Open(open), last_heard, .. }) => {
                match open.opening.open(&mut room) {
                    Ok(packets) => {
                        let len = packets.len();
                        *last_heard = now;
                        Ok((len, open.unconfirmed.take().is_some(), open.knock.take()))
                    }
                    Err(rejected) => Err(rejected),
                }
            }
            _ => Err(Rejected::Forged),
        };
        match opened {
            Ok((len, confirmed, knock)) => {
                if confirmed {
                    self.waiting.retain(|&other| other != index);
                }
                if let Some(knock) = knock {
                    self.remove(knock);
                }
                room.truncate(LEAD_BYTES + len);
                Some((index, room))
            }
            Err(rejected) => {
                match rejected {
                    Rejected::Forged => counters.sealed_forged += 1,
                    Rejected::Repeated => counters.sealed_repeated += 1,
                }
                self.room = room;
                None
            }
        }
    }

    /// Gives the memory of an opened frame back.
    #[inline]
    pub(crate) fn give_back(&mut self, room: Vec<u8>) {
        self.room = room;
    }

    /// Sends a sealed frame of nothing: whoever opens it knows that the channel is there.
    fn nod<T: Transmit + ?Sized>(&mut self, index: u32, tx: &mut T) {
        let Some(address) = self.all.get(index).map(|channel| channel.peer) else { return };
        let mut frame = vec![0; LEAD_BYTES];
        if self.seal(index, address, &mut frame) {
            tx.send(address, &[IoSlice::new(&frame)]);
        }
    }

    /// Forgets a channel, and whatever is known of it.
    fn remove(&mut self, index: u32) {
        let Some(channel) = self.all.remove(index) else { return };
        self.waiting.retain(|&other| other != index);
        if channel.ours {
            if self.to.get(&channel.peer) == Some(&index) {
                self.to.remove(&channel.peer);
            }
        } else {
            self.from.remove(&(channel.peer, channel.theirs, channel.nonce));
        }
        match channel.stage {
            Stage::Calling(Calling { old: Some(old), .. }) => {
                if let Some(Channel { stage: Stage::Open(open), .. }) = self.all.get_mut(old) {
                    open.knock = None;
                }
            }
            Stage::Open(open) => {
                if let Some(knock) = open.knock {
                    self.remove(knock);
                }
            }
            _ => {}
        }
    }

    /// Sends again what is due, and forgets channels that have expired, or that nobody has used for
    /// long; `used` tells whether one that was begun here still is. Returns those that are
    /// gone.
    pub(crate) fn poll<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        tx: &mut T,
        counters: &mut Counters,
        used: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut gone = self.send_again(now, tx);
        if now >= self.sweep_at {
            let old = |&(index, channel): &(u32, &Channel)| {
                let silent = now.since(channel.last_heard) >= self.ttl;
                now >= channel.until
                    || (silent
                        && !matches!(channel.stage, Stage::Calling(_))
                        && !(channel.ours && used(index)))
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
        let again = self.waiting.iter().filter_map(|&index| self.again_at(index)).min();
        again.into_iter().chain([self.sweep_at]).min().filter(|&at| at < Nanos::NEVER)
    }
}
