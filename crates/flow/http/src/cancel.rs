//! Cancellation of transfers from another thread.

use sprat_host::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Interval at which a waiting child checks whether its parent was cancelled.
const STEP: Duration = Duration::from_millis(100);

/// A handle by which any thread, such as one that waits for signals, cancels a transfer. Clones
/// share their state, and a cancellation is final.
///
/// The transfer checks it between blocks and while it waits, and stops within half a second, with
/// its state on the disk, so that it can be resumed. [`Cancel::child`] makes a handle for a part of
/// the work, which can be cancelled by itself and is cancelled with its parent.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Cancelling the parent cancels this one too.
    parent: Option<Cancel>,
    cancelled: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Cancel {
    /// Cancels the work, and that of all children.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let _held = lock(&self.0.lock);
        self.0.wake.notify_all();
    }

    /// Returns whether this handle, or a parent, was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
            || self.0.parent.as_ref().is_some_and(Self::is_cancelled)
    }

    /// Makes a handle for a part of the work: cancelling it leaves this one alone, and cancelling
    /// this one cancels it.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Inner { parent: Some(self.clone()), ..Inner::default() }))
    }

    /// Sleeps for `time`, or until cancelled; returns whether it was cancelled.
    pub fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.is_cancelled() && Instant::now() < until {
            let held = lock(&self.0.lock);
            // A cancelled parent does not wake its children, so they look again after a step.
            let step = until.saturating_duration_since(Instant::now()).min(STEP);
            drop(self.0.wake.wait_timeout_while(held, step, |()| !self.is_cancelled()));
        }
        self.is_cancelled()
    }
}
