//! Measures round trips of 100 bytes over loopback with bare sockets of the standard library and
//! with our drivers, both spinning and waiting. One run measures all variants, in turn.
//!
//!     cargo run --release -p sprat-net --example echo [hog]
//!
//! There are two threads, each on a core of its own. With `hog` there is a third thread that only
//! computes, and the system chooses the cores.

#![expect(clippy::print_stdout, reason = "a program")]

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use sprat_net::{Driver, Idle, Mode, Nanos, Policy, Sources, Tcp, Transmit, Udp};

const FRAME: usize = 100;
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 6;

/// One end of an echo.
trait End {
    /// Sends a frame.
    fn send(&mut self);
    /// Receives frames once, and echoes them if this end is the server; returns how many arrived.
    fn poll(&mut self) -> usize;
    /// Returns the descriptors to sleep on.
    fn sources(&self) -> Sources<'_> {
        Sources::default()
    }
}

struct BareUdp {
    socket: UdpSocket,
    to: Option<SocketAddr>,
}

impl End for BareUdp {
    fn send(&mut self) {
        self.socket.send_to(&[7; FRAME], self.to.expect("a client")).expect("sends");
    }

    fn poll(&mut self) -> usize {
        let mut frame = [0; 2048];
        match self.socket.recv_from(&mut frame) {
            Ok((len, peer)) => {
                if self.to.is_none() {
                    self.socket.send_to(&frame[..len], peer).expect("sends");
                }
                1
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }
}

struct BareTcp {
    stream: TcpStream,
    server: bool,
}

impl End for BareTcp {
    fn send(&mut self) {
        self.stream.write_all(&[7; FRAME]).expect("sends");
    }

    fn poll(&mut self) -> usize {
        let mut frame = [0; 2048];
        match self.stream.read(&mut frame) {
            Ok(len) => {
                if self.server {
                    self.stream.write_all(&frame[..len]).expect("sends");
                }
                1
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }
}

struct Ours<D> {
    driver: D,
    to: Option<SocketAddr>,
}

impl<D: Driver> End for Ours<D> {
    fn send(&mut self) {
        self.driver.tx().send(self.to.expect("a client"), &[IoSlice::new(&[7; FRAME])]);
        self.driver.tx().flush();
    }

    fn poll(&mut self) -> usize {
        let server = self.to.is_none();
        let count = self
            .driver
            .receive(&mut |tx, peer, frame| {
                if server {
                    tx.send(peer, &[IoSlice::new(frame)]);
                }
            })
            .expect("receives");
        if count > 0 && server {
            self.driver.tx().flush();
        }
        count
    }

    fn sources(&self) -> Sources<'_> {
        let mut sources = Sources::default();
        self.driver.sources(&mut sources);
        sources
    }
}

/// A driver, and how it waits: it spins, or waits as a node does.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    kind: Kind,
    waits: Option<Mode>,
}

#[derive(Clone, Copy)]
enum Kind {
    BareUdp,
    BareTcp,
    BlockingTcp,
    Udp,
    Tcp,
}

const VARIANTS: [Variant; 10] = [
    Variant { name: "bare UDP, spinning", kind: Kind::BareUdp, waits: None },
    Variant { name: "Udp, spinning", kind: Kind::Udp, waits: None },
    Variant { name: "Udp, Mode::Spin", kind: Kind::Udp, waits: Some(Mode::Spin) },
    Variant { name: "Udp, Mode::Adaptive", kind: Kind::Udp, waits: Some(Mode::Adaptive) },
    Variant { name: "Udp, Mode::Sleep", kind: Kind::Udp, waits: Some(Mode::Sleep) },
    Variant { name: "bare TCP, spinning", kind: Kind::BareTcp, waits: None },
    Variant { name: "Tcp, spinning", kind: Kind::Tcp, waits: None },
    Variant { name: "Tcp, Mode::Adaptive", kind: Kind::Tcp, waits: Some(Mode::Adaptive) },
    Variant { name: "Tcp, Mode::Sleep", kind: Kind::Tcp, waits: Some(Mode::Sleep) },
    Variant { name: "bare TCP, blocking", kind: Kind::BlockingTcp, waits: None },
];

fn pair(kind: Kind) -> io::Result<(Box<dyn End + Send>, Box<dyn End + Send>)> {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    Ok(match kind {
        Kind::BareUdp => {
            let (server, client) = (UdpSocket::bind(any)?, UdpSocket::bind(any)?);
            let to = Some(server.local_addr()?);
            server.set_nonblocking(true)?;
            client.set_nonblocking(true)?;
            (
                Box::new(BareUdp { socket: client, to }),
                Box::new(BareUdp { socket: server, to: None }),
            )
        }
        Kind::BareTcp | Kind::BlockingTcp => {
            let listener = TcpListener::bind(any)?;
            let client = TcpStream::connect(listener.local_addr()?)?;
            let server = listener.accept()?.0;
            for stream in [&client, &server] {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(matches!(kind, Kind::BareTcp))?;
                stream.set_read_timeout(Some(TURN / 50))?;
            }
            (
                Box::new(BareTcp { stream: client, server: false }),
                Box::new(BareTcp { stream: server, server: true }),
            )
        }
        Kind::Udp => {
            let server = Udp::bind(any)?;
            let to = Some(server.local_addr());
            (
                Box::new(Ours { driver: Udp::bind(any)?, to }),
                Box::new(Ours { driver: server, to: None }),
            )
        }
        Kind::Tcp => {
            let server = Tcp::listen(any)?;
            let to = Some(server.local_addr());
            (
                Box::new(Ours { driver: Tcp::connect_only()?, to }),
                Box::new(Ours { driver: server, to: None }),
            )
        }
    })
}

/// Waits after polls that found nothing.
struct Waiter {
    start: Instant,
    idle: Option<Idle>,
}

impl Waiter {
    fn new(waits: Option<Mode>) -> Self {
        let idle = waits.map(|mode| Idle::new(Policy::of(mode), Nanos(0)).expect("opens"));
        Self { start: Instant::now(), idle }
    }

    fn round(&mut self, end: &mut dyn End) -> usize {
        let count = end.poll();
        if let Some(idle) = &mut self.idle {
            let now = Nanos(0) + self.start.elapsed();
            if count > 0 {
                idle.worked(now);
            } else {
                idle.rest(now, || (now + Duration::from_millis(10), end.sources())).expect("rests");
            }
        }
        count
    }
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("pins");
}

fn main() -> io::Result<()> {
    let hog = std::env::args().any(|argument| argument == "hog");
    // The index of the variant that is being measured.
    let turn = AtomicUsize::new(usize::MAX);
    let stop = VARIANTS.len();
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for variant in VARIANTS {
        let (client, server) = pair(variant.kind)?;
        clients.push(client);
        servers.push(server);
    }
    let mut times: Vec<Vec<u32>> = vec![Vec::new(); VARIANTS.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !hog {
                pin(1);
            }
            let mut servers: Vec<_> = servers
                .into_iter()
                .zip(VARIANTS)
                .map(|(end, variant)| (end, Waiter::new(variant.waits)))
                .collect();
            loop {
                let now = turn.load(Ordering::Relaxed);
                if now == stop {
                    break;
                }
                if let Some((end, waiter)) = servers.get_mut(now) {
                    waiter.round(end.as_mut());
                }
            }
        });
        if hog {
            scope.spawn(|| {
                while turn.load(Ordering::Relaxed) != stop {
                    std::hint::black_box((0..1000u64).sum::<u64>());
                }
            });
        } else {
            pin(0);
        }
        let mut waiters = VARIANTS.map(|variant| Waiter::new(variant.waits));
        for _ in 0..TURNS {
            for (i, (waiter, end)) in waiters.iter_mut().zip(&mut clients).enumerate() {
                turn.store(i, Ordering::Relaxed);
                let until = Instant::now() + TURN;
                let mut sent = Instant::now();
                let mut trips = 0;
                while sent < until {
                    end.send();
                    while waiter.round(end.as_mut()) == 0 {}
                    let back = Instant::now();
                    trips += 1;
                    if trips > 20 {
                        times[i].push(u32::try_from((back - sent).as_nanos()).unwrap_or(u32::MAX));
                    }
                    sent = back;
                }
            }
        }
        turn.store(stop, Ordering::Relaxed);
    });
    println!("{:28} {:>8} {:>8} {:>8} {:>8}   us", "round trip", "min", "p50", "p99", "count");
    for (variant, times) in VARIANTS.iter().zip(&mut times) {
        times.sort_unstable();
        let at = |share: usize| {
            f64::from(times.get(times.len() * share / 1000).copied().unwrap_or(0)) / 1000.0
        };
        println!(
            "{:28} {:8.2} {:8.2} {:8.2} {:8}",
            variant.name,
            at(0),
            at(500),
            at(990),
            times.len()
        );
    }
    Ok(())
}
