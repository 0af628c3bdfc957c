//! What a directory has: for programs as JSON (whole, or a line for each entry), for people as a page ([`super::page`]).

use super::root::{Found, RESERVED, Root};
use super::version::Version;
use crate::http::target::encode;
use rustix::fs::{Dir, Mode, OFlags};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;

/// Most entries of one directory: what is beyond is not listed, and the listing says so.
pub const MAX_ENTRIES: usize = 100_000;

/// Directories within directories that a recursive listing goes down.
pub const MAX_DEPTH: usize = 128;

/// What an entry is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// With entries of its own.
    Directory,
    /// With bytes.
    File,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its name; in a recursive listing its path from the directory that is listed. What is not UTF-8 in it is replaced.
    pub name: String,
    /// The same as part of an address, from which every byte of the name can be had. A directory's ends with a slash.
    pub href: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file; 0 for a directory.
    pub size: u64,
    /// When it was modified: seconds since 1970, a dot, nine digits.
    pub mtime: String,
    /// Permissions, octal, four digits.
    pub mode: String,
    /// Entity tag of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Seconds since 1970, for order.
    #[serde(skip)]
    pub seconds: i64,
}

/// The entries of a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// Where it is, as part of an address, with a slash at its end.
    pub path: String,
    /// In the order of their names, byte by byte.
    pub entries: Vec<Entry>,
    /// Whether there are more than [`MAX_ENTRIES`].
    pub truncated: bool,
}

/// Something in a directory, and how it is reached.
struct Item {
    name: OsString,
    kind: Kind,
    version: Version,
    /// Through a symbolic link.
    linked: bool,
}

/// Lists the directory at `names`, which is open.
///
/// # Errors
/// It cannot be read.
pub fn list(root: &Root, names: &[OsString], directory: &File) -> io::Result<Listing> {
    let (items, truncated) = items(root, names, directory)?;
    let path: String = names.iter().map(|name| format!("/{}", encode(name))).collect();
    Ok(Listing { path: path + "/", entries: items.iter().map(|item| item.entry("", "")).collect(), truncated })
}

/// Hands out an entry of the directory at `names` and of all below it at a time, each directory before what is in it. What
/// `take` says ends it. Symbolic links to files are files; those to directories are passed over, for they may lead in circles.
/// Gives the number of entries, and what could not be listed.
///
/// # Errors
/// What `take` gives, and that the directory itself cannot be read.
pub fn walk(
    root: &Root,
    names: &[OsString],
    directory: &File,
    take: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> io::Result<(u64, Vec<String>)> {
    let mut walk = Walk { root, take, count: 0, left_out: Vec::new() };
    let mut names = names.to_vec();
    let read = items(root, &names, directory)?;
    walk.directory(&mut names, read, ("", ""), MAX_DEPTH)?;
    Ok((walk.count, walk.left_out))
}

/// Most troubles that a recursive listing tells of.
const MAX_TROUBLES: usize = 100;

struct Walk<'a> {
    root: &'a Root,
    take: &'a mut dyn FnMut(&Entry) -> io::Result<()>,
    count: u64,
    left_out: Vec<String>,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        names: &mut Vec<OsString>,
        (items, truncated): (Vec<Item>, bool),
        prefix: (&str, &str),
        depth: usize,
    ) -> io::Result<()> {
        if truncated {
            self.leave_out(prefix.0, &format!("has more than {MAX_ENTRIES} entries"));
        }
        for item in items.iter().filter(|item| !(item.linked && item.kind == Kind::Directory)) {
            let entry = item.entry(prefix.0, prefix.1);
            (self.take)(&entry)?;
            self.count += 1;
            if item.kind == Kind::Directory {
                names.push(item.name.clone());
                match (depth, self.open(names)) {
                    (0, _) => self.leave_out(&entry.name, "lies too deep"),
                    (_, None) => self.leave_out(&entry.name, "cannot be read"),
                    (_, Some(read)) => {
                        let name = format!("{}/", entry.name);
                        self.directory(names, read, (&name, &entry.href), depth - 1)?;
                    }
                }
                names.pop();
            }
        }
        Ok(())
    }

    fn open(&self, names: &[OsString]) -> Option<(Vec<Item>, bool)> {
        match self.root.find(names) {
            Ok(Found::Directory(directory, _)) => items(self.root, names, &directory).ok(),
            _ => None,
        }
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        if self.left_out.len() < MAX_TROUBLES {
            self.left_out.push(format!("{name:?} {why}"));
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

/// What is to be seen in the directory at `names`, in order, and whether there is more.
fn items(root: &Root, names: &[OsString], directory: &File) -> io::Result<(Vec<Item>, bool)> {
    let mut items = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let own = names.is_empty() && name == RESERVED;
        if name == "." || name == ".." || own || !root.shows(name) {
            continue;
        }
        if items.len() == MAX_ENTRIES {
            return Ok((sorted(items), true));
        }
        // What goes away while it is listed is not there, and what leads elsewhere is not either.
        items.extend(item(root, names, directory, name));
    }
    Ok((sorted(items), false))
}

fn sorted(mut items: Vec<Item>) -> Vec<Item> {
    items.sort_by(|a, b| a.name.cmp(&b.name));
    items
}

fn item(root: &Root, names: &[OsString], directory: &File, name: &OsStr) -> Option<Item> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = File::from(rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?).metadata().ok()?;
    let linked = seen.file_type().is_symlink();
    let metadata = match linked {
        false => seen,
        true => {
            let mut names = names.to_vec();
            names.push(name.to_owned());
            match root.find(&names).ok()? {
                Found::File(_, metadata) | Found::Directory(_, metadata) => metadata,
            }
        }
    };
    Some(Item { name: name.to_owned(), kind: kind(&metadata)?, version: Version::of(&metadata), linked })
}

fn kind(metadata: &Metadata) -> Option<Kind> {
    match metadata.file_type() {
        kind if kind.is_dir() => Some(Kind::Directory),
        kind if kind.is_file() => Some(Kind::File),
        _ => None,
    }
}
