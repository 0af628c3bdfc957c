//! A client's connection to a box, without blocking: it receives requests and sends answers.

use super::words::{MAX_REQUEST_BYTES, encode_answer};
use rustix::event::PollFlags;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Limit on the bytes of one read.
const READ_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// Bytes received: the part of a request that has arrived, or several requests.
    received: Vec<u8>,
    /// The answer that is being sent. `written` of its bytes have been sent. Empty if there is
    /// none.
    reply: Vec<u8>,
    written: usize,
    /// The connection reads nothing more, because a request was too long. It ends after the answer.
    closing: bool,
    /// When bytes last moved in either direction.
    active_at: Instant,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let active_at = Instant::now();
        Ok(Self {
            stream,
            received: Vec::new(),
            reply: Vec::new(),
            written: 0,
            closing: false,
            active_at,
        })
    }

    /// Returns the events to poll for: nothing is read while an answer is being sent.
    pub(super) fn poll_events(&self) -> PollFlags {
        if self.reply_sent() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Reads or writes what the socket allows. If it returns an error, which it also does at the
    /// end of the stream, drop the connection.
    pub(super) fn transfer(&mut self, events: PollFlags) -> io::Result<()> {
        if !self.reply_sent() {
            return self.write();
        }
        if !events.is_empty() {
            let mut bytes = [0; READ_BYTES];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.active_at = Instant::now();
        }
        if self.received.len() > MAX_REQUEST_BYTES && !self.received.contains(&b'\n') {
            self.closing = true;
            let why = format!("a request of more than {MAX_REQUEST_BYTES} bytes");
            return self.answer(encode_answer::<()>(Err(&why)));
        }
        Ok(())
    }

    /// Returns the next request, once the previous answer has been sent.
    pub(super) fn request(&mut self) -> Option<Vec<u8>> {
        let end =
            self.received.iter().position(|byte| *byte == b'\n').filter(|_| self.reply_sent())?;
        let rest = self.received.split_off(end + 1);
        Some(std::mem::replace(&mut self.received, rest))
    }

    /// Starts to send an answer.
    pub(super) fn answer(&mut self, line: Vec<u8>) -> io::Result<()> {
        (self.reply, self.written) = (line, 0);
        self.write()
    }

    /// Returns when bytes last moved in either direction.
    pub(super) fn active_at(&self) -> Instant {
        self.active_at
    }

    /// Returns whether the client has stalled: a request is incomplete or an answer is not sent,
    /// and no byte has moved for longer than `longest`.
    pub(super) fn is_stalled(&self, longest: Duration) -> bool {
        (!self.received.is_empty() || !self.reply_sent()) && self.active_at.elapsed() > longest
    }

    fn reply_sent(&self) -> bool {
        self.reply.is_empty()
    }

    fn write(&mut self) -> io::Result<()> {
        while self.written < self.reply.len() {
            match self.stream.write(&self.reply[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.active_at = Instant::now();
        }
        (self.reply, self.written) = (Vec::new(), 0);
        if self.closing { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
