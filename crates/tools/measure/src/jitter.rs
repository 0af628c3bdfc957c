//! The jitter meter: a thread that only reads the clock, and records the gaps in which it could not
//! run. It measures what the machine and its kernel do to any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use sprat_net::{Scale, ThreadAccount, ticks};

use crate::cpu::{Fifo, pause, pin_current_thread};
use crate::hist::{Latencies, nanos};
use crate::table::Table;
use sprat_units::figure;

/// An iteration of the meter that takes at least this long, in ns, is a gap. An undisturbed
/// iteration takes some tens of ns.
pub const GAP_NS: u64 = 1_000;

/// Iterations between two checks of whether the meter is to stop.
const ITERATIONS: u64 = 4_096;

/// The gap lengths, in ns, that have a row in the table.
const LINES: [u64; 8] = [1_000, 5_000, 20_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000];

/// The core and priority of a meter's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeterPlacement {
    /// The core to which the thread is bound; `None` for any core.
    pub core: Option<usize>,
    /// The SCHED_FIFO priority of the thread; `None` for an ordinary thread.
    pub fifo: Option<u8>,
}

/// The measurement of a meter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Jitter {
    /// The core to which the meter was bound; `None` for any core.
    pub core: Option<usize>,
    /// Whether the meter's thread had the class SCHED_FIFO, so that no ordinary thread could
    /// preempt it.
    pub real_time: bool,
    /// Seconds for which the meter ran.
    pub seconds: f64,
    /// The gaps in which the thread could not run, in ns.
    #[serde(with = "crate::hist::counted")]
    pub gaps: Latencies,
    /// The number of times that the kernel preempted the meter's thread.
    pub preempted: u64,
    /// Time stolen by the hypervisor, in ns, as far as the hypervisor reports it. 0 if the time is
    /// unknown because the thread was preempted or waited.
    pub stolen_ns: u64,
}

/// A running jitter meter on a thread of its own.
#[derive(Debug)]
pub struct Meter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Jitter>>>,
}

impl Meter {
    /// Starts a meter. Returns when the meter has begun to measure, or has failed. The meter's
    /// thread spins until [`stop`](Self::stop), which also returns an error of the thread.
    ///
    /// # Errors
    /// If the thread cannot be spawned.
    pub fn start(placement: MeterPlacement) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (started, has_started) = sync_channel(1);
        let builder = std::thread::Builder::new().name("jitter".into());
        let thread = builder.spawn(move || measure(placement, &stopped, started))?;
        // On a busy machine the thread may get a core long after it was spawned: a caller that
        // counted 100 ms from the spawn once stopped a meter before it had read the clock. An error
        // here is the thread's own; `stop` returns it.
        has_started.recv().ok();
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the meter and returns its measurement.
    ///
    /// # Errors
    /// If the thread could not be bound to its core or get its SCHED_FIFO priority, or if it
    /// panicked.
    pub fn stop(mut self) -> Result<Jitter> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("stopped once");
        thread.join().map_err(|_| anyhow!("the jitter meter panicked; its message is above"))?
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs meters at all of `placements` at once, for `duration`.
///
/// # Errors
/// If a thread cannot be started, bound to its core or given its SCHED_FIFO priority, or panics.
pub fn meter(placements: &[MeterPlacement], duration: Duration) -> Result<Vec<Jitter>> {
    let meters: Vec<Meter> =
        placements.iter().map(|&placement| Meter::start(placement)).collect::<Result<_>>()?;
    pause(duration);
    meters.into_iter().map(Meter::stop).collect()
}

fn measure(
    placement: MeterPlacement,
    stop: &AtomicBool,
    started: SyncSender<()>,
) -> Result<Jitter> {
    placement.core.map(pin_current_thread).transpose()?;
    let scale = Scale::measure();
    let fifo = placement.fifo.map(Fifo::current_thread).transpose()?;
    let mut gaps = Latencies::new();
    let least = least_ticks(scale);
    let before = ThreadAccount::read();
    let mut last = ticks();
    let start = last;
    started.try_send(()).ok();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..ITERATIONS {
            let now = ticks();
            // The counters of two cores may differ by some ticks if the thread is not bound.
            let gap = now.saturating_sub(last);
            last = now;
            if gap >= least {
                gaps.record(nanos(scale, gap));
                last = ticks();
            }
        }
    }
    let passed = ThreadAccount::read().since(&before);
    drop(fifo);
    let missing = nanos(scale, passed.at).saturating_sub(passed.ran_ns);
    Ok(Jitter {
        core: placement.core,
        real_time: placement.fifo.is_some(),
        seconds: scale.nanos(last.saturating_sub(start)) / 1e9,
        gaps,
        preempted: passed.preempted,
        stolen_ns: if passed.preempted + passed.waited == 0 { missing } else { 0 },
    })
}

