//! Lists directories: as one JSON document, as one line of JSON for each entry, or as a page
//! ([`super::page`]).

use super::root::{Found, RESERVED, Root};
use super::version::Version;
use crate::file::{Destination, irregular};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use sprat_http::address::encode;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

/// Limit on the entries of a directory in a listing that is made in memory. A longer listing is
/// truncated, and states that.
pub const MAX_ENTRIES: usize = 100_000;

/// Limit on the nesting of directories in a recursive listing. The content of deeper directories is
/// left out.
pub const MAX_DEPTH: usize = 128;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The name of the entry. In a recursive listing, the path of the entry from the listed
    /// directory. Invalid UTF-8 is replaced.
    pub name: String,
    /// The percent-encoded name or path, which preserves every byte. For a directory it ends with a
    /// slash.
    pub href: String,
    /// Whether the entry is a directory or a file.
    pub kind: Kind,
    /// Length of a file in bytes; 0 for a directory.
    pub size: u64,
    /// Modification time: seconds since 1970, a dot, and nine digits.
    pub mtime: String,
    /// Permissions: four octal digits.
    pub mode: String,
    /// Entity tag of a file; `None` for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Modification time in seconds since 1970, for sorting.
    #[serde(skip)]
    pub seconds: i64,
}

/// The entries of a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// The directory's percent-encoded path, with a slash at its end.
    pub path: String,
    /// The entries, sorted by name, byte by byte.
    pub entries: Vec<Entry>,
    /// Whether the directory has more than [`MAX_ENTRIES`] entries.
    pub truncated: bool,
}

/// An entry while it is examined.
struct Item {
    name: OsString,
    kind: Kind,
    version: Version,
    /// Whether the entry is a symbolic link. If it is, `kind` and `version` describe the link's
    /// target.
    linked: bool,
}

/// The names of a directory that may be listed, sorted.
struct Names {
    shown: Vec<OsString>,
    /// The number of names that begin with a dot and are not listed, not counting the names of
    /// incomplete files.
    hidden: u64,
    /// Whether `shown` lacks names, because the directory has too many.
    truncated: bool,
}

/// Lists the open directory at `names`.
///
/// # Errors
/// The directory cannot be read. An entry that cannot be examined is left out.
pub fn list(root: &Root, names: &[OsString], directory: &File) -> io::Result<Listing> {
    let Names { shown, truncated, .. } = read(root, names, directory, MAX_ENTRIES)?;
    let items = shown.into_iter().filter_map(|name| item(root, names, directory, name)?.ok());
    let entries = items.map(|item| item.entry("", "")).collect();
    let path: String = names.iter().map(|name| format!("/{}", encode(name))).collect();
    Ok(Listing { path: path + "/", entries, truncated })
}

/// The entries that a listing by lines omits.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LeftOut {
    /// Entries that are not listed, and directories whose content is not: each a text with the
    /// quoted name and the reason. If there are too many, the last text says how many more.
    pub named: Vec<String>,
    /// The number of names that begin with a dot and are not listed.
    pub hidden: u64,
}

