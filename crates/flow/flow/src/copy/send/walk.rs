//! Lists a local folder that is to be sent.

use crate::copy::error::Error;
use crate::file::irregular;
use crate::share::Version;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Limit on the entries of a folder and all folders below it. An upload of a larger folder fails.
const MAX_ENTRIES: usize = 4_000_000;

/// Limit on the nesting of directories. A deeper directory is left out.
const MAX_DEPTH: usize = 100;

/// Limit on the left-out entries that are named. Further entries are only counted.
const MAX_LEFT_OUT: usize = 1000;

/// A file or a directory.
#[derive(Clone, Debug)]
pub(in crate::copy) struct Entry {
    /// The path of the entry within the folder.
    pub(in crate::copy) path: PathBuf,
    pub(in crate::copy) version: Version,
}

/// The content of a folder.
#[derive(Debug, Default)]
pub(in crate::copy) struct Walk {
    pub(in crate::copy) files: Vec<Entry>,
    /// Directories, each before its content. The folder itself is the first.
    pub(in crate::copy) folders: Vec<Entry>,
    /// Entries that are not sent, each with the reason.
    pub(in crate::copy) left_out: Vec<String>,
    /// How many entries are not sent in addition to those named.
    pub(in crate::copy) unnamed: u64,
}

impl Walk {
    /// Lists a folder.
    /// # Errors
    /// [`Error::File`] if the folder cannot be read. [`Error::Usage`] if it has too many entries.
    pub(in crate::copy) fn of(folder: &Path) -> Result<Self, Error> {
        let mut walk = Self::default();
        walk.folder(folder, Path::new(""), MAX_DEPTH)?;
        if walk.unnamed > 0 {
            walk.left_out.push(format!("{} more", walk.unnamed));
        }
        Ok(walk)
    }

    fn folder(&mut self, root: &Path, path: &Path, depth: usize) -> Result<(), Error> {
        let whole = root.join(path);
        let at = |error| Error::file(&whole, error);
        let version = Version::of(&fs::metadata(&whole).map_err(at)?);
        self.folders.push(Entry { path: path.to_owned(), version });
        let mut names = Vec::new();
        for entry in fs::read_dir(&whole).map_err(at)? {
            names.push(entry.map_err(at)?.file_name());
        }
        names.sort();
        for name in names {
            if self.files.len() + self.folders.len() >= MAX_ENTRIES {
                let why = format!(
                    "{}: has more than {MAX_ENTRIES} entries; send its folders one by one",
                    root.display()
                );
                return Err(Error::Usage(why));
            }
            let (path, whole) = (path.join(&name), whole.join(&name));
            if name.as_bytes().starts_with(b".") {
                self.leave_out(&path, "servers reject names that begin with a dot");
                continue;
            }
            match fs::symlink_metadata(&whole) {
                Ok(meta) if meta.is_file() => {
                    self.files.push(Entry { path, version: Version::of(&meta) })
                }
                Ok(meta) if meta.is_dir() && depth == 0 => {
                    self.leave_out(&path, "is nested too deep")
                }
                Ok(meta) if meta.is_dir() => {
                    if let Err(error) = self.folder(root, &path, depth - 1) {
                        let Error::File { .. } = error else { return Err(error) };
                        self.leave_out(&path, &error.to_string());
                    }
                }
                Ok(meta) => {
                    let what = irregular(meta.file_type()).unwrap_or("not a regular file");
                    self.leave_out(&path, &format!("is {what}, and only files are sent"));
                }
                Err(error) => self.leave_out(&path, &error.to_string()),
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        if self.left_out.len() < MAX_LEFT_OUT {
            self.left_out.push(format!("{}: {why}", path.display()));
        } else {
            self.unnamed += 1;
        }
    }
}
