//! Reads sensors on threads, at fixed times. Each sensor has a thread of its own: if a sensor hangs
//! until its timeout, only this sensor misses readings, and its readings do not pile up. Since a
//! reading may start a program, the number of readings that run at once is bounded.

use crate::meter::Meter;
use crate::report::{MeasuredTarget, Report};
use crate::targets::Target;
use crate::{Error, Reading};
use sprat_host::lock;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Limit on the threads. If there are more sensors, some share a thread and delay each other.
pub const MAX_THREADS: usize = 1_024;

/// Limit on the readings in progress at the same time. Readings that take longer than [`USUAL`] do
/// not count.
const AT_ONCE: usize = 64;

/// Time after which a reading in progress counts as slow.
const USUAL: Duration = Duration::from_millis(500);

/// Lower limit on the interval between readings. A shorter interval is raised to it.
pub const LEAST_EVERY: Duration = Duration::from_millis(50);

/// Limit on the duration of a measurement (366 days). A longer duration is reduced to it.
pub const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3_600);

/// A measurement in progress. [`Sampling::start`] starts its threads, [`Sampling::report`] gives an
/// intermediate result, and [`Sampling::finish`] waits for the end.
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
    measured: Vec<MeasuredTarget>,
    stop: bool,
    /// Threads that have not ended.
    open: usize,
    /// Start of each reading in progress, by thread.
    reading: HashMap<usize, Instant>,
}

impl Sampling {
    /// Starts to read all sensors: at the start, after each interval, and at the end. The interval
    /// is raised to [`LEAST_EVERY`] if it is shorter.
    #[must_use]
    pub fn start(targets: Vec<Target>, every: Duration, duration: Duration) -> Self {
        let every = every.max(LEAST_EVERY);
        let mut measured = Vec::new();
        let mut all = Vec::new();
        for (number, target) in targets.into_iter().enumerate() {
            let meters = target.sensors.iter().map(|sensor| {
                (sensor.kind, sensor.place.clone(), Meter::with_interval(every.as_secs_f64()))
            });
            let Target { name, of, chassis, instances, .. } = target;
            measured.push(MeasuredTarget {
                name,
                of,
                chassis,
                instances,
                meters: meters.collect(),
            });
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
                        let result = device.read();
                        shared.take(number, (*target, *sensor), result);
                    }
                    next = shared.next(at);
                }
                shared.lock().open -= 1;
            })
        };
        let threads = shares.into_iter().enumerate().map(thread).collect();
        Self { shared, threads }
    }

    /// Ends the measurement early. Each thread that is reading completes the readings of its
    /// sensors.
    pub fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
    }

    /// Returns whether all readings are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.lock().open == 0
    }

    /// Returns the result so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let seconds = self.shared.begun.elapsed().min(self.shared.duration).as_secs_f64();
        let state = self.shared.lock();
        Report::of(&state.measured, seconds, self.shared.every.as_secs_f64(), state.stop)
    }

    /// Waits for all readings, and returns the result.
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

    /// Waits until `at`, counted from the start. Returns `false` if the measurement was stopped.
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

    /// Waits until fewer than [`AT_ONCE`] readings are in progress, not counting slow ones. Then
    /// records that a reading of this thread begins.
    fn begin(&self, thread: usize) {
        let mut state = self.lock();
        while state.reading.values().filter(|begun| begun.elapsed() < USUAL).count() >= AT_ONCE {
            state = self.wake.wait_timeout(state, USUAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.reading.insert(thread, Instant::now());
    }

    fn take(
        &self,
        thread: usize,
        (target, sensor): (usize, usize),
        result: Result<Reading, Error>,
    ) {
        let at = self.begun.elapsed().as_secs_f64();
        let mut state = self.lock();
        state.reading.remove(&thread);
        state.measured[target].meters[sensor].2.record(at, result);
        if state.reading.len() >= AT_ONCE - 1 {
            self.wake.notify_all();
        }
    }

    /// Returns the next reading time that has not passed, or `None` after the end. The reading at
    /// `duration` is the last.
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
