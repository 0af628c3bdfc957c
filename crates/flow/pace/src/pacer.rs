//! The thread that asks the kernel about connections and sets their rates.

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

/// Most connections of a pacer.
pub const MAX_PACED: usize = 4_096;

/// A connection is looked at this often at most, and at least.
const SHORTEST_TICK: Duration = Duration::from_millis(2);
const LONGEST_TICK: Duration = Duration::from_millis(25);

/// Paths shorter than this are the kernel's to decide: what a machine's own delays hide cannot be
/// measured from outside.
pub const SHORTEST_PACED: Duration = Duration::from_millis(2);

/// Who decides how fast a connection sends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pace {
    /// The controller, on paths of [`SHORTEST_PACED`] and more.
    #[default]
    Auto,
    /// The kernel.
    Off,
    /// The kernel, up to so many bytes a second.
    Limit(u64),
}

/// Slowest rate that can be asked for, bytes a second.
pub const MIN_RATE: u64 = 1_000;

/// What is known of a paced connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// What the kernel told last.
    pub path: Path,
    /// The rate that was set, bytes a second; none: the kernel decides.
    pub rate: Option<u64>,
    /// What the controller is about, if it decides.
    pub mode: Option<Mode>,
    /// What it takes the path to carry, bytes a second; zero before it knows.
    pub capacity: u64,
    /// Bytes a second that arrived in the last fifth of a second.
    pub arrives: u64,
}

/// Paces connections, from one thread. Those that are paced stay so when it is dropped, at their
/// last rate.
#[derive(Debug)]
pub struct Pacer {
    to: Option<mpsc::SyncSender<Connection>>,
    thread: Option<JoinHandle<()>>,
    window: Arc<LazyWindow>,
}

/// The window, made when the first connection needs it, or why there is none: it reads all of the
/// kernel's types.
type LazyWindow = OnceLock<Result<Window, WindowError>>;

/// A connection that is paced, until this is dropped.
#[derive(Debug)]
pub struct Paced {
    state: Arc<Mutex<State>>,
}

impl Paced {
    /// What is known of it.
    #[must_use]
    pub fn state(&self) -> State {
        *lock(&self.state)
    }
}

impl Pacer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start() -> io::Result<Self> {
        let (to, from) = mpsc::sync_channel(64);
        let thread =
            std::thread::Builder::new().name("sprat-pacer".to_owned()).spawn(move || run(&from))?;
        Ok(Self { to: Some(to), thread: Some(thread), window: Arc::default() })
    }

    /// Why connections have the kernel's own window below the rate; none when they have ours.
    #[must_use]
    pub fn limited_by(&self) -> Option<&WindowError> {
        self.window.get_or_init(Window::open).as_ref().err()
    }

    /// Paces a connection, from now on until the result is dropped.
    ///
    /// # Errors
    /// The socket is not of TCP, or the kernel refuses.
    pub fn add(&self, socket: &TcpStream, pace: Pace) -> io::Result<Paced> {
        let state = Arc::new(Mutex::new(State { path: Path::of(socket)?, ..State::default() }));
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
            let _ = thread.join(); // a panic was told where it happened
        }
    }
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    weir: Option<Weir>,
    pace: Pace,
    window: Arc<LazyWindow>,
    began: Instant,
    due: Instant,
    /// Bytes delivered, and the kernel's count of segments at that time, which begins again at
    /// 2^32.
    delivered: (u64, u32),
    /// When what had arrived was last counted.
    arrived: (Instant, u64),
    state: Arc<Mutex<State>>,
}

fn run(from: &mpsc::Receiver<Connection>) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let came = match connections.iter().map(|each| each.due).min() {
            Some(next) => from.recv_timeout(next.saturating_duration_since(Instant::now())),
            None => from.recv().map_err(RecvTimeoutError::from),
        };
        match came {
            Ok(new) if connections.len() < MAX_PACED => connections.push(new),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        // Who has dropped a connection's other half wants it no longer paced.
        connections.retain_mut(|each| {
            Arc::strong_count(&each.state) > 1 && (each.due > now || each.look(now).is_ok())
        });
    }
}

impl Connection {
    /// Asks the kernel, and sets the rate.
    fn look(&mut self, now: Instant) -> io::Result<()> {
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
            let told = weir.update(sample);
            rate = Some(if weir.knocks() { told | KNOCK_BIT } else { told & !KNOCK_BIT });
            path::limit_rate(&self.socket, rate)?;
            if begins && let Ok(window) = self.window.get_or_init(Window::open) {
                // Where the kernel refuses it after all, its own is limited by the rate.
                let _ = window.give(&self.socket);
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
            state.arrives =
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
