//! Where a coordinator keeps what it must not forget.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What to do when the metadata are not what they should be.
pub(crate) const REMEDY: &str =
    "put back a current copy, or make it again from the servers' copies (`sprat store rebuild`)";

/// A change of a row: its key, and what is put there, or `None` to remove it.
pub(super) type Change = (String, Option<Vec<u8>>);

/// A small, ordered, durable map from text to bytes, changed atomically. One machine keeps it in a
/// file; several coordinators keep it in etcd.
pub trait Metadata {
    /// Everything there is, by key.
    ///
    /// # Errors
    /// [`MetadataError`] when it cannot be read.
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError>;

    /// Puts (`Some`) and removes (`None`) keys, all or none of them; durable on return.
    ///
    /// # Errors
    /// [`MetadataError`]; then nothing has changed, unless that is [`MetadataError::Unknown`].
    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError>;

    /// What they are called in messages: a file's path, an address.
    fn place(&self) -> String {
        "the coordinator's metadata".to_owned()
    }

    /// Most changes that [`apply`](Self::apply) makes at once.
    fn most_changes(&self) -> usize {
        usize::MAX
    }
}

/// Why the metadata cannot be read or changed.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// It cannot be, and nothing was changed.
    #[error("coordinator metadata {place}: {cause}")]
    Failed {
        /// Where they are.
        place: String,
        /// Why.
        cause: String,
    },
    /// Nothing was changed; in a while it may be possible.
    #[error("coordinator metadata {place}: {cause}")]
    Unavailable {
        /// Where they are.
        place: String,
        /// Why.
        cause: String,
    },
    /// Nothing was changed: another coordinator leads.
    #[error("coordinator metadata {place}: another coordinator leads")]
    Fenced {
        /// Where they are.
        place: String,
    },
    /// Whether anything was changed, or will yet be, is not known: what was read before says
    /// nothing any more.
    #[error("coordinator metadata {place}: {cause}")]
    Unknown {
        /// Where they are.
        place: String,
        /// What came instead of an answer.
        cause: String,
    },
}

impl MetadataError {
    /// The error of metadata at `place` that cannot be read or changed.
    pub fn new(place: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Failed { place: place.into(), cause: cause.into() }
    }
}

/// Metadata in one file of `redb`.
pub struct MetadataFile {
    path: PathBuf,
    database: Database,
}

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("metadata");

impl MetadataFile {
    /// Opens the file, or makes it. All of a file that is there is checked first: it is small, and
    /// is built upon.
    ///
    /// # Errors
    /// [`MetadataError`], among others when another process has it open, and when it is empty or
    /// damaged.
    pub fn open(path: &Path) -> Result<Self, MetadataError> {
        let fail = |cause: &dyn std::fmt::Display| {
            MetadataError::new(path.display().to_string(), cause.to_string())
        };
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(|file| file.len() == 0) {
            return Err(fail(&format!(
                "the file is empty: {REMEDY}; or remove it to begin a new cluster"
            )));
        }
        let open = || match found {
            Some(_) => {
                let mut database = Database::open(path)?;
                let intact = database.check_integrity()?;
                Ok((database, intact))
            }
            None => create_whole(path).map(|database| (database, true)),
        };
        // The library trusts what it reads: a damaged page can make it panic.
        let opened = std::panic::catch_unwind(open).unwrap_or_else(|_| {
            Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(
                "it makes no sense".into(),
            )))
        });
        match opened {
            Ok((database, true)) => Ok(Self { path: path.to_owned(), database }),
            Ok((_, false)) => Err(fail(&format!("the file is damaged: {REMEDY}"))),
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => Err(fail(
                &"another sprat is running with this data directory; stop it, or give another --data",
            )),
            Err(cause) => Err(fail(&format!("{cause}: {REMEDY}"))),
        }
    }

    fn fail(&self, cause: impl Into<redb::Error>) -> MetadataError {
        MetadataError::new(self.path.display().to_string(), cause.into().to_string())
    }
}

/// Makes the file under another name and renames it when all of it is on the disk. A process that
/// was killed while it made the file would otherwise find it at its next start and refuse it as
/// damaged.
fn create_whole(path: &Path) -> Result<Database, redb::DatabaseError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(redb::StorageError::Io(error).into());
        }
        _ => {}
    }
    let database = Database::create(&new)?;
    let name = || {
        fs::rename(&new, path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    };
    name().map_err(redb::StorageError::Io)?;
    Ok(database)
}

impl Metadata for MetadataFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError> {
        let read = self.database.begin_read().map_err(|cause| self.fail(cause))?;
        let table = match read.open_table(TABLE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(cause) => return Err(self.fail(cause)),
        };
        let mut all = BTreeMap::new();
        for row in table.iter().map_err(|cause| self.fail(cause))? {
            let (key, value) = row.map_err(|cause| self.fail(cause))?;
            all.insert(key.value().to_owned(), value.value().to_vec());
        }
        Ok(all)
    }

    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError> {
        let write = self.database.begin_write().map_err(|cause| self.fail(cause))?;
        {
            let mut table = write.open_table(TABLE).map_err(|cause| self.fail(cause))?;
            for (key, value) in changes {
                match value {
                    Some(value) => table.insert(key.as_str(), value.as_slice()).map(drop),
                    None => table.remove(key.as_str()).map(drop),
                }
                .map_err(|cause| self.fail(cause))?;
            }
        }
        write.commit().map_err(|cause| self.fail(cause))
    }
}

/// Metadata in memory: for tests, the simulator, and servers that keep nothing.
#[derive(Clone, Debug, Default)]
pub struct MetadataMemory {
    rows: BTreeMap<String, Vec<u8>>,
}

impl Metadata for MetadataMemory {
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError> {
        Ok(self.rows.clone())
    }

    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError> {
        for (key, value) in changes {
            match value {
                Some(value) => self.rows.insert(key.clone(), value.clone()),
                None => self.rows.remove(key),
            };
        }
        Ok(())
    }
}
