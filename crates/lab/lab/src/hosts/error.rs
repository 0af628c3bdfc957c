//! What can go wrong with a lab's hosts.

use super::plan::Unfit;
use std::io;
use std::path::PathBuf;

/// An error. Each says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is not one that can be made.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Rights are missing.
    #[error(
        "making hosts needs {missing}, which this process lacks: run it as root (sudo), or once give it the rights: \
         sudo setcap cap_net_admin,cap_sys_admin+ep PATH-OF-SPRAT"
    )]
    Rights {
        /// The capabilities, by their names.
        missing: String,
    },
    /// Rights are missing, and the kernel gives none in namespaces of the user's own.
    #[error(
        "this needs {missing}, which this process lacks, and namespaces of its own, in which it would not, cannot be had ({step}: \
         {error}): run it as root (sudo), or let users have them (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Rootless {
        /// The capabilities, by their names.
        missing: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// The lab stands already, and its owner lives.
    #[error(
        "lab {lab} stands already, made by process {owner}: end that, or run `sprat lab down {lab}`"
    )]
    Stands {
        /// Its name.
        lab: String,
        /// Who made it.
        owner: u32,
    },
    /// Another's namespace has the name.
    #[error("{} is there, and no lab of ours made it: rename the lab or the host, or remove it yourself", path.display())]
    Taken {
        /// Where it is.
        path: PathBuf,
    },
    /// No lab of this name.
    #[error("no lab {lab} stands here ({} does not exist): `sprat lab ls` shows those that do", path.display())]
    Unknown {
        /// The name.
        lab: String,
        /// Its state file, were there one.
        path: PathBuf,
    },
    /// The state file is not one of ours.
    #[error("{}: not a lab's state: {why}; look at it, and remove it by hand", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// The owner of a lab does not end it.
    #[error(
        "process {owner} does not take lab {lab} down; kill it, then run `sprat lab down {lab}` again"
    )]
    Stuck {
        /// The lab.
        lab: String,
        /// Its owner.
        owner: u32,
    },
    /// Something had to be left where it is.
    #[error("{}: left as it is: {why}", path.display())]
    Left {
        /// What.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The kernel refused.
    #[error("{what}: {error}")]
    Refused {
        /// What was wanted, and where.
        what: String,
        /// What the kernel says.
        error: io::Error,
    },
}

impl Error {
    pub(super) fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |error| Self::Refused { what, error }
    }
}
