//! Import of a directory tree.

use super::{Error, Item, Large, Omitted, Source, Why, display_key};
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Names that the error about large files shows; the rest are counted.
const LARGE_SHOWN: usize = 10;

/// Items from the regular files of a directory tree, in the order of their names.
pub struct TreeSource {
    root: PathBuf,
    walk: walkdir::IntoIter,
    total: u64,
    consumed: u64,
    omitted: Omitted,
}

impl TreeSource {
    /// Walks the tree once, to add up its bytes and find what cannot be imported, before the first item.
    ///
    /// # Errors
    /// When `root` is no directory, a part of it cannot be read, or files are over the value limit
    /// and not to be skipped: they are named.
    pub fn open(root: &Path, large: Large) -> Result<Self, Error> {
        if !root.metadata().map_err(|error| Error::io(root, error))?.is_dir() {
            return Err(Error::NotADirectory(root.to_owned()));
        }
        let mut source =
            Self { root: root.to_owned(), walk: walk(root), total: 0, consumed: 0, omitted: Omitted::default() };
        let named = source.survey()?;
        match large {
            Large::Refuse if !named.is_empty() => Err(too_large(&named)),
            _ => Ok(source),
        }
    }

    /// Adds up sizes and notes what is left out; returns the files over the limit.
    fn survey(&mut self) -> Result<Vec<String>, Error> {
        let mut large = Vec::new();
        for entry in walk(&self.root) {
            let entry = entry.map_err(|error| walk_error(&self.root, error))?;
            let key = key_of(&self.root, &entry);
            let kind = entry.file_type();
            if kind.is_dir() {
                continue;
            }
            if !kind.is_file() {
                let why = if kind.is_symlink() { Why::Symlink } else { Why::Special };
                self.omitted.add(display_key(key), why);
                continue;
            }
            if key.len() > MAX_KEY {
                return Err(Error::LongPath(display_key(&key[..80])));
            }
            let bytes = size_of_entry(&self.root, &entry)?;
            if bytes > MAX_VALUE as u64 {
                self.omitted.add(display_key(key), Why::Large);
                large.push(format!("{} ({bytes} bytes)", display_key(key)));
            } else {
                self.total += bytes;
            }
        }
        Ok(large)
    }
}

impl Source for TreeSource {
    fn next(&mut self, item: &mut Item) -> Result<bool, Error> {
        for entry in self.walk.by_ref() {
            let entry = entry.map_err(|error| walk_error(&self.root, error))?;
            if !entry.file_type().is_file() || size_of_entry(&self.root, &entry)? > MAX_VALUE as u64 {
                continue; // noted by the survey
            }
            item.key.clear();
            item.key.extend_from_slice(key_of(&self.root, &entry));
            read_file(entry.path(), &mut item.value)?;
            self.consumed += item.value.len() as u64;
            return Ok(true);
        }
        Ok(false)
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.total)
    }

    fn consumed_bytes(&self) -> u64 {
        self.consumed
    }

    fn omitted(&self) -> &Omitted {
        &self.omitted
    }
}

fn walk(root: &Path) -> walkdir::IntoIter {
    WalkDir::new(root).min_depth(1).sort_by_file_name().into_iter()
}

fn walk_error(root: &Path, error: walkdir::Error) -> Error {
    let path = error.path().unwrap_or(root).to_owned();
    Error::io(&path, error.into())
}

fn key_of<'a>(root: &Path, entry: &'a DirEntry) -> &'a [u8] {
    let path = entry.path().strip_prefix(root).expect("the walk stays below its root");
    path.as_os_str().as_bytes()
}

fn size_of_entry(root: &Path, entry: &DirEntry) -> Result<u64, Error> {
    Ok(entry.metadata().map_err(|error| walk_error(root, error))?.len())
}

/// Reads the whole file, of at most [`MAX_VALUE`] bytes.
fn read_file(path: &Path, value: &mut Vec<u8>) -> Result<(), Error> {
    value.clear();
    let limit = MAX_VALUE as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(value)).map_err(|error| Error::io(path, error))?;
    if value.len() > MAX_VALUE {
        return Err(Error::Changed(path.display().to_string()));
    }
    Ok(())
}

fn too_large(named: &[String]) -> Error {
    let mut text = named[..named.len().min(LARGE_SHOWN)].join(", ");
    if named.len() > LARGE_SHOWN {
        text.push_str(", ...");
    }
    Error::LargeFiles { count: named.len() as u64, limit: MAX_VALUE, named: text }
}
