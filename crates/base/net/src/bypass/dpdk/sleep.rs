//! Sleeping until a frame comes, without missing one.
//!
//! ```text
//! awake -> about to sleep: the bell is armed -> one more look at the queue: a frame that came before the arming is found
//!   there, one that comes after it rings -> asleep -> rung, or called for another reason: disarmed and hushed -> awake
//! ```
//!
//! Packet sockets need no arming: they are readable as long as there is a frame.

use std::cell::Cell;
use std::time::Duration;

use super::sys::Device;
use crate::Sources;

/// Longest sleep of a node with a device that cannot wake it, or not now.
const NAP: Duration = Duration::from_millis(1);

/// Longest sleep with one that can: peers that go and come ring no bell.
const LONG_NAP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Awake,
    /// Armed, and not looked at since.
    Armed,
    /// Looked at since: nothing was there.
    Looked,
    /// Its bell has been waited for.
    Asleep,
}

/// How far a device is on the way to sleep.
pub(super) struct Sleep(Cell<State>);

impl Sleep {
    pub(super) fn new() -> Self {
        Self(Cell::new(State::Awake))
    }

    /// What to sleep on until there is a frame at the device. `busy`: there is other work with it.
    pub(super) fn sources<'a>(&self, device: &'a Device, busy: bool, sources: &mut Sources<'a>) {
        let bell = device.bell().filter(|_| !busy && sources.room() > 0);
        match (bell, self.0.get()) {
            (None, _) => sources.nap(NAP),
            (Some(bell), State::Awake) if bell.is_armed() => {
                if device.arm(true) {
                    self.0.set(State::Armed);
                    sources.nap(Duration::ZERO);
                } else {
                    sources.nap(NAP);
                }
            }
            (Some(_), State::Armed) => sources.nap(Duration::ZERO),
            (Some(bell), _) => {
                self.0.set(State::Asleep);
                sources.push(bell.fd());
                sources.nap(LONG_NAP);
            }
        }
    }

    /// Before a look at the queue.
    #[inline]
    pub(super) fn before_look(&self, device: &Device) {
        if self.0.get() == State::Asleep {
            self.wake(device);
        }
    }

    /// After one that found `frames`.
    #[inline]
    pub(super) fn after_look(&self, frames: bool, device: &Device) {
        match self.0.get() {
            State::Armed if !frames => self.0.set(State::Looked),
            State::Armed | State::Looked if frames => self.wake(device),
            _ => {}
        }
    }

    #[cold]
    pub(super) fn wake(&self, device: &Device) {
        self.0.set(State::Awake);
        if let Some(bell) = device.bell() {
            if bell.is_armed() {
                device.arm(false);
            }
            bell.hush();
        }
    }
}
