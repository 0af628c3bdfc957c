//! One client of a box: bytes in, requests out, answers back, none of which waits for it.

use super::words::{MAX_REQUEST_BYTES, answer};
use rustix::event::PollFlags;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Read at once.
const READ_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// Of a request, or of several.
    came: Vec<u8>,
    /// An answer of which this is not yet written.
    left: Vec<u8>,
    written: usize,
    /// No more is read: what came cannot be.
    closing: bool,
    /// When something last moved.
    moved: Instant,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let moved = Instant::now();
        Ok(Self { stream, came: Vec::new(), left: Vec::new(), written: 0, closing: false, moved })
    }

    /// What it waits for. Nothing more is read while an answer waits to be taken.
    pub(super) fn waits_for(&self) -> PollFlags {
        if self.answered() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Reads what came and writes what it takes. An error or the end: it is over.
    pub(super) fn turn(&mut self, events: PollFlags) -> io::Result<()> {
        if !self.answered() {
            return self.write();
        }
        if !events.is_empty() {
            let mut bytes = [0; READ_BYTES];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.came.extend_from_slice(&bytes[..count]),
                Err(error) if waits(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.moved = Instant::now();
        }
        if self.came.len() > MAX_REQUEST_BYTES && !self.came.contains(&b'\n') {
            self.closing = true;
            let why = format!("a request of more than {MAX_REQUEST_BYTES} bytes");
            return self.answer(answer::<()>(Err(&why)));
        }
        Ok(())
    }

    /// The next request, when the answer to that before has been taken.
    pub(super) fn request(&mut self) -> Option<Vec<u8>> {
        let end = self.came.iter().position(|byte| *byte == b'\n').filter(|_| self.answered())?;
        let rest = self.came.split_off(end + 1);
        Some(std::mem::replace(&mut self.came, rest))
    }

    /// Begins to answer.
    pub(super) fn answer(&mut self, line: Vec<u8>) -> io::Result<()> {
        (self.left, self.written) = (line, 0);
        self.write()
    }

    /// When something last moved.
    pub(super) fn moved(&self) -> Instant {
        self.moved
    }

    /// It has begun to ask, or has not taken its answer, and nothing moved for this long.
    pub(super) fn stalls(&self, longest: Duration) -> bool {
        (!self.came.is_empty() || !self.answered()) && self.moved.elapsed() > longest
    }

    fn answered(&self) -> bool {
        self.left.is_empty()
    }

    fn write(&mut self) -> io::Result<()> {
        while self.written < self.left.len() {
            match self.stream.write(&self.left[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if waits(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.moved = Instant::now();
        }
        (self.left, self.written) = (Vec::new(), 0);
        if self.closing { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
