//! A connection: what it has received, and the replies that wait.

use crate::call::Resume;
use crate::session::Session;
use rustix::event::epoll::EventFlags;
use sprat_net::Nanos;
use sprat_resp::{CommandReader, Limits};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

/// Bytes of replies that a connection keeps memory for while it has none.
const KEPT: usize = 64 << 10;

/// The command that [`CommandReader::current`] returns, which is not done yet.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// When it fails, unless it has made progress by then.
    pub(crate) until: Nanos,
    pub(crate) resume: Resume,
    /// What is done of its reply.
    pub(crate) reply: Vec<u8>,
    /// The log position for which the reply must wait.
    pub(crate) position: u64,
    /// Bytes of memory for the keys for which it waits.
    pub(crate) waits: usize,
}

/// Why a connection's next command is not executed, nor more received from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pause {
    /// The client has to take replies first.
    Full,
    /// Its turn comes later.
    Later,
    /// Its command waits for an element.
    Element,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) reader: CommandReader,
    pub(crate) session: Session,
    /// Replies that are not sent.
    pub(crate) replies: Vec<u8>,
    /// Bytes of `replies` that are sent.
    sent: usize,
    /// Replies that wait: where each begins in `replies`, and the log position that it waits for.
    /// What follows it waits as well.
    waits: VecDeque<(usize, u64)>,
    pub(crate) unfinished: Option<Unfinished>,
    pub(crate) pause: Option<Pause>,
    /// Whether the client takes no more replies at present.
    pub(crate) is_blocked: bool,
    /// Whether the client has sent all that it will send.
    pub(crate) has_ended: bool,
    /// The events that epoll reports.
    pub(crate) interest: EventFlags,
    /// When the client last took bytes, or began to take none.
    pub(crate) took: Nanos,
}

impl Unfinished {
    pub(crate) fn new(until: Nanos) -> Self {
        Self { until, resume: Resume::default(), reply: Vec::new(), position: 0, waits: 0 }
    }

    /// Returns the bytes of memory that it holds.
    fn held(&self) -> usize {
        self.resume.bytes + self.reply.capacity() + self.waits
    }
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, session: Session, limits: Limits) -> Self {
        Self {
            socket,
            reader: CommandReader::new(limits),
            session,
            replies: Vec::new(),
            sent: 0,
            waits: VecDeque::new(),
            unfinished: None,
            pause: None,
            is_blocked: false,
            has_ended: false,
            interest: EventFlags::IN,
            took: Nanos(0),
        }
    }

    /// Returns the bytes of replies that the client has still to take.
    pub(crate) fn unsent(&self) -> usize {
        self.replies.len() - self.sent
    }

    /// Returns the bytes of memory that the connection holds.
    pub(crate) fn held(&self) -> usize {
        let unfinished = self.unfinished.as_ref().map_or(0, Unfinished::held);
        self.reader.held() + self.session.held() + self.replies.capacity() + unfinished
    }

    /// Returns the log position for which the first reply that waits does so.
    pub(crate) fn waits_for(&self) -> Option<u64> {
        self.waits.front().map(|(_, position)| *position)
    }

    /// Returns the log position for which the last reply waits; zero if it does not.
    pub(crate) fn waits_last(&self) -> u64 {
        self.waits.back().map_or(0, |(_, position)| *position)
    }

    /// Makes the replies from `begin` on wait for a log position; returns whether they would not
    /// have waited for it.
    pub(crate) fn wait(&mut self, begin: usize, position: u64) -> bool {
        let waits = self.waits.back().is_none_or(|(_, last)| *last < position);
        if waits {
            self.waits.push_back((begin, position));
        }
        waits
    }

    /// Sends the replies that need no longer wait, as far as the client takes them.
    pub(crate) fn send(&mut self, durable: u64, now: Nanos) -> io::Result<()> {
        let was_blocked = std::mem::take(&mut self.is_blocked);
        while self.waits_for().is_some_and(|position| position <= durable) {
            self.waits.pop_front();
        }
        let end = self.waits.front().map_or(self.replies.len(), |(begin, _)| *begin);
        while self.sent < end {
            match self.socket.write(&self.replies[self.sent..end]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.sent += sent;
                    self.took = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    if !was_blocked {
                        self.took = now;
                    }
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.replies.len() {
            self.replies.clear();
            self.replies.shrink_to(KEPT);
            self.sent = 0;
        } else if self.sent > KEPT && self.sent > self.replies.len() / 2 {
            self.replies.drain(..self.sent);
            self.waits.iter_mut().for_each(|(begin, _)| *begin -= self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Drops the replies that wait, and says why instead.
    pub(crate) fn abandon(&mut self, reply: &str) {
        let Some((begin, _)) = self.waits.front() else { return };
        self.replies.truncate(*begin);
        self.waits.clear();
        sprat_resp::ReplyWriter::new(&mut self.replies, self.session.protocol).error(reply);
        self.session.ends = true;
    }

    /// Receives bytes once; returns whether there were any.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.socket.read(buffer) {
            Ok(0) => self.has_ended = true,
            Ok(len) => {
                self.reader.extend(&buffer[..len]);
                return Ok(true);
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}
