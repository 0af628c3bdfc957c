//! Stamps that count events of the processor or the kernel instead of time: the same stages, seen
//! through another meter.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::str::FromStr;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};

use super::ticks;

/// Pairs of stamps with nothing in between, of which the median is what a stamp itself counts.
const PAIRS: usize = 1001;

/// What can be counted, of one thread and in user mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Instructions retired.
    Instructions,
    /// Cycles of the core, at whatever frequency it runs.
    Cycles,
    /// Misses of the last level of the caches.
    CacheMisses,
    /// Pages that were touched first, or had to be mapped again.
    PageFaults,
    /// Nanoseconds that the thread ran; in the kernel, too.
    TaskClock,
}

impl Event {
    /// All there are.
    pub const ALL: [Self; 5] =
        [Self::Instructions, Self::Cycles, Self::CacheMisses, Self::PageFaults, Self::TaskClock];

    /// Those that the processor counts, if it has a unit for that.
    pub const HARDWARE: [Self; 3] = [Self::Instructions, Self::Cycles, Self::CacheMisses];

    /// Its name: `cache-misses`.
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
        // All the time or not at all: one that takes turns with others would be an estimate.
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

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Event {
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
    /// Whether there is a counter: a look at this costs nothing.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static COUNTER: RefCell<Option<Counter>> = const { RefCell::new(None) };
}

/// A stamp to be compared with a later one of the same thread: [`ticks`], or the events that have
/// happened while a [`Count`] lives. Never 0, but for a counter that has failed.
#[inline]
#[must_use]
pub fn stamp() -> u64 {
    if counts() { read() } else { ticks() }
}

/// Whether [`stamp`]s of this thread count events.
#[inline]
#[must_use]
pub fn counts() -> bool {
    COUNTS.get()
}

#[cold]
fn read() -> u64 {
    let told =
        COUNTER.with_borrow_mut(|counter| counter.as_mut().and_then(|counter| counter.read().ok()));
    told.map_or(0, |events| events.saturating_add(1))
}

/// While it lives, the [`stamp`]s of the thread that made it count an event. Each is a system call.
#[derive(Debug)]
pub struct Count {
    event: Event,
    cost: u64,
    /// Of one thread.
    _thread: PhantomData<*const ()>,
}

impl Count {
    /// Begins to count. A thread has one of these at a time.
    ///
    /// # Errors
    /// What the kernel says, and what would help: a machine without such a counter, a right that is
    /// missing.
    pub fn start(event: Event) -> io::Result<Self> {
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
        // One that is not on the processor has nothing to read.
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

    /// What is counted.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event
    }

    /// What two stamps with nothing in between differ by: to be taken off each difference.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        COUNTS.set(false);
        COUNTER.set(None);
    }
}

/// What the kernel said, with what would help.
fn refused(event: Event, error: &io::Error) -> io::Error {
    let mend = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it takes CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=2`, and a sandbox that lets perf_event_open pass"
        }
        _ if Event::HARDWARE.contains(&event) => {
            "the processor's counters are not there or all in use; a guest has them only if its hypervisor passes them on \
             (QEMU: `-cpu host,pmu=on`)"
        }
        _ => "a kernel built with CONFIG_PERF_EVENTS counts them",
    };
    io::Error::new(
        error.kind(),
        format!("{event} cannot be counted: perf_event_open: {error}; {mend}"),
    )
}
