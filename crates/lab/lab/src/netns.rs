//! Network namespaces: where their names are kept, and how to run code inside a namespace.

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::AsFd;
use std::thread::{Builder, scope};

/// The directory in which `ip netns` keeps the names of namespaces.
pub(crate) const NAMES: &str = "/run/netns";

/// Runs `work` inside a namespace, on a thread of its own. Sockets that `work` opens, and processes
/// that it starts, belong to that namespace.
///
/// # Errors
/// The namespace cannot be entered, or the system cannot start a thread.
///
/// # Panics
/// `work` panicked.
pub fn within<R: Send>(
    namespace: impl AsFd + Sync,
    work: impl FnOnce() -> R + Send,
) -> io::Result<R> {
    on_a_thread(|| {
        enter(&namespace)?;
        Ok(work())
    })?
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(namespace: impl AsFd) -> Result<(), Errno> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Runs `work` on a thread of its own, because a thread that has left its namespace cannot be used
/// for anything else.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn on_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    scope(|scope| {
        let thread = Builder::new().name("sprat-netns".into()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
