//! Stopping from outside.

use sprat_host::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long it may take to see that the whole was stopped.
const STEP: Duration = Duration::from_millis(100);

/// A handle by which any thread, or a signal's, stops a copy; it comes to rest within half a
/// second, ready to be taken up again.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whoever asks this one asks ours too.
    parent: Option<Cancel>,
    asked: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Cancel {
    /// Asks to stop.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::Release);
        let _held = lock(&self.0.lock);
        self.0.wake.notify_all();
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire) || self.0.parent.as_ref().is_some_and(Self::is_asked)
    }

    /// A handle that stops a part, and is stopped with the whole.
    #[must_use]
    pub fn part(&self) -> Self {
        Self(Arc::new(Inner { parent: Some(self.clone()), ..Inner::default() }))
    }

    /// Waits for `time`, or until somebody asks; returns whether somebody did.
    pub fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.is_asked() && Instant::now() < until {
            let held = lock(&self.0.lock);
            let step = until.saturating_duration_since(Instant::now()).min(STEP); // the whole wakes only its own
            drop(self.0.wake.wait_timeout_while(held, step, |()| !self.is_asked()));
        }
        self.is_asked()
    }
}
