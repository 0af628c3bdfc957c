//! The sums that a file must have, and how they are compared with the sums of the file's bytes.

use super::error::Error;
use crate::file::{Sink, Source, SourceError, open_regular};
use crate::group::{self, Value};
use crate::partial::bytes_of;
use ring::digest::{Context, SHA256};
use sprat_http::Cancel;
use std::ops::Range;
use std::path::Path;

/// The sums that a file must have. `None` if the user gave no such sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// The BLAKE3 hash of the whole file.
    pub blake3: Option<Value>,
    /// The SHA-256 hash of the whole file.
    pub sha256: Option<[u8; 32]>,
}

/// Computes the sums of bytes that are added in order. It always computes BLAKE3. It computes
/// SHA-256 only if the user gave that sum, because SHA-256 costs several times as much.
pub struct FileHasher {
    blake3: blake3::Hasher,
    sha256: Option<Context>,
}

/// The sums of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileSums {
    /// The BLAKE3 hash of the whole file.
    pub blake3: Value,
    /// The SHA-256 hash, if it was computed.
    pub sha256: Option<[u8; 32]>,
}

impl Sums {
    /// Returns whether any sum was given.
    #[must_use]
    pub fn any(&self) -> bool {
        self.blake3.is_some() || self.sha256.is_some()
    }

    /// Returns a hasher that computes the sums that [`Sums::check`] needs.
    #[must_use]
    pub fn hasher(&self) -> FileHasher {
        let sha256 = self.sha256.is_some().then(|| Context::new(&SHA256));
        FileHasher { blake3: blake3::Hasher::new(), sha256 }
    }

    /// Compares the sums of a file with the sums that it must have.
    /// # Errors
    /// [`Error::Corrupt`] if the BLAKE3 or SHA-256 sum is to be checked and differs.
    pub fn check(&self, source_name: &str, has: &FileSums) -> Result<(), Error> {
        for (name, want, has) in
            [("BLAKE3", self.blake3, Some(has.blake3)), ("SHA-256", self.sha256, has.sha256)]
        {
            if let (Some(want), Some(has)) = (want, has)
                && want != has
            {
                let (has, want) = (hex(&has), hex(&want));
                let why = format!(
                    "the {name} of the file is {has}, not {want} as requested: it is another file"
                );
                return Err(Error::Corrupt { source_name: source_name.to_owned(), why });
            }
        }
        Ok(())
    }

    /// Computes the sums of the regular file at `path`, or of a part of it.
    pub(super) fn hash_file(
        &self,
        path: &Path,
        part: Option<Range<u64>>,
        cancel: &Cancel,
    ) -> Result<FileSums, Error> {
        let (file, meta) = open_regular(path)?;
        let mut source = Source::new(file, path, part.unwrap_or(0..meta.len()));
        let mut hasher = self.hasher();
        while let Some(block) = source.next_block().map_err(|error| changed(path, error))? {
            hasher.add(block);
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
        }
        Ok(hasher.finish())
    }

    /// Computes the sums of the `length` bytes written to a sink, which it reads back from the
    /// device. All buffers of the sink must be free.
    pub(super) fn hash_written(
        &self,
        sink: &mut Sink,
        length: u64,
        cancel: &Cancel,
    ) -> Result<FileSums, Error> {
        sink.flush()?;
        let Some(mut buffer) = sink.buffer()? else { unreachable!("all streams have ended") };
        let mut hasher = self.hasher();
        for index in 0..group::count(length) {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let len = usize::try_from(bytes_of(length, index)).expect("a group is in memory");
            sink.read(index, &mut buffer, len)?;
            hasher.add(&buffer[..len]);
        }
        sink.recycle(buffer);
        Ok(hasher.finish())
    }
}

impl FileHasher {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.blake3.update(bytes);
        self.sha256.iter_mut().for_each(|context| context.update(bytes));
    }

    /// Returns the sums of all bytes added.
    #[must_use]
    pub fn finish(self) -> FileSums {
        let sha256 = self
            .sha256
            .map(|context| context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"));
        FileSums { blake3: *self.blake3.finalize().as_bytes(), sha256 }
    }
}

impl std::fmt::Debug for FileHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Summer")
    }
}

fn changed(path: &Path, error: SourceError) -> Error {
    match error {
        SourceError::Short { .. } => {
            Error::Changed { source_name: path.display().to_string(), why: error.to_string() }
        }
        SourceError::Io { path, source, .. } => Error::file(path, source),
    }
}

/// Renders a hash as hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}
