//! Errors of backups.

use std::fmt;
use std::io;
use thiserror::Error;

/// A file of a folder of backups that is not as it should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// The file: a path, or another place.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

/// Why a backup cannot be made, read or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder cannot be read or written.
    #[error("{place}: {source}")]
    Io {
        /// The file or folder.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The folder has other files, and is not one of backups.
    #[error(
        "{0}: not a folder of backups; name one that `sprat backup create` has made, or a new one"
    )]
    NotBackups(String),
    /// The folder has backups of another cluster.
    #[error(
        "{folder}: has backups of cluster {theirs:016x}, and this is cluster {ours:016x}; name \
         another folder"
    )]
    OtherCluster {
        /// The folder.
        folder: String,
        /// The cluster of its backups.
        theirs: u64,
        /// The cluster to back up.
        ours: u64,
    },
    /// Another process changes the folder.
    #[error("{folder}: backups are being made or removed here by {by}")]
    Locked {
        /// The folder.
        folder: String,
        /// What is known of that process.
        by: String,
    },
    /// There is no point of that name, or none at all.
    #[error("{folder}: has no backup{}", .name.as_ref().map_or(String::new(), |name| {
        format!(" named {name}; `sprat backup list` lists them")
    }))]
    NoPoint {
        /// The folder.
        folder: String,
        /// The name, if one was given.
        name: Option<String>,
    },
    /// A file of the backup is damaged, or missing.
    #[error("{0}")]
    Damaged(Fault),
    /// A table to restore is not in the backup.
    #[error("the backup has no table named {0:?}")]
    NoTable(String),
    /// A table to restore into exists.
    #[error(
        "table {0:?} exists: drop it first, or restore under another name, such as {0}={0}_restored"
    )]
    TableExists(String),
    /// A server has failed, and others have not recovered its tablets.
    #[error("server {0} failed, and its tablets are not recovered yet; `sprat status` shows more")]
    Recovering(u32),
    /// The tablets moved, or a server was slow, at each attempt to cut the logs.
    #[error("no moment was found at which all servers could be cut: {0}; try again")]
    NoCut(String),
    /// A segment was cleaned away each time that it was being copied, or a server's answer makes no
    /// sense.
    #[error("server {server}: {what}")]
    Server {
        /// The server's id.
        server: u32,
        /// What is wrong.
        what: String,
    },
    /// The cluster refused or did not answer.
    #[error(transparent)]
    Client(#[from] sprat_client::Error),
}

impl Error {
    pub(crate) fn damaged(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged(Fault { file: file.into(), what: what.into() })
    }
}
