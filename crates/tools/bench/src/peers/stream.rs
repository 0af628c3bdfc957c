//! Pipelined requests over byte streams: one generator thread, N connections, answers in order.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use super::Endpoint;
use sprat_measure::target::{Completion, LoadTarget, Op, Outcome};

/// Operations in flight on one connection.
pub const MAX_PENDING: usize = 4096;

/// Unsent bytes one connection may hold before it takes no more operations.
const MAX_UNSENT: usize = 4 << 20;

/// Longest answer taken, bytes.
pub const MAX_REPLY: usize = 16 << 20;

/// Room kept free for one receive, bytes.
const RECEIVE_ROOM: usize = 64 << 10;

/// Values from this size on are handed to the kernel from where they lie, not copied.
const GATHER_FROM: usize = 16 << 10;

/// Connections whose events are taken in one wait.
const EVENT_BATCH: usize = 64;

/// A lone connection sleeps in `recv` itself, as a blocking client does; this ends the sleep.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(500);

/// What was asked, kept until the answer comes.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The operation's tag.
    pub tag: u64,
    /// Whether it was a read.
    pub read: bool,
    /// Bytes of the request.
    pub request_bytes: usize,
}

/// What the bytes received so far hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded {
    /// One whole answer, `consumed` bytes of it.
    Reply {
        /// Bytes the answer takes.
        consumed: usize,
        /// What it says.
        outcome: Outcome,
    },
    /// Not whole yet: at least this many bytes, from its first, are needed.
    Need(usize),
}

/// The peer's bytes make no sense; what of them, in words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed(pub &'static str);

/// One request-response protocol.
pub trait Codec {
    /// Bytes that follow a value in a write.
    const VALUE_END: &'static [u8];

    /// Appends everything that comes before the value (all of it, for a read).
    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>);

    /// Looks for one answer to `asked` at the start of `input`.
    ///
    /// # Errors
    /// When no continuation of `input` could be an answer.
    fn decode(&self, input: &[u8], asked: &Asked) -> Result<Decoded, Malformed>;
}

/// A target that speaks `C` over N connections.
pub struct Pipelined<C> {
    name: String,
    transport: &'static str,
    codec: C,
    lanes: Vec<Lane>,
    /// Lanes with bytes to send.
    dirty: Vec<usize>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

#[derive(Debug)]
struct Lane {
    socket: OwnedFd,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    parsed: usize,
    pending: VecDeque<Asked>,
    dirty: bool,
    /// The kernel would take no more: writability is awaited.
    blocked: bool,
}

impl<C: Codec> Pipelined<C> {
    /// Opens `connections` connections (1 to 4,096) to `endpoint`.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn connect(name: &str, codec: C, endpoint: &Endpoint, connections: usize) -> Result<Self> {
        assert!((1..=4096).contains(&connections), "1 to 4,096 connections, not {connections}");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut lanes = Vec::with_capacity(connections);
        for index in 0..connections {
            let socket = endpoint.connect()?;
            set_socket_timeout(&socket, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
            epoll::add(
                &epoll,
                &socket,
                epoll::EventData::new_u64(index as u64),
                epoll::EventFlags::IN,
            )?;
            lanes.push(Lane {
                socket,
                out: Vec::with_capacity(RECEIVE_ROOM),
                sent: 0,
                input: Vec::with_capacity(2 * RECEIVE_ROOM),
                parsed: 0,
                pending: VecDeque::with_capacity(64),
                dirty: false,
                blocked: false,
            });
        }
        Ok(Self {
            name: name.to_owned(),
            transport: endpoint.transport(),
            codec,
            lanes,
            dirty: Vec::with_capacity(connections),
            epoll,
            events: Vec::with_capacity(EVENT_BATCH),
        })
    }

    fn flush(&mut self) -> Result<()> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut outcome = Ok(());
        dirty.retain(|&index| {
            let lane = &mut self.lanes[index];
            let was_blocked = lane.blocked;
            if let Err(error) = lane.flush() {
                outcome = Err(error);
            }
            if lane.blocked != was_blocked {
                let interest = if lane.blocked {
                    epoll::EventFlags::IN | epoll::EventFlags::OUT
                } else {
                    epoll::EventFlags::IN
                };
                let data = epoll::EventData::new_u64(index as u64);
                if let Err(error) = epoll::modify(&self.epoll, &lane.socket, data, interest) {
                    outcome = Err(error.into());
                }
            }
            lane.dirty
        });
        self.dirty = dirty;
        outcome.with_context(|| format!("sending to {}", self.name))
    }

    fn receive(
        &mut self,
        index: usize,
        flags: RecvFlags,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let lane = &mut self.lanes[index];
        if lane.receive(flags).with_context(|| format!("receiving from {}", self.name))? {
            lane.decode(&self.codec, done).with_context(|| format!("answer of {}", self.name))?;
        }
        Ok(())
    }
}

