//! Stamps that count events of the processor or the kernel instead of time, for the same stages of
//! a request.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::str::FromStr;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};

use super::ticks;

/// Number of pairs of adjacent stamps that are taken to find how many events a stamp itself causes:
/// the median difference within a pair.
const PAIRS: usize = 1001;

/// An event that can be counted for one thread: in user mode only, except
/// [`TaskClock`](Self::TaskClock).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PerfEvent {
    /// Instructions retired.
    Instructions,
    /// Cycles of the core, at its current frequency.
    Cycles,
    /// Misses of the last-level cache.
    CacheMisses,
    /// Page faults, when a page is first touched or mapped again.
    PageFaults,
    /// Nanoseconds that the thread ran, in user mode and in the kernel.
    TaskClock,
}

impl PerfEvent {
    /// All events.
    pub const ALL: [Self; 5] =
        [Self::Instructions, Self::Cycles, Self::CacheMisses, Self::PageFaults, Self::TaskClock];

    /// The events that the processor counts, if it has a performance monitoring unit.
    pub const HARDWARE: [Self; 3] = [Self::Instructions, Self::Cycles, Self::CacheMisses];

    /// Returns the event's name, such as `cache-misses`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::CacheMisses => "cache-misses",
            Self::PageFaults => "page-faults",
            Self::TaskClock => "task-clock",
        }
    }

    fn counter(self) -> io::Result<Counter> {
        let mut builder = match self {
            Self::Instructions => Builder::new(Hardware::INSTRUCTIONS),
            Self::Cycles => Builder::new(Hardware::CPU_CYCLES),
            Self::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
            Self::PageFaults => Builder::new(Software::PAGE_FAULTS),
            Self::TaskClock => Builder::new(Software::TASK_CLOCK),
        };
        // Pinned, because a counter that is multiplexed with others would only be an estimate.
        builder
            .observe_self()
            .any_cpu()
            .exclude_kernel(true)
            .exclude_hv(true)
            .pinned(true)
            .enabled(true)
            .build()
    }
}

impl fmt::Display for PerfEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for PerfEvent {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::word).join(", ");
        Self::ALL
            .into_iter()
            .find(|event| event.word() == word)
            .ok_or_else(|| format!("want one of {names}"))
    }
}

thread_local! {
    /// Whether this thread has a counter. This flag is cheaper to read than [`COUNTER`].
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static COUNTER: RefCell<Option<Counter>> = const { RefCell::new(None) };
}

/// Returns a stamp to be compared with a later stamp of the same thread: [`ticks`], or the number
/// of events while an [`EventCounter`] lives. The stamp is 0 only if the counter has failed.
#[inline]
#[must_use]
pub fn stamp() -> u64 {
    if counts_events() { read() } else { ticks() }
}

/// Returns whether [`stamp`]s of this thread count events instead of ticks.
#[inline]
#[must_use]
pub fn counts_events() -> bool {
    COUNTS.get()
}

#[cold]
fn read() -> u64 {
    let events =
        COUNTER.with_borrow_mut(|counter| counter.as_mut().and_then(|counter| counter.read().ok()));
    events.map_or(0, |events| events.saturating_add(1))
}

/// Makes the [`stamp`]s of the thread that created it count an event, as long as it lives. Each
/// stamp is then a system call.
#[derive(Debug)]
pub struct EventCounter {
    event: PerfEvent,
    cost: u64,
    /// Makes the type `!Send`, because the counter belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl EventCounter {
    /// Starts to count. A thread can have only one counter at a time.
    ///
    /// # Errors
    /// `ResourceBusy` if the thread already has a counter. Otherwise the kernel's error with a
    /// remedy: the machine lacks such a counter, or the process lacks a right.
    pub fn start(event: PerfEvent) -> io::Result<Self> {
        if COUNTS.get() {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the thread counts another event already",
            ));
        }
        let counter = event.counter().map_err(|error| refused(event, &error))?;
        COUNTER.set(Some(counter));
        COUNTS.set(true);
        let mut count = Self { event, cost: 0, _thread: PhantomData };
        // A pinned counter that the kernel could not schedule cannot be read.
        if stamp() == 0 {
            return Err(refused(event, &io::Error::other("the counter is taken")));
        }
        let mut pairs = [0; PAIRS];
        for pair in &mut pairs {
            let first = stamp();
            *pair = stamp().saturating_sub(first);
        }
        pairs.sort_unstable();
        count.cost = pairs[PAIRS / 2];
        Ok(count)
    }

    /// Returns the event that is counted.
    #[must_use]
    pub fn event(&self) -> PerfEvent {
        self.event
    }

    /// Returns how many events a stamp itself causes; subtract this from each difference of two
    /// stamps.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

impl Drop for EventCounter {
    fn drop(&mut self) {
        COUNTS.set(false);
        COUNTER.set(None);
    }
}

/// Adds a remedy to the kernel's error.
fn refused(event: PerfEvent, error: &io::Error) -> io::Error {
    let mend = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it requires CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=2`, and a sandbox that \
             allows perf_event_open"
        }
        _ if PerfEvent::HARDWARE.contains(&event) => {
            "the processor's counters are missing or all in use; a virtual machine has them only \
             if its hypervisor passes them on (QEMU: `-cpu host,pmu=on`)"
        }
        _ => "a kernel built with CONFIG_PERF_EVENTS counts them",
    };
    io::Error::new(
        error.kind(),
        format!("{event} cannot be counted: perf_event_open: {error}; {mend}"),
    )
}
