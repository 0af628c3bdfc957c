//! A server's data directory: which server it belongs to, and which files are in it.
//!
//! ```text
//! identity.toml      format, cluster, server id, hash seed, how many nodes share the directory if
//!                    not one, the ages of the files below, and a checksum of these lines
//! identity.toml.new  the previous identity: the next one overwrites its blocks, so that it can be
//!                    written on a full disk
//! coordinator.redb   the coordinator's metadata, if this process is a coordinator;
//!                    coordinator.redb.new while the metadata are created
//! catalog.sprat      a copy of the metadata, as the coordinator gave it to this server
//! log.sprat          the log: a frame for every segment
//! replicas.sprat     the replicas of other servers' segments that this node keeps
//! node-2, node-3 ..  the directories of the second node of the process, the third ..; without
//!                    coordinator.redb
//! ```
//!
//! If an operator puts back an older copy of a file, the copy is intact, and a server that starts
//! from it would serve outdated data. So the identity holds the age of each file. The age of the
//! log and of the replicas is the incarnation in the file's header, which grows whenever the file
//! is opened, has grown or is closed. A file with a higher incarnation than the identity says is
//! used, since the identity is written last. A file with a lower one is refused, and so is an empty
//! or missing file. The catalog's age is the version of the tablet map in it, and the coordinator's
//! metadata must not have a lower version.

use crate::agent::CatalogCopy;
use crate::coordinator::{Catalog, MetadataMemory};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde::{Deserialize, Serialize};
use sprat_host::lock;
use sprat_wire::frame::{BLOCK_BYTES, FILE_HEADERS, FileHeader};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use thiserror::Error;

/// Version of the directory's layout that this program writes. It also reads format 1, which had no
/// ages and no checksum.
pub const FORMAT: u32 = 2;

/// The contents of a data directory's `identity.toml`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The [`FORMAT`] in which the identity was written.
    pub format: u32,
    /// The cluster whose objects the directory holds; 0 until the server has enlisted.
    pub cluster: u64,
    /// The server's id in that cluster; 0 until it has enlisted.
    pub server: u32,
    /// Seed of the key hash: scan cursors stay valid as long as it stays the same.
    pub seed: u64,
    /// Number of nodes whose objects are in this directory and its subdirectories; 1 in a
    /// subdirectory.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// The cluster whose coordinator's metadata lie here; 0 if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub coordinator: u64,
    /// Lowest incarnation that the log can have; 0 before it was first opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log: u64,
    /// Lowest incarnation that the file of replicas can have; 0 before it was first opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: u64,
}

impl Identity {
    /// Returns the identity of a new directory.
    fn new(seed: u64) -> Self {
        Self {
            format: FORMAT,
            cluster: 0,
            server: 0,
            seed,
            nodes: 1,
            coordinator: 0,
            log: 0,
            replicas: 0,
        }
    }

    fn encode(&self) -> String {
        let lines = toml::to_string(self).expect("numbers serialise");
        format!("{lines}{CHECKSUM}{:#010x}\n", crc32c::crc32c(lines.as_bytes()))
    }
}

/// Begins the last line of an identity; the CRC32C of the lines above it follows.
const CHECKSUM: &str = "checksum = ";

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_one(nodes: &u32) -> bool {
    *nodes == 1
}

