//! The list of a set, which states its files, the pieces of each file, and the host of each piece.

use crate::copy::options::MAX_HOSTS;
use crate::copy::tree::listing::local;
use crate::group::{GROUP_BYTES, Value};
use crate::share::Version;
use serde::{Deserialize, Serialize};
use sprat_http::Address;
use std::ops::Range;
use std::path::PathBuf;

/// Ending of the list's name.
pub(super) const LIST: &str = ".sprat-spread";
/// Ending of the name of the folder of pieces.
pub(super) const PIECES: &str = ".sprat-pieces";

/// Limit on the length of a list, in bytes. It has room for some 900,000 pieces of large files. A
/// longer list is rejected.
pub(super) const MAX_LIST: u64 = 64 << 20;

/// The version of the format.
const FORMAT: u32 = 1;

/// Length of a piece in bytes, if the file has at most [`MANY`] pieces.
const PIECE: u64 = 64 << 20;

/// Limit on the pieces of a file. A file of more than [`MANY`] times [`PIECE`] bytes has longer
/// pieces.
const MANY: u64 = 4096;

/// The list of a set, stored as JSON at each of its hosts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    /// Whether the set is a folder rather than one file.
    pub is_folder: bool,
    /// The address of the folder of pieces at each host, which ends with a slash.
    pub hosts: Vec<Address>,
    /// Directories in the set, each before its content.
    pub folders: Vec<ManifestFolder>,
    /// The set's files, in order.
    pub files: Vec<ManifestFile>,
}

/// A directory of the set.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ManifestFolder {
    /// The directory's path in the set, percent-encoded.
    pub path: String,
    /// The directory's modification time: seconds since 1970, a dot, and nine digits.
    pub mtime: String,
    /// The permission bits of the directory.
    pub mode: u32,
}

/// A file of the set, and where its pieces are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManifestFile {
    /// The file's path, length and state, and the length of its pieces.
    pub layout: FileLayout,
    /// The file's modification time, in the format of [`ManifestFolder::mtime`].
    pub mtime: String,
    /// The permission bits of the file.
    pub mode: u32,
    /// The file's pieces, in order.
    pub pieces: Vec<StoredPiece>,
}

/// How a file is cut into pieces.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileLayout {
    /// The file's path in the set, percent-encoded. This is the file's name if the set is one file.
    pub path: String,
    /// Length of the file in bytes.
    pub length: u64,
    /// A text that identifies the file's state. The names of the file's pieces begin with it.
    pub state: String,
    /// Length of every piece except the last, in bytes. It is a multiple of a group.
    pub piece: u64,
}

/// Where a piece is stored, and its hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoredPiece {
    /// Index of the piece's host in [`Manifest::hosts`].
    pub host: usize,
    /// The BLAKE3 hash of the piece as a file of its own.
    pub blake3: Value,
}

impl FileLayout {
    /// Divides a file in the state `version` into pieces.
    #[must_use]
    pub fn new(path: String, version: &Version) -> Self {
        let piece = PIECE.max(version.size.div_ceil(MANY).next_multiple_of(GROUP_BYTES));
        let state = version.tag().trim_matches('"').to_owned();
        Self { path, length: version.size, state, piece }
    }

    /// Returns the number of pieces. An empty file has no pieces.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::try_from(self.length.div_ceil(self.piece)).unwrap_or(usize::MAX)
    }

    /// Returns the range of the file's bytes that a piece has.
    #[must_use]
    pub fn range(&self, piece: usize) -> Range<u64> {
        let start = piece as u64 * self.piece;
        start..self.length.min(start + self.piece)
    }

    /// Returns the name of a piece in the folder of pieces.
    #[must_use]
    pub fn name(&self, piece: usize) -> String {
        format!("{}.{piece:06}", self.state)
    }
}

/// The JSON form of a list.
#[derive(Deserialize, Serialize)]
struct Written {
    sprat_spread: u32,
    folder: bool,
    hosts: Vec<String>,
    folders: Vec<ManifestFolder>,
    files: Vec<WrittenFile>,
}

