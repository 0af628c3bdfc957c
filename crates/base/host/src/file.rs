//! Replaces files atomically, and reads small ones.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of a call that writes. A kernel without preemption lets no other thread of the processor
/// run before the call ends: that of a whole segment of a backup took 7 ms, for which a server's
/// clients waited.
const WRITE_BYTES: usize = 64 << 10;

/// Replaces the file at `path` by one with these bytes, atomically and durably: a reader finds the
/// old file or the new one, also after a power failure. Creates the folder if there is none.
///
/// The bytes are first written to `path` with `.new` appended, so there may be only one writer at a
/// time. If there can be several writers, they must take a lock. A file that a crash has left at
/// the name with `.new` is overwritten.
///
/// # Errors
/// Errors of the filesystem, with the path. After an error the old file remains, unless only the
/// sync of the folder failed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let write = || {
        fs::create_dir_all(folder)?;
        let mut file = File::create(&new)?;
        bytes.chunks(WRITE_BYTES).try_for_each(|piece| file.write_all(piece))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Reads a text of at most `limit` bytes to its end.
///
/// # Errors
/// Errors of reading; [`io::ErrorKind::InvalidData`] if the text is not UTF-8, and
/// [`io::ErrorKind::FileTooLarge`] if it is longer, because a part of the text must not pass for
/// the whole.
pub fn read_text(from: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("it is longer than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}
