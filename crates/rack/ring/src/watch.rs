//! The events of a change while it runs.

use crate::JoinedInstance;
use std::io;

/// An event of a change.
#[derive(Debug)]
pub enum Event<'a> {
    /// The change turns to the next instance.
    Instance {
        /// The instance.
        name: &'a str,
        /// Its number, from 1.
        at: usize,
        /// The number of instances that the change treats.
        of: usize,
    },
    /// The current step, such as the task that Ansible runs.
    Doing(&'a str),
    /// The last step continues: sent about once a second while a change waits.
    Waiting,
    /// A line that Ansible prints about what it would change, if the change is only checked.
    Checked(&'a str),
    /// An instance of the description is not on the ring; [`crate::add`] would add it.
    NotOnRing(&'a str),
    /// An instance has restarted or needs no restart; with `check`, it would restart.
    Restarted {
        /// The instance.
        name: &'a str,
        /// Whether the instance has restarted, or with `check` would restart.
        restarted: bool,
    },
    /// An instance has joined the ring.
    Joined(&'a JoinedInstance),
    /// An instance has left the ring.
    Left {
        /// The instance.
        name: &'a str,
        /// The place of the instance's data.
        data: LeftData,
    },
}

/// Where the data of an instance is that has left its ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeftData {
    /// Kept on its server, beside the instance's folder.
    Kept,
    /// Removed.
    Removed,
    /// Its server cannot be reached: all its data is still there, and must be removed before it
    /// starts again.
    Unreachable,
}

/// Receives a change's events, and decides when to stop it.
pub trait Watcher {
    /// Shows an event.
    ///
    /// # Errors
    /// The watcher cannot show the event, for example because standard output is closed. The change
    /// ends with [`crate::Error::Watcher`], and can be continued later.
    fn event(&mut self, event: Event<'_>) -> io::Result<()>;

    /// Returns whether to stop before the next step. Once `true`, the answer stays `true`.
    fn is_stopped(&mut self) -> bool;
}

/// How a change ended that can be stopped between two steps.
#[derive(Debug)]
pub enum Ended<T> {
    /// The complete change is done.
    Done(T),
    /// The watcher stopped the change. The phrase follows "stopped" and reports the progress, such
    /// as ", 2 of 3 have joined"; the same call continues with the rest.
    Stopped(String),
}