#[derive(Deserialize, Serialize)]
struct WrittenFile {
    path: String,
    length: u64,
    state: String,
    piece: u64,
    mtime: String,
    mode: u32,
    /// For each piece the index of its host, and its hash.
    pieces: Vec<(usize, String)>,
}

impl Manifest {
    /// Encodes the list.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let files = self.files.iter().map(|file| WrittenFile {
            path: file.layout.path.clone(),
            length: file.layout.length,
            state: file.layout.state.clone(),
            piece: file.layout.piece,
            mtime: file.mtime.clone(),
            mode: file.mode,
            pieces: file.pieces.iter().map(|piece| (piece.host, hex(&piece.blake3))).collect(),
        });
        let written = Written {
            sprat_spread: FORMAT,
            folder: self.is_folder,
            hosts: self.hosts.iter().map(ToString::to_string).collect(),
            folders: self.folders.clone(),
            files: files.collect(),
        };
        serde_json::to_vec(&written).expect("strings and numbers are JSON")
    }

    /// Parses a list. The list comes from another machine, so all its numbers and lengths are
    /// bounded, and paths must stay within the set.
    /// # Errors
    /// If the list is invalid, returns the reason for an error message.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(bytes)
            .map_err(|error| format!("is not a list of pieces: {error}"))?;
        if written.sprat_spread != FORMAT {
            return Err(format!(
                "is a list of version {}; this sprat knows {FORMAT}",
                written.sprat_spread
            ));
        }
        if written.hosts.is_empty() || written.hosts.len() > MAX_HOSTS {
            return Err(format!("names {} hosts; want 1 to {MAX_HOSTS}", written.hosts.len()));
        }
        let mut hosts = Vec::new();
        for text in &written.hosts {
            let address = Address::parse(text).map_err(|error| error.to_string())?;
            // Accept only an address in the form in which we would write it, without a query or
            // credentials.
            let is_plain = address.authorization().is_none() && address.to_string() == *text;
            if !address.path().ends_with('/') || address.target(false).contains('?') || !is_plain {
                return Err(format!("names {address}, which is not a folder of pieces"));
            }
            hosts.push(address);
        }
        if let Some(folder) = written.folders.iter().find(|folder| local(&folder.path).is_none()) {
            return Err(format!("names {:?}, which is not a path in a folder", folder.path));
        }
        let files = written
            .files
            .into_iter()
            .map(|file| file.read(hosts.len()))
            .collect::<Result<Vec<_>, _>>()?;
        if !written.folder && (files.len() != 1 || !written.folders.is_empty()) {
            return Err("describes neither one file nor a folder".to_owned());
        }
        Ok(Self { is_folder: written.folder, hosts, folders: written.folders, files })
    }

    /// Returns whether the list has exactly these files in these states.
    #[must_use]
    pub fn is_of(&self, layouts: &[&FileLayout]) -> bool {
        self.files.iter().map(|file| &file.layout).eq(layouts.iter().copied())
    }
}

impl WrittenFile {
    fn read(self, hosts: usize) -> Result<ManifestFile, String> {
        let wrong = |what: &str| Err(format!("its file {:?} {what}", self.path));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if local(&self.path).is_none() {
            return wrong("is not a path in a folder");
        }
        if self.state.is_empty() || self.state.len() > 64 || !self.state.bytes().all(is_name) {
            return wrong("has an invalid state");
        }
        if self.piece == 0
            || !self.piece.is_multiple_of(GROUP_BYTES)
            || self.length > crate::copy::answer::MAX_LENGTH
        {
            return wrong("has an invalid length or piece size");
        }
        let layout = FileLayout {
            path: self.path.clone(),
            length: self.length,
            state: self.state.clone(),
            piece: self.piece,
        };
        if layout.count() != self.pieces.len() {
            return wrong("does not have the number of pieces that its length requires");
        }
        let mut pieces = Vec::with_capacity(self.pieces.len());
        for (host, hash) in &self.pieces {
            match blake3::Hash::from_hex(hash) {
                Ok(hash) if *host < hosts => {
                    pieces.push(StoredPiece { host: *host, blake3: *hash.as_bytes() })
                }
                _ => return wrong("has a piece without a valid host and hash"),
            }
        }
        Ok(ManifestFile { layout, mtime: self.mtime, mode: self.mode & 0o777, pieces })
    }
}

