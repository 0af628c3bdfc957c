//! Memory interfaces: Ethernet frames through memory that two processes share.
//!
//! The protocol is memif, version 2.0, which VPP and DPDK use too, so that either end can be
//! another program. The client supplies the memory, and both ends shake hands over a Unix socket.
//! From then on the sender writes each frame into shared memory once, straight from where its parts
//! lie, and the receiver copies the frame out once. An end survives when its peer is killed,
//! because the shared memory stays mapped until the survivor unmaps it. A reader that goes to sleep
//! sets a flag in the ring, and the writer wakes it.

mod arguments;
mod join;
pub mod message;
mod region;
mod ring;
mod socket;

use sprat_host::random;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::Duration;

use self::arguments::{Arguments, Role};
use self::join::{Joined, Joining, disconnected};
use self::message::Message;
use self::ring::ProtocolError;
use self::socket::{Listener, Socket};
use super::state::DeviceState;
use crate::ether::{MAX_HEADERS, Route};
use crate::{Counters, Mac, Nanos, Sources};

/// The largest number of frames that wait for room in the ring, or for the peer. A further frame
/// replaces the oldest.
pub(super) const MAX_BACKLOG: usize = 512;

/// Interval of a client's attempts to connect to a server that is not there.
const RECONNECT: Duration = Duration::from_millis(20);

/// Timeout of the handshake, after which it starts again. On an overloaded machine a handshake
/// takes longer, and if it were restarted too early each time, it would never finish.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// The largest number of descriptors on which an interface sleeps.
const SOURCES: usize = 2;

/// The longest sleep while frames wait for room, or if [`Sources`] has no room for our descriptors.
const CROWDED: Duration = Duration::from_millis(1);

/// One end of a memory interface.
pub(super) struct Memif {
    arguments: Arguments,
    mac: Mac,
    /// Length of the buffers in bytes, at least that of the longest frame.
    buffer: u32,
    listener: Option<Listener>,
    state: State,
    backlog: VecDeque<Vec<u8>>,
    /// Space to compose a frame whose checksum depends on its payload.
    whole: Vec<u8>,
    changes: u64,
    errors: u64,
    trouble: Option<String>,
}

#[allow(clippy::large_enum_variant, reason = "there is one a device")]
enum State {
    /// Not connected. A client connects at this time; a server ignores the time.
    Disconnected(Nanos),
    Joining(Joining),
    Joined(Joined),
}

impl Memif {
    /// Returns whether a device's name is that of a memory interface.
    pub(super) fn is(device: &str) -> bool {
        Arguments::name_memif(device)
    }

    /// Opens an interface for frames of up to `frame` bytes.
    ///
    /// # Errors
    /// Wrong arguments, buffers that are too short for a frame, or errors of the socket.
    pub(super) fn open(device: &str, mac: Option<Mac>, frame: usize) -> io::Result<Self> {
        let arguments = Arguments::parse(device)?;
        let needed = u32::try_from(frame.next_multiple_of(64)).expect("frames are short");
        let buffer = arguments.buffer.unwrap_or(needed);
        if (buffer as usize) < frame {
            let reason = format!(
                "{}: bsize={buffer} is too short for frames of {frame} bytes: set mtu",
                arguments.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let listener = match arguments.role {
            Role::Server => Some(Listener::open(&arguments)?),
            Role::Client => None,
        };
        Ok(Self {
            mac: mac.or(arguments.mac).unwrap_or_else(random_mac),
            buffer: if arguments.role == Role::Server {
                u32::try_from(frame).expect("short")
            } else {
                buffer
            },
            arguments,
            listener,
            state: State::Disconnected(Nanos(0)),
            backlog: VecDeque::new(),
            whole: Vec::new(),
            changes: 0,
            errors: 0,
            trouble: None,
        })
    }

    pub(super) fn mac(&self) -> Mac {
        self.mac
    }

    #[inline]
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Joined(_))
    }

    /// Returns whether the interface is in the handshake with its peer. It then needs maintenance
    /// often.
    pub(super) fn is_joining(&self) -> bool {
        matches!(self.state, State::Joining(_))
    }

    pub(super) fn state(&self) -> DeviceState {
        DeviceState {
            name: self.arguments.name.clone(),
            driver: "memif".to_owned(),
            mac: self.mac,
            up: self.is_up(),
            changes: self.changes,
            missed: 0,
            errors: self.errors,
            unsent: 0,
            no_buffer: 0,
            trouble: self.trouble.clone(),
            steers: None,
        }
    }

