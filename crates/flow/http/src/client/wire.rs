//! Connections to servers, with or without TLS. Each wait has a time limit. Each wait can be
//! cancelled, except in [`Wire::send`].

use super::fault::Fault;
use super::head::Head;
use crate::MAX_HEAD;
use crate::cancel::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
use rustls::{ClientConnection, StreamOwned};
use sprat_pace::path::{Path, prepare_sender};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Limit on a single wait in the kernel, except in [`Wire::send`]. After it the client checks for
/// cancellation.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Limit on the bytes that TLS buffers while the kernel accepts no more.
const TLS_BUFFER: usize = 256 << 10;

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A connection to a server, with or without TLS, made by a [`Connector`](super::Connector).
///
/// [`Wire::send`] sends a whole request. [`Wire::send_parts`] sends a request with its body in
/// parts. [`Wire::head`] receives the head of the response, and a [`Body`](super::Body) receives
/// the body. Except in [`Wire::send`], each wait ends with [`Fault::TimedOut`] if there is no
/// progress for the connector's `patience`, and with [`Fault::Cancelled`] soon after the
/// connection's [`Cancel`] is cancelled. After a fault the connection cannot be used. Otherwise it
/// can be used for another request once the body is over, unless the head said that the server
/// closes the connection.
pub struct Wire {
    stream: Stream,
    /// Bytes received after the last head, of which `taken` have been used.
    early: Vec<u8>,
    taken: usize,
    /// Number of bytes that the last [`Wire::fill`] received, even if it failed halfway.
    filled: usize,
    patience: Duration,
    cancel: Cancel,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// Makes a connection without TLS from a connected stream.
    pub(super) fn plain(stream: TcpStream, patience: Duration, cancel: Cancel) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self {
            stream: Stream::Plain(stream),
            early: Vec::new(),
            taken: 0,
            filled: 0,
            patience,
            cancel,
        })
    }

    /// Makes a TLS connection from a connected stream. Includes the handshake.
    pub(super) fn tls(
        stream: TcpStream,
        session: ClientConnection,
        patience: Duration,
        cancel: Cancel,
    ) -> Result<Self, Fault> {
        let mut wire = Self::plain(stream, patience, cancel).map_err(Fault::Io)?;
        let Stream::Plain(stream) = wire.stream else { unreachable!("just made") };
        let mut stream = StreamOwned::new(session, stream);
        let begun = Instant::now();
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {
                    check_progress(begun, wire.patience, &wire.cancel)?
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(Fault::Untrusted(error.to_string()));
                }
                Err(error) => return Err(Fault::Io(error)),
            }
        }
        wire.stream = Stream::Tls(Box::new(stream));
        Ok(wire)
    }

    /// Replaces the handle that cancels the waits of this connection.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Sends a request without a body, or a piece of a body.
    ///
    /// # Errors
    /// [`Fault::Io`] if the kernel or TLS fails to send, or the kernel accepts no bytes in time.
    pub fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(request),
            Stream::Tls(stream) => stream.write_all(request).and_then(|()| stream.flush()),
        }
        .map_err(Fault::Io)
    }

    /// Prepares the connection for [`Wire::send_parts`]. Lets its send buffer grow to `buffer`
    /// bytes, of which at most `unsent` wait for their first transmission. Limits each wait in the
    /// kernel to a quarter of a second, so that the client notices a cancellation.
    ///
    /// # Errors
    /// The socket is not TCP, or the kernel rejects an option.
    pub fn prepare_to_send(&mut self, buffer: usize, unsent: u32) -> io::Result<()> {
        let tcp = self.tcp();
        tcp.set_write_timeout(Some(TICK))?;
        prepare_sender(tcp, buffer, unsent)?;
        if let Stream::Tls(stream) = &mut self.stream {
            stream.conn.set_buffer_limit(Some(TLS_BUFFER));
        }
        Ok(())
    }

    /// Sends the concatenation of `parts` from byte `done` on. Returns the number of bytes of the
    /// concatenation that have been sent by then. If this is less than all bytes, the server has
    /// sent a response or closed the connection, and the caller should read the response.
    ///
    /// # Errors
    /// - [`Fault::TimedOut`] if the peer acknowledges nothing in time.
    /// - [`Fault::Cancelled`] if the caller cancels.
    /// - [`Fault::Ended`] if the connection accepts no more bytes.
    /// - [`Fault::Io`] if the kernel or TLS fails to send. It is not an error if the peer has
    ///   closed the connection.
    pub fn send_parts(&mut self, parts: &[&[u8]], mut done: usize) -> Result<usize, Fault> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, done);
        let mut lived = (0, Instant::now());
        if self.has_input()? {
            return Ok(done);
        }
        loop {
            self.check_cancelled()?;
            let passed = match &mut self.stream {
                Stream::Plain(_) if left.is_empty() => return Ok(done),
                Stream::Tls(stream) if left.is_empty() => stream.flush().map(|()| 0),
                Stream::Plain(stream) => stream.write_vectored(left),
                Stream::Tls(stream) => stream.write(&left[0]),
            };
            match passed {
                Ok(0) if left.is_empty() => return Ok(done),
                Ok(0) => return Err(Fault::Ended),
                Ok(count) => {
                    IoSlice::advance_slices(&mut left, count);
                    done += count;
                }
                Err(error) if is_timeout(&error) => {
                    if self.has_input()? {
                        return Ok(done);
                    }
                    // The kernel's buffer may hold more than a slow path carries within `patience`,
                    // so acknowledgements count as progress.
                    let acked = Path::of(self.socket()).map_err(Fault::Io)?.acked;
                    if acked > lived.0 {
                        lived = (acked, Instant::now());
                    }
                    check_progress(lived.1, self.patience, &self.cancel)?;
                }
                // A server that closes early may have sent the reason, which the caller can still
                // read.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                    ) =>
                {
                    return Ok(done);
                }
                Err(error) => return Err(Fault::Io(error)),
            }
        }
    }

    /// Returns whether unread bytes have arrived, or the connection has ended.
    fn has_input(&mut self) -> Result<bool, Fault> {
        if self.taken < self.early.len() {
            return Ok(true);
        }
        let mut polled = [PollFd::from_borrowed_fd(self.socket(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut polled, Some(&now)), Ok(1..)) {
            return Ok(false);
        }
        let Stream::Tls(stream) = &mut self.stream else { return Ok(true) };
        // What arrived may be only a TLS session ticket.
        let ended = stream.conn.read_tls(&mut stream.sock).map_err(Fault::Io)? == 0;
        let state = stream
            .conn
            .process_new_packets()
            .map_err(|error| Fault::Io(io::Error::other(error)))?;
        Ok(ended || state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }

    /// Returns the TCP socket, so that options can be set.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// Receives the head of a response. Skips interim responses (1xx).
    ///
    /// # Errors
    /// - [`Fault::Malformed`] if the response is not HTTP, its head exceeds [`MAX_HEAD`] bytes, or
    ///   eight interim responses arrive in succession.
    /// - [`Fault::Ended`] if the connection closes before the head ends.
    /// - [`Fault::TimedOut`], [`Fault::Cancelled`] or [`Fault::Io`] if bytes cannot be received.
    pub fn head(&mut self) -> Result<Head, Fault> {
        for _ in 0..8 {
            let head = self.one_head()?;
            if !(100..200).contains(&head.status) {
                return Ok(head);
            }
        }
        Err(Fault::Malformed("it keeps answering 100 (Continue)".to_owned()))
    }

    fn one_head(&mut self) -> Result<Head, Fault> {
        let mut bytes = self.early.split_off(self.taken);
        (self.early, self.taken) = (Vec::new(), 0);
        loop {
            if let Some((head, used)) = Head::parse(&bytes).map_err(Fault::Malformed)? {
                self.early = bytes.split_off(used);
                return Ok(head);
            }
            let had = bytes.len();
            bytes.resize(had + (MAX_HEAD - had).min(4096), 0);
            let count = self.receive(&mut bytes[had..])?;
            bytes.truncate(had + count);
            if count == 0 {
                return Err(Fault::Ended);
            }
        }
    }

    /// Reads a line of at most `most` bytes, including its end.
    pub(super) fn line(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        let mut line = Vec::new();
        loop {
            let early = &self.early[self.taken..];
            let end = early.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            line.extend(&early[..end.unwrap_or(early.len())]);
            self.taken += end.unwrap_or(early.len());
            if line.len() > most {
                return Err(Fault::Malformed("a line between chunks has no end".to_owned()));
            }
            if end.is_some() {
                return Ok(line);
            }
            let mut more = vec![0; 4096];
            let count = self.receive(&mut more)?;
            if count == 0 {
                return Err(Fault::Ended);
            }
            more.truncate(count);
            (self.early, self.taken) = (more, 0);
        }
    }

    /// Fills `first`, then `second`.
    pub(super) fn fill(&mut self, first: &mut [u8], second: &mut [u8]) -> Result<(), Fault> {
        let mut done = self.take_early(first);
        if done == first.len() {
            done += self.take_early(second);
        }
        let mut last = Instant::now();
        self.filled = done;
        while done < first.len() + second.len() {
            self.check_cancelled()?;
            let split = done.min(first.len());
            let (head, tail) = (&mut first[split..], &mut second[done - split..]);
            match self.stream.receive(head, tail) {
                Ok(0) => return Err(Fault::Ended),
                Ok(count) => {
                    done += count;
                    self.filled = done;
                    last = Instant::now();
                }
                Err(error) if is_timeout(&error) => {
                    check_progress(last, self.patience, &self.cancel)?
                }
                Err(error) => return Err(receive_fault(error)),
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that the last [`Wire::fill`] received, even if it failed.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Reads some bytes. Returns 0 at the end of the connection.
    pub(super) fn read_some(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        match self.take_early(into) {
            0 => self.receive(into),
            early => Ok(early),
        }
    }

    /// Returns the socket, so that the kernel's statistics of the path can be read.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Plain(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.sock.as_fd(),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        let begun = Instant::now();
        loop {
            self.check_cancelled()?;
            let received = match &mut self.stream {
                Stream::Plain(stream) => stream.read(into),
                Stream::Tls(stream) => stream.read(into),
            };
            match received {
                Err(error) if is_timeout(&error) => {
                    check_progress(begun, self.patience, &self.cancel)?
                }
                Err(error) => return Err(receive_fault(error)),
                Ok(count) => return Ok(count),
            }
        }
    }

    fn take_early(&mut self, into: &mut [u8]) -> usize {
        let early = &self.early[self.taken..];
        let count = early.len().min(into.len());
        into[..count].copy_from_slice(&early[..count]);
        self.taken += count;
        count
    }

    fn check_cancelled(&self) -> Result<(), Fault> {
        if self.cancel.is_cancelled() { Err(Fault::Cancelled) } else { Ok(()) }
    }
}

impl Stream {
    /// Without TLS, waits until both buffers are full, but at most for a [`TICK`]. With TLS, waits
    /// only for some bytes of the first buffer that is not empty. Returns the number of bytes that
    /// arrived.
    fn receive(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => {
                let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
                let received = recvmsg(
                    stream,
                    &mut parts,
                    &mut RecvAncillaryBuffer::default(),
                    RecvFlags::WAITALL,
                )?;
                Ok(received.bytes)
            }
            Self::Tls(stream) => stream.read(if first.is_empty() { second } else { first }),
        }
    }
}

/// Returns whether an error only means that a [`TICK`] has passed or a signal arrived.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Distinguishes the end of TLS without a closing alert, which may be a truncation, from other
/// errors.
fn receive_fault(error: io::Error) -> Fault {
    if error.kind() == ErrorKind::UnexpectedEof { Fault::Ended } else { Fault::Io(error) }
}

fn check_progress(since: Instant, patience: Duration, cancel: &Cancel) -> Result<(), Fault> {
    if cancel.is_cancelled() {
        return Err(Fault::Cancelled);
    }
    if since.elapsed() >= patience { Err(Fault::TimedOut(patience)) } else { Ok(()) }
}
