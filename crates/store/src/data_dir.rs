//! A server's data directory: who it belongs to, and which files lie in it.
//!
//! ```text
//! identity.toml      format, cluster, server id, hash seed, and how many nodes share the directory if not one
//! identity.toml.new  the identity before: what is written next takes its place on the disk, also when that is full
//! coordinator.redb   the coordinator's metadata, when this process is one
//! log.sprat          the log: a frame for every segment
//! node-2, node-3 ..  the same, but for the coordinator, of the second node of the process, the third ..
//! ```

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of the directory's layout that this program reads and writes.
pub const FORMAT: u32 = 1;

/// What a data directory knows of itself.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// [`FORMAT`] it was written in.
    pub format: u32,
    /// The cluster whose objects it holds; 0 until the server has enlisted.
    pub cluster: u64,
    /// The server's id in that cluster; 0 until it has enlisted.
    pub server: u32,
    /// Seed of the key hash: scan cursors stay good as long as it stays the same.
    pub seed: u64,
    /// Nodes whose objects lie in the directory and those within it. 1 in the directories within.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_one(nodes: &u32) -> bool {
    *nodes == 1
}

/// Only the field that every version has.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum DataDirError {
    /// The operating system refused.
    #[error("{path}: cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{0}: another sprat server is running with this data directory; stop it, or give another --data")]
    InUse(PathBuf),
    /// A newer program wrote it.
    #[error(
        "{path}: written in format {found}, this sprat reads up to {FORMAT}; use a newer sprat (nothing was changed)"
    )]
    Newer {
        /// The identity file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// What is in it is kept in another way.
    #[error("{path}: holds {kind} (nothing was changed)")]
    Other {
        /// The directory.
        path: PathBuf,
        /// What it holds, and how to start.
        kind: &'static str,
    },
    /// It was made for another number of nodes.
    #[error("{path}: holds the objects of {found} nodes, not {asked}; start the server with --nodes {found}")]
    OtherNodes {
        /// The directory.
        path: PathBuf,
        /// How many it was made for.
        found: u32,
        /// How many there are to be.
        asked: u32,
    },
    /// The log is gone.
    #[error(
        "{0}: missing, and with it every object; put it back, or remove the directory to start with an empty store"
    )]
    NoLog(PathBuf),
    /// The identity file is damaged.
    #[error("{path}: not an identity file of sprat: {cause}")]
    Damaged {
        /// The identity file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
}

/// A data directory, held by this process alone.
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    _lock: File,
}

