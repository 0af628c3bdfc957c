//! Sums that a file must have: computed from the bytes that are on the disk, and held against what
//! was asked for.

use super::error::Error;
use crate::file::{Sink, Source, SourceError, open_regular};
use crate::group::{self, Value};
use crate::partial::bytes_of;
use ring::digest::{Context, SHA256};
use sprat_http::Cancel;
use std::ops::Range;
use std::path::Path;

/// Sums that a file must have, if somebody knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// BLAKE3.
    pub blake3: Option<Value>,
    /// SHA-256.
    pub sha256: Option<[u8; 32]>,
}

/// The sums of bytes as they come, in order: BLAKE3 always, SHA-256 where it is asked for, because
/// it costs several times as much.
pub struct Summer {
    blake3: blake3::Hasher,
    sha256: Option<Context>,
}

/// What a file's sums are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summed {
    /// BLAKE3.
    pub blake3: Value,
    /// SHA-256, if it was asked for.
    pub sha256: Option<[u8; 32]>,
}

impl Sums {
    /// Whether any is asked for.
    #[must_use]
    pub fn any(&self) -> bool {
        self.blake3.is_some() || self.sha256.is_some()
    }

    /// Begins to sum what is to be held against these.
    #[must_use]
    pub fn summer(&self) -> Summer {
        let sha256 = self.sha256.is_some().then(|| Context::new(&SHA256));
        Summer { blake3: blake3::Hasher::new(), sha256 }
    }

    /// Holds what a file has against what it must have.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: it has another sum.
    pub fn hold(&self, source_name: &str, has: &Summed) -> Result<(), Error> {
        for (name, want, has) in
            [("BLAKE3", self.blake3, Some(has.blake3)), ("SHA-256", self.sha256, has.sha256)]
        {
            if let (Some(want), Some(has)) = (want, has)
                && want != has
            {
                let (has, want) = (hex(&has), hex(&want));
                let why = format!(
                    "the {name} of the file is {has}, and {want} was asked for: it is another file"
                );
                return Err(Error::Corrupt { source_name: source_name.to_owned(), why });
            }
        }
        Ok(())
    }

    /// Sums the regular file at `path` as it is on the disk: a part of it, or all.
    pub(super) fn of_file(
        &self,
        path: &Path,
        part: Option<Range<u64>>,
        cancel: &Cancel,
    ) -> Result<Summed, Error> {
        let (file, meta) = open_regular(path)?;
        let mut source = Source::new(file, path, part.unwrap_or(0..meta.len()));
        let mut summer = self.summer();
        while let Some(block) = source.next_block().map_err(|error| changed(path, error))? {
            summer.add(block);
            if cancel.is_asked() {
                return Err(Error::Cancelled);
            }
        }
        Ok(summer.finish())
    }

    /// Sums the `length` bytes that were written to a sink, read back from its device. All of its
    /// buffers are free.
    pub(super) fn of_written(
        &self,
        sink: &mut Sink,
        length: u64,
        cancel: &Cancel,
    ) -> Result<Summed, Error> {
        sink.flush()?;
        let Some(mut buffer) = sink.buffer()? else { unreachable!("all streams have ended") };
        let mut summer = self.summer();
        for index in 0..group::count(length) {
            if cancel.is_asked() {
                return Err(Error::Cancelled);
            }
            let len = usize::try_from(bytes_of(length, index)).expect("a group is in memory");
            sink.read(index, &mut buffer, len)?;
            summer.add(&buffer[..len]);
        }
        sink.recycle(buffer);
        Ok(summer.finish())
    }
}

impl Summer {
    /// Takes the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.blake3.update(bytes);
        self.sha256.iter_mut().for_each(|context| context.update(bytes));
    }

    /// The sums of all that was taken.
    #[must_use]
    pub fn finish(self) -> Summed {
        let sha256 = self
            .sha256
            .map(|context| context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"));
        Summed { blake3: *self.blake3.finalize().as_bytes(), sha256 }
    }
}

impl std::fmt::Debug for Summer {
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

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}