impl Jitter {
    /// Returns the number of gaps per second that are longer than `ns`. Returns 0 if the meter did
    /// not run.
    #[must_use]
    pub fn rate_beyond(&self, ns: u64) -> f64 {
        if self.seconds > 0.0 {
            self.gaps.beyond(ns) * self.gaps.count() as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Combines two measurements of the same core at different times.
    #[must_use]
    pub fn merged_with(mut self, other: &Self) -> Self {
        self.gaps.merge(&other.gaps);
        self.seconds += other.seconds;
        self.preempted += other.preempted;
        self.stolen_ns += other.stolen_ns;
        self
    }

    /// Names the core, `core 1` or `any core`, and the class if it is real-time.
    #[must_use]
    pub fn placement(&self) -> String {
        let core = self.core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
        if self.real_time { format!("{core}, FIFO") } else { core }
    }
}

/// Renders measurements as a table, with a column for each.
#[must_use]
pub fn table(meters: &[Jitter]) -> Table {
    let placements: Vec<String> = meters.iter().map(Jitter::placement).collect();
    let head: Vec<&str> =
        std::iter::once("gaps a second").chain(placements.iter().map(String::as_str)).collect();
    let mut table = Table::new(&head);
    let mut row = |name: String, cell: &dyn Fn(&Jitter) -> String| {
        table.row(std::iter::once(name).chain(meters.iter().map(cell)).collect());
    };
    for line in LINES {
        row(format!("beyond {}", figure::short_time(line as f64)), &|one| {
            figure::short(&figure::digits(one.rate_beyond(line)))
        });
    }
    row("longest".to_owned(), &|one| figure::time(one.gaps.summary().max as f64));
    let share =
        |one: &Jitter, ns: f64| format!("{} %", figure::digits(ns / one.seconds.max(1e-9) / 1e7));
    row("time in gaps".to_owned(), &|one| {
        share(one, one.gaps.summary().mean * one.gaps.count() as f64)
    });
    row("time stolen by the hypervisor".to_owned(), &|one| share(one, one.stolen_ns as f64));
    row("preemptions".to_owned(), &|one| one.preempted.to_string());
    row("measured for".to_owned(), &|one| figure::time(one.seconds * 1e9));
    table
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand ticks")]
fn least_ticks(scale: Scale) -> u64 {
    (GAP_NS as f64 / scale.nanos(1).max(1e-3)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_measured() {
        let mut gaps = Latencies::new();
        (0..40).for_each(|_| gaps.record(30_000));
        (0..10).for_each(|_| gaps.record(200_000));
        let one = Jitter {
            core: Some(1),
            real_time: false,
            seconds: 2.0,
            gaps,
            preempted: 0,
            stolen_ns: 1_000_000,
        };
        assert!((one.rate_beyond(10_000) - 25.0).abs() < 1e-9);
        assert!((one.rate_beyond(100_000) - 5.0).abs() < 1e-9);
        assert!(one.rate_beyond(1_000_000).abs() < 1e-9);
        let both = one.clone().merged_with(&one);
        assert!(
            (both.rate_beyond(10_000) - 25.0).abs() < 1e-9,
            "the rate of twice the same is the same"
        );
        assert_eq!(both.stolen_ns, 2_000_000);
    }

    #[test]
    fn a_meter_runs_and_names_its_core() {
        let found =
            meter(&[MeterPlacement::default()], Duration::from_millis(30)).expect("a thread");
        let [one] = &found[..] else { panic!("one place, {} meters", found.len()) };
        assert!(one.seconds > 0.0 && one.core.is_none() && !one.real_time);
        let text = table(&found).to_string();
        assert!(text.contains("any core") && text.contains("beyond 1 us"), "{text}");
    }
}
