//! The bare path: a thread of this process echoes datagrams and streams. Its latency is the part of
//! an operation that is not the store's.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::peers::Endpoint;
use crate::peers::stream::{Codec, Decoded, Malformed, PendingRequest, Pipelined};
use sprat_measure::cpu::Pinned;
use sprat_measure::target::{Completion, LoadTarget, Op, Outcome, Wait};

/// Limit on the length of an echoed frame, in bytes. A longer frame is rejected before the server
/// starts.
pub const MAX_FRAME: usize = 60_000;

/// Lower limit on the length of an echoed frame, in bytes: the frame must have room for the tag,
/// the number that identifies the operation.
pub const MIN_FRAME: usize = 8;

/// Interval at which a sleeping echo server checks whether it should end.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Time after which a datagram that has not come back counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// Limit on the datagrams in flight.
const MAX_PENDING: usize = 64;

/// The transport of the echo.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Kernel UDP.
    Udp,
    /// Kernel TCP, one connection at a time.
    Tcp,
}

/// A thread that echoes on the loopback interface. Dropping this value ends the thread.
#[derive(Debug)]
pub struct EchoServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Set while another target is measured: a spinning echo server must not take a core from it.
    parked: AtomicBool,
}

impl EchoServer {
    /// Starts an echo server, pinned to `core` if given, that spins or sleeps while it waits.
    ///
    /// # Errors
    /// When no socket can be bound, the process is not allowed to use `core`, or the thread cannot
    /// be started.
    pub fn start(carrier: Carrier, wait: Wait, core: Option<usize>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let binding = Pinned::to(core)?; // inherited by the thread that is started below
        let builder = std::thread::Builder::new().name("echo".into());
        let (addr, thread) = match carrier {
            Carrier::Udp => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                socket.set_nonblocking(wait == Wait::Spin)?;
                socket.set_read_timeout(Some(STOP_CHECK))?;
                (socket.local_addr()?, builder.spawn(move || echo_datagrams(&socket, &for_thread))?)
            }
            Carrier::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                listener.set_nonblocking(true)?;
                (
                    listener.local_addr()?,
                    builder.spawn(move || echo_streams(&listener, wait, &for_thread))?,
                )
            }
        };
        drop(binding);
        Ok(Self { addr, shared, thread: Some(thread) })
    }

    /// Returns the address at which the server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn set_parked(&self, parked: bool) {
        self.shared.parked.store(parked, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.set_parked(false);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits while parked. Returns whether to continue.
    fn go_on(&self) -> bool {
        while self.parked.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(STOP_CHECK);
        }
        !self.stop.load(Ordering::Acquire)
    }
}

fn echo_datagrams(socket: &UdpSocket, shared: &Shared) {
    let mut frame = vec![0; MAX_FRAME];
    while shared.go_on() {
        if let Ok((bytes, from)) = socket.recv_from(&mut frame) {
            // If a queue is full, the datagram is dropped, as in a network.
            let _ = socket.send_to(&frame[..bytes], from);
        }
    }
}

fn echo_streams(listener: &TcpListener, wait: Wait, shared: &Shared) {
    while shared.go_on() {
        match listener.accept() {
            // After the stream ends, with or without an error, the next stream is accepted.
            Ok((stream, _)) => drop(echo_stream(stream, wait, shared)),
            Err(_) => sprat_measure::cpu::pause(Duration::from_millis(1)),
        }
    }
}