impl<C: Codec> LoadTarget for Pipelined<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn transport(&self) -> &str {
        self.transport
    }

    fn connections(&self) -> usize {
        self.lanes.len()
    }

    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        let lane = &mut self.lanes[connection];
        if lane.pending.len() >= MAX_PENDING || lane.out.len() - lane.sent >= MAX_UNSENT {
            return Ok(false);
        }
        let before = lane.out.len();
        self.codec.encode(op, &mut lane.out);
        let mut request_bytes = lane.out.len() - before;
        ensure!(!matches!(op, Op::Ping), "{} has no driver that answers pings", self.name);
        if let Op::Put { value, .. } = op {
            request_bytes += value.len() + C::VALUE_END.len();
            lane.append_value(value, C::VALUE_END)
                .with_context(|| format!("sending to {}", self.name))?;
        }
        lane.pending.push_back(Asked { tag, read: matches!(op, Op::Get { .. }), request_bytes });
        if !lane.dirty && lane.sent < lane.out.len() {
            lane.dirty = true;
            self.dirty.push(connection);
        }
        Ok(true)
    }

    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        if !self.dirty.is_empty() {
            self.flush()?;
        }
        if self.lanes.len() == 1 {
            // One connection needs no readiness: ask it, or sleep in it.
            if patience.is_zero() {
                return self.receive(0, RecvFlags::DONTWAIT, done);
            }
            if patience >= RECEIVE_TIMEOUT
                && self.dirty.is_empty()
                && !self.lanes[0].pending.is_empty()
            {
                return self.receive(0, RecvFlags::empty(), done);
            }
        }
        let timeout = Timespec::try_from(patience).context("patience")?;
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("epoll_wait"),
        }
        for event in 0..self.events.len() {
            let event = self.events[event];
            let index =
                usize::try_from(event.data.u64()).context("event of an unknown connection")?;
            let flags = event.flags;
            if flags != epoll::EventFlags::OUT {
                self.receive(index, RecvFlags::DONTWAIT, done)?;
            }
        }
        Ok(())
    }
}

impl Lane {
    /// Appends `value` and `end`; long values go out at once with what is before them, uncopied.
    fn append_value(&mut self, value: &[u8], end: &[u8]) -> Result<()> {
        let mut skip = 0;
        if value.len() >= GATHER_FROM && !self.blocked {
            let ahead = self.out.len() - self.sent;
            let parts =
                [IoSlice::new(&self.out[self.sent..]), IoSlice::new(value), IoSlice::new(end)];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent =
                match sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN | Errno::INTR) => 0,
                    Err(error) => return Err(error.into()),
                };
            self.sent += sent.min(ahead);
            skip = sent.saturating_sub(ahead);
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
            }
        }
        self.out.extend_from_slice(&value[skip.min(value.len())..]);
        self.out.extend_from_slice(&end[skip.saturating_sub(value.len())..]);
        Ok(())
    }

    /// Sends what the kernel takes; sets `dirty` and `blocked` to what remains.
    fn flush(&mut self) -> Result<()> {
        self.blocked = false;
        while self.sent < self.out.len() {
            match send(
                &self.socket,
                &self.out[self.sent..],
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        self.dirty = false;
        Ok(())
    }

    /// One receive; whether anything came.
    fn receive(&mut self, flags: RecvFlags) -> Result<bool> {
        if self.parsed > 0 && self.input.capacity() - self.input.len() < RECEIVE_ROOM {
            self.input.drain(..self.parsed);
            self.parsed = 0;
        }
        if self.input.capacity() - self.input.len() < RECEIVE_ROOM {
            self.input.reserve(RECEIVE_ROOM);
        }
        match recv(&self.socket, spare_capacity(&mut self.input), flags) {
            Ok((_, 0)) => {
                bail!("connection closed by the peer with {} answers due", self.pending.len())
            }
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn decode<C: Codec>(&mut self, codec: &C, done: &mut Vec<Completion>) -> Result<()> {
        while self.parsed < self.input.len() {
            let Some(asked) = self.pending.front() else {
                bail!("bytes that nothing had asked for")
            };
            let input = &self.input[self.parsed..];
            match codec.decode(input, asked) {
                Ok(Decoded::Reply { consumed, outcome }) => {
                    assert!(
                        (1..=input.len()).contains(&consumed),
                        "an answer lies within what was received"
                    );
                    done.push(Completion { tag: asked.tag, outcome });
                    self.parsed += consumed;
                    self.pending.pop_front();
                }
                Ok(Decoded::Need(bytes)) => {
                    if bytes > MAX_REPLY {
                        bail!("an answer of {bytes} bytes, more than {MAX_REPLY}");
                    }
                    self.input.reserve((self.parsed + bytes).saturating_sub(self.input.len()));
                    return Ok(());
                }
                Err(Malformed(what)) => bail!("malformed: {what}"),
            }
        }
        self.input.clear();
        self.parsed = 0;
        Ok(())
    }
}
