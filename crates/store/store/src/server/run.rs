//! The loop of a real node: reads the clock, waits for events, and stops.

use crate::node::{Node, Service};
use sprat_net::{AnyDriver, Driver as _, Idle, IdleStep, Nanos, Policy, Sources, Waker, ticks};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep of a node. A clock change or a lost wake-up is noticed after this time at the
/// latest.
const MAX_SLEEP: Duration = Duration::from_millis(500);

/// How long requests under way may take to finish when a node stops.
const DRAIN: Duration = Duration::from_secs(2);

/// A handle of a running node for other threads: stops it, wakes it, and reads its clock.
#[derive(Clone)]
pub(super) struct NodeHandle {
    flag: Arc<AtomicBool>,
    bell: Waker,
    start: Instant,
}

impl NodeHandle {
    pub(super) fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Returns the time by the node's clock.
    pub(super) fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Wakes the node, so that it looks at its inbox.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }
}

/// Lets a control thread sleep.
#[expect(
    clippy::disallowed_methods,
    reason = "the threads of the agent and the election are no nodes"
)]
pub(super) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Runs a node on this thread.
pub(super) struct Runner {
    idle: Idle,
    handle: NodeHandle,
    start: Instant,
    /// When the last iteration began, in [`ticks`], while iterations are timed; 0 if the node has
    /// slept since then.
    began: u64,
}

impl Runner {
    pub(super) fn new(policy: Policy) -> io::Result<Self> {
        let idle = Idle::new(policy, Nanos(0))?;
        let start = Instant::now();
        let handle =
            NodeHandle { flag: Arc::new(AtomicBool::new(false)), bell: idle.waker(), start };
        Ok(Self { idle, handle, start, began: 0 })
    }

    pub(super) fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// Returns the time at which the node's clock began.
    pub(super) fn clock_start(&self) -> Instant {
        self.start
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Runs a node until it is stopped. Then gives the requests under way at most [`DRAIN`] to
    /// finish, and returns the node's service with the time by the node's clock.
    pub(super) fn run<S: Service>(
        mut self,
        mut node: Node<AnyDriver, S>,
    ) -> io::Result<(S, Nanos)> {
        while !self.handle.flag.load(Ordering::Acquire) {
            self.iterate(&mut node, Nanos::NEVER)?;
        }
        node.drain();
        let until = self.now() + DRAIN;
        while !node.is_idle() && self.now() < until {
            self.iterate(&mut node, until)?;
        }
        node.close_clients(self.now());
        let now = self.now();
        Ok((node.into_service(), now))
    }

    fn iterate<S: Service>(
        &mut self,
        node: &mut Node<AnyDriver, S>,
        until: Nanos,
    ) -> io::Result<()> {
        if node.service().is_timed() {
            let began = ticks();
            if self.began != 0 {
                node.service_mut().loop_iteration(began.saturating_sub(self.began));
            }
            self.began = began;
        }
        let now = self.now();
        if node.turn(now)? {
            self.idle.worked(now);
            if !self.idle.sleeps_at_once(now) {
                return Ok(());
            }
        }
        if node.service_mut().work_idle() {
            return Ok(());
        }
        let step = self.idle.rest(now, || {
            let mut sources = Sources::default();
            node.service().sources(&mut sources);
            node.driver().sources(&mut sources);
            (node.next_deadline().min(now + MAX_SLEEP).min(until), sources)
        })?;
        if step == IdleStep::Sleep {
            self.began = 0;
        }
        Ok(())
    }
}

/// Pins this thread to a core.
pub(super) fn pin(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no such core"));
    }
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