    /// Returns the number of frames that wait for room or for the peer.
    pub(super) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// Drops the waiting frames and returns how many.
    pub(super) fn discard_waiting(&mut self) -> usize {
        self.backlog.drain(..).count()
    }

    /// Sends a datagram, given its route and its parts. `len` is the sum of the parts' lengths, in
    /// bytes.
    #[inline]
    pub(super) fn send(
        &mut self,
        route: &Route,
        parts: &[IoSlice<'_>],
        len: usize,
        counters: &mut Counters,
    ) {
        if route.is_blind() {
            let mut headers = [0; MAX_HEADERS];
            let headers = &mut headers[..route.len()];
            route.finish_before(headers, len);
            self.send_parts(headers, parts, route.len() + len, counters);
            return;
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.resize(route.len(), 0);
        parts.iter().for_each(|part| whole.extend_from_slice(part));
        route.finish(&mut whole);
        self.send_frame(&whole, counters);
        self.whole = whole;
    }

    /// Sends a whole frame.
    pub(super) fn send_frame(&mut self, frame: &[u8], counters: &mut Counters) {
        self.send_parts(frame, &[], frame.len(), counters);
    }

    /// Sends a frame that consists of `head` and then `parts`. `len` is its length, in bytes.
    #[inline]
    pub(super) fn send_parts(
        &mut self,
        head: &[u8],
        parts: &[IoSlice<'_>],
        len: usize,
        counters: &mut Counters,
    ) {
        if !self.backlog.is_empty() || !self.put(head, parts, len) {
            self.keep(head, parts, counters);
        }
    }

    /// Writes a frame into the ring, if there is room.
    #[inline]
    fn put(&mut self, head: &[u8], parts: &[IoSlice<'_>], len: usize) -> bool {
        let State::Joined(joined) = &mut self.state else { return false };
        match joined.sender.room(&joined.regions, len) {
            Ok(Some((region, at))) => {
                let region = &joined.regions[usize::from(region)];
                region.write(at, head);
                let mut at = at + head.len();
                for part in parts {
                    region.write(at, part);
                    at += part.len();
                }
                joined.sender.commit(&joined.regions);
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.disconnect(&error.into());
                false
            }
        }
    }

    #[cold]
    fn keep(&mut self, head: &[u8], parts: &[IoSlice<'_>], counters: &mut Counters) {
        if self.backlog.len() >= MAX_BACKLOG {
            counters.dropped_full += 1;
            self.backlog.pop_front();
        }
        let mut frame = head.to_vec();
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        self.backlog.push_back(frame);
    }

    /// Writes waiting frames into the ring, publishes the frames written, and wakes the peer if it
    /// sleeps.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        if !self.backlog.is_empty() {
            self.catch_up();
        }
        let State::Joined(joined) = &mut self.state else { return };
        if joined.sender.publish(&joined.regions) {
            counters.sends += 1;
        }
        if joined.sender.must_wake(&joined.regions) {
            // Fails only when the counter is full. Then the peer is being woken anyway.
            let _ = rustix::io::write(&joined.peer_bell, &1_u64.to_ne_bytes());
        }
    }

    #[cold]
    fn catch_up(&mut self) {
        while let Some(frame) = self.backlog.pop_front() {
            if !self.put(&frame, &[], frame.len()) {
                self.backlog.push_front(frame);
                return;
            }
        }
    }

    /// Copies the next received frame into `frame` and returns its length; `None` if there is none.
    #[inline]
    pub(super) fn take(&mut self, frame: &mut [u8]) -> Option<usize> {
        let State::Joined(joined) = &mut self.state else { return None };
        match joined.receiver.take(&joined.regions, frame) {
            Ok(len) => len,
            Err(error) => {
                self.disconnect(&error.into());
                None
            }
        }
    }

    /// Gives the slots of the taken frames back to the peer, once they are a quarter of the ring.
    #[inline]
    pub(super) fn release(&mut self) {
        if let State::Joined(joined) = &mut self.state {
            joined.receiver.release(&joined.regions);
        }
    }

    /// Adds the descriptors to sleep on, and asks the peer to wake us until [`wake`](Self::wake).
    pub(super) fn sources<'a>(&'a self, now: Nanos, sources: &mut Sources<'a>) {
        if sources.room() <= SOURCES {
            return sources.nap(CROWDED); // leaves room for the descriptors of other ports
        }
        match &self.state {
            State::Joined(joined) => {
                joined.receiver.sleep(&joined.regions, true);
                if joined.receiver.has_frame(&joined.regions) {
                    sources.nap(Duration::ZERO);
                }
                sources.push(joined.own_bell.as_fd());
                sources.push(joined.socket.fd());
                if !self.backlog.is_empty() {
                    sources.nap(CROWDED);
                }
            }
            State::Joining(joining) => {
                sources.push(joining.socket.fd());
                sources.nap(HANDSHAKE);
            }
            &State::Disconnected(until) => match &self.listener {
                Some(listener) => sources.push(listener.fd()),
                None => sources.nap(until.since(now)),
            },
        }
    }

    /// Ends the sleep begun by [`sources`](Self::sources): the peer no longer needs to wake us.
    pub(super) fn wake(&mut self) {
        if let State::Joined(joined) = &mut self.state {
            joined.receiver.sleep(&joined.regions, false);
            let mut count = [0; 8];
            let _ = rustix::io::read(&joined.own_bell, &mut count);
        }
    }

    /// Connects to the peer or accepts it, advances the handshake, or reads that the peer has
    /// disconnected; then sends waiting frames. Returns whether the peer is connected.
    pub(super) fn maintain(&mut self, now: Nanos, counters: &mut Counters) -> bool {
        if let Err(error) = self.advance(now) {
            self.disconnect(&error);
        }
        if let State::Disconnected(until) = &mut self.state
            && self.listener.is_none()
            && *until == Nanos::NEVER
        {
            *until = now + RECONNECT;
        }
        self.flush(counters);
        self.is_up()
    }

    fn advance(&mut self, now: Nanos) -> io::Result<()> {
        match &mut self.state {
            &mut State::Disconnected(until) => {
                let socket = match &self.listener {
                    Some(listener) => listener.accept(),
                    None if now < until => None,
                    None => Some(Socket::connect(&self.arguments)?),
                };
                if let Some(socket) = socket {
                    self.state = State::Joining(Joining::begin(socket, self.arguments.role, now)?);
                }
            }
            State::Joining(joining) => {
                if joining.advance(&self.arguments, self.buffer)? {
                    let State::Joining(joining) =
                        std::mem::replace(&mut self.state, State::Disconnected(now))
                    else {
                        unreachable!("it was")
                    };
                    self.state = State::Joined(joining.finish(self.arguments.role));
                    self.changes += 1;
                    self.trouble = None;
                } else if now.since(joining.since) > HANDSHAKE {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the peer did not finish the handshake in time",
                    ));
                }
            }
            State::Joined(joined) => match joined.socket.receive()? {
                None => {}
                Some((Message::Disconnect(why), _)) => return Err(disconnected(&why)),
                Some((other, _)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("unexpected message {other:?}"),
                    ));
                }
            },
        }
        if !matches!(self.state, State::Disconnected(_))
            && let Some(other) = self.listener.as_ref().and_then(Listener::accept)
        {
            let _ = other
                .send(&Message::Disconnect("this interface already has a peer".to_owned()), None);
        }
        Ok(())
    }

    /// Closes the connection to the peer.
    #[cold]
    fn disconnect(&mut self, why: &io::Error) {
        match std::mem::replace(&mut self.state, State::Disconnected(Nanos::NEVER)) {
            State::Disconnected(_) => {}
            State::Joining(Joining { socket, .. }) => self.send_reason(&socket, why),
            State::Joined(joined) => {
                self.changes += 1;
                self.send_reason(&joined.socket, why);
            }
        }
        self.trouble = Some(why.to_string());
    }

    /// If the peer has violated the protocol, sends it the reason `why`.
    fn send_reason(&mut self, socket: &Socket, why: &io::Error) {
        if why.kind() == io::ErrorKind::InvalidData {
            self.errors += 1;
            let _ = socket.send(&Message::Disconnect(why.to_string()), None);
        }
    }
}

impl From<ProtocolError> for io::Error {
    fn from(ProtocolError(violation): ProtocolError) -> Self {
        Self::new(io::ErrorKind::InvalidData, violation)
    }
}

/// Returns a random hardware address, locally administered and unicast.
fn random_mac() -> Mac {
    let [_, a, b, c, d, e, ..] = random().to_ne_bytes();
    Mac([2, a, b, c, d, e])
}
