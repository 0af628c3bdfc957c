//! The jitter meter: a thread that does nothing but look at the time, and records how long it did
//! not. What it finds the machine and its kernel do to anybody, store or not.

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

/// A turn of the meter that takes this long, ns, is a gap: the loop itself takes some tens.
pub const GAP_NS: u64 = 1_000;

/// How often a meter looks whether it is to end, in turns.
const TURNS: u64 = 4_096;

/// Lengths, ns, that the table has a line for.
const LINES: [u64; 8] = [1_000, 5_000, 20_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000];

/// Where a meter runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The core; any, if `None`.
    pub core: Option<usize>,
    /// SCHED_FIFO priority, if it is to have one.
    pub fifo: Option<u8>,
}

/// What a meter found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Jitter {
    /// The core it was bound to.
    pub core: Option<usize>,
    /// Whether it had a real-time class, so that no ordinary thread could take its core.
    pub real_time: bool,
    /// How long it ran.
    pub seconds: f64,
    /// Its gaps, ns.
    #[serde(with = "crate::hist::counted")]
    pub gaps: Latencies,
    /// Times another thread was given its core.
    pub preempted: u64,
    /// Time the hypervisor took, as far as it tells, ns; while the thread was preempted that is
    /// not known.
    pub stolen_ns: u64,
}

/// A meter that runs.
#[derive(Debug)]
pub struct Meter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Jitter>>>,
}

impl Meter {
    /// Starts one, and returns when it measures or has failed. It spins until [`stop`](Self::stop).
    ///
    /// # Errors
    /// When a thread cannot be had.
    pub fn start(place: Place) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (begun, begins) = sync_channel(1);
        let builder = std::thread::Builder::new().name("jitter".into());
        let thread = builder.spawn(move || measure(place, &stopped, begun))?;
        // On a busy machine the thread may get its core long after the spawn: a caller that counted
        // 100 ms from the spawn stopped a meter that had not looked at the time once. An error here
        // is the thread's own, which `stop` returns.
        begins.recv().ok();
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it could not be bound to its core, or given its class.
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

/// Meters at all of `places` at once, for `duration`.
///
/// # Errors
/// As [`Meter::stop`].
pub fn meter(places: &[Place], duration: Duration) -> Result<Vec<Jitter>> {
    let meters: Vec<Meter> =
        places.iter().map(|&place| Meter::start(place)).collect::<Result<_>>()?;
    pause(duration);
    meters.into_iter().map(Meter::stop).collect()
}

fn measure(place: Place, stop: &AtomicBool, begun_to: SyncSender<()>) -> Result<Jitter> {
    place.core.map(pin_current_thread).transpose()?;
    let scale = Scale::measure();
    let fifo = place.fifo.map(Fifo::current_thread).transpose()?;
    let mut gaps = Latencies::new();
    let least = least_ticks(scale);
    let before = ThreadAccount::read();
    let mut last = ticks();
    let begun = last;
    begun_to.try_send(()).ok();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..TURNS {
            let now = ticks();
            // Counters of two cores may differ by some ticks where a thread is not bound.
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
        core: place.core,
        real_time: place.fifo.is_some(),
        seconds: scale.nanos(last.saturating_sub(begun)) / 1e9,
        gaps,
        preempted: passed.preempted,
        stolen_ns: if passed.preempted + passed.waited == 0 { missing } else { 0 },
    })
}

impl Jitter {
    /// Gaps a second that are longer than `ns`.
    #[must_use]
    pub fn rate_beyond(&self, ns: u64) -> f64 {
        if self.seconds > 0.0 {
            self.gaps.beyond(ns) * self.gaps.count() as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// The same core's meter at two times, as one.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.gaps.merge(&other.gaps);
        self.seconds += other.seconds;
        self.preempted += other.preempted;
        self.stolen_ns += other.stolen_ns;
        self
    }

    /// `core 1`, or `any core`; with its class if that is not the ordinary one.
    #[must_use]
    pub fn place(&self) -> String {
        let core = self.core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
        if self.real_time { format!("{core}, FIFO") } else { core }
    }
}

/// What meters found, a column each.
#[must_use]
pub fn table(meters: &[Jitter]) -> Table {
    let places: Vec<String> = meters.iter().map(Jitter::place).collect();
    let head: Vec<&str> =
        std::iter::once("gaps a second").chain(places.iter().map(String::as_str)).collect();
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
    row("time the hypervisor tells it took".to_owned(), &|one| share(one, one.stolen_ns as f64));
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
        let both = one.clone().and(&one);
        assert!(
            (both.rate_beyond(10_000) - 25.0).abs() < 1e-9,
            "the rate of twice the same is the same"
        );
        assert_eq!(both.stolen_ns, 2_000_000);
    }

    #[test]
    fn a_meter_runs_and_tells_where() {
        let found = meter(&[Place::default()], Duration::from_millis(30)).expect("a thread");
        let [one] = &found[..] else { panic!("one place, {} meters", found.len()) };
        assert!(one.seconds > 0.0 && one.core.is_none() && !one.real_time);
        let text = table(&found).to_string();
        assert!(text.contains("any core") && text.contains("beyond 1 us"), "{text}");
    }
}
