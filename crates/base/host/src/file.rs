//! Files that are replaced.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Puts a file with these bytes in the place of the one called `path`, whole or not at all: who
/// opens it finds the old one or the new one, also after a power cut. Durable on return. Makes the
/// folder if there is none.
///
/// The bytes are written as `path` with `.new` behind it, so one writer at a time: hold a lock
/// where there may be several. What a crash left under that name is overwritten.
///
/// # Errors
/// Whatever the filesystem says, with the path; the old file stands then, unless it was the folder
/// that could not be synced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let write = || {
        fs::create_dir_all(folder)?;
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
