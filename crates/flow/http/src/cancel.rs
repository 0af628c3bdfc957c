//! Cancellation of transfers from another thread.

use sprat_host::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Interval at which a waiting child checks whether its parent was cancelled.
const STEP: Duration = Duration::from_millis(100);

/// A handle by which any thread, such as one that waits for signals, cancels a transfer. Clones
/// share their state. A cancellation is final.
///
/// The transfer checks the handle between blocks and in almost all waits. It usually stops within
/// half a second and keeps its state on disk, so that it can be resumed. It does not check the
/// handle while a host name is resolved or a short request is sent. [`Cancel::child`] makes a
/// handle for a part of the work. A child can be cancelled alone, and is cancelled with its parent.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The parent, whose cancellation also cancels this handle.
    parent: Option<Cancel>,
    cancelled: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Cancel {
    /// Cancels the work, and the work of all children.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let _held = lock(&self.0.lock);
        self.0.wake.notify_all();
    }

    /// Returns whether this handle, its parent or any ancestor was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
            || self.0.parent.as_ref().is_some_and(Self::is_cancelled)
    }

    /// Makes a handle for a part of the work. Cancelling the child does not cancel this handle;
    /// cancelling this handle cancels the child.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Inner { parent: Some(self.clone()), ..Inner::default() }))
    }

    /// Sleeps for `time`, or until this handle is cancelled. Returns whether it was cancelled.
    pub fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.is_cancelled() && Instant::now() < until {
            let held = lock(&self.0.lock);
            // A cancelled parent does not wake its children, so they check it after each step.
            let step = until.saturating_duration_since(Instant::now()).min(STEP);
            drop(self.0.wake.wait_timeout_while(held, step, |()| !self.is_cancelled()));
        }
        self.is_cancelled()
    }
}
