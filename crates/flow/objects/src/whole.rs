//! Objects that are read and written whole, and folders of them.

use crate::store::{Bucket, Location, copy_error};
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use sprat_flow::copy::Error;
use std::time::SystemTime;

/// An object, as a list of a folder shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Its key without that of the folder.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
    /// When it was written, by the store's clock.
    pub modified: SystemTime,
}

/// What is in a folder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// The objects in it, not those in its subfolders.
    pub objects: Vec<Listed>,
    /// The names of its subfolders.
    pub folders: Vec<String>,
}

impl Bucket {
    /// Lists a folder; one without objects is empty.
    ///
    /// # Errors
    /// As [`length`](Self::length).
    pub fn list(&self, folder: &Location) -> Result<Listing, Error> {
        let path = folder.path()?;
        let list = self.runtime.block_on(self.s3.list_with_delimiter(Some(&path)));
        let list = list.map_err(|error| copy_error(folder, error))?;
        let name = |path: &object_store::path::Path| path.filename().unwrap_or("").to_owned();
        let objects = list.objects.iter().map(|object| Listed {
            name: name(&object.location),
            length: object.size,
            modified: object.last_modified.into(),
        });
        Ok(Listing {
            objects: objects.collect(),
            folders: list.common_prefixes.iter().map(name).collect(),
        })
    }

    /// Returns the bytes of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`length`](Self::length).
    pub fn read(&self, location: &Location) -> Result<Option<Vec<u8>>, Error> {
        let path = location.path()?;
        let read = async { self.s3.get(&path).await?.bytes().await };
        match self.runtime.block_on(read) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(copy_error(location, error)),
        }
    }

    /// Writes an object with one request.
    ///
    /// # Errors
    /// As [`length`](Self::length).
    pub fn write(&self, location: &Location, bytes: Vec<u8>) -> Result<(), Error> {
        let written = self.runtime.block_on(self.s3.put(&location.path()?, bytes.into()));
        written.map(drop).map_err(|error| copy_error(location, error))
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// As [`length`](Self::length).
    pub fn remove(&self, location: &Location) -> Result<(), Error> {
        match self.runtime.block_on(self.s3.delete(&location.path()?)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(copy_error(location, error)),
        }
    }
}
