//! Memory interfaces: Ethernet frames through memory that two processes share.
//!
//! The protocol is memif, version 2.0, as VPP and DPDK speak it, so that either end can be another
//! program. The client brings the memory; both come to terms over a Unix socket; from then on a
//! frame is written into the peer's sight once, straight from where its parts lie, and copied out
//! once. Neither end is hurt when the other is killed: its memory stays mapped until we have let go
//! of it ourselves. Whoever sleeps has said so in the ring, and is woken.

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
use self::join::{Joined, Joining, ended};
use self::message::Message;
use self::ring::Broken;
use self::socket::{Listener, Socket};
use super::state::DeviceState;
use crate::ether::{MAX_HEADERS, Route};
use crate::{Counters, Mac, Nanos, Sources};

/// Frames that wait for room in the ring, or for the peer; beyond that the oldest are dropped.
pub(super) const MAX_BACKLOG: usize = 512;

/// Time between two calls of a client at a server that is not there.
const CALL: Duration = Duration::from_millis(20);

/// Time in which both ends have come to terms, or begin anew. On a machine with more to do than it
/// has cores it takes a while, and whoever begins anew each time never ends.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// Descriptors that an interface is woken by, at most.
const SOURCES: usize = 2;

/// Longest sleep while frames wait for room, or where there is no place to wait for a wake-up.
const CROWDED: Duration = Duration::from_millis(1);

/// One end of a memory interface.
pub(super) struct Memif {
    arguments: Arguments,
    mac: Mac,
    /// Bytes of the longest frame.
    buffer: u32,
    listener: Option<Listener>,
    state: State,
    backlog: VecDeque<Vec<u8>>,
    /// Frames written whole before they go anywhere: those whose checksum needs all there is.
    whole: Vec<u8>,
    changes: u64,
    errors: u64,
    trouble: Option<String>,
}

#[allow(clippy::large_enum_variant, reason = "there is one a device")]
enum State {
    /// Until when a client waits before it calls.
    Apart(Nanos),
    Joining(Joining),
    Joined(Joined),
}

impl Memif {
    /// Whether a device is one of these.
    pub(super) fn is(device: &str) -> bool {
        Arguments::are(device)
    }

