//! Why a server could not start, or had to end.

use crate::agent::SessionEnd;
use crate::coordinator::MetadataError;
use crate::coordinator::etcd::EtcdError;
use crate::data_dir::DataDirError;
use sprat_client::Error as ClientError;
use sprat_net::{LocatorError, OpenError};
use std::io;
use thiserror::Error;

/// Why a server could not start, or had to end.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A locator cannot be parsed.
    #[error(transparent)]
    Locator(#[from] LocatorError),
    /// A network endpoint cannot be opened.
    #[error(transparent)]
    Endpoint(#[from] OpenError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The coordinator's metadata cannot be used.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The coordinators' etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The coordinator's catalog cannot be read, or is not the one that the data directory had.
    #[error("{0}")]
    Catalog(String),
    /// The coordinator cannot be reached, or refuses the server.
    #[error("cannot enlist with the coordinator: {0}")]
    Enlist(ClientError),
    /// Other machines could connect to the server, which has no identity and was not started with
    /// `--insecure`.
    #[error(
        "{0} can be reached from other machines: give --identity FILE (`sprat key init`, `sprat \
         key issue --role server`), or --insecure to let everyone read and write everything"
    )]
    Exposed(String),
    /// The identity file cannot be used.
    #[error(transparent)]
    Identity(ClientError),
    /// The coordinator has declared this server dead, or refuses it.
    #[error(transparent)]
    Gone(SessionEnd),
    /// The log or the file of replicas cannot be opened, an option is not valid, the coordinator
    /// sends no tables, or a thread panicked: the text says which.
    #[error("{0}")]
    Log(String),
    /// The operating system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl ServerError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// How a thread of the server ended.
pub(super) type ThreadResult = Result<(), ServerError>;
