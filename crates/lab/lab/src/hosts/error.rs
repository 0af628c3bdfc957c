//! Errors of a lab's hosts.

use super::plan::InvalidPlan;
use std::io;
use std::path::PathBuf;

/// An error of a lab's hosts. Each message says what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The plan is invalid.
    #[error(transparent)]
    InvalidPlan(#[from] InvalidPlan),
    /// Privileges are missing.
    #[error(
        "making hosts needs {missing}, which this process lacks: run it as root (sudo), or once \
         give it the rights: sudo setcap cap_net_admin,cap_sys_admin+ep PATH-OF-SPRAT"
    )]
    MissingPrivileges {
        /// The names of the missing capabilities.
        missing: String,
    },
    /// Privileges are missing, and the kernel does not give them to the user in new namespaces.
    #[error(
        "this needs {missing}, which this process lacks, and it cannot create namespaces in which \
         it would have them ({step}: {error}): run it as root (sudo), or let users create \
         namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Rootless {
        /// The names of the missing capabilities.
        missing: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The lab exists already, and its owner is running.
    #[error(
        "lab {lab} is up already, started by process {owner}: end that, or run `sprat lab down \
         {lab}`"
    )]
    Exists {
        /// The lab's name.
        lab: String,
        /// The number of the process that made the lab.
        owner: u32,
    },
    /// A namespace that the lab did not make has the name.
    #[error("{} exists, and no lab of Sprat made it: rename the lab or the host, or remove it \
         yourself", path.display())]
    Taken {
        /// The path of that namespace.
        path: PathBuf,
    },
    /// There is no lab of this name.
    #[error(
        "no lab {lab} is up here ({} does not exist): `sprat lab ls` shows those that are",
        path.display()
    )]
    Unknown {
        /// The name that was given.
        lab: String,
        /// The path at which its state file would be.
        path: PathBuf,
    },
    /// The state file is invalid.
    #[error("{}: not a lab's state: {why}; look at it, and remove it by hand", path.display())]
    State {
        /// The path of the state file.
        path: PathBuf,
        /// What is wrong in the file.
        why: String,
    },
    /// The owner of a lab does not take it down.
    #[error(
        "process {owner} does not take lab {lab} down; kill it, then run `sprat lab down {lab}` \
         again"
    )]
    Stuck {
        /// The lab's name.
        lab: String,
        /// The number of the owner's process.
        owner: u32,
    },
    /// Something could not be removed.
    #[error("{}: left as it is: {why}", path.display())]
    Leftover {
        /// The path of what was left.
        path: PathBuf,
        /// Why it was left.
        why: String,
    },
    /// The kernel refused an operation.
    #[error("{what}: {error}")]
    Refused {
        /// The operation that failed, and its object.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl HostsError {
    pub(super) fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |error| Self::Refused { what, error }
    }
}
