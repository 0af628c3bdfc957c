//! A connection's byte stream, plain or TLS. Every wait has a time limit.

use rustix::fs::sendfile;
use rustix::net::SendFlags;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sprat_pace::path::{Path, prepare_sender};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Upper limit of a connection's send buffer, in bytes. It is enough for 10 Gb/s over 200 ms.
/// [`UNSENT`] limits the bytes in the buffer that are not in flight.
pub const SEND_BUFFER: usize = 256 << 20;

/// Limit on the bytes in the kernel that wait for their first transmission. These bytes keep the
/// connection busy while the sending thread is not scheduled for some milliseconds.
pub const UNSENT: u32 = 8 << 20;

/// Limit on the bytes that TLS buffers while the kernel accepts no more. Also the number of bytes
/// of an unwanted body that are read at a time.
const TLS_BUFFER: usize = 256 << 10;

/// Interval at which a blocked sender checks whether the client still acknowledges bytes.
const ACK_CHECK: Duration = Duration::from_secs(5);

/// A TCP connection that is given up when the client makes no progress.
pub(super) struct Socket {
    tcp: Arc<TcpStream>,
    /// The time at which a read fails; `None` for no limit.
    deadline: Option<Instant>,
    /// Time limit for the client to acknowledge further bytes.
    patience: Duration,
    /// The number of bytes acknowledged, and the time since which it has not grown.
    acked_since: (u64, Instant),
}

impl Socket {
    pub(super) fn new(tcp: Arc<TcpStream>, patience: Duration) -> io::Result<Self> {
        tcp.set_nonblocking(false)?;
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(ACK_CHECK.min(patience)))?;
        prepare_sender(&*tcp, SEND_BUFFER, UNSENT)?;
        Ok(Self { tcp, deadline: None, patience, acked_since: (0, Instant::now()) })
    }

    /// After a write timed out, fails if the client has stalled too long.
    fn check_progress(&mut self) -> io::Result<()> {
        let acked = Path::of(&*self.tcp)?.acked;
        if acked > self.acked_since.0 {
            self.acked_since = (acked, Instant::now());
        }
        if self.acked_since.1.elapsed() < self.patience {
            return Ok(());
        }
        let what = format!("the other end accepted no data for {} s", self.patience.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }

    /// Writes. Tries again as long as the client acknowledges bytes.
    fn retry(&mut self, write: impl Fn(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            match write(&self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.acked_since.1 = self.acked_since.1.max(began);
                    self.check_progress()?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let left =
                self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.tcp.set_read_timeout(left)?;
            match (&*self.tcp).read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(|mut tcp| tcp.write(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.retry(|mut tcp| tcp.write_vectored(parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection's byte stream.
pub(super) enum Channel {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Channel {
    /// Creates a plain stream, or a TLS stream whose handshake takes place at the first read.
    pub(super) fn new(socket: Socket, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(socket)) };
        let mut tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(TLS_BUFFER));
        Ok(Self::Tls(Box::new(StreamOwned::new(tls, socket))))
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &mut stream.sock,
        }
    }

    /// Returns the TCP socket, for setting options.
    pub(super) fn tcp(&mut self) -> Arc<TcpStream> {
        self.socket().tcp.clone()
    }

    /// Reads some bytes, and returns their number; 0 at the end of the stream.
    /// # Errors
    /// `TimedOut` at `deadline`, or the failure of the connection.
    pub(super) fn read_until(&mut self, deadline: Instant, into: &mut [u8]) -> io::Result<usize> {
        self.socket().deadline = Some(deadline);
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }

    /// Sends all parts, one after the other.
    /// # Errors
    /// `TimedOut` if the client has acknowledged nothing for too long, or the failure of the
    /// connection.
    pub(super) fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => {
                let mut slices: Vec<IoSlice<'_>> =
                    parts.iter().map(|part| IoSlice::new(part)).collect();
                let mut left = &mut slices[..];
                IoSlice::advance_slices(&mut left, 0);
                while !left.is_empty() {
                    match socket.write_vectored(left)? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        count => IoSlice::advance_slices(&mut left, count),
                    }
                }
                Ok(())
            }
            Self::Tls(stream) => {
                parts.iter().try_for_each(|part| stream.write_all(part))?;
                stream.flush()
            }
        }
    }

    /// Returns whether the stream is TLS, so that bytes cannot be sent by reference.
    pub(super) fn encrypts(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Sends bytes that are immediately followed by more bytes, so that the kernel may wait to fill
    /// a segment.
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub(super) fn send_with_more(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self::Plain(socket) = self else { return self.send(&[bytes]) };
        while !bytes.is_empty() {
            match socket.retry(|tcp| Ok(rustix::net::send(tcp, bytes, SendFlags::MORE)?))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Sends bytes `range` of a file from the page cache by `sendfile`, without copying them.
    /// Returns how many bytes were sent. The number is less than the length of `range` if the file
    /// ends before the end of `range`.
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// # Panics
    /// If the stream [`encrypts`](Self::encrypts).
    pub(super) fn send_cached(&mut self, file: &File, range: &Range<u64>) -> io::Result<u64> {
        let Self::Plain(socket) = self else { unreachable!("who encrypts needs the bytes") };
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).expect("a block fits memory");
            match socket.retry(|tcp| Ok(sendfile(tcp, file, Some(&mut { at }), left)?))? {
                0 => break,
                count => at += count as u64,
            }
        }
        Ok(at - range.start)
    }

    /// Closes the connection while a body may still arrive. Reads and discards the body for a
    /// while.
    pub(super) fn drain(mut self) {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let socket = self.socket();
        socket.deadline = Some(Instant::now() + DRAIN_TIME);
        let mut rest = vec![0; TLS_BUFFER];
        if socket.tcp.shutdown(Shutdown::Write).is_ok() {
            while matches!(socket.read(&mut rest), Ok(1..)) {}
        }
    }

    /// Closes the connection so that all bytes sent arrive. Shuts down the sending side, and then
    /// reads a little, because the kernel answers unread bytes with a reset, which can discard the
    /// bytes sent.
    pub(super) fn close(mut self) {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let socket = self.socket();
        if socket.tcp.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut rest = [0; 4096];
        socket.deadline = Some(Instant::now() + CLOSE_TIME);
        for _ in 0..CLOSE_READS {
            if !matches!(socket.read(&mut rest), Ok(1..)) {
                return;
            }
        }
    }
}

/// How long to discard a body from a client that has not read the response yet, because a reset
/// would discard the response.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Limits on reading from a connection that is being closed: the time, and the number of reads of
/// up to 4 KiB.
const CLOSE_TIME: Duration = Duration::from_secs(1);
const CLOSE_READS: usize = 16;
