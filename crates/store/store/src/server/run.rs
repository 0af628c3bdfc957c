//! The loop of a real node: the clock, the waiting, the end.

use crate::node::{Node, Service};
use sprat_net::{AnyDriver, Driver as _, Idle, IdleStep, Nanos, Policy, Sources, Waker, ticks};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep: a bound on how late a clock or a lost wake-up can be noticed.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// How long requests under way may take to end when a node stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Tells a running node to end.
#[derive(Clone)]
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
    bell: Waker,
    start: Instant,
}

impl Stop {
    pub(super) fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// The time by the node's clock.
    pub(super) fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Has the node look at its inbox.
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

/// A node about to run on this thread.
pub(super) struct Runner {
    idle: Idle,
    stop: Stop,
    start: Instant,
    /// When the last round began, [`ticks`], while they are timed; 0 if the node has slept since.
    began: u64,
}

impl Runner {
    pub(super) fn new(policy: Policy) -> io::Result<Self> {
        let idle = Idle::new(policy, Nanos(0))?;
        let start = Instant::now();
        let stop = Stop { flag: Arc::new(AtomicBool::new(false)), bell: idle.waker(), start };
        Ok(Self { idle, stop, start, began: 0 })
    }

    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// When the node's clock began.
    pub(super) fn begun(&self) -> Instant {
        self.start
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Runs a node until it is told to stop; lets requests under way end, and gives its service
    /// back with the time by its clock.
    pub(super) fn run<S: Service>(
        mut self,
        mut node: Node<AnyDriver, S>,
    ) -> io::Result<(S, Nanos)> {
        while !self.stop.flag.load(Ordering::Acquire) {
            self.round(&mut node, Nanos::NEVER)?;
        }
        node.drain();
        let until = self.now() + DRAIN;
        while !node.is_idle() && self.now() < until {
            self.round(&mut node, until)?;
        }
        node.close_clients(self.now());
        let now = self.now();
        Ok((node.into_service(), now))
    }

    fn round<S: Service>(&mut self, node: &mut Node<AnyDriver, S>, until: Nanos) -> io::Result<()> {
        if node.service().is_timed() {
            let began = ticks();
            if self.began != 0 {
                node.service_mut().went_round(began.saturating_sub(self.began));
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
            sources.extend(node.service().poll_fd());
            node.driver().sources(&mut sources);
            (node.next_deadline().min(now + LOOK_AROUND).min(until), sources)
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
