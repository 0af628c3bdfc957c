//! TCP streams between hosts, and what arrives of them by and by.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use sprat_pace::{Pace, Pacer, path};

use super::host::Running;
use super::net::Net;
use sprat_measure::cpu::pause;

/// Bytes handed to and taken from the kernel at once: they stay in the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// How often an end that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Longest that a stream may take to begin.
const BEGINNING: Duration = Duration::from_secs(10);

/// Between two samples.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);

/// Payload of a full TCP segment over Ethernet, with time stamps; its frame has 1,538 bytes of the
/// wire's time.
pub(crate) const SEGMENT_BYTES: [f64; 2] = [1448.0, 1428.0];

/// What a full frame takes on the wire, bytes.
pub(crate) const FRAME_BYTES: f64 = 1538.0;

/// What a stream has of a line's rate.
pub(crate) fn payload_share(v6: bool) -> f64 {
    SEGMENT_BYTES[usize::from(v6)] / FRAME_BYTES
}

/// Who decides how much is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Congestion {
    Reno,
    Cubic,
    Bbr,
    /// Our own: the rate decides, and a window that follows it.
    Weir,
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Weir => "weir",
        })
    }
}

/// A stream to be, between hosts by their place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) v6: bool,
    pub(crate) congestion: Congestion,
    /// Receive buffer, bytes; the kernel's choice if none.
    pub(crate) receive_buffer: Option<usize>,
}

impl Way {
    /// Over IPv4, with the congestion control that most have.
    pub(crate) fn cubic(from: usize, to: usize) -> Self {
        Self { from, to, v6: false, congestion: Congestion::Cubic, receive_buffer: None }
    }
}

/// Streams that run; they end when dropped.
#[derive(Debug)]
pub(crate) struct Streams {
    received: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
    ends: Vec<Running<()>>,
}

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) struct Flowed {
    /// Seconds since the streams began, and bytes of each stream that had arrived by then.
    pub(crate) samples: Vec<(f64, Vec<u64>)>,
    /// The first sample that counts.
    pub(crate) steady: usize,
}

