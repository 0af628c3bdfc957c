//! A server's data directory: who it belongs to, and which files lie in it.
//!
//! ```text
//! identity.toml      format, cluster, server id, hash seed, how many nodes share the directory if not one, the ages
//!                    of the files below, and a checksum of these lines
//! identity.toml.new  the identity before: what is written next takes its place on the disk, also when that is full
//! coordinator.redb   the coordinator's metadata, when this process is one; coordinator.redb.new while it is made
//! catalog.sprat      a copy of them, as the coordinator gave it to this server
//! log.sprat          the log: a frame for every segment
//! replicas.sprat     what this node keeps of other servers' logs
//! node-2, node-3 ..  the same, but for the coordinator, of the second node of the process, the third ..
//! ```
//!
//! A file that somebody put back from an older copy is intact, and a server that starts from it
//! would serve what was true then. So the identity holds the age of each file: the incarnation in
//! the header of the log and of the replicas, which grows whenever one is opened, has grown and is
//! closed. A file that is younger than the identity says is used, as the identity is written last;
//! one that is older, empty or missing is refused. The catalog's age is the version of the tablet
//! map in it, and the coordinator's metadata must not be older than that.

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

/// Version of the directory's layout that this program writes. It reads format 1 too, which had no
/// ages and no checksum.
pub const FORMAT: u32 = 2;

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
    /// The cluster whose coordinator's metadata lie here; 0 if none's do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub coordinator: u64,
    /// Incarnation that the log had at least; 0 before it was first opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log: u64,
    /// Incarnation that the file of replicas had at least; 0 before it was first opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: u64,
}

impl Identity {
    /// That of a directory that has just been made.
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

/// What the last line of an identity begins with; the CRC32C of the lines above it follows.
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
    #[error(
        "{0}: another sprat server is running with this data directory; stop it, or give another --data"
    )]
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
    #[error(
        "{path}: holds the objects of {found} nodes, not {asked}; start the server with --nodes {found}"
    )]
    OtherNodes {
        /// The directory.
        path: PathBuf,
        /// How many it was made for.
        found: u32,
        /// How many there are to be.
        asked: u32,
    },
    /// A file that has data is gone, or empty.
    #[error(
        "{path}: {is}, and with it {what}; put it back, or remove the directory to start with an empty store"
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// Missing, or empty.
        is: &'static str,
        /// What was in it.
        what: &'static str,
    },
    /// A file is an older copy of itself.
    #[error(
        "{path}: an older copy: its incarnation is {found}, and this server has had {had} of it; what was written since \
         is not in it: put back the current one (nothing was changed)"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The incarnation that its header has.
        found: u64,
        /// The incarnation that it had at least.
        had: u64,
    },
    /// A file is damaged, or another one's.
    #[error("{path}: {cause} (nothing was changed)")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        cause: String,
    },
}

/// A data directory, held by this process alone. Clones share the lock on it, which ends with the
/// last of them.
#[derive(Clone)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    /// Holds the lock on the directory, and lets one clone at a time write in it.
    lock: Arc<Mutex<File>>,
}

impl DataDir {
    /// Opens the directory, or makes it with `new_seed` as its hash seed.
    ///
    /// # Errors
    /// [`DataDirError`]; nothing in an existing directory has changed then.
    pub fn open(path: &Path, new_seed: u64) -> Result<Self, DataDirError> {
        let dir = Self::open_unchecked(path, new_seed)?;
        dir.check_files()?;
        dir.reserve();
        Ok(dir)
    }