/// The field that tells the formats of identities apart: formats to come have it as well.
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
        /// The action that failed.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error(
        "{0}: another sprat server is running with this data directory; stop it, or give another \
         --data"
    )]
    InUse(PathBuf),
    /// A newer program wrote the identity.
    #[error(
        "{path}: written in format {found}, this sprat reads up to {FORMAT}; use a newer sprat \
         (nothing was changed)"
    )]
    Newer {
        /// The identity file.
        path: PathBuf,
        /// The file's format.
        found: u32,
    },
    /// The directory has its own log although the options ask for replicas on other servers, or it
    /// has replicas of other servers' logs although the options ask for none.
    #[error("{path}: holds {kind} (nothing was changed)")]
    Other {
        /// The directory.
        path: PathBuf,
        /// The directory's contents, and how to start with them.
        kind: &'static str,
    },
    /// The directory was created for another number of nodes.
    #[error(
        "{path}: holds the objects of {found} nodes, not {asked}; start the server with --nodes \
         {found}"
    )]
    OtherNodes {
        /// The directory.
        path: PathBuf,
        /// The number of nodes for which the directory was created.
        found: u32,
        /// The number of nodes that the options ask for.
        asked: u32,
    },
    /// A file that had data is missing or empty, or a node's directory is missing.
    #[error(
        "{path}: {is}, and with it {what}; restore it, or remove the directory to start with an \
         empty store"
    )]
    Lost {
        /// The file or directory.
        path: PathBuf,
        /// Missing, or empty.
        is: &'static str,
        /// The file's contents, which are lost.
        what: &'static str,
    },
    /// A file is an older copy of itself.
    #[error(
        "{path}: this is an older copy: its incarnation is {found}, this server has used {had}; it \
         lacks everything written since: restore the current copy (nothing was changed)"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The incarnation in the file's header.
        found: u64,
        /// The lowest incarnation that the file can have.
        had: u64,
    },
    /// The identity is damaged, or missing although other files exist; or the copy of the catalog
    /// is damaged, or belongs to another cluster.
    #[error("{path}: {cause} (nothing was changed)")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault, and a remedy.
        cause: String,
    },
}

/// A data directory that this process has locked. Clones share the lock, which ends with the last
/// of them.
///
/// A server that starts calls [`open`](Self::open) or [`open_nodes`](Self::open_nodes), which
/// refuse files that are missing or older than the identity says, then
/// [`check_kind`](Self::check_kind). Once the coordinator has given the server an id, the server
/// records the id with [`set_identity`](Self::set_identity), and then opens the log or the replicas
/// itself, by their paths. [`note_ages`](Self::note_ages) records the files' ages after they are
/// opened and after they are closed. After a crash in between, a file has a higher incarnation than
/// the identity says, which is allowed. Every write in the directory is durable on return. Except
/// at the first writes of a file, it overwrites blocks that the directory has already, so that it
/// succeeds on a full disk.
#[derive(Clone)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    /// Holds the lock on the directory, and lets one clone at a time write in it.
    lock: Arc<Mutex<File>>,
}

impl DataDir {
    /// Opens the directory, or creates it with `new_seed` as its hash seed.
    ///
    /// # Errors
    /// [`DataDirError`] when the directory cannot be made, read or locked, another process uses it,
    /// its identity is damaged, of a newer format, or missing although other files exist, or a file
    /// that had data is missing, empty or older than the identity says. Nothing in an existing
    /// directory has changed then.
    pub fn open(path: &Path, new_seed: u64) -> Result<Self, DataDirError> {
        let dir = Self::open_unchecked(path, new_seed)?;
        dir.check_files()?;
        dir.reserve();
        Ok(dir)
    }

