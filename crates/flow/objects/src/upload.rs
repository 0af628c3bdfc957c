//! A local file to an object: in parts, several at a time, which become the object when all are
//! there. Whatever fails, and Ctrl-C, takes the parts away again.

use crate::store::{Location, Store, told};
use bytes::Bytes;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::{MultipartId, ObjectStoreExt as _, PutPayload};
use sprat_flow::copy::{Error, Event, FileHasher, FileSums, Options, Progress};
use sprat_flow::file::{DestinationError, Source, SourceError, open_regular};
use sprat_flow::group::Value;
use sprat_http::Cancel;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Parts under way: each ends with its number, what the store calls it, and its bytes.
type Going = JoinSet<Result<(usize, PartId, u64), object_store::Error>>;

/// Bytes of a part, unless the file is so long that there would be too many.
const PART_BYTES: u64 = 16 << 20;

/// Most parts of an object, S3's own limit.
const MAX_PARTS: u64 = 10_000;

/// How often it is looked whether to stop while parts are on their way.
const LOOK: Duration = Duration::from_millis(100);

/// A file to be sent.
#[derive(Debug)]
pub struct Upload {
    from: PathBuf,
    to: Location,
    options: Options,
    cancel: Cancel,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The object.
    pub target: Location,
    /// Its length, bytes.
    pub length: u64,
    /// The BLAKE3 hash of what was sent.
    pub blake3: Value,
    /// How long it took.
    pub time: Duration,
}