    /// Opens one, for frames of up to `frame` bytes.
    ///
    /// # Errors
    /// Wrong arguments; the socket's.
    pub(super) fn open(device: &str, mac: Option<Mac>, frame: usize) -> io::Result<Self> {
        let arguments = Arguments::parse(device)?;
        let needed = u32::try_from(frame.next_multiple_of(64)).expect("frames are short");
        let buffer = arguments.buffer.unwrap_or(needed);
        if (buffer as usize) < frame {
            let mend = format!(
                "{}: bsize={buffer} is too short for frames of {frame} bytes: set mtu",
                arguments.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, mend));
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
            state: State::Apart(Nanos(0)),
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

    /// Whether it is about to find its peer, and to be tended often.
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

    /// Frames that wait.
    pub(super) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// Drops what waits; how many those were.
    pub(super) fn forget(&mut self) -> usize {
        self.backlog.drain(..).count()
    }

    /// Takes a datagram to send: its route, and its parts, `len` bytes together.
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

    /// Takes a whole frame to send.
    pub(super) fn send_frame(&mut self, frame: &[u8], counters: &mut Counters) {
        self.send_parts(frame, &[], frame.len(), counters);
    }

    /// Takes a frame of `len` bytes: `head`, and behind it the parts.
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
            Err(broken) => {
                self.part(&broken.into());
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

    /// Shows the peer what has been written, and wakes it if it sleeps.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        if !self.backlog.is_empty() {
            self.catch_up();
        }
        let State::Joined(joined) = &mut self.state else { return };
        if joined.sender.publish(&joined.regions) {
            counters.sends += 1;
        }
        if joined.sender.is_news(&joined.regions) {
            // It fails only when the counter is full: then the peer is being woken anyway.
            let _ = rustix::io::write(&joined.bell, &1_u64.to_ne_bytes());
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

    /// Copies the next frame that has come into `frame`; its length.
    #[inline]
    pub(super) fn take(&mut self, frame: &mut [u8]) -> Option<usize> {
        let State::Joined(joined) = &mut self.state else { return None };
        match joined.receiver.take(&joined.regions, frame) {
            Ok(len) => len,
            Err(broken) => {
                self.part(&broken.into());
                None
            }
        }
    }

    /// Gives the peer back the room of what was taken.
    #[inline]
    pub(super) fn release(&mut self) {
        if let State::Joined(joined) = &mut self.state {
            joined.receiver.release(&joined.regions);
        }
    }

    /// What to sleep on. The peer is asked to wake us until [`wake`](Self::wake).
    pub(super) fn sources<'a>(&'a self, now: Nanos, sources: &mut Sources<'a>) {
        if sources.room() <= SOURCES {
            return sources.nap(CROWDED); // others want a place too
        }
        match &self.state {
            State::Joined(joined) => {
                joined.receiver.sleep(&joined.regions, true);
                if joined.receiver.has_news(&joined.regions) {
                    sources.nap(Duration::ZERO);
                }
                sources.push(joined.alarm.as_fd());
                sources.push(joined.socket.fd());
                if !self.backlog.is_empty() {
                    sources.nap(CROWDED);
                }
            }
            State::Joining(joining) => {
                sources.push(joining.socket.fd());
                sources.nap(HANDSHAKE);
            }
            &State::Apart(until) => match &self.listener {
                Some(listener) => sources.push(listener.fd()),
                None => sources.nap(until.since(now)),
            },
        }
    }

    /// Awake again, behind [`sources`](Self::sources): the peer need not wake us.
    pub(super) fn wake(&mut self) {
        if let State::Joined(joined) = &mut self.state {
            joined.receiver.sleep(&joined.regions, false);
            let mut count = [0; 8];
            let _ = rustix::io::read(&joined.alarm, &mut count);
        }
    }

    /// Goes on with coming to terms, and sees whether the peer is still there.
    pub(super) fn tend(&mut self, now: Nanos, counters: &mut Counters) -> bool {
        if let Err(error) = self.go_on(now) {
            self.part(&error);
        }
        if let State::Apart(until) = &mut self.state
            && self.listener.is_none()
            && *until == Nanos::NEVER
        {
            *until = now + CALL;
        }
        self.flush(counters);
        self.is_up()
    }

    fn go_on(&mut self, now: Nanos) -> io::Result<()> {
        match &mut self.state {
            &mut State::Apart(until) => {
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
                if joining.go_on(&self.arguments, self.buffer)? {
                    let State::Joining(joining) =
                        std::mem::replace(&mut self.state, State::Apart(now))
                    else {
                        unreachable!("it was")
                    };
                    self.state = State::Joined(joining.end(self.arguments.role));
                    self.changes += 1;
                    self.trouble = None;
                } else if now.since(joining.since) > HANDSHAKE {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the peer has not come to terms in time",
                    ));
                }
            }
            State::Joined(joined) => match joined.socket.receive()? {
                None => {}
                Some((Message::Disconnect(why), _)) => return Err(ended(&why)),
                Some((other, _)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("{other:?} is out of turn"),
                    ));
                }
            },
        }
        if !matches!(self.state, State::Apart(_))
            && let Some(other) = self.listener.as_ref().and_then(Listener::accept)
        {
            let _ = other
                .send(&Message::Disconnect("this interface has its peer already".to_owned()), None);
        }
        Ok(())
    }

    /// Lets go of the peer.
    #[cold]
    fn part(&mut self, why: &io::Error) {
        match std::mem::replace(&mut self.state, State::Apart(Nanos::NEVER)) {
            State::Apart(_) => {}
            State::Joining(Joining { socket, .. }) => self.say(&socket, why),
            State::Joined(joined) => {
                self.changes += 1;
                self.say(&joined.socket, why);
            }
        }
        self.trouble = Some(why.to_string());
    }

    /// Tells the peer why it is let go, if it is still there and it is its doing.
    fn say(&mut self, socket: &Socket, why: &io::Error) {
        if why.kind() == io::ErrorKind::InvalidData {
            self.errors += 1;
            let _ = socket.send(&Message::Disconnect(why.to_string()), None);
        }
    }
}

impl From<Broken> for io::Error {
    fn from(Broken(what): Broken) -> Self {
        Self::new(io::ErrorKind::InvalidData, what)
    }
}

/// An address that nobody else is likely to have: locally administered, of one host.
fn random_mac() -> Mac {
    let [_, a, b, c, d, e, ..] = random().to_ne_bytes();
    Mac([2, a, b, c, d, e])
}