    /// As [`open`](Self::open), without a look at the files that the identity speaks of: for a
    /// directory that is to be mended, or salvaged.
    ///
    /// # Errors
    /// [`DataDirError`]; nothing in an existing directory has changed then.
    pub fn open_unchecked(path: &Path, new_seed: u64) -> Result<Self, DataDirError> {
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
        let dir =
            |identity| Self { path: path.to_owned(), identity, lock: Arc::new(Mutex::new(lock)) };
        match fs::read(&file) {
            Ok(text) => Ok(dir(parse(&file, &text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // An identity lost from among other files would let old objects into new tables.
                if let Some(beside) = [LOG, REPLICAS, COORDINATOR, CATALOG]
                    .iter()
                    .find(|name| path.join(name).exists())
                {
                    let cause = format!("it is missing beside {beside}: put it back");
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
    /// [`DataDirError`].
    pub fn check_files(&self) -> Result<(), DataDirError> {
        let Identity { format, cluster, coordinator, log, replicas, .. } = self.identity;
        let lost = |path, is, what| Err(DataDirError::Lost { path, is, what });
        for (path, had, what) in [
            (self.log(), log, "every object"),
            (self.replicas(), replicas, "what this server keeps for others"),
        ] {
            match age(&path) {
                _ if had == 0 => {}
                Age::Missing => return lost(path, "missing", what),
                Age::Empty => return lost(path, "empty", what),
                Age::Incarnation(found) if found < had => {
                    return Err(DataDirError::Older { path, found, had });
                }
                // Damage is reported, with its place, by whoever opens the file.
                Age::Incarnation(_) | Age::Damaged => {}
            }
        }
        if cluster != 0 && !self.log().exists() {
            return lost(self.log(), "missing", "every object");
        }
        // Before there were ages, an enlisted server whose files are empty may have lost them.
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

    /// Opens the directories of `nodes` nodes: this one, which is the first's, and those within it.
    /// All are there before any of them has a server id, so that one that is missing later is a
    /// loss, and is told as one.
    ///
    /// # Errors
    /// As [`open`](Self::open); and when it was made for another number of nodes.
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

    /// What it knows of itself.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Changes the identity; durable on return. With the first that names a cluster the log file
    /// begins, empty: from then on one without the other is a loss.
    ///
    /// # Errors
    /// [`DataDirError::Io`]; the old identity stands then.
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

    /// Notes how old the files are by now: when they have been opened, and when they have been
    /// closed. If that fails, it logs a warning.
    pub fn note_ages(&mut self) {
        let of = |path: &Path, had: u64| {
            if let Age::Incarnation(now) = age(path) { now.max(had) } else { had }
        };
        let Identity { log, replicas, .. } = self.identity;
        let (log, replicas) = (of(&self.log(), log), of(&self.replicas(), replicas));
        let identity = Identity { log, replicas, ..self.identity };
        let noted = if identity != self.identity { self.set_identity(identity) } else { Ok(()) };
        if let Err(error) = noted {
            tracing::warn!("{error}; an older copy of a file may go unnoticed");
        }
    }

    /// The copy of the catalog that this server keeps.
    ///
    /// # Errors
    /// [`DataDirError`]: it is damaged, or another cluster's.
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
        let remedy = "if the coordinator's metadata are current, remove this file: it is written again from them";
        Err(DataDirError::Damaged { path, cause: format!("{cause}; {remedy}") })
    }

    /// Keeps a copy of the catalog; durable on return.
    ///
    /// # Errors
    /// [`DataDirError::Io`]; the copy before stands then.
    pub fn keep_catalog(&self, copy: &CatalogCopy) -> Result<(), DataDirError> {
        self.replace(CATALOG, &copy.bytes)
    }

    /// Puts a file in the place of the one of its name, whole or not at all; durable on return. The
    /// one before stays beside it, and its blocks are those of the next: it can be written on a
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

    /// Sees to it that the next identity has its place on the disk: a member that starts gets
    /// another one, and its disk may be full by then, of replicas that nobody else has.
    fn reserve(&self) {
        let new = self.path.join(NEXT_IDENTITY);
        if new.exists() {
            return;
        }
        let reserved =
            fs::read(self.path.join(IDENTITY)).and_then(|text| write_in_place(&new, &text));
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

    /// Refuses a directory whose data is kept in another way than `copies` says: its own log, or
    /// replicas of others'.
    ///
    /// # Errors
    /// [`DataDirError::Other`].
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

    /// The coordinator's metadata file.
    pub fn coordinator(&self) -> PathBuf {
        self.path.join(COORDINATOR)
    }
}

/// Whether there is something in a file.
fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Writes a file, durably, where it is: one that has been written before takes no other blocks of
/// the disk.
fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut out = File::options().write(true).create(true).truncate(false).open(path)?;
    out.write_all(bytes)?;
    out.set_len(bytes.len() as u64)?;
    out.sync_all()
}

/// Has two files change names, so that neither gives its blocks back; where there is but one, or
/// that cannot be done, the new one takes the other's name.
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

/// How old a log, or a file of replicas, is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Age {
    Missing,
    /// Without a header: nothing was ever written, or that is gone.
    Empty,
    Damaged,
    Incarnation(u64),
}

impl Age {
    fn is_nothing(self) -> bool {
        matches!(self, Self::Missing | Self::Empty)
    }
}

/// Reads how old a file is from its headers.
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
            "not an identity file of sprat, or damaged: {cause}; put it back from a copy"
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
            false => Err(damaged("its checksum is not that of its lines".into())),
        };
    }
    let FormatOnly { format } = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
    match format {
        1 => whole(text),
        found if found > FORMAT => Err(DataDirError::Newer { path: path.to_owned(), found }),
        _ => Err(damaged("it has no checksum".into())),
    }
}
