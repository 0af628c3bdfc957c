//! Pipelined requests over byte streams. One generator thread drives N connections. The answers on
//! one connection arrive in the order of its requests.

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

/// Limit on the operations in flight on one connection.
pub const MAX_PENDING: usize = 4096;

/// A connection with this number of unsent bytes or more accepts no operations.
const MAX_UNSENT: usize = 4 << 20;

/// Limit on the length of an answer, in bytes. A longer answer ends the run with an error.
pub const MAX_REPLY: usize = 16 << 20;

/// Free buffer space that is reserved for one receive, in bytes.
const RECEIVE_ROOM: usize = 64 << 10;

/// Values of this size or more are passed to the kernel without copying them into the buffer.
const GATHER_FROM: usize = 16 << 10;

/// Limit on the events that one `epoll_wait` returns.
const EVENT_BATCH: usize = 64;

/// Timeout of `recv`. A single connection sleeps in `recv`, as a blocking client does.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(500);

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct PendingRequest {
    /// The operation's tag, by which the load generator recognises the answer.
    pub tag: u64,
    /// Whether the operation is a read.
    pub read: bool,
    /// Whether the operation is a transaction.
    pub is_transaction: bool,
    /// Bytes of the request.
    pub request_bytes: usize,
}

/// The result of decoding the bytes received so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded {
    /// A complete answer.
    Reply {
        /// Length of the answer in bytes.
        consumed: usize,
        /// Outcome of the operation.
        outcome: Outcome,
    },
    /// The answer is incomplete. It has at least this number of bytes.
    Need(usize),
}

/// The peer's bytes violate the protocol, for the given reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed(pub &'static str);

/// Limit on the first line of an answer, in bytes with its line end. A longer line is malformed;
/// only error texts come near the limit.
const MAX_LINE: usize = 4096;

/// Returns the first line of an answer, and the number of its bytes with its end; `None` if the
/// line is incomplete.
///
/// # Errors
/// When the line is too long, or does not end in CR LF.
pub(super) fn first_line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let Some(end) = input.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
        return if input.len() < MAX_LINE { Ok(None) } else { Err(Malformed("endless line")) };
    };
    let line = input[..=end].strip_suffix(b"\r\n").ok_or(Malformed("line without CR"))?;
    Ok(Some((line, end + 1)))
}

/// The encoding of a request-response protocol.
pub trait Codec {
    /// Bytes that follow a value in a write.
    const VALUE_END: &'static [u8];

    /// Returns whether the protocol has this operation.
    fn offers(&self, op: &Op<'_>) -> bool {
        !matches!(op, Op::Ping | Op::Transact { .. })
    }

    /// Appends the part of a write before its value, or a complete read, to `out`.
    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>);

    /// Decodes the answer to `pending` at the start of `input`.
    ///
    /// # Errors
    /// When no continuation of `input` could be an answer.
    fn decode(&self, input: &[u8], pending: &PendingRequest) -> Result<Decoded, Malformed>;
}

/// A load target that uses the protocol `C` over N connections.
pub struct Pipelined<C> {
    name: String,
    transport: &'static str,
    codec: C,
    streams: Vec<Stream>,
    /// Indices of streams with bytes to send.
    dirty: Vec<usize>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

#[derive(Debug)]
struct Stream {
    socket: OwnedFd,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    parsed: usize,
    pending: VecDeque<PendingRequest>,
    dirty: bool,
    /// Whether the send buffer is full. If so, the connection waits until it can send again.
    blocked: bool,
}

impl<C: Codec> Pipelined<C> {
    /// Opens `connections` connections to `endpoint`.
    ///
    /// # Panics
    /// If `connections` is 0 or more than 4,096.
    ///
    /// # Errors
    /// When a connection or the epoll instance cannot be opened.
    pub fn connect(name: &str, codec: C, endpoint: &Endpoint, connections: usize) -> Result<Self> {
        assert!((1..=4096).contains(&connections), "1 to 4,096 connections, not {connections}");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut streams = Vec::with_capacity(connections);
        for index in 0..connections {
            let socket = endpoint.connect()?;
            set_socket_timeout(&socket, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
            epoll::add(
                &epoll,
                &socket,
                epoll::EventData::new_u64(index as u64),
                epoll::EventFlags::IN,
            )?;
            streams.push(Stream {
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
            streams,
            dirty: Vec::with_capacity(connections),
            epoll,
            events: Vec::with_capacity(EVENT_BATCH),
        })
    }

    fn flush(&mut self) -> Result<()> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut outcome = Ok(());
        dirty.retain(|&index| {
            let stream = &mut self.streams[index];
            let was_blocked = stream.blocked;
            if let Err(error) = stream.flush() {
                outcome = Err(error);
            }
            if stream.blocked != was_blocked {
                let interest = if stream.blocked {
                    epoll::EventFlags::IN | epoll::EventFlags::OUT
                } else {
                    epoll::EventFlags::IN
                };
                let data = epoll::EventData::new_u64(index as u64);
                if let Err(error) = epoll::modify(&self.epoll, &stream.socket, data, interest) {
                    outcome = Err(error.into());
                }
            }
            stream.dirty
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
        let stream = &mut self.streams[index];
        if stream.receive(flags).with_context(|| format!("receiving from {}", self.name))? {
            stream.decode(&self.codec, done).with_context(|| format!("answer of {}", self.name))?;
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
        self.streams.len()
    }

    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        let stream = &mut self.streams[connection];
        if stream.pending.len() >= MAX_PENDING || stream.out.len() - stream.sent >= MAX_UNSENT {
            return Ok(false);
        }
        ensure!(self.codec.offers(op), "{} does not offer {op:?}", self.name);
        let before = stream.out.len();
        self.codec.encode(op, &mut stream.out);
        let mut request_bytes = stream.out.len() - before;
        if let Op::Put { value, .. } = op {
            request_bytes += value.len() + C::VALUE_END.len();
            stream
                .append_value(value, C::VALUE_END)
                .with_context(|| format!("sending to {}", self.name))?;
        }
        let is_transaction = matches!(op, Op::Transact { .. });
        stream.pending.push_back(PendingRequest {
            tag,
            read: op.reads(),
            is_transaction,
            request_bytes,
        });
        if !stream.dirty && stream.sent < stream.out.len() {
            stream.dirty = true;
            self.dirty.push(connection);
        }
        Ok(true)
    }

    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        if !self.dirty.is_empty() {
            self.flush()?;
        }
        if self.streams.len() == 1 {
            // A single connection needs no epoll: poll it, or sleep in `recv`.
            if patience.is_zero() {
                return self.receive(0, RecvFlags::DONTWAIT, done);
            }
            if patience >= RECEIVE_TIMEOUT
                && self.dirty.is_empty()
                && !self.streams[0].pending.is_empty()
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

impl Stream {
    /// Appends `value` and `end`. A long value is sent at once, together with the bytes before it,
    /// without copying it.
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

    /// Sends as much as the kernel accepts, and updates `dirty` and `blocked`.
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

    /// Receives once. Returns whether any bytes arrived.
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
            let Some(pending) = self.pending.front() else {
                bail!("bytes that nothing had asked for")
            };
            let input = &self.input[self.parsed..];
            match codec.decode(input, pending) {
                Ok(Decoded::Reply { consumed, outcome }) => {
                    assert!(
                        (1..=input.len()).contains(&consumed),
                        "an answer lies within what was received"
                    );
                    done.push(Completion { tag: pending.tag, outcome });
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
