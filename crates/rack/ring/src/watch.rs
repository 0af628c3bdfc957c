//! The events of a change while it runs.

use crate::JoinedInstance;
use std::io;

/// An event of a change.
#[derive(Debug)]
pub enum Event<'a> {
    /// The change begins to work on the next instance.
    Instance {
        /// The instance's name, such as `c0-n1-i2`.
        name: &'a str,
        /// The instance's number in the change, from 1.
        at: usize,
        /// The number of instances that the change works on.
        of: usize,
    },
    /// The change begins a step, such as a task that Ansible runs.
    Doing(&'a str),
    /// The last step goes on. Sent before each check while a change waits: every second, or every
    /// ten seconds while an instance joins.
    Waiting,
    /// With `check`: a line that Ansible prints about what it would change.
    Checked(&'a str),
    /// An instance of the description is not on the ring. [`crate::add`] would add it.
    NotOnRing(&'a str),
    /// An instance has restarted or needed no restart.
    Restarted {
        /// The instance's name, such as `c0-n1-i2`.
        name: &'a str,
        /// Whether the instance has restarted or, with `check`, would restart.
        restarted: bool,
    },
    /// An instance has joined the ring.
    Joined(&'a JoinedInstance),
    /// An instance has left the ring.
    Left {
        /// The instance's name, such as `c0-n1-i2`.
        name: &'a str,
        /// Where the instance's data are.
        data: LeftData,
    },
}

/// Where the data of an instance that has left its ring are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeftData {
    /// On the instance's server, next to the instance's folder.
    Kept,
    /// Nowhere: they were removed.
    Removed,
    /// On a server that cannot be reached. All data are still there, and must be removed before the
    /// instance starts again.
    Unreachable,
}

/// Receives a change's events, and decides when to stop it.
pub trait Watcher {
    /// Shows an event of the change.
    ///
    /// # Errors
    /// The watcher cannot show the event, for example because standard output is closed. The change
    /// ends with [`crate::Error::Watcher`], and can be continued later.
    fn event(&mut self, event: Event<'_>) -> io::Result<()>;

    /// Returns whether to stop before the next step. Once this is `true`, it stays `true`.
    fn is_stopped(&mut self) -> bool;
}

/// How a change ended. The watcher can stop a change between two steps.
#[derive(Debug)]
pub enum Ended<T> {
    /// The change is complete.
    Done(T),
    /// The watcher stopped the change. The same call, repeated, does the rest; only
    /// [`Rolling::Restart`](crate::Rolling::Restart) begins again with the first instance. The
    /// phrase follows "stopped" and reports the progress, such as ", 2 of 3 have joined".
    Stopped(String),
}
