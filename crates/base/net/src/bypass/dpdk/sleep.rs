//! Sleeping until a frame arrives, without missing one.
//!
//! ```text
//! awake -> about to sleep: the bell is armed -> one more poll of the queue, which finds frames
//!   that arrived before the arming; later ones ring -> asleep -> woken by the bell or for another
//!   reason: the bell is disarmed and cleared -> awake
//! ```
//!
//! Packet sockets need no arming: they poll readable as long as they hold a frame.

use std::cell::Cell;
use std::time::Duration;

use super::sys::Device;
use crate::Sources;

/// The longest sleep of a node if one of its devices cannot wake it by an interrupt, at present or
/// ever.
const NAP: Duration = Duration::from_millis(1);

/// The longest sleep of a node whose devices can all wake it. The sleep is limited because the
/// start of a peer causes no interrupt.
const LONG_NAP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Awake,
    /// The device was asked to wake the node, and the queue has not been polled since.
    Armed,
    /// The poll after the arming found no frame, so the node may sleep.
    Polled,
    /// The node has waited for the device to wake it.
    Asleep,
}

/// The step that a device has reached on the way to the node's sleep.
pub(super) struct Sleep(Cell<State>);

impl Sleep {
    pub(super) fn new() -> Self {
        Self(Cell::new(State::Awake))
    }

    /// Adds to `sources` the descriptor to sleep on until the device has a frame. `busy` says that
    /// there is other work for the device, so that the node must not sleep long.
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

    /// Call this before a poll of the queue.
    #[inline]
    pub(super) fn before_poll(&self, device: &Device) {
        if self.0.get() == State::Asleep {
            self.wake(device);
        }
    }

    /// Call this after a poll. `frames` says whether the poll found frames.
    #[inline]
    pub(super) fn after_poll(&self, frames: bool, device: &Device) {
        match self.0.get() {
            State::Armed if !frames => self.0.set(State::Polled),
            State::Armed | State::Polled if frames => self.wake(device),
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
            bell.clear();
        }
    }
}
