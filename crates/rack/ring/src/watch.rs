//! What a change reports while it runs.

use crate::Newcomer;
use std::io;

/// What happens during a change, in order.
#[derive(Debug)]
pub enum Event<'a> {
    /// An instance's turn begins.
    Turn {
        /// The instance.
        name: &'a str,
        /// Its number, from 1.
        at: usize,
        /// How many have a turn.
        of: usize,
    },
    /// What is being done now, such as the task that Ansible runs.
    Doing(&'a str),
    /// The same is still being done: sent about once a second while something is waited for.
    Waiting,
    /// A line that Ansible prints about what it would change: only where the change is to be
    /// checked.
    Checked(&'a str),
    /// An instance of the description is not on the ring, and [`crate::add`] would bring it there.
    NotOnRing(&'a str),
    /// An instance has restarted, or is as it should be; with `check`: would restart.
    Restarted {
        /// The instance.
        name: &'a str,
        /// Whether it has, or would.
        restarted: bool,
    },
    /// An instance has joined the ring.
    Joined(&'a Newcomer),
    /// An instance has left the ring.
    Left {
        /// The instance.
        name: &'a str,
        /// What became of its data.
        data: LeftData,
    },
}

/// What became of the data of an instance that has left its ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeftData {
    /// Kept on its server, beside the instance's folder.
    Kept,
    /// Removed.
    Removed,
    /// Its server cannot be reached: all that it had is still there, and must be removed before it
    /// starts again.
    Unreachable,
}

/// Receives what a change reports, and says when to stop.
pub trait Watcher {
    /// Shows an event.
    ///
    /// # Errors
    /// It cannot be shown: the change ends with [`crate::Error::Watcher`], to be gone on with
    /// later.
    fn event(&mut self, event: Event<'_>) -> io::Result<()>;

    /// Whether to stop before the next step. Once true, it stays true.
    fn is_stopped(&mut self) -> bool;
}

/// How a change ended that can be stopped between two steps.
#[derive(Debug)]
pub enum Ended<T> {
    /// All of it is done.
    Done(T),
    /// The watcher stopped it. The phrase goes on after "stopped" and says how far it came, such as
    /// ", 2 of 3 have joined"; the same call goes on with the rest.
    Stopped(String),
}