impl DataDir {
    /// Opens the directory, or makes it with `new_seed` as its hash seed.
    ///
    /// # Errors
    /// [`DataDirError`]; nothing in an existing directory has changed then.
    pub fn open(path: &Path, new_seed: u64) -> Result<Self, DataDirError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DataDirError::Io { what, path, source }
        };
        fs::create_dir_all(path).map_err(io("make the data directory", path))?;
        // The lock is on the directory itself, so that it leaves no file behind.
        let lock = File::open(path).map_err(io("open the data directory", path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(DataDirError::InUse(path.to_owned())),
            Err(errno) => return Err(io("lock the data directory", path)(errno.into())),
        }
        let file = path.join(IDENTITY);
        let dir = |identity| Self { path: path.to_owned(), identity, _lock: lock };
        match fs::read_to_string(&file) {
            Ok(text) => {
                let identity = parse(&file, &text)?;
                if identity.cluster != 0 && !path.join(LOG).exists() {
                    return Err(DataDirError::NoLog(path.join(LOG)));
                }
                let dir = dir(identity);
                dir.reserve();
                Ok(dir)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // An identity lost from among other files would let old objects into new tables.
                if path.join(LOG).exists() {
                    return Err(DataDirError::Damaged { path: file, cause: "it is missing beside a log".into() });
                }
                let identity = Identity { format: FORMAT, cluster: 0, server: 0, seed: new_seed, nodes: 1 };
                let mut dir = dir(identity);
                dir.set_identity(identity)?;
                Ok(dir)
            }
            Err(error) => Err(io("read", &file)(error)),
        }
    }

    /// Opens the directories of `nodes` nodes: this one, which is the first's, and those within it. All are there before
    /// any of them has a server id, so that one that is missing later is a loss, and is told as one.
    ///
    /// # Errors
    /// As [`open`](Self::open); and when it was made for another number of nodes.
    pub fn open_nodes(path: &Path, nodes: u32, mut new_seed: impl FnMut() -> u64) -> Result<Vec<Self>, DataDirError> {
        let mut first = Self::open(path, new_seed())?;
        let found = first.identity();
        let is_new = found.cluster == 0;
        if found.nodes != nodes {
            if !is_new {
                return Err(DataDirError::OtherNodes { path: path.to_owned(), found: found.nodes, asked: nodes });
            }
            first.set_identity(Identity { nodes, ..found })?;
        }
        let mut dirs = vec![first];
        for number in 2..=nodes {
            let path = path.join(format!("node-{number}"));
            if !is_new && !path.join(IDENTITY).exists() {
                return Err(DataDirError::NoLog(path));
            }
            dirs.push(Self::open(&path, new_seed())?);
        }
        Ok(dirs)
    }

    /// What it knows of itself.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Changes the identity; durable on return. With the first that names a cluster the log file begins, empty: from
    /// then on one without the other is a loss.
    ///
    /// # Errors
    /// [`DataDirError::Io`]; the old identity stands then.
    pub fn set_identity(&mut self, identity: Identity) -> Result<(), DataDirError> {
        let (file, new) = (self.path.join(IDENTITY), self.path.join(NEXT_IDENTITY));
        let write = || {
            if identity.cluster != 0 {
                File::options().create(true).append(true).mode(0o600).open(self.path.join(LOG))?;
            }
            let text = toml::to_string(&identity).expect("numbers serialise");
            write_in_place(&new, &text)?;
            exchange(&new, &file)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| DataDirError::Io { what: "write", path: file.clone(), source })?;
        self.identity = identity;
        self.reserve();
        Ok(())
    }

    /// Sees to it that the next identity has its place on the disk: a member that starts gets another one, and its disk may be full by
    /// then, of replicas that nobody else has.
    fn reserve(&self) {
        let new = self.path.join(NEXT_IDENTITY);
        if new.exists() {
            return;
        }
        let reserved = fs::read_to_string(self.path.join(IDENTITY)).and_then(|text| write_in_place(&new, &text));
        if let Err(error) = reserved {
            tracing::warn!("{}: cannot be kept for the next start: {error}", new.display());
        }
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// The file of what is kept for other servers.
    pub fn replicas(&self) -> PathBuf {
        self.path.join(REPLICAS)
    }

    /// Refuses a directory whose data is kept in another way than `copies` says: its own log, or replicas of others'.
    ///
    /// # Errors
    /// [`DataDirError::Other`].
    pub fn check_kind(&self, copies: u8) -> Result<(), DataDirError> {
        let (there, kind) = match copies {
            0 => {
                (has_bytes(&self.replicas()), "replicas of other servers' logs, and none of its own: start it with -r")
            }
            _ => (has_bytes(&self.log()), "a log of its own, which no other server has: start it with -r 0"),
        };
        if there { Err(DataDirError::Other { path: self.path.clone(), kind }) } else { Ok(()) }
    }

    /// The coordinator's metadata file.
    pub fn coordinator(&self) -> PathBuf {
        self.path.join("coordinator.redb")
    }
}

/// Whether there is something in a file.
fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Writes a file, durably, where it is: one that has been written before takes no other blocks of the disk.
fn write_in_place(path: &Path, text: &str) -> io::Result<()> {
    let mut out = File::options().write(true).create(true).truncate(false).open(path)?;
    out.write_all(text.as_bytes())?;
    out.set_len(text.len() as u64)?;
    out.sync_all()
}

/// Has two files change names, so that neither gives its blocks back; where there is but one, or that cannot be done, the new one takes
/// the other's name.
fn exchange(new: &Path, file: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, file, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(_) => fs::rename(new, file),
    }
}

const IDENTITY: &str = "identity.toml";
const NEXT_IDENTITY: &str = "identity.toml.new";
const LOG: &str = "log.sprat";
const REPLICAS: &str = "replicas.sprat";

fn parse(path: &Path, text: &str) -> Result<Identity, DataDirError> {
    let damaged = |error: toml::de::Error| DataDirError::Damaged { path: path.to_owned(), cause: error.to_string() };
    let FormatOnly { format } = toml::from_str(text).map_err(damaged)?;
    if format > FORMAT {
        return Err(DataDirError::Newer { path: path.to_owned(), found: format });
    }
    toml::from_str(text).map_err(damaged)
}
