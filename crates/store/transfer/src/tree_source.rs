//! Import of a directory tree.

use super::{Error, Item, ItemSource, LargePolicy, OmitReason, Omitted, display_key};
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// The largest number of names in the error about large files; the error only counts the others.
const LARGE_SHOWN: usize = 10;

/// Yields an item for each regular file of a directory tree, directory by directory in the order of
/// the names.
pub struct TreeSource {
    root: PathBuf,
    walk: walkdir::IntoIter,
    large: LargePolicy,
    total: u64,
    consumed: u64,
    omitted: Omitted,
}

/// The kind of an entry of the tree.
enum Found<'a> {
    Directory,
    Omitted(&'a [u8], OmitReason),
    File { key: &'a [u8], bytes: u64 },
}

impl TreeSource {
    /// Makes a source. It walks the tree once, to add up its bytes and to find files that cannot be
    /// imported.
    ///
    /// # Errors
    /// When `root` is not a directory, a part of it cannot be read, a path is too long for a key,
    /// or files are over the value limit and `large` is [`LargePolicy::Refuse`]: the error names
    /// these.
    pub fn open(root: &Path, large: LargePolicy) -> Result<Self, Error> {
        if !root.metadata().map_err(|error| Error::io(root, error))?.is_dir() {
            return Err(Error::NotADirectory(root.to_owned()));
        }
        let mut total = 0;
        let mut count = 0;
        let mut named = Vec::new();
        for entry in walk(root) {
            let entry = entry.map_err(|error| walk_error(root, error))?;
            match look(root, &entry)? {
                Found::File { bytes, .. } => total += bytes,
                Found::Omitted(key, OmitReason::Large) if large == LargePolicy::Refuse => {
                    count += 1;
                    if named.len() < LARGE_SHOWN {
                        named.push(display_key(key));
                    }
                }
                Found::Directory | Found::Omitted(..) => {}
            }
        }
        if count > 0 {
            let more = if count > LARGE_SHOWN as u64 { ", ..." } else { "" };
            return Err(Error::LargeFiles {
                count,
                limit: MAX_VALUE,
                named: named.join(", ") + more,
            });
        }
        let omitted = Omitted::default();
        Ok(Self { root: root.to_owned(), walk: walk(root), large, total, consumed: 0, omitted })
    }
}

impl ItemSource for TreeSource {
    fn next(&mut self, item: &mut Item) -> Result<bool, Error> {
        for entry in self.walk.by_ref() {
            let entry = entry.map_err(|error| walk_error(&self.root, error))?;
            match look(&self.root, &entry)? {
                Found::Directory => {}
                Found::Omitted(_, OmitReason::Large) if self.large == LargePolicy::Refuse => {
                    return Err(changed(entry.path()));
                }
                Found::Omitted(key, reason) => self.omitted.add(display_key(key), reason),
                Found::File { key, .. } => {
                    item.key.clear();
                    item.key.extend_from_slice(key);
                    read_file(entry.path(), &mut item.value)?;
                    self.consumed += item.value.len() as u64;
                    return Ok(true);
                }
            }
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

fn look<'a>(root: &Path, entry: &'a DirEntry) -> Result<Found<'a>, Error> {
    let kind = entry.file_type();
    let path = entry.path().strip_prefix(root).expect("the walk stays below its root");
    let key = path.as_os_str().as_bytes();
    if kind.is_dir() {
        return Ok(Found::Directory);
    }
    if !kind.is_file() {
        return Ok(Found::Omitted(
            key,
            if kind.is_symlink() { OmitReason::Symlink } else { OmitReason::Special },
        ));
    }
    if key.len() > MAX_KEY {
        return Err(Error::LongPath(display_key(key)));
    }
    let bytes = entry.metadata().map_err(|error| walk_error(root, error))?.len();
    Ok(if bytes > MAX_VALUE as u64 {
        Found::Omitted(key, OmitReason::Large)
    } else {
        Found::File { key, bytes }
    })
}

fn walk(root: &Path) -> walkdir::IntoIter {
    WalkDir::new(root).min_depth(1).sort_by_file_name().into_iter()
}

fn walk_error(root: &Path, error: walkdir::Error) -> Error {
    let path = error.path().unwrap_or(root).to_owned();
    Error::io(&path, error.into())
}

/// Reads the whole file, which must have at most [`MAX_VALUE`] bytes.
fn read_file(path: &Path, value: &mut Vec<u8>) -> Result<(), Error> {
    value.clear();
    let limit = MAX_VALUE as u64 + 1;
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(value))
        .map_err(|error| Error::io(path, error))?;
    if value.len() > MAX_VALUE {
        return Err(changed(path));
    }
    Ok(())
}

fn changed(path: &Path) -> Error {
    Error::Changed(path.display().to_string())
}
