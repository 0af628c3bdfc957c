//! Why a change of a ring was refused or failed.

use sprat_provision::Joining;
use std::io;
use std::path::PathBuf;

/// Why a change was refused, or failed on its way. Messages name the instance and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ring or the request does not allow it; nothing was changed by the step that says so.
    #[error("{0}")]
    Refused(String),
    /// An error, and what was being done or is done already.
    #[error("{doing}")]
    During {
        /// What was being done, or how far the change has come.
        doing: String,
        /// What happened.
        source: Box<Error>,
    },
    /// The plan cannot be built.
    #[error(transparent)]
    Plan(#[from] sprat_plan::PlanError),
    /// A server, Ansible, or the rack's folder.
    #[error(transparent)]
    Provision(#[from] sprat_provision::Error),
    /// A thread cannot enter that namespace.
    #[error(transparent)]
    Enter(io::Error),
    /// The namespace with the hosts' network cannot be opened.
    #[error("{}: `sprat rack up --local` makes the hosts", path.display())]
    Namespace {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What tuning found cannot be read.
    #[error(transparent)]
    Overlay(io::Error),
    /// The watcher could not show an event, for example as standard output is closed.
    #[error("cannot write to standard output")]
    Watcher(#[source] io::Error),
}

impl Error {
    /// Whether Ansible was ended on request: see [`sprat_provision::Interrupt`].
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Provision(error) => matches!(error, sprat_provision::Error::Interrupted { .. }),
            Self::During { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Says what was being done.
    pub(crate) fn during<E: Into<Self>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |error| Self::During { doing, source: Box::new(error.into()) }
    }
}

impl From<Joining> for Error {
    fn from(error: Joining) -> Self {
        match error {
            Joining::Plan(error) => Self::Plan(error),
            Joining::Members(error) => Self::Provision(error),
        }
    }
}
