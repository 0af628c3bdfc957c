//! Runs code inside a network namespace.

use super::PortError;
use crate::netns::{NAMES, enter, on_a_thread};
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::path::PathBuf;

/// Lists the interfaces of the calling thread's namespace. The open file continues to list that
/// namespace's interfaces, whichever thread reads it.
const INTERFACES: &str = "/proc/thread-self/net/dev";

/// Runs `inside` on a thread of its own, in the network namespace `netns`, which is a name, or a
/// path if it contains a slash. With `None`, in the namespace of this process. Passes the open list
/// of the namespace's interfaces to `inside`, or `None` if the list cannot be opened.
pub(super) fn within<R: Send>(
    port: &str,
    netns: Option<&str>,
    inside: impl FnOnce(Option<File>) -> Result<R, PortError> + Send,
) -> Result<R, PortError> {
    let work = || {
        if let Some(netns) = netns {
            let path = if netns.contains('/') {
                PathBuf::from(netns)
            } else {
                PathBuf::from(NAMES).join(netns)
            };
            let missing = |error| PortError::NoNamespace {
                port: port.to_owned(),
                netns: netns.to_owned(),
                error,
            };
            let namespace =
                open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(missing)?;
            let refused = |error| PortError::Refused {
                port: port.to_owned(),
                step: "entering its namespace",
                error,
            };
            enter(&namespace).map_err(refused)?;
        }
        inside(File::open(INTERFACES).ok())
    };
    on_a_thread(work).map_err(|error| PortError::Thread { port: port.to_owned(), error })?
}