impl Streams {
    /// Starts them all.
    pub(crate) fn start(net: &Net, ways: &[Way]) -> Result<Self> {
        let mut streams = Self { received: Vec::new(), stop: Arc::default(), ends: Vec::new() };
        let mut callers = Vec::new();
        for &way in ways {
            let (count, stop) = (Arc::<AtomicU64>::default(), Arc::clone(&streams.stop));
            streams.received.push(Arc::clone(&count));
            let address = net.address(way.to, way.v6);
            let (bound, ready) = sync_channel(1);
            streams.ends.push(net.hosts[way.to].start(move || {
                let listener = listen(address, way.receive_buffer)?;
                bound.send(listener.local_addr()?).context("telling the port")?;
                receive(&listener, &count, &stop)
            })?);
            callers.push((
                way,
                ready.recv_timeout(BEGINNING).map_err(|_| anyhow!("no port to listen at"))?,
            ));
        }
        for (way, to) in callers {
            let stop = Arc::clone(&streams.stop);
            streams.ends.push(net.hosts[way.from].start(move || send(to, way.congestion, &stop))?);
        }
        let begun = Instant::now();
        while streams.received.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
            if begun.elapsed() > BEGINNING {
                return Err(streams
                    .finish()
                    .err()
                    .unwrap_or_else(|| anyhow!("a stream does not begin")));
            }
            pause(Duration::from_millis(1));
        }
        Ok(streams)
    }

    /// Lets them flow for `growth`, which does not count, and for `duration`, and ends them.
    pub(crate) fn measure(self, growth: Duration, duration: Duration) -> Result<Flowed> {
        self.watch(growth, duration, &mut || Ok(()))
    }

    /// The same; `look` is called when time begins to count, and at its end.
    pub(crate) fn watch(
        self,
        growth: Duration,
        duration: Duration,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Flowed> {
        let begun = Instant::now();
        let mut flowed = Flowed { samples: vec![self.sample(begun)], steady: 0 };
        let mut wait = |until: Duration| {
            while begun.elapsed() < until {
                pause(until.saturating_sub(begun.elapsed()).min(PERIOD));
                flowed.samples.push(self.sample(begun));
            }
            flowed.samples.len() - 1
        };
        let steady = wait(growth);
        look()?;
        wait(begun.elapsed() + duration); // looking may have taken its time
        flowed.steady = steady;
        look()?;
        self.finish()?;
        Ok(flowed)
    }

    fn sample(&self, begun: Instant) -> (f64, Vec<u64>) {
        (begun.elapsed().as_secs_f64(), self.received())
    }

    /// Bytes of each stream that have arrived so far.
    pub(crate) fn received(&self) -> Vec<u64> {
        self.received.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Ends them.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.ends.drain(..).try_for_each(Running::get)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Flowed {
    /// Payload of each stream while it counted, Gb/s.
    pub(crate) fn gbits(&self) -> Vec<f64> {
        let (Some((begun, first)), Some((ended, last))) =
            (self.samples.get(self.steady), self.samples.last())
        else {
            return Vec::new();
        };
        let rate = |(first, last): (&u64, &u64)| {
            (last - first) as f64 * 8.0 / 1e9 / (ended - begun).max(1e-9)
        };
        first.iter().zip(last).map(rate).collect()
    }

    /// Streams of which anything arrived after they had begun, what does not count included: one
    /// that waits for a retransmission is silent for longer than a short measurement lasts.
    pub(crate) fn flowing(&self) -> usize {
        let (Some((_, first)), Some((_, last))) = (self.samples.first(), self.samples.last())
        else {
            return 0;
        };
        first.iter().zip(last).filter(|(first, last)| first < last).count()
    }

    /// Of all streams together.
    pub(crate) fn total_gbits(&self) -> f64 {
        self.gbits().iter().sum()
    }
}

/// The index of Jain, Chiu and Hawe (1984): 1 when all have the same, 1/n when one has everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) =
        (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    sum * sum / (shares.len() as f64 * squares)
}

fn listen(address: IpAddr, receive_buffer: Option<usize>) -> Result<TcpListener> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(bytes) = receive_buffer {
        setsockopt(&socket, sockopt::RcvBufForce, &bytes)
            .context("a receive buffer: it needs CAP_NET_ADMIN")?;
    }
    socket.bind(&address.into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

/// Takes in all of one stream.
fn receive(listener: &TcpListener, count: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause(Duration::from_millis(1)),
            Err(error) => return Err(error).context("accepting a stream"),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => _ = count.fetch_add(len as u64, Ordering::Relaxed),
            Err(error) if is_patience(&error) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break, /* the sender has
            * ended */
            Err(error) => return Err(error).context("receiving a stream"),
        }
    }
    abandon(stream)
}

/// Sends until told to stop.
fn send(to: SocketAddr, congestion: Congestion, stop: &AtomicBool) -> Result<()> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    let pacer = match congestion {
        Congestion::Weir => {
            path::prepare_sender(&socket, path::MAX_BUFFER, path::MAX_UNSENT)
                .context("a send buffer")?;
            let pacer = Pacer::start()?;
            if let Some(why) = pacer.limited_by() {
                bail!("{why}");
            }
            Some(pacer)
        }
        _ => {
            let name = congestion.to_string();
            socket
                .set_tcp_congestion(name.as_bytes())
                .with_context(|| format!("this kernel has no {name}"))?;
            None
        }
    };
    socket.connect_timeout(&to.into(), BEGINNING).with_context(|| format!("connecting to {to}"))?;
    let mut stream: TcpStream = socket.into();
    let _paced = pacer.as_ref().map(|pacer| pacer.add(&stream, Pace::Auto)).transpose()?;
    stream.set_write_timeout(Some(LOOK))?;
    let buffer = vec![0; BUFFER_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(error) if is_patience(&error) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
            {
                break;
            }
            Err(error) => return Err(error).context("sending a stream"),
        }
    }
    abandon(stream)
}

/// Closes a connection and forgets what it holds, which would else keep its namespace.
fn abandon(stream: TcpStream) -> Result<()> {
    Ok(Socket::from(stream).set_linger(Some(Duration::ZERO))?)
}

fn is_patience(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_between_one_and_one_in_all() {
        assert!((jain(&[2.0, 2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[8.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[379.0, 418.0, 188.0, 108.0]) - 0.8174).abs() < 1e-3);
    }

    #[test]
    fn rates_are_of_the_time_that_counts() {
        let samples =
            vec![(0.0, vec![0, 0]), (1.0, vec![7, 9]), (3.0, vec![250_000_007, 500_000_009])];
        let flowed = Flowed { samples, steady: 1 };
        assert_eq!((flowed.gbits(), flowed.flowing()), (vec![1.0, 2.0], 2));
        assert!((flowed.total_gbits() - 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_stream_flows_unless_it_stops_for_good() {
        let samples = vec![(0.0, vec![1, 1, 1]), (2.0, vec![9, 1, 5]), (2.1, vec![9, 1, 7])];
        assert_eq!(Flowed { samples, steady: 1 }.flowing(), 2);
    }
}
