//! Sends bodies: a file's blocks, the values of its groups, or both.

use super::decide::Body;
use super::socket::Channel;
use super::transfers::ActiveTransfer;
use super::values::Values;
use super::version::Version;
use crate::file::{Piece, Source, SourceError};
use crate::group::{self, GROUP_BYTES, GroupHasher, Value};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use thiserror::Error;

/// Number of bytes hashed at a time. It is a multiple of BLAKE3's chunk.
const PIECE: usize = 256 << 10;

/// Why a body ends early. The response is then shorter than its stated length, so that the client
/// notices.
#[derive(Debug, Error)]
pub(super) enum SendError {
    #[error("{0}")]
    Source(#[from] SourceError),
    #[error("the file was changed while it was sent")]
    Changed,
    #[error("the connection broke: {0}")]
    Connection(#[from] io::Error),
}

/// A file whose content is sent.
pub(super) struct FileContent<'a> {
    pub(super) file: &'a File,
    pub(super) path: &'a Path,
    pub(super) version: Version,
    pub(super) values: &'a Values,
    /// Whether to recompute cached values, because the client received bytes that do not match
    /// them.
    pub(super) fresh: bool,
    /// Number of bytes whose values were computed rather than taken from the cache.
    pub(super) summed: Cell<u64>,
}

impl FileContent<'_> {
    /// Sends a head and the body that follows it.
    pub(super) fn send(
        &self,
        channel: &mut Channel,
        head: &[u8],
        body: &Body,
        transfer: &ActiveTransfer,
    ) -> Result<(), SendError> {
        match body {
            Body::Empty => channel.send(&[head])?,
            Body::Text(text) => channel.send(&[head, text])?,
            Body::Lines => unreachable!("lines are no part of a file"),
            Body::Part(part) => self.send_range(channel, head, part, false, transfer)?,
            Body::Verified(part) => self.send_range(channel, head, part, true, transfer)?,
            Body::Values(part) => self.send_values(channel, head, part, transfer)?,
            Body::Parts(parts, end) => {
                let mut first = head.to_vec();
                for (head, part) in parts {
                    first.extend(head);
                    self.send_range(channel, &first, part, false, transfer)?;
                    first.clear();
                    transfer.add(head.len() as u64);
                }
                channel.send(&[end])?;
                transfer.add(end.len() as u64);
            }
        }
        Ok(())
    }

    /// Sends a head and a range of the file. In verified form, sends each group's value after the
    /// group.
    fn send_range(
        &self,
        channel: &mut Channel,
        head: &[u8],
        range: &Range<u64>,
        verified: bool,
        transfer: &ActiveTransfer,
    ) -> Result<(), SendError> {
        let mut source = self.source(range)?;
        let (mut before, mut room) = (head, Vec::new());
        while !source.left().is_empty() {
            let start = source.left().start;
            let group = start / GROUP_BYTES;
            let known = if verified { self.known(group) } else { None };
            // `sendfile` sends the contents of the page cache at the time of each transmission, so
            // a concurrent change can produce a mix of bytes. It is used only if the client
            // verifies the bytes.
            let by_reference = verified && !channel.encrypts();
            let piece = if by_reference {
                source.next_piece()?
            } else {
                source.next_block()?.map(Piece::Bytes)
            };
            let piece = piece.expect("something is left");
            let value = match (&piece, verified) {
                (_, false) => None,
                (_, true) if known.is_some() => known,
                (Piece::Bytes(bytes), true) => Some(self.computed(group, |hasher| {
                    hasher.add(bytes);
                    Ok(())
                })?),
                (Piece::Cached(bytes), true) => {
                    Some(self.computed(group, |hasher| self.sum(bytes, &mut room, hasher))?)
                }
            };
            let (end, value) = (start + piece.len(), value.as_ref().map_or(&[][..], |value| value));
            self.check(end == range.end)?;
            match piece {
                Piece::Bytes(bytes) => channel.send(&[before, bytes, value])?,
                Piece::Cached(bytes) => {
                    channel.send_with_more(before)?;
                    let sent = channel.send_cached(self.file, &bytes)?;
                    if start + sent < end {
                        return Err(SourceError::Short {
                            path: self.path.to_owned(),
                            at: start + sent,
                        }
                        .into());
                    }
                    channel.send(&[value])?;
                }
            }
            transfer.add(end - start + value.len() as u64);
            before = &[];
        }
        if !before.is_empty() {
            channel.send(&[before])?;
        }
        Ok(())
    }

