//! Runs TCP streams between hosts, and samples the bytes that arrive.

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

use super::host::HostTask;
use super::net::Net;
use sprat_measure::cpu::pause;

/// Bytes per read and write: few enough for the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// Interval at which a waiting end checks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Timeout for a stream to begin.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two samples.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);

/// Payload bytes of a full TCP segment with time stamps over Ethernet, for IPv4 and IPv6.
pub(crate) const SEGMENT_BYTES: [f64; 2] = [1448.0, 1428.0];

/// Bytes that a full frame occupies on the wire.
pub(crate) const FRAME_BYTES: f64 = 1538.0;

/// Returns the share of a line's rate that is payload of full segments.
pub(crate) fn payload_share(v6: bool) -> f64 {
    SEGMENT_BYTES[usize::from(v6)] / FRAME_BYTES
}

/// The congestion control of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Congestion {
    Reno,
    Cubic,
    Bbr,
    /// The weir, our own: it controls the rate, and the window follows the rate.
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

/// A stream to start, between two hosts given by their indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSpec {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) v6: bool,
    pub(crate) congestion: Congestion,
    /// Receive buffer in bytes; with `None`, the kernel chooses.
    pub(crate) receive_buffer: Option<usize>,
}

impl StreamSpec {
    /// Specifies a stream over IPv4 with CUBIC, the usual congestion control.
    pub(crate) fn cubic(from: usize, to: usize) -> Self {
        Self { from, to, v6: false, congestion: Congestion::Cubic, receive_buffer: None }
    }
}

/// Running streams. They stop when this value is dropped.
#[derive(Debug)]
pub(crate) struct Streams {
    received: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
    ends: Vec<HostTask<()>>,
}

/// Samples of the bytes that arrived.
#[derive(Clone, Debug)]
pub(crate) struct StreamResults {
    /// For each sample: its time in seconds from the start of the streams, and the bytes of each
    /// stream that had arrived by then.
    pub(crate) samples: Vec<(f64, Vec<u64>)>,
    /// Index of the first sample after the warm-up.
    pub(crate) steady: usize,
}

impl Streams {
    /// Starts the streams, and waits until bytes of each stream have arrived.
    pub(crate) fn start(net: &Net, ways: &[StreamSpec]) -> Result<Self> {
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
                ready.recv_timeout(START_TIMEOUT).map_err(|_| anyhow!("no port to listen at"))?,
            ));
        }
        for (way, to) in callers {
            let stop = Arc::clone(&streams.stop);
            streams.ends.push(net.hosts[way.from].start(move || send(to, way.congestion, &stop))?);
        }
        let begun = Instant::now();
        while streams.received.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
            if begun.elapsed() > START_TIMEOUT {
                return Err(streams
                    .finish()
                    .err()
                    .unwrap_or_else(|| anyhow!("a stream does not begin")));
            }
            pause(Duration::from_millis(1));
        }
        Ok(streams)
    }

    /// Lets the streams run for the warm-up time `growth` and for `duration`, then stops them.
    pub(crate) fn measure(self, growth: Duration, duration: Duration) -> Result<StreamResults> {
        self.measure_with(growth, duration, &mut || Ok(()))
    }

    /// Measures as [`measure`](Self::measure) does, and calls `look` after the warm-up and at the
    /// end.
    pub(crate) fn measure_with(
        self,
        growth: Duration,
        duration: Duration,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<StreamResults> {
        let begun = Instant::now();
        let mut results = StreamResults { samples: vec![self.sample(begun)], steady: 0 };
        let mut wait = |until: Duration| {
            while begun.elapsed() < until {
                pause(until.saturating_sub(begun.elapsed()).min(PERIOD));
                results.samples.push(self.sample(begun));
            }
            results.samples.len() - 1
        };
        let steady = wait(growth);
        look()?;
        wait(begun.elapsed() + duration); // from now on, since `look` may have taken long
        results.steady = steady;
        look()?;
        self.finish()?;
        Ok(results)
    }

    fn sample(&self, begun: Instant) -> (f64, Vec<u64>) {
        (begun.elapsed().as_secs_f64(), self.received())
    }

    /// Returns the bytes of each stream that have arrived so far.
    pub(crate) fn received(&self) -> Vec<u64> {
        self.received.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Stops the streams, and returns the first error of an end.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.ends.drain(..).try_for_each(HostTask::get)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl StreamResults {
    /// Returns the payload rate of each stream after the warm-up, in Gb/s.
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

    /// Returns the number of streams of which bytes arrived after the first sample. The warm-up is
    /// included: a stream that waits for a retransmission may be silent during a short measurement.
    pub(crate) fn flowing(&self) -> usize {
        let (Some((_, first)), Some((_, last))) = (self.samples.first(), self.samples.last())
        else {
            return 0;
        };
        first.iter().zip(last).filter(|(first, last)| first < last).count()
    }

    /// Returns the payload rate of all streams together, in Gb/s.
    pub(crate) fn total_gbits(&self) -> f64 {
        self.gbits().iter().sum()
    }
}

/// Computes the fairness index of Jain, Chiu and Hawe (1984): 1 if all shares are equal, 1/n if one
/// of n shares is the whole sum.
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

/// Accepts one stream, and counts its bytes until `stop` is set.
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
    stream.set_read_timeout(Some(STOP_CHECK))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => _ = count.fetch_add(len as u64, Ordering::Relaxed),
            Err(error) if is_retryable(&error) => {}
            // The sender has ended.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error).context("receiving a stream"),
        }
    }
    abandon(stream)
}

/// Sends until it is stopped.
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
    socket
        .connect_timeout(&to.into(), START_TIMEOUT)
        .with_context(|| format!("connecting to {to}"))?;
    let mut stream: TcpStream = socket.into();
    let _paced = pacer.as_ref().map(|pacer| pacer.add(&stream, Pace::Auto)).transpose()?;
    stream.set_write_timeout(Some(STOP_CHECK))?;
    let buffer = vec![0; BUFFER_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(error) if is_retryable(&error) => {}
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

/// Closes a connection and discards its buffered data, which would otherwise keep the namespace
/// alive.
fn abandon(stream: TcpStream) -> Result<()> {
    Ok(Socket::from(stream).set_linger(Some(Duration::ZERO))?)
}

fn is_retryable(error: &std::io::Error) -> bool {
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
        let results = StreamResults { samples, steady: 1 };
        assert_eq!((results.gbits(), results.flowing()), (vec![1.0, 2.0], 2));
        assert!((results.total_gbits() - 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_stream_flows_unless_it_stops_for_good() {
        let samples = vec![(0.0, vec![1, 1, 1]), (2.0, vec![9, 1, 5]), (2.1, vec![9, 1, 7])];
        assert_eq!(StreamResults { samples, steady: 1 }.flowing(), 2);
    }
}
