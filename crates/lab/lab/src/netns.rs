//! Network namespaces: where they have their names, and doing something inside one.

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::AsFd;
use std::thread::{Builder, scope};

/// Where `ip netns` keeps namespaces by name.
pub(crate) const NAMES: &str = "/run/netns";

/// Does something inside a namespace, on a thread of its own: what it opens or starts belongs to
/// that namespace.
///
/// # Errors
/// The namespace cannot be entered, or there is no thread to be had.
///
/// # Panics
/// When `work` does.
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

/// Does something on a thread of its own: one that has left its namespace is of no use to anybody
/// else.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn on_a_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    scope(|scope| {
        let thread = Builder::new().name("sprat-netns".into()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