impl ManifestFile {
    /// Returns the path in the set as a local path.
    /// # Panics
    /// If the path leads out of the set. [`Manifest::parse`] rejects such a path.
    #[must_use]
    pub fn local(&self) -> PathBuf {
        local(&self.layout.path).expect("it was looked at when it was read")
    }
}

fn hex(value: &Value) -> String {
    blake3::Hash::from_bytes(*value).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest(length: u64, piece: u64) -> Manifest {
        let layout =
            FileLayout { path: "a/b%20c".to_owned(), length, state: "0123abc".to_owned(), piece };
        let pieces = (0..layout.count())
            .map(|number| StoredPiece { host: number % 2, blake3: [7; 32] })
            .collect();
        let hosts = ["http://a:8040/x.sprat-pieces/", "http://b:8040/x.sprat-pieces/"];
        Manifest {
            is_folder: true,
            hosts: hosts.iter().map(|host| Address::parse(host).expect("an address")).collect(),
            folders: vec![ManifestFolder {
                path: "a".to_owned(),
                mtime: "5.000000007".to_owned(),
                mode: 0o755,
            }],
            files: vec![ManifestFile { layout, mtime: "6".to_owned(), mode: 0o640, pieces }],
        }
    }

    proptest! {
        #[test]
        fn pieces_are_all_of_a_file_and_a_list_is_read_as_it_was_written(
            length in 0u64..1 << 36,
            groups in 1u64..300,
        ) {
            let list = manifest(length, groups * GROUP_BYTES);
            prop_assume!(list.files[0].pieces.len() < 1000);
            prop_assert_eq!(&Manifest::parse(&list.bytes()).unwrap(), &list);
            let layout = &list.files[0].layout;
            let mut next = 0;
            for piece in 0..layout.count() {
                let range = layout.range(piece);
                prop_assert!(range.start == next && range.end > next);
                next = range.end;
            }
            prop_assert_eq!(next, length);
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::parse(&bytes);
        }
    }

    #[test]
    fn a_list_that_leads_elsewhere_is_refused() {
        let text = String::from_utf8(manifest(3 << 20, 1 << 20).bytes()).unwrap();
        assert!(Manifest::parse(text.as_bytes()).is_ok());
        for (there, instead) in [
            ("\"folder\":true", "\"folder\":false"),
            ("a/b%20c", "../b"),
            ("a/b%20c", "a/%2e%2e/b"),
            ("\"path\":\"a\"", "\"path\":\"/etc\""),
            ("0123abc", "../x"),
            ("x.sprat-pieces/\",", "x.sprat-pieces\","),
            ("http://a:8040", "ftp://a:8040"),
            ("http://a:8040", "http://me:secret@a:8040"),
            ("http://a:8040", "sprat://a:8040"),
            ("http://a:8040/x.sprat-pieces/", "http://a:8040/x.sprat-pieces/?token=x"),
            ("\"sprat_spread\":1", "\"sprat_spread\":2"),
            ("\"piece\":1048576", "\"piece\":1048575"),
            ("\"piece\":1048576", "\"piece\":0"),
            ("\"length\":3145728", "\"length\":4194304"),
            ("\"length\":3145728", "\"length\":18446744073709551615"),
            ("[[0,", "[[2,"),
            ("[[0,\"07", "[[0,\"7"),
        ] {
            let changed = text.replacen(there, instead, 1);
            assert_ne!(changed, text, "{there}");
            assert!(Manifest::parse(changed.as_bytes()).is_err(), "{instead}");
        }
    }
}