impl Upload {
    /// Of the file at `from`, to an object, or into a folder under its own name. Of a copy's
    /// options `streams` (parts on their way at a time), `force`, `retries`, `patience`, the
    /// sums, `limit`'s absence and whom to trust are of account.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(
        from: &Path,
        to: &Location,
        options: Options,
        cancel: &Cancel,
    ) -> Result<Self, Error> {
        let mut to = to.clone();
        if to.is_folder() {
            let name = from.file_name().and_then(|name| name.to_str());
            let unnamed = || {
                Error::Usage(format!(
                    "{}: has no name that a key can have; give one",
                    from.display()
                ))
            };
            to.key.push_str(name.ok_or_else(unnamed)?);
        }
        if options.limit.is_some() {
            return Err(Error::Usage(format!(
                "{to}: what is sent cannot be held back by --limit; leave it out"
            )));
        }
        Ok(Self { from: from.to_owned(), to, options, cancel: cancel.clone() })
    }

    /// Sends it, telling how it goes.
    ///
    /// # Errors
    /// [`Error`]. There is no object then, or the one that was there, and no part of another.
    pub fn run(&self, store: &Store, tell: &mut dyn FnMut(&Event)) -> Result<Sent, Error> {
        let begun = Instant::now();
        let at = |error| Error::File { path: self.from.clone(), source: error };
        let (file, before) = open_regular(&self.from)?;
        if !self.options.force && store.length(&self.to)?.is_some() {
            return Err(DestinationError::Exists(self.to.to_string().into()).into());
        }
        let length = before.len();
        tell(&Event::Opened {
            source: self.from.display().to_string(),
            target: self.to.to_string().into(),
            length: Some(length),
            verified: false,
            resumed: 0,
            streams: self.options.streams,
            written: "object".to_owned(),
        });
        let reading = Source::new(file.try_clone().map_err(at)?, &self.from, 0..length);
        let sums = &self.options.sums;
        let mut parts =
            Parts { reading, from: &self.from, hasher: sums.hasher(), bytes: part_bytes(length) };
        let unchanged = || match file.metadata() {
            Ok(now) if same(&before, &now) => Ok(()),
            _ => Err(self.changed("it was written to while it was read".to_owned())),
        };
        let mut progress = Progress { length: Some(length), ..Progress::default() };
        let path = self.to.path()?;
        let summed = store.runtime.block_on(async {
            if length <= part_bytes(length) {
                let whole = parts.next()?.unwrap_or_default();
                unchanged()?;
                let summed = self.summed(parts)?;
                let put = store.s3.put(&path, PutPayload::from(whole)).await;
                return put.map(|_| summed).map_err(|error| self.told(error));
            }
            let created = store.s3.create_multipart(&path).await;
            let id = created.map_err(|error| self.told(error))?;
            let sent = self.parts(store, &id, &mut parts, &mut progress, tell).await;
            let whole = sent.and_then(|sent| unchanged().map(|()| sent));
            let completed = match whole.and_then(|sent| Ok((sent, self.summed(parts)?))) {
                Ok((sent, summed)) => {
                    let completed = store.s3.complete_multipart(&path, &id, sent).await;
                    completed.map(|_| summed).map_err(|error| self.told(error))
                }
                Err(error) => Err(error),
            };
            // Else they would be paid for until somebody looks.
            if completed.is_err()
                && let Err(error) = store.last.abort_multipart(&path, &id).await
            {
                tell(&Event::Note(format!("{}: parts of it may be left there: {error}", self.to)));
            }
            completed
        })?;
        let has = store.length(&self.to)?;
        if has != Some(length) {
            let why = format!("was sent {length} B and has {has:?}; send it again with --force");
            return Err(Error::Protocol { source_name: self.to.to_string(), why });
        }
        (progress.done, progress.received) = (length, length);
        tell(&Event::Progress(progress));
        Ok(Sent { target: self.to.clone(), length, blake3: summed.blake3, time: begun.elapsed() })
    }

    /// The sums of all that was read. A file that has others than it must have does not become an
    /// object.
    fn summed(&self, parts: Parts<'_>) -> Result<FileSums, Error> {
        let summed = parts.hasher.finish();
        self.options.sums.check(&self.from.display().to_string(), &summed)?;
        Ok(summed)
    }

    /// Sends all parts, so many at a time; gives what they are known by, in order. When it fails,
    /// none is on its way any more.
    async fn parts(
        &self,
        store: &Store,
        id: &MultipartId,
        parts: &mut Parts<'_>,
        progress: &mut Progress,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Vec<PartId>, Error> {
        let mut going = JoinSet::new();
        let done = self.all_parts(store, id, parts, (&mut going, progress), tell).await;
        if done.is_err() {
            // A part that arrives after it was said that they are not wanted would stay.
            store.stop.cancel();
            while going.join_next().await.is_some() {}
        }
        done
    }

    async fn all_parts(
        &self,
        store: &Store,
        id: &MultipartId,
        parts: &mut Parts<'_>,
        (going, progress): (&mut Going, &mut Progress),
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Vec<PartId>, Error> {
        let path = self.to.path()?;
        let mut sent: Vec<(usize, PartId)> = Vec::new();
        let (mut begun, mut ended) = (0, false);
        while !ended || !going.is_empty() {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if !ended && going.len() < self.options.streams {
                if let Some(part) = parts.next()? {
                    let (s3, path, id, number) =
                        (store.s3.clone(), path.clone(), id.clone(), begun);
                    let bytes = part.len() as u64;
                    going.spawn(async move {
                        let part = s3.put_part(&path, &id, number, PutPayload::from(part)).await?;
                        Ok((number, part, bytes))
                    });
                    begun += 1;
                } else {
                    ended = true;
                }
                continue;
            }
            match tokio::time::timeout(LOOK, going.join_next()).await {
                Ok(Some(Ok(Ok((number, part, bytes))))) => {
                    sent.push((number, part));
                    progress.done += bytes;
                }
                Ok(Some(Ok(Err(error)))) => return Err(self.told(error)),
                Ok(Some(Err(error))) => {
                    let why = format!("a part was not sent: {error}");
                    return Err(Error::Unreachable { source_name: self.to.to_string(), why });
                }
                Ok(None) | Err(_) => {}
            }
            progress.received = progress.done;
            tell(&Event::Progress(*progress));
        }
        sent.sort_by_key(|(number, _)| *number);
        Ok(sent.into_iter().map(|(_, part)| part).collect())
    }

    fn told(&self, error: object_store::Error) -> Error {
        if self.cancel.is_cancelled() { Error::Cancelled } else { told(&self.to, error) }
    }

    fn changed(&self, why: String) -> Error {
        Error::Changed { source_name: self.from.display().to_string(), why }
    }
}

/// A file's parts, in order, hashed as they are read.
struct Parts<'a> {
    reading: Source,
    from: &'a Path,
    hasher: FileHasher,
    bytes: u64,
}

impl Parts<'_> {
    fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut part = Vec::new();
        while (part.len() as u64) < self.bytes {
            let block = self.reading.next_block().map_err(|error| match error {
                SourceError::Short { .. } => Error::Changed {
                    source_name: self.from.display().to_string(),
                    why: error.to_string(),
                },
                SourceError::Io { path, source, .. } => Error::File { path, source },
            })?;
            let Some(block) = block else { break };
            self.hasher.add(block);
            part.extend_from_slice(block);
        }
        Ok((!part.is_empty()).then(|| part.into()))
    }
}

/// Bytes of a part of a file: whole megabytes, as the file is read.
fn part_bytes(length: u64) -> u64 {
    PART_BYTES.max(length.div_ceil(MAX_PARTS).next_multiple_of(1 << 20))
}

/// Whether a file has not been written to.
fn same(before: &Metadata, now: &Metadata) -> bool {
    let of = |meta: &Metadata| {
        (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
    };
    of(before) == of(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_more_parts_than_an_object_may() {
        for length in [0, 1, PART_BYTES, 150 << 30, (150 << 30) + 1, 5 << 40] {
            let part = part_bytes(length);
            assert!(
                length.div_ceil(part) <= MAX_PARTS && part.is_multiple_of(1 << 20),
                "{length}: {part}"
            );
        }
    }
}
