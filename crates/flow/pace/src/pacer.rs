//! The thread that samples connections and sets their rates.

use crate::path::{self, Path};
use crate::weir::{Mode, Sample, TICKS_PER_RTT, Weir};
use crate::window::{KNOCK_BIT, Window, WindowError};
use sprat_host::lock;
use std::io;
use std::net::TcpStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit on the connections of a pacer. The pacer neither samples further connections nor controls
/// their rates.
pub const MAX_PACED: usize = 4_096;

/// Limits on the interval between two samples of a connection.
const SHORTEST_TICK: Duration = Duration::from_millis(2);
const LONGEST_TICK: Duration = Duration::from_millis(25);

/// The shortest round trip of a path on which the controller chooses the rate. On shorter paths the
/// machine's own delays hide what the controller would measure, so the kernel chooses the rate.
pub const SHORTEST_PACED: Duration = Duration::from_millis(2);

/// How the rate of a connection is chosen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pace {
    /// The controller chooses the rate on paths whose round trip takes at least [`SHORTEST_PACED`].
    /// On shorter paths, the kernel chooses the rate.
    #[default]
    Auto,
    /// The kernel chooses the rate.
    Off,
    /// The kernel chooses the rate, up to this many bytes a second.
    Limit(u64),
}

/// The lowest rate that a user can request, in bytes a second.
pub const MIN_RATE: u64 = 1_000;

/// The state of a paced connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PacerState {
    /// The kernel's statistics at the last sample.
    pub path: Path,
    /// The rate that was set, in bytes a second; `None` if the kernel decides.
    pub rate: Option<u64>,
    /// The controller's mode; `None` if the kernel decides.
    pub mode: Option<Mode>,
    /// The controller's estimate of what the path carries, in bytes a second. Zero before the first
    /// estimate.
    pub capacity: u64,
    /// The rate at which bytes arrived, in bytes a second, measured over periods of at least a
    /// fifth of a second. Zero in the first period.
    pub arrival_rate: u64,
}

/// Paces the connections of a process, from one thread. [`Pacer::add`] begins to pace a connection,
/// and returns a [`Paced`]. To stop pacing the connection, drop the [`Paced`]. When the pacer is
/// dropped, its connections keep their last rates.
#[derive(Debug)]
pub struct Pacer {
    to: Option<mpsc::SyncSender<Connection>>,
    thread: Option<JoinHandle<()>>,
    window: Arc<LazyWindow>,
}

/// The congestion control that makes the window follow the rate, or the reason why there is none.
/// It is made when the first connection needs it, because making it parses all of the kernel's
/// types.
type LazyWindow = OnceLock<Result<Window, WindowError>>;

/// A handle of a paced connection. Dropping it ends the pacing.
#[derive(Debug)]
pub struct Paced {
    state: Arc<Mutex<PacerState>>,
}

impl Paced {
    /// Returns the connection's state at the last sample.
    #[must_use]
    pub fn state(&self) -> PacerState {
        *lock(&self.state)
    }
}

impl Pacer {
    /// Starts a pacer and its thread, without connections.
    /// # Errors
    /// The system cannot create a thread.
    pub fn start() -> io::Result<Self> {
        let (to, from) = mpsc::sync_channel(64);
        let thread =
            std::thread::Builder::new().name("sprat-pacer".to_owned()).spawn(move || run(&from))?;
        Ok(Self { to: Some(to), thread: Some(thread), window: Arc::default() })
    }

    /// Returns why connections keep the kernel's own congestion window, which may limit them below
    /// their rate. Returns `None` if connections get Sprat's window.
    #[must_use]
    pub fn limited_by(&self) -> Option<&WindowError> {
        self.window.get_or_init(Window::open).as_ref().err()
    }

