//! Waiting between the iterations of a node's loop.

pub(crate) mod decide;
pub(crate) mod sources;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use self::decide::{Decider, IdleStep, Policy};
use self::sources::{MAX_SOURCES, Sources};
use crate::Nanos;

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// The state that a node shares with the threads that may wake it.
struct Bell {
    state: AtomicU8,
    eventfd: OwnedFd,
}

/// Wakes a node from another thread. First put the work where the node looks for it, then call
/// [`ring`](Self::ring).
///
/// While the node is awake, ringing is one atomic operation and no system call.
#[derive(Clone)]
pub struct Waker {
    bell: Arc<Bell>,
}

impl Waker {
    /// Makes the node run its loop once more before it sleeps, and wakes it if it sleeps.
    pub fn ring(&self) {
        if self.bell.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            // Fails only when the counter is full. Then the node is being woken anyway.
            let _ = rustix::io::write(&self.bell.eventfd, &1u64.to_ne_bytes());
        }
    }
}

/// Waits for work between iterations of a node's loop: spins, then yields, then sleeps. The node's
/// thread owns it; other threads wake it through a [`Waker`].
///
/// Each iteration ends in [`worked`](Self::worked) or [`rest`](Self::rest):
///
/// ```
/// # use std::time::Instant;
/// # use sprat_net::{Idle, Nanos, Policy, Mode, IdleStep};
/// # fn main() -> std::io::Result<()> {
/// # let start = Instant::now();
/// # let clock = || Nanos(start.elapsed().as_nanos() as u64);
/// # let mut work = 3;
/// # let mut round = || { work -= 1; work > 0 };
/// let mut idle = Idle::new(Policy::of(Mode::Adaptive), clock())?;
/// let waker = idle.waker(); // for other threads
/// loop {
///     if round() {
///         idle.worked(clock());
///         continue;
///     }
///     let until = || (clock() + std::time::Duration::from_millis(1), Default::default());
///     if idle.rest(clock(), until)? == IdleStep::Sleep {
///         break; // time has passed: look at the clock again
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Idle {
    decider: Decider,
    bell: Arc<Bell>,
}

impl Idle {
    /// Creates the state of a node that is idle at `now`.
    ///
    /// # Errors
    /// The operating system's error if it creates no eventfd, because the process may open no more
    /// descriptors.
    pub fn new(policy: Policy, now: Nanos) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let bell = Bell { state: AtomicU8::new(AWAKE), eventfd };
        Ok(Self { decider: Decider::new(policy, now), bell: Arc::new(bell) })
    }

    /// Returns the handle by which other threads wake this node.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { bell: Arc::clone(&self.bell) }
    }

    /// Notes that an iteration found work.
    #[inline]
    pub fn worked(&mut self, now: Nanos) {
        self.decider.worked(now);
    }

    /// Returns whether [`rest`](Self::rest) would sleep without spinning first. If so, call `rest`
    /// without looking for work again, which saves a system call. Work that has arrived in the
    /// meantime ends the sleep.
    #[inline]
    #[must_use]
    pub fn sleeps_at_once(&self, now: Nanos) -> bool {
        self.decider.sleeps_at_once(now)
    }

    /// Rests after an iteration that found no work: spins, yields or sleeps. `until` returns a time
    /// and sources; `rest` calls it only before a sleep. The sleep ends at that time, when one of
    /// the sources is readable, or when a [`Waker`] rings, and may end earlier. Returns which of
    /// the three it did; if the time has already passed, it does nothing and returns
    /// [`IdleStep::Spin`].
    ///
    /// # Errors
    /// The operating system's error when `poll` fails. An interruption by a signal (`EINTR`) is not
    /// an error.
    #[inline]
    pub fn rest<'a>(
        &mut self,
        now: Nanos,
        until: impl FnOnce() -> (Nanos, Sources<'a>),
    ) -> io::Result<IdleStep> {
        let step = self.decider.idle(now);
        match step {
            IdleStep::Spin => std::hint::spin_loop(),
            IdleStep::Yield => rustix::thread::sched_yield(),
            IdleStep::Sleep => {
                let (deadline, sources) = until();
                if now >= deadline {
                    return Ok(IdleStep::Spin);
                }
                self.sleep(now, deadline, &sources)?;
            }
        }
        Ok(step)
    }

    #[cold]
    fn sleep(&self, now: Nanos, deadline: Nanos, sources: &Sources<'_>) -> io::Result<()> {
        let state = &self.bell.state;
        if state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            // A waker has rung since the last sleep, so there may be work that the node has not
            // seen.
            state.store(AWAKE, Ordering::SeqCst);
            return Ok(());
        }
        let bell = self.bell.eventfd.as_fd();
        let mut fds: [PollFd<'_>; MAX_SOURCES + 1] = std::array::from_fn(|i| {
            PollFd::from_borrowed_fd(sources.get(i).unwrap_or(bell), PollFlags::IN)
        });
        // The bell comes after the sources. It is left out if there is no waker that could ring it.
        let known = usize::from(Arc::strong_count(&self.bell) > 1);
        let deadline = sources.longest().map_or(deadline, |nap| deadline.min(now + nap));
        let polled = poll(&mut fds[..sources.len() + known], timeout(now, deadline).as_ref());
        state.store(AWAKE, Ordering::SeqCst);
        if fds[sources.len()].revents().contains(PollFlags::IN) {
            // Read the eventfd even if the ring was noticed before, because a thread that rings
            // writes the eventfd after it has changed the state, and may be late.
            let mut count = [0; 8];
            let _ = rustix::io::read(bell, &mut count);
        }
        match polled {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the time until the deadline; `None` if the deadline is never.
fn timeout(now: Nanos, deadline: Nanos) -> Option<Timespec> {
    if deadline == Nanos::NEVER {
        return None;
    }
    // A deadline beyond the range of the kernel's clock counts as none.
    Timespec::try_from(deadline.since(now)).ok()
}
