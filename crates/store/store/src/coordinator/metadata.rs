//! The durable storage of a coordinator's catalog.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Advice for messages about metadata that are damaged or outdated.
pub(crate) const REMEDY: &str =
    "restore a current copy, or rebuild it from the servers' copies (`sprat store rebuild`)";

/// A change of a row: its key, and the new value or `None` to remove it.
pub(super) type Change = (String, Option<Vec<u8>>);

/// A small, ordered, durable map from text to bytes, changed atomically: the storage of a
/// [`Catalog`](super::Catalog), which also keeps all of it in memory.
///
/// The cluster's only coordinator uses [`MetadataFile`]; several coordinators share
/// [`MetadataEtcd`](super::etcd::MetadataEtcd). The catalog calls [`load`](Self::load) once and
/// then [`apply`](Self::apply) for each change. `apply` blocks the coordinator's node, so it must
/// return within a bounded time.
pub trait Metadata {
    /// Returns all rows, by key.
    ///
    /// # Errors
    /// [`MetadataError`] when the metadata cannot be read.
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError>;

    /// Sets (`Some`) and removes (`None`) rows, all or none of them. The change is durable on
    /// return.
    ///
    /// # Errors
    /// [`MetadataError`] when the change cannot be made now or at all, or another coordinator
    /// leads. No row has changed then, except perhaps after [`MetadataError::Unknown`].
    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError>;

    /// Names the storage in messages: a file's path, or URLs.
    fn place(&self) -> String {
        "the coordinator's metadata".to_owned()
    }

    /// Returns the largest number of changes that one call of [`apply`](Self::apply) accepts.
    fn most_changes(&self) -> usize {
        usize::MAX
    }
}

/// Why the metadata cannot be read or changed.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// Nothing was changed.
    #[error("coordinator metadata {place}: {cause}")]
    Failed {
        /// The storage: a file's path or URLs, as in [`Metadata::place`].
        place: String,
        /// The underlying error.
        cause: String,
    },
    /// Nothing was changed; a later attempt may succeed.
    #[error("coordinator metadata {place}: {cause}")]
    Unavailable {
        /// The storage: a file's path or URLs, as in [`Metadata::place`].
        place: String,
        /// The underlying error.
        cause: String,
    },
    /// Nothing was changed: another coordinator leads.
    #[error("coordinator metadata {place}: another coordinator leads")]
    Fenced {
        /// The storage: a file's path or URLs, as in [`Metadata::place`].
        place: String,
    },
    /// It is not known whether the change was made, and it may still be made later. Rows that were
    /// read before may be outdated.
    #[error("coordinator metadata {place}: {cause}")]
    Unknown {
        /// The storage: a file's path or URLs, as in [`Metadata::place`].
        place: String,
        /// The underlying error.
        cause: String,
    },
}

impl MetadataError {
    /// Returns a [`Failed`](Self::Failed) error of the metadata at `place`.
    pub fn new(place: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Failed { place: place.into(), cause: cause.into() }
    }
}

/// Metadata in a `redb` database, which is one file.
pub struct MetadataFile {
    path: PathBuf,
    database: Database,
}

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("metadata");

impl MetadataFile {
    /// Opens the file, or creates it. An existing file is checked completely first, because it is
    /// small and the cluster depends on it.
    ///
    /// # Errors
    /// [`MetadataError`], for example when another process has the file open, or when it is empty
    /// or damaged.
    pub fn open(path: &Path) -> Result<Self, MetadataError> {
        let fail = |cause: &dyn std::fmt::Display| {
            MetadataError::new(path.display().to_string(), cause.to_string())
        };
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(|file| file.len() == 0) {
            return Err(fail(&format!(
                "the file is empty: {REMEDY}; or remove it to start a new cluster"
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
        // redb trusts the pages that it reads: a damaged page can make it panic.
        let opened = std::panic::catch_unwind(open).unwrap_or_else(|_| {
            Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(
                "its pages are invalid".into(),
            )))
        });
        match opened {
            Ok((database, true)) => Ok(Self { path: path.to_owned(), database }),
            Ok((_, false)) => Err(fail(&format!("the file is damaged: {REMEDY}"))),
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => Err(fail(
                &"another sprat is running with this data directory; stop it, or give another \
                  --data",
            )),
            Err(cause) => Err(fail(&format!("{cause}: {REMEDY}"))),
        }
    }

    fn fail(&self, cause: impl Into<redb::Error>) -> MetadataError {
        MetadataError::new(self.path.display().to_string(), cause.into().to_string())
    }
}

/// Creates the file under another name and renames it once it is completely on the disk. If a
/// process were killed while it created the file in place, its next start would refuse the file as
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

/// Metadata in memory: for tests, the simulator, and servers without a data directory.
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