    /// Paces a connection until the returned handle is dropped. The connection then keeps the last
    /// rate that was set. If the pacer already has [`MAX_PACED`] connections, the connection is not
    /// sampled, and no rate is set except that of [`Pace::Limit`].
    ///
    /// # Errors
    /// The socket is not TCP or cannot be duplicated, its rate cannot be limited, or the pacer's
    /// thread has ended.
    pub fn add(&self, socket: &TcpStream, pace: Pace) -> io::Result<Paced> {
        let state =
            Arc::new(Mutex::new(PacerState { path: Path::of(socket)?, ..PacerState::default() }));
        if let Pace::Limit(rate) = pace {
            path::limit_rate(socket, Some(rate))?;
            lock(&state).rate = Some(rate);
        }
        let connection = Connection {
            socket: socket.try_clone()?,
            weir: None,
            pace,
            window: Arc::clone(&self.window),
            began: Instant::now(),
            due: Instant::now(),
            delivered: (0, 0),
            arrived: (Instant::now(), 0),
            state: Arc::clone(&state),
        };
        let to = self.to.as_ref().expect("a pacer that was not dropped");
        to.send(connection).map_err(|_| io::Error::other("the pacer's thread has ended"))?;
        Ok(Paced { state })
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        drop(self.to.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has already been reported
        }
    }
}

/// A paced connection, as the pacer's thread keeps it.
#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    weir: Option<Weir>,
    pace: Pace,
    window: Arc<LazyWindow>,
    began: Instant,
    due: Instant,
    /// Bytes delivered, and the kernel's count of delivered segments at that time. The count wraps
    /// at 2^32.
    delivered: (u64, u32),
    /// When the arrival rate was last computed, and the bytes delivered by then.
    arrived: (Instant, u64),
    state: Arc<Mutex<PacerState>>,
}

fn run(from: &mpsc::Receiver<Connection>) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let received = match connections.iter().map(|each| each.due).min() {
            Some(next) => from.recv_timeout(next.saturating_duration_since(Instant::now())),
            None => from.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(new) if connections.len() < MAX_PACED => connections.push(new),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        // The `Paced` handle is the other owner of `state`.
        connections.retain_mut(|each| {
            Arc::strong_count(&each.state) > 1 && (each.due > now || each.tick(now).is_ok())
        });
    }
}

impl Connection {
    /// Samples the kernel's statistics, and sets the rate.
    fn tick(&mut self, now: Instant) -> io::Result<()> {
        let path = Path::of(&self.socket)?;
        self.due = now + (path.min_rtt / TICKS_PER_RTT).clamp(SHORTEST_TICK, LONGEST_TICK);
        let segments = path.delivered.wrapping_sub(self.delivered.1);
        self.delivered =
            (self.delivered.0 + u64::from(segments) * u64::from(path.mss), path.delivered);
        let mut rate = None;
        if self.pace == Pace::Auto && (self.weir.is_some() || path.min_rtt >= SHORTEST_PACED) {
            let sample = self.sample(&path, now);
            let begins = self.weir.is_none();
            let weir = self.weir.get_or_insert_default();
            let weir_rate = weir.update(sample);
            rate = Some(if weir.knocks() { weir_rate | KNOCK_BIT } else { weir_rate & !KNOCK_BIT });
            path::limit_rate(&self.socket, rate)?;
            if begins && let Ok(window) = self.window.get_or_init(Window::open) {
                // If the kernel refuses, the connection keeps the kernel's own window, and sends no
                // faster than that window and the set rate allow.
                let _ = window.attach(&self.socket);
            }
        }
        let mut state = lock(&self.state);
        state.path = path;
        if let Some(weir) = &self.weir {
            (state.rate, state.mode, state.capacity) = (rate, Some(weir.mode()), weir.capacity());
        }
        let passed = now - self.arrived.0;
        if passed >= Duration::from_millis(200) {
            let bytes = u128::from(self.delivered.0 - self.arrived.1);
            state.arrival_rate =
                u64::try_from(bytes * 1_000_000 / passed.as_micros()).unwrap_or(u64::MAX);
            self.arrived = (now, self.delivered.0);
        }
        Ok(())
    }

    fn sample(&self, path: &Path, now: Instant) -> Sample {
        let mss = u64::from(path.mss);
        Sample {
            now: now - self.began,
            mss: path.mss,
            sent: path.sent,
            retransmitted: path.retransmitted,
            delivered: self.delivered.0,
            lost: u64::from(path.lost) * mss,
            rtt: path.rtt,
            rtt_variation: path.rtt_variation,
            min_rtt: path.min_rtt,
            idle: path.not_sent == 0,
        }
    }
}
