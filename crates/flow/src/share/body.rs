//! Bodies on their way: from a file's blocks to a connection.

use super::decide::Body;
use super::socket::Channel;
use super::transfers::Going;
use super::version::Version;
use crate::file::{Source, SourceError};
use crate::group::{self, GROUP_BYTES};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use thiserror::Error;

/// Why a body was broken off. Its length is then not reached, so that nobody takes it for whole.
#[derive(Debug, Error)]
pub(super) enum Broken {
    #[error("{0}")]
    Source(#[from] SourceError),
    #[error("the file was changed while it was sent")]
    Changed,
    #[error("the connection broke: {0}")]
    Connection(#[from] io::Error),
}

/// What is sent.
pub(super) struct FileContent<'a> {
    pub(super) file: &'a File,
    pub(super) path: &'a Path,
    pub(super) version: Version,
}

impl FileContent<'_> {
    /// Sends a head and what follows it.
    pub(super) fn send(&self, channel: &mut Channel, head: &[u8], body: &Body, going: &Going) -> Result<(), Broken> {
        match body {
            Body::Empty => channel.send(&[head])?,
            Body::Text(text) => channel.send(&[head, text])?,
            Body::Lines => unreachable!("lines are no part of a file"),
            Body::Part(part) => self.send_part(channel, head, part, going)?,
            Body::Verified(part) => self.send_verified(channel, head, part, going)?,
            Body::Values(part) => self.send_values(channel, head, part, going)?,
            Body::Parts(parts, end) => {
                let mut first = head.to_vec();
                for (head, part) in parts {
                    first.extend(head);
                    self.send_part(channel, &first, part, going)?;
                    first.clear();
                    going.add(head.len() as u64);
                }
                channel.send(&[end])?;
                going.add(end.len() as u64);
            }
        }
        Ok(())
    }

    fn send_part(&self, channel: &mut Channel, head: &[u8], part: &Range<u64>, going: &Going) -> Result<(), Broken> {
        let mut source = self.source(part)?;
        let mut before = head;
        loop {
            let last = source.left().end.saturating_sub(source.left().start) <= GROUP_BYTES;
            let Some(block) = source.next_block()? else { break };
            self.check(last)?;
            channel.send(&[before, block])?;
            going.add(block.len() as u64);
            before = &[];
        }
        if !before.is_empty() {
            channel.send(&[before])?;
        }
        Ok(())
    }

    fn send_verified(
        &self,
        channel: &mut Channel,
        head: &[u8],
        part: &Range<u64>,
        going: &Going,
    ) -> Result<(), Broken> {
        let mut source = self.source(part)?;
        let mut before = head;
        loop {
            let at = source.left();
            let last = at.end.saturating_sub(at.start) <= GROUP_BYTES;
            let Some(block) = source.next_block()? else { break };
            let value = group::value(self.version.size, at.start / GROUP_BYTES, block);
            self.check(last)?;
            channel.send(&[before, block, &value])?;
            going.add((block.len() + value.len()) as u64);
            before = &[];
        }
        if !before.is_empty() {
            channel.send(&[before])?;
        }
        Ok(())
    }

    /// Reads a part, and sends only the values of its groups, each as soon as it is known: who asks has the bytes from elsewhere.
    fn send_values(&self, channel: &mut Channel, head: &[u8], part: &Range<u64>, going: &Going) -> Result<(), Broken> {
        let mut source = self.source(part)?;
        let mut before = head;
        loop {
            let at = source.left();
            let last = at.end.saturating_sub(at.start) <= GROUP_BYTES;
            let Some(block) = source.next_block()? else { break };
            let value = group::value(self.version.size, at.start / GROUP_BYTES, block);
            self.check(last)?;
            channel.send(&[before, &value])?;
            going.add(value.len() as u64);
            before = &[];
        }
        if !before.is_empty() {
            channel.send(&[before])?;
        }
        Ok(())
    }

    fn source(&self, part: &Range<u64>) -> Result<Source, Broken> {
        let file = self.file.try_clone().map_err(|source| SourceError::Io {
            path: self.path.to_owned(),
            at: part.start,
            source,
        })?;
        Ok(Source::new(file, self.path, part.clone()))
    }

    /// Before the last block leaves: whether all were of one version. What was sent of another is without its end then.
    fn check(&self, last: bool) -> Result<(), Broken> {
        if !last {
            return Ok(());
        }
        match self.file.metadata() {
            Ok(metadata) if Version::of(&metadata) == self.version => Ok(()),
            _ => Err(Broken::Changed),
        }
    }
}