fn echo_stream(mut stream: TcpStream, wait: Wait, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(wait == Wait::Spin)?;
    stream.set_read_timeout(Some(STOP_CHECK))?;
    let mut frame = vec![0; MAX_FRAME];
    while shared.go_on() {
        let bytes = match stream.read(&mut frame) {
            Ok(0) => return Ok(()),
            Ok(bytes) => bytes,
            Err(error) if is_transient(error.kind()) => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &frame[..bytes];
        while !rest.is_empty() && shared.go_on() {
            match stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if is_transient(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Returns an echo server of this process as a target. Every operation, read or write, sends one
/// frame and receives it back. Keys and values are ignored; a read counts as `value_bytes`.
///
/// # Errors
/// When `frame` is not in [`MIN_FRAME`] to [`MAX_FRAME`], or the server cannot be started or
/// reached.
pub fn target(
    carrier: Carrier,
    server_wait: Wait,
    core: Option<usize>,
    frame: usize,
    value_bytes: usize,
) -> Result<Box<dyn LoadTarget>> {
    ensure!(
        (MIN_FRAME..=MAX_FRAME).contains(&frame),
        "an echo of {frame} bytes: {MIN_FRAME} to {MAX_FRAME} are possible"
    );
    let server = EchoServer::start(carrier, server_wait, core)?;
    server.set_parked(true);
    let frame = vec![0x5A; frame];
    Ok(match carrier {
        Carrier::Udp => {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(server.addr())?;
            socket.set_read_timeout(Some(LOST_AFTER))?;
            Box::new(UdpEcho {
                server,
                socket,
                frame,
                value_bytes,
                pending: Vec::with_capacity(MAX_PENDING),
                sleeps: true,
            })
        }
        Carrier::Tcp => {
            let stream = Pipelined::connect(
                "echo",
                Frames { value_bytes },
                &Endpoint::Tcp(server.addr()),
                1,
            )?;
            Box::new(TcpEcho { stream, server, frame })
        }
    })
}

struct TcpEcho {
    // Dropped before the server's thread is joined, so that the stream is closed then.
    stream: Pipelined<Frames>,
    server: EchoServer,
    frame: Vec<u8>,
}

/// The codec of a stream of frames. Requests determine the lengths of the frames.
#[derive(Debug)]
struct Frames {
    value_bytes: usize,
}

impl Codec for Frames {
    const VALUE_END: &'static [u8] = b"";

    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>) {
        if let Op::Get { key } | Op::Put { key, .. } = op {
            out.extend_from_slice(key);
        }
    }

    fn decode(&self, input: &[u8], pending: &PendingRequest) -> Result<Decoded, Malformed> {
        let consumed = pending.request_bytes;
        if input.len() < consumed {
            return Ok(Decoded::Need(consumed));
        }
        let bytes = if pending.read { self.value_bytes } else { 0 };
        Ok(Decoded::Reply { consumed, outcome: Outcome::Ok { bytes } })
    }
}

impl LoadTarget for TcpEcho {
    fn name(&self) -> &str {
        "echo"
    }

    fn transport(&self) -> &str {
        "tcp"
    }

    fn connections(&self) -> usize {
        1
    }

    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        let frame = match op {
            op if op.reads() => Op::Get { key: &self.frame },
            _ => Op::Put { key: &self.frame, value: b"" },
        };
        self.stream.submit(connection, &frame, tag)
    }

    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        self.stream.poll(patience, done)
    }

    fn set_active(&mut self, active: bool) {
        self.server.set_parked(!active);
    }
}

struct UdpEcho {
    server: EchoServer,
    socket: UdpSocket,
    frame: Vec<u8>,
    value_bytes: usize,
    pending: Vec<Sent>,
    /// Whether the socket is in blocking mode now.
    sleeps: bool,
}

struct Sent {
    tag: u64,
    read: bool,
    at: Instant,
}

impl UdpEcho {
    fn receive(&mut self) -> Result<Option<u64>> {
        match self.socket.recv(&mut self.frame) {
            Ok(_) => Ok(self.frame.first_chunk().map(|tag| u64::from_le_bytes(*tag))),
            Err(error) if is_transient(error.kind()) => Ok(None),
            Err(error) => Err(error).context("echo"),
        }
    }
}

impl LoadTarget for UdpEcho {
    fn name(&self) -> &str {
        "echo"
    }

    fn transport(&self) -> &str {
        "udp"
    }

    fn connections(&self) -> usize {
        1
    }

    fn submit(&mut self, _connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        if self.pending.len() >= MAX_PENDING {
            return Ok(false);
        }
        self.frame[..MIN_FRAME].copy_from_slice(&tag.to_le_bytes());
        match self.socket.send(&self.frame) {
            Ok(_) => {}
            Err(error) if is_transient(error.kind()) => return Ok(false),
            Err(error) => return Err(error).context("echo"),
        }
        self.pending.push(Sent { tag, read: op.reads(), at: Instant::now() });
        Ok(true)
    }

    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        let sleep = !patience.is_zero() && !self.pending.is_empty();
        if sleep != self.sleeps {
            self.socket.set_nonblocking(!sleep)?;
            self.sleeps = sleep;
        }
        if let Some(tag) = self.receive()? {
            if let Some(index) = self.pending.iter().position(|sent| sent.tag == tag) {
                let bytes = if self.pending.swap_remove(index).read { self.value_bytes } else { 0 };
                done.push(Completion { tag, outcome: Outcome::Ok { bytes } });
            }
        } else if let Some(index) =
            self.pending.iter().position(|sent| sent.at.elapsed() > LOST_AFTER)
        {
            let tag = self.pending.swap_remove(index).tag;
            done.push(Completion { tag, outcome: Outcome::Error });
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool) {
        self.server.set_parked(!active);
    }
}