/// Passes the entries of the directory at `names` to `take`, one by one. If `recursive`, also
/// passes the entries of all directories below, each directory before its content. An error from
/// `take` ends the walk. Returns the number of entries, and the entries that were left out.
///
/// A symbolic link to a file counts as a file. A recursive walk leaves out links to directories,
/// because links may form cycles.
/// # Errors
/// `take` returned an error, or the directory itself cannot be read. If a directory below it cannot
/// be read, its content is left out.
pub fn walk(
    root: &Root,
    names: &[OsString],
    directory: &File,
    recursive: bool,
    take: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> io::Result<(u64, LeftOut)> {
    let mut walk = Walk {
        root,
        take,
        recursive,
        count: 0,
        left_out: LeftOut::default(),
        named_bytes: 0,
        more: 0,
    };
    let mut names = names.to_vec();
    let read = read(root, &names, directory, MAX_LISTED)?;
    walk.directory(&mut names, directory, read, ("", ""), MAX_DEPTH)?;
    if walk.more > 0 {
        walk.left_out.named.push(format!("{} more", walk.more));
    }
    Ok((walk.count, walk.left_out))
}

/// Limit on the entries of one directory in a listing by lines, which keeps only their names in
/// memory. Further entries are left out.
pub const MAX_LISTED: usize = 1_000_000;

/// Limits on the number of left-out entries that a listing by lines names, and on the bytes of
/// their descriptions. There are limits because a client reads the last line into memory. Further
/// entries are only counted.
const MAX_NAMED: usize = 100;
const MAX_NAMED_BYTES: usize = 16 << 10;

struct Walk<'a> {
    root: &'a Root,
    take: &'a mut dyn FnMut(&Entry) -> io::Result<()>,
    recursive: bool,
    count: u64,
    left_out: LeftOut,
    named_bytes: usize,
    /// The number of entries that were left out and are not named.
    more: u64,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        names: &mut Vec<OsString>,
        directory: &File,
        read: Names,
        prefix: (&str, &str),
        depth: usize,
    ) -> io::Result<()> {
        self.left_out.hidden += read.hidden;
        if read.truncated {
            self.leave_out(prefix.0, &format!("has more than {MAX_LISTED} entries"));
        }
        for name in read.shown {
            let shown = format!("{}{}", prefix.0, name.to_string_lossy());
            match item(self.root, names, directory, name) {
                None => {}
                Some(Err(why)) => self.leave_out(&shown, &why),
                Some(Ok(item)) if self.recursive && item.linked && item.kind == Kind::Directory => {
                    self.leave_out(&shown, "is a symbolic link to a folder");
                }
                Some(Ok(item)) => self.item(names, &item, prefix, depth)?,
            }
        }
        Ok(())
    }

    /// Passes on an entry, and if it is a directory, the entries below it.
    fn item(
        &mut self,
        names: &mut Vec<OsString>,
        item: &Item,
        prefix: (&str, &str),
        depth: usize,
    ) -> io::Result<()> {
        let entry = item.entry(prefix.0, prefix.1);
        (self.take)(&entry)?;
        self.count += 1;
        if item.kind != Kind::Directory || !self.recursive {
            return Ok(());
        }
        names.push(item.name.clone());
        match (depth, self.open(names)) {
            (0, _) => self.leave_out(&entry.name, "is nested too deep"),
            (_, None) => self.leave_out(&entry.name, "cannot be read"),
            (_, Some((directory, read))) => {
                let name = format!("{}/", entry.name);
                self.directory(names, &directory, read, (&name, &entry.href), depth - 1)?;
            }
        }
        names.pop();
        Ok(())
    }

    fn open(&self, names: &[OsString]) -> Option<(File, Names)> {
        match self.root.find(names) {
            Ok(Found::Directory(directory, _)) => {
                let read = read(self.root, names, &directory, MAX_LISTED).ok()?;
                Some((directory, read))
            }
            _ => None,
        }
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        let text = format!("{name:?} {why}");
        if self.left_out.named.len() < MAX_NAMED && self.named_bytes + text.len() <= MAX_NAMED_BYTES
        {
            self.named_bytes += text.len();
            self.left_out.named.push(text);
        } else {
            self.more += 1;
        }
    }
}

impl Item {
    fn entry(&self, name_before: &str, href_before: &str) -> Entry {
        let slash = if self.kind == Kind::Directory { "/" } else { "" };
        let version = self.version;
        Entry {
            name: format!("{name_before}{}", self.name.to_string_lossy()),
            href: format!("{href_before}{}{slash}", encode(&self.name)),
            kind: self.kind,
            size: if self.kind == Kind::File { version.size } else { 0 },
            mtime: version.modified.to_string(),
            mode: format!("{:04o}", version.mode),
            etag: (self.kind == Kind::File).then(|| version.tag()),
            seconds: version.modified.seconds,
        }
    }
}

/// Reads the names of the entries in the directory at `names`, at most `most` of them.
fn read(root: &Root, names: &[OsString], directory: &File, most: usize) -> io::Result<Names> {
    let mut read = Names { shown: Vec::new(), hidden: 0, truncated: false };
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let own = (names.is_empty() && name == RESERVED) || Destination::is_transfer_name(name);
        if name == "." || name == ".." {
            continue;
        }
        if !root.shows(name) || (names.is_empty() && name == RESERVED) {
            read.hidden += u64::from(!own);
            continue;
        }
        if read.shown.len() == most {
            read.truncated = true;
            break;
        }
        read.shown.push(name.to_owned());
    }
    read.shown.sort();
    Ok(read)
}

/// Examines an entry. `None` if the entry no longer exists. An error says why the entry is not
/// listed.
fn item(
    root: &Root,
    names: &[OsString],
    directory: &File,
    name: OsString,
) -> Option<Result<Item, String>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = match rustix::fs::openat(directory, &name, flags, Mode::empty()) {
        Ok(seen) => File::from(seen).metadata().ok()?,
        Err(Errno::NOENT) => return None,
        Err(_) => return Some(Err("cannot be examined".to_owned())),
    };
    let linked = seen.file_type().is_symlink();
    let metadata = match linked {
        false => seen,
        true => {
            let mut names = names.to_vec();
            names.push(name.clone());
            match root.find(&names) {
                Ok(Found::File(_, metadata) | Found::Directory(_, metadata)) => metadata,
                Err(_) => {
                    return Some(Err("is a symbolic link whose target is not shared".to_owned()));
                }
            }
        }
    };
    let kind = match irregular(metadata.file_type()) {
        _ if metadata.is_dir() => Kind::Directory,
        None => Kind::File,
        Some(other) => return Some(Err(format!("is {other}"))),
    };
    Some(Ok(Item { name, kind, version: Version::of(&metadata), linked }))
}