    /// Like [`open`](Self::open), but does not check the files against the identity: for a
    /// directory that is to be repaired or salvaged.
    ///
    /// # Errors
    /// [`DataDirError`] when the directory cannot be made, read or locked, another process uses it,
    /// or its identity is damaged, of a newer format, or missing although other files exist.
    /// Nothing in an existing directory has changed then.
    pub fn open_unchecked(path: &Path, new_seed: u64) -> Result<Self, DataDirError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DataDirError::Io { what, path, source }
        };
        fs::create_dir_all(path).map_err(io("make the data directory", path))?;
        // The directory itself is locked, so that no lock file is left behind.
        let lock = File::open(path).map_err(io("open the data directory", path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(DataDirError::InUse(path.to_owned())),
            Err(errno) => return Err(io("lock the data directory", path)(errno.into())),
        }
        let file = path.join(IDENTITY);
        let dir =
            |identity| Self { path: path.to_owned(), identity, lock: Arc::new(Mutex::new(lock)) };
        match fs::read(&file) {
            Ok(text) => Ok(dir(parse(&file, &text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Without the identity, objects from those files could enter new tables.
                if let Some(beside) = [LOG, REPLICAS, COORDINATOR, CATALOG]
                    .iter()
                    .find(|name| path.join(name).exists())
                {
                    let cause = format!("it is missing, but {beside} exists: restore it");
                    return Err(DataDirError::Damaged { path: file, cause });
                }
                let identity = Identity::new(new_seed);
                let mut dir = dir(identity);
                dir.set_identity(identity)?;
                Ok(dir)
            }
            Err(error) => Err(io("read", &file)(error)),
        }
    }

    /// Refuses files that are missing, empty, or older than the identity says.
    ///
    /// # Errors
    /// [`DataDirError`] when a file that had data is missing, empty, or older than the identity
    /// says.
    pub fn check_files(&self) -> Result<(), DataDirError> {
        let Identity { format, cluster, coordinator, log, replicas, .. } = self.identity;
        let lost = |path, is, what| Err(DataDirError::Lost { path, is, what });
        for (path, had, what) in [
            (self.log(), log, "every object"),
            (self.replicas(), replicas, "all replicas for other servers"),
        ] {
            match age(&path) {
                _ if had == 0 => {}
                Age::Missing => return lost(path, "missing", what),
                Age::Empty => return lost(path, "empty", what),
                Age::Incarnation(found) if found < had => {
                    return Err(DataDirError::Older { path, found, had });
                }
                // A damaged file is reported, with the offset of the damage, when it is opened.
                Age::Incarnation(_) | Age::Damaged => {}
            }
        }
        if cluster != 0 && !self.log().exists() {
            return lost(self.log(), "missing", "every object");
        }
        // Format 1 had no ages: an enlisted server whose files are empty may have lost them.
        if format == 1
            && cluster != 0
            && age(&self.log()) == Age::Empty
            && age(&self.replicas()).is_nothing()
        {
            return lost(self.log(), "empty", "every object");
        }
        if coordinator != 0 && !self.coordinator().exists() {
            return lost(self.coordinator(), "missing", "the names and places of all tables");
        }
        Ok(())
    }

    /// Opens the directories of `nodes` nodes: this one, which is the first node's, and the
    /// directories within it. All of them are created before any of them has a server id, so that a
    /// directory that is missing later is known to be lost.
    ///
    /// # Errors
    /// [`DataDirError`] as for [`open`](Self::open), and when the directory was created for another
    /// number of nodes, or a node's directory is missing.
    pub fn open_nodes(
        path: &Path,
        nodes: u32,
        mut new_seed: impl FnMut() -> u64,
    ) -> Result<Vec<Self>, DataDirError> {
        let mut first = Self::open(path, new_seed())?;
        let found = first.identity();
        let is_new = found.cluster == 0;
        if found.nodes != nodes {
            if !is_new {
                return Err(DataDirError::OtherNodes {
                    path: path.to_owned(),
                    found: found.nodes,
                    asked: nodes,
                });
            }
            first.set_identity(Identity { nodes, ..found })?;
        }
        let mut dirs = vec![first];
        for number in 2..=nodes {
            let path = path.join(format!("node-{number}"));
            if !is_new && !path.join(IDENTITY).exists() {
                return Err(DataDirError::Lost {
                    path,
                    is: "missing",
                    what: "every object of that node",
                });
            }
            dirs.push(Self::open(&path, new_seed())?);
        }
        Ok(dirs)
    }

    /// Returns the directory's identity.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Replaces the identity; durable on return. If the identity names a cluster and there is no
    /// log file, creates an empty one: from then on, a missing log or identity is a loss.
    ///
    /// # Errors
    /// [`DataDirError::Io`] when the log file cannot be made or the identity cannot be replaced.
    /// The old identity remains then, unless only the last step failed: to make the new one
    /// durable.
    pub fn set_identity(&mut self, identity: Identity) -> Result<(), DataDirError> {
        let identity = Identity { format: FORMAT, ..identity };
        if identity.cluster != 0 {
            let log = File::options().create(true).append(true).mode(0o600).open(self.log());
            log.map_err(|source| DataDirError::Io { what: "make", path: self.log(), source })?;
        }
        self.replace(IDENTITY, identity.encode().as_bytes())?;
        self.identity = identity;
        self.reserve();
        Ok(())
    }

    /// Records the current ages of the files. Call it after they have been opened or closed. If
    /// recording fails, it logs a warning.
    pub fn note_ages(&mut self) {
        let of = |path: &Path, had: u64| {
            if let Age::Incarnation(now) = age(path) { now.max(had) } else { had }
        };
        let Identity { log, replicas, .. } = self.identity;
        let (log, replicas) = (of(&self.log(), log), of(&self.replicas(), replicas));
        let identity = Identity { log, replicas, ..self.identity };
        let noted = if identity != self.identity { self.set_identity(identity) } else { Ok(()) };
        if let Err(error) = noted {
            tracing::warn!("{error}; this server may not notice an older copy of a file");
        }
    }

    /// Reads the copy of the catalog that this server keeps; `None` if there is none.
    ///
    /// # Errors
    /// [`DataDirError`] when the copy cannot be read, is damaged, or is of another cluster's
    /// catalog.
    pub fn catalog(&self) -> Result<Option<Catalog<MetadataMemory>>, DataDirError> {
        let path = self.path.join(CATALOG);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.identity.log != 0 || self.identity.replicas != 0 {
                    tracing::warn!(
                        "{}: missing; it is written again from the coordinator's metadata",
                        path.display()
                    );
                }
                return Ok(None);
            }
            Err(source) => return Err(DataDirError::Io { what: "read", path, source }),
        };
        let cause = match Catalog::<MetadataMemory>::from_copy(&bytes) {
            Ok(catalog) if [0, catalog.cluster()].contains(&self.identity.cluster) => {
                return Ok(Some(catalog));
            }
            Ok(_) => "the copy of another cluster's catalog".to_owned(),
            Err(cause) => cause,
        };
        let remedy = "if the coordinator's metadata are current, remove this file: it is written \
                      again from them";
        Err(DataDirError::Damaged { path, cause: format!("{cause}; {remedy}") })
    }

    /// Writes a copy of the catalog; durable on return.
    ///
    /// # Errors
    /// [`DataDirError::Io`] when the file cannot be replaced. The previous copy remains then,
    /// unless only the last step failed: to make the new one durable.
    pub fn keep_catalog(&self, copy: &CatalogCopy) -> Result<(), DataDirError> {
        self.replace(CATALOG, &copy.bytes)
    }

    /// Replaces a file, whole or not at all; durable on return. The previous version stays next to
    /// it, and the next replacement overwrites the blocks of that version, so that it succeeds on a
    /// full disk.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), DataDirError> {
        let _writes = lock(&self.lock);
        let (file, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let write = || {
            write_in_place(&new, bytes)?;
            exchange(&new, &file)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| DataDirError::Io { what: "write", path: file.clone(), source })
    }

    /// Reserves disk space for the next identity. A cluster's node that starts again gets a new id,
    /// and by then its disk may be full of replicas that no other server has.
    fn reserve(&self) {
        let new = self.path.join(NEXT_IDENTITY);
        if new.exists() {
            return;
        }
        let reserved =
            fs::read(self.path.join(IDENTITY)).and_then(|text| write_in_place(&new, &text));
        if let Err(error) = reserved {
            tracing::warn!("{}: cannot be saved for the next start: {error}", new.display());
        }
    }

    /// Returns the log file.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Returns the file of replicas that are kept for other servers.
    pub fn replicas(&self) -> PathBuf {
        self.path.join(REPLICAS)
    }

    /// Refuses a directory of the other kind than `copies` says: with zero copies the directory
    /// must not have replicas of other servers' logs, otherwise it must not have a log of its own.
    ///
    /// # Errors
    /// [`DataDirError::Other`] when the directory has the other kind: a log of its own although
    /// `copies` is not zero, or replicas of other servers' logs although `copies` is zero.
    pub fn check_kind(&self, copies: u8) -> Result<(), DataDirError> {
        let (there, kind) = match copies {
            0 => (
                has_bytes(&self.replicas()),
                "replicas of other servers' logs, and none of its own: start it with -r",
            ),
            _ => (
                has_bytes(&self.log()),
                "a log of its own, which no other server has: start it with -r 0",
            ),
        };
        if there { Err(DataDirError::Other { path: self.path.clone(), kind }) } else { Ok(()) }
    }

    /// Returns the coordinator's metadata file.
    pub fn coordinator(&self) -> PathBuf {
        self.path.join(COORDINATOR)
    }
}

