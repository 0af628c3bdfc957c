//! Errors of this crate.

use sprat_provision::JoinError;
use std::io;
use std::path::PathBuf;

/// Why a change was refused or failed. Messages name the instance and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request, or the state of the ring, does not allow the change. The step that refused has
    /// changed nothing.
    #[error("{0}")]
    Refused(String),
    /// An error together with the step that failed.
    #[error("{doing}")]
    During {
        /// What the step was doing, or how much of the change was done.
        doing: String,
        /// The error.
        source: Box<Error>,
    },
    /// The plan cannot be built.
    #[error(transparent)]
    Plan(#[from] sprat_plan::PlanError),
    /// A server, Ansible or the rack's folder failed.
    #[error(transparent)]
    Provision(#[from] sprat_provision::Error),
    /// The thread could not enter the hosts' namespace.
    #[error(transparent)]
    Enter(io::Error),
    /// The namespace with the hosts' network cannot be opened.
    #[error("{}: `sprat rack up --local` creates the hosts", path.display())]
    Namespace {
        /// The path of the namespace.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file or folder could not be removed.
    #[error("{}", path.display())]
    File {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The settings that tuning found cannot be read.
    #[error(transparent)]
    Overlay(io::Error),
    /// The watcher could not show an event, for example because standard output is closed.
    #[error("cannot write to standard output")]
    Watcher(#[source] io::Error),
}

impl Error {
    /// Returns whether Ansible was ended on request: see [`sprat_provision::Interrupt`].
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Provision(error) => matches!(error, sprat_provision::Error::Interrupted { .. }),
            Self::During { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Returns a function that adds `doing`, the step that failed, to an error.
    pub(crate) fn during<E: Into<Self>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |error| Self::During { doing, source: Box::new(error.into()) }
    }
}

impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Plan(error) => Self::Plan(error),
            JoinError::Members(error) => Self::Provision(error),
        }
    }
}
