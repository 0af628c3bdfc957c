//! A connection's bytes, plain or through TLS, with deadlines: nobody is waited for without end.

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

/// Bytes that a connection's send buffer may grow to: 10 Gb/s over 200 ms. What is not on the way
/// is kept out of it by [`UNSENT`].
pub const SEND_BUFFER: usize = 256 << 20;

/// Bytes that wait in the kernel for their first sending, at most: what a sender that is not woken
/// for some milliseconds lives on.
pub const UNSENT: u32 = 8 << 20;

/// Bytes that TLS gathers before it has them sent.
const TLS_BUFFER: usize = 256 << 10;

/// How often a sender that waits looks whether the other end still takes anything.
const LOOK: Duration = Duration::from_secs(5);

/// A TCP connection whose other end has to show life.
pub(super) struct Socket {
    tcp: Arc<TcpStream>,
    /// When reading is given up.
    deadline: Option<Instant>,
    /// How long the other end may take no byte.
    patience: Duration,
    /// Bytes that it had taken, and since when it is no more.
    taken: (u64, Instant),
}

impl Socket {
    pub(super) fn new(tcp: Arc<TcpStream>, patience: Duration) -> io::Result<Self> {
        tcp.set_nonblocking(false)?;
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(LOOK.min(patience)))?;
        prepare_sender(&*tcp, SEND_BUFFER, UNSENT)?;
        Ok(Self { tcp, deadline: None, patience, taken: (0, Instant::now()) })
    }

    /// Nothing could be written for a while: whether that has to be the end.
    fn still_takes(&mut self) -> io::Result<()> {
        let acked = Path::of(&*self.tcp)?.acked;
        if acked > self.taken.0 {
            self.taken = (acked, Instant::now());
        }
        if self.taken.1.elapsed() < self.patience {
            return Ok(());
        }
        let what = format!("the other end took nothing for {} s", self.patience.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }

    /// Writes, as often as the kernel took nothing and the other end lives.
    fn retry(&mut self, write: impl Fn(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            match write(&self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.taken.1 = self.taken.1.max(began);
                    self.still_takes()?;
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

/// A connection, as those who answer on it see it.
pub(super) enum Channel {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Channel {
    /// Plain, or with TLS, whose handshake takes place as soon as something is read.
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

    /// The connection's socket, for the kernel's options.
    pub(super) fn tcp(&mut self) -> Arc<TcpStream> {
        self.socket().tcp.clone()
    }

    /// Reads something; an end is zero.
    ///
    /// # Errors
    /// `TimedOut` at `deadline`, and what the connection dies of.
    pub(super) fn read_until(&mut self, deadline: Instant, into: &mut [u8]) -> io::Result<usize> {
        self.socket().deadline = Some(deadline);
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }

    /// Sends all parts, one after the other.
    ///
    /// # Errors
    /// `TimedOut` when the other end took nothing for too long, and what the connection dies of.
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

    /// Whether bytes are encrypted here, so that they are needed here.
    pub(super) fn encrypts(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Sends bytes that others follow at once: the kernel may wait for those to fill a segment.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
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

    /// Sends bytes `range` of a file out of the page cache, which the connection's segments then
    /// refer to: no byte is copied. Gives how many there were: fewer, when the file ends before
    /// the range does.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    ///
    /// # Panics
    /// On a connection that [`encrypts`](Self::encrypts).
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

    /// Ends the connection while a body may still come: it is taken and thrown away, for a while.
    pub(super) fn drain(mut self) {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let socket = self.socket();
        socket.deadline = Some(Instant::now() + UNWANTED);
        let mut rest = vec![0; TLS_BUFFER];
        if socket.tcp.shutdown(Shutdown::Write).is_ok() {
            while matches!(socket.read(&mut rest), Ok(1..)) {}
        }
    }

    /// Ends the connection so that what was sent arrives: says that no more comes, and takes a
    /// little of what still does, for the kernel answers unread bytes by a reset that undoes
    /// ours.
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
        socket.deadline = Some(Instant::now() + LAST_WORDS);
        for _ in 0..LAST_READS {
            if !matches!(socket.read(&mut rest), Ok(1..)) {
                return;
            }
        }
    }
}

/// How long what nobody wants is taken from who has not heard of that yet: a reset would undo what
/// was said.
const UNWANTED: Duration = Duration::from_secs(10);

/// How long, and how many times 4 KiB, a connection is read that is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_READS: usize = 16;
