//! Threads that read sensors at times fixed beforehand. Each sensor has a thread of its own, so
//! that one that hangs until its patience ends misses its own times and takes no other's; nothing
//! piles up. How many begin to read at once is bounded, as each may start a program.

use crate::meter::Meter;
use crate::report::{Measured, Report};
use crate::targets::Target;
use crate::{Error, Reading};
use sprat_host::lock;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most threads: of more sensors than that some share one, and hold each other back.
pub const MAX_THREADS: usize = 1_024;

/// Most readings that are in progress at once, of those that take no longer than [`USUAL`]. Others
/// take nobody's place.
const AT_ONCE: usize = 64;

/// What a reading usually takes at most.
const USUAL: Duration = Duration::from_millis(500);

/// Shortest time between two readings.
pub const LEAST_EVERY: Duration = Duration::from_millis(50);

/// Longest run.
pub const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Sensors that are read.
#[derive(Debug)]
pub struct Sampling {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    begun: Instant,
    every: Duration,
    duration: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    measured: Vec<Measured>,
    stop: bool,
    /// Threads that still read.
    open: usize,
    /// When the readings that are in progress began, each by its thread.
    reading: HashMap<usize, Instant>,
}

impl Sampling {
    /// Begins to read; at the beginning, at the end, and each `every` between them, which is
    /// [`LEAST_EVERY`] at least.
    #[must_use]
    pub fn start(targets: Vec<Target>, every: Duration, duration: Duration) -> Self {
        let every = every.max(LEAST_EVERY);
        let mut measured = Vec::new();
        let mut all = Vec::new();
        for (number, target) in targets.into_iter().enumerate() {
            let meters = target.sensors.iter().map(|sensor| {
                (sensor.kind, sensor.place.clone(), Meter::every(every.as_secs_f64()))
            });
            let Target { name, of, chassis, instances, .. } = target;
            measured.push(Measured { name, of, chassis, instances, meters: meters.collect() });
            all.extend(
                target.sensors.into_iter().enumerate().map(|(at, sensor)| (number, at, sensor)),
            );
        }
        let count = all.len().min(MAX_THREADS);
        let mut shares: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        all.into_iter().enumerate().for_each(|(at, one)| shares[at % count].push(one));
        let state =
            Mutex::new(State { measured, stop: false, open: count, reading: HashMap::new() });
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            every,
            duration: duration.min(MAX_DURATION),
            state,
            wake: Condvar::new(),
        });
        let thread = |(number, mut share): (usize, Vec<(usize, usize, crate::Sensor)>)| {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut next = Some(Duration::ZERO);
                while let Some(at) = next.filter(|at| shared.wait(*at)) {
                    for (target, sensor, device) in &mut share {
                        shared.begin(number);
                        let told = device.read();
                        shared.take(number, (*target, *sensor), told);
                    }
                    next = shared.next(at);
                }
                shared.lock().open -= 1;
            })
        };
        let threads = shares.into_iter().enumerate().map(thread).collect();
        Self { shared, threads }
    }

    /// Ends it early; what is being read is read to its end.
    pub fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
    }

    /// Whether all is read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.lock().open == 0
    }

    /// What there is by now.
    #[must_use]
    pub fn report(&self) -> Report {
        let seconds = self.shared.begun.elapsed().min(self.shared.duration).as_secs_f64();
        let state = self.shared.lock();
        Report::of(&state.measured, seconds, self.shared.every.as_secs_f64(), state.stop)
    }

    /// What came of it, when all is read.
    #[must_use]
    pub fn finish(self) -> Report {
        let Self { shared, threads } = self;
        for thread in threads {
            let _ = thread.join();
        }
        let seconds = shared.begun.elapsed().min(shared.duration).as_secs_f64();
        let state = shared.lock();
        Report::of(&state.measured, seconds, shared.every.as_secs_f64(), state.stop)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until it is time; gives whether it goes on.
    fn wait(&self, at: Duration) -> bool {
        let mut state = self.lock();
        loop {
            let left = at.saturating_sub(self.begun.elapsed());
            if state.stop || left.is_zero() {
                return !state.stop;
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until few enough readings are in progress that have not taken long yet.
    fn begin(&self, thread: usize) {
        let mut state = self.lock();
        while state.reading.values().filter(|begun| begun.elapsed() < USUAL).count() >= AT_ONCE {
            state = self.wake.wait_timeout(state, USUAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.reading.insert(thread, Instant::now());
    }

    fn take(&self, thread: usize, (target, sensor): (usize, usize), told: Result<Reading, Error>) {
        let at = self.begun.elapsed().as_secs_f64();
        let mut state = self.lock();
        state.reading.remove(&thread);
        state.measured[target].meters[sensor].2.take(at, told);
        if state.reading.len() >= AT_ONCE - 1 {
            self.wake.notify_all();
        }
    }

    /// The time after this one that is not over yet; none after the end.
    fn next(&self, at: Duration) -> Option<Duration> {
        if at >= self.duration {
            return None;
        }
        let mut next = at + self.every;
        let behind = self.begun.elapsed().saturating_sub(next);
        if !behind.is_zero() {
            let missed = behind.as_nanos() / self.every.as_nanos() + 1;
            next += self.every.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
        }
        Some(next.min(self.duration).max(at + Duration::from_nanos(1)))
    }
}