/// Returns whether a file has any bytes.
fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Overwrites a file in place, durably. If the file was written before, it takes no new blocks of
/// the disk.
fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut out = File::options().write(true).create(true).truncate(false).open(path)?;
    out.write_all(bytes)?;
    out.set_len(bytes.len() as u64)?;
    out.sync_all()
}

/// Exchanges the names of two files, so that the blocks of both stay in use. If one of them is
/// missing, or the file system cannot exchange names, renames the new file over the old one.
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
const COORDINATOR: &str = "coordinator.redb";
const CATALOG: &str = "catalog.sprat";

/// The age of a log, or of a file of replicas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Age {
    Missing,
    /// Without a header: nothing was ever written, or it is gone.
    Empty,
    Damaged,
    Incarnation(u64),
}

impl Age {
    fn is_nothing(self) -> bool {
        matches!(self, Self::Missing | Self::Empty)
    }
}

/// Reads a file's age from its headers.
fn age(path: &Path) -> Age {
    let mut headers = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take((FILE_HEADERS * BLOCK_BYTES) as u64).read_to_end(&mut headers));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Age::Missing,
        Err(_) => return Age::Damaged,
        Ok(_) => {}
    }
    // A file that is shorter than a block has no header either.
    let blocks =
        headers.chunks_exact(BLOCK_BYTES).filter_map(|block| block.first_chunk::<BLOCK_BYTES>());
    let newest = blocks
        .clone()
        .filter_map(|block| FileHeader::parse(block).ok())
        .map(|header| header.incarnation)
        .max();
    match newest {
        Some(incarnation) => Age::Incarnation(incarnation.into()),
        None if blocks.flatten().all(|byte| *byte == 0) => Age::Empty,
        None => Age::Damaged,
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Identity, DataDirError> {
    let damaged = |cause: String| DataDirError::Damaged {
        path: path.to_owned(),
        cause: format!(
            "not an identity file of sprat, or damaged: {cause}; restore it from a copy"
        ),
    };
    let text = str::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
    let whole = |text| toml::from_str::<Identity>(text).map_err(|error| damaged(error.to_string()));
    let sealed = text.strip_suffix('\n').and_then(|text| text.rsplit_once(CHECKSUM));
    if let Some((lines, checksum)) = sealed {
        return match format!("{:#010x}", crc32c::crc32c(lines.as_bytes())) == checksum {
            true => whole(lines).and_then(|identity| match identity.format {
                FORMAT => Ok(identity),
                found => Err(DataDirError::Newer { path: path.to_owned(), found }),
            }),
            false => Err(damaged("its checksum does not match its lines".into())),
        };
    }
    let FormatOnly { format } = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
    match format {
        1 => whole(text),
        found if found > FORMAT => Err(DataDirError::Newer { path: path.to_owned(), found }),
        _ => Err(damaged("it has no checksum".into())),
    }
}