    /// Returns the cached value of a group, unless the client asked to recompute it.
    fn known(&self, group: u64) -> Option<Value> {
        if self.fresh { None } else { self.values.get(&self.version, group) }
    }

    fn computed(
        &self,
        group: u64,
        sum: impl FnOnce(&mut GroupHasher) -> Result<(), SendError>,
    ) -> Result<Value, SendError> {
        let mut hasher = GroupHasher::begin(self.version.size, group);
        sum(&mut hasher)?;
        let value = hasher.value();
        self.values.keep(&self.version, group, value);
        let bytes = group::range(self.version.size, group);
        self.summed.set(self.summed.get() + (bytes.end - bytes.start));
        Ok(value)
    }

    /// Hashes bytes from the page cache, in pieces that stay in the processor's cache.
    fn sum(
        &self,
        bytes: &Range<u64>,
        room: &mut Vec<u8>,
        hasher: &mut GroupHasher,
    ) -> Result<(), SendError> {
        room.resize(PIECE, 0);
        for at in bytes.clone().step_by(PIECE) {
            let length = usize::try_from(bytes.end - at).map_or(PIECE, |left| left.min(PIECE));
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::UnexpectedEof => {
                    SourceError::Short { path: self.path.to_owned(), at: bytes.end - 1 }
                }
                _ => SourceError::Io { path: self.path.to_owned(), at, source },
            };
            self.file.read_exact_at(&mut room[..length], at).map_err(failed)?;
            hasher.add(&room[..length]);
        }
        Ok(())
    }

    /// Sends only the values of a part's groups, each as soon as it is known. The client gets the
    /// bytes elsewhere.
    fn send_values(
        &self,
        channel: &mut Channel,
        head: &[u8],
        part: &Range<u64>,
        transfer: &ActiveTransfer,
    ) -> Result<(), SendError> {
        let (mut source, mut before, mut start) = (None, head, part.start);
        while start < part.end {
            let (group, end) = (start / GROUP_BYTES, part.end.min(start + GROUP_BYTES));
            let value = if let Some(value) = self.known(group) {
                source = None;
                value
            } else {
                let source = match &mut source {
                    Some(source) => source,
                    none => none.insert(self.source(&(start..part.end))?),
                };
                let block = source.next_block()?.expect("something is left");
                self.computed(group, |hasher| {
                    hasher.add(block);
                    Ok(())
                })?
            };
            self.check(end == part.end)?;
            channel.send(&[before, &value])?;
            transfer.add(value.len() as u64);
            (before, start) = (&[], end);
        }
        if !before.is_empty() {
            channel.send(&[before])?;
        }
        Ok(())
    }

    fn source(&self, part: &Range<u64>) -> Result<Source, SendError> {
        let file = self.file.try_clone().map_err(|source| SourceError::Io {
            path: self.path.to_owned(),
            at: part.start,
            source,
        })?;
        Ok(Source::new(file, self.path, part.clone()))
    }

    /// Checks, before the last block is sent, that the file was not changed. An error leaves the
    /// body incomplete.
    fn check(&self, last: bool) -> Result<(), SendError> {
        if !last {
            return Ok(());
        }
        match self.file.metadata() {
            Ok(metadata) if Version::of(&metadata) == self.version => Ok(()),
            _ => Err(SendError::Changed),
        }
    }
}
