//! Uploads a local file as an object, in parts, several at a time. The parts become the object when
//! all have arrived. After a failure or a cancellation they are removed. A file that fits into one
//! part is uploaded with one request.

use crate::store::{Bucket, Location, copy_error};
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

/// Parts in progress. Each task returns the part's number, its id in the store, and its length in
/// bytes.
type InFlight = JoinSet<Result<(usize, PartId, u64), object_store::Error>>;

/// Length of a part in bytes, unless the file would then have too many parts.
const PART_BYTES: u64 = 16 << 20;

/// S3's limit on the parts of an object. An object of more than [`MAX_PARTS`] times [`PART_BYTES`]
/// bytes has longer parts.
const MAX_PARTS: u64 = 10_000;

/// Interval at which cancellation is checked while parts are in progress.
const CANCEL_CHECK: Duration = Duration::from_millis(100);

/// An upload of a file to an object store. Create it with [`Upload::new`], and call
/// [`run`](Upload::run) with a [`Bucket`]. It cannot be resumed, because a failed upload removes
/// its parts.
#[derive(Debug)]
pub struct Upload {
    from: PathBuf,
    to: Location,
    options: Options,
    cancel: Cancel,
}

/// The outcome of an upload.
#[derive(Clone, Debug)]
pub struct SentObject {
    /// The location of the object.
    pub target: Location,
    /// The object's length in bytes.
    pub length: u64,
    /// The BLAKE3 hash of the bytes that were sent.
    pub blake3: Value,
    /// Duration of the upload.
    pub time: Duration,
}

impl Upload {
    /// Creates an upload of the file at `from` to an object, or to a folder, in which the file
    /// keeps its name. These options apply: `streams` (parts in progress at a time), `force`,
    /// `retries`, `patience`, `sums`, `authorities` and `insecure`. `limit` must not be set.
    ///
    /// # Errors
    /// [`Error::Usage`] if `to` is a folder and `from` does not end in a name that is UTF-8, or if
    /// `limit` is set.
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
                Error::Usage(format!("{}: its name cannot be a key; give a key", from.display()))
            };
            to.key.push_str(name.ok_or_else(unnamed)?);
        }
        if options.limit.is_some() {
            return Err(Error::Usage(format!(
                "{to}: --limit does not work with uploads to object stores; leave it out"
            )));
        }
        Ok(Self { from: from.to_owned(), to, options, cancel: cancel.clone() })
    }

    /// Sends the file, and passes events to `report`.
    /// # Errors
    /// [`Error`]. After most errors the object is unchanged, and the uploaded parts are removed. An
    /// event reports if parts may remain. After [`Error::Protocol`], the upload was completed, but
    /// the store has an object of another length, or none.
    pub fn run(
        &self,
        bucket: &Bucket,
        report: &mut dyn FnMut(&Event),
    ) -> Result<SentObject, Error> {
        let begun = Instant::now();
        let at = |error| Error::File { path: self.from.clone(), source: error };
        let (file, before) = open_regular(&self.from)?;
        if !self.options.force && bucket.length(&self.to)?.is_some() {
            return Err(DestinationError::Exists(self.to.to_string().into()).into());
        }
        let length = before.len();
        report(&Event::Opened {
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
        let sums = bucket.runtime.block_on(async {
            if length <= part_bytes(length) {
                let whole = parts.next()?.unwrap_or_default();
                unchanged()?;
                let sums = self.sums(parts)?;
                let put = bucket.s3.put(&path, PutPayload::from(whole)).await;
                return put.map(|_| sums).map_err(|error| self.error(error));
            }
            let created = bucket.s3.create_multipart(&path).await;
            let id = created.map_err(|error| self.error(error))?;
            let sent = self.parts(bucket, &id, &mut parts, &mut progress, report).await;
            let whole = sent.and_then(|sent| unchanged().map(|()| sent));
            let completed = match whole.and_then(|sent| Ok((sent, self.sums(parts)?))) {
                Ok((sent, sums)) => {
                    let completed = bucket.s3.complete_multipart(&path, &id, sent).await;
                    completed.map(|_| sums).map_err(|error| self.error(error))
                }
                Err(error) => Err(error),
            };
            // If parts remained, the user would pay for them until somebody notices.
            if completed.is_err()
                && let Err(error) = bucket.last.abort_multipart(&path, &id).await
            {
                report(&Event::Note(format!(
                    "{}: parts of the upload may remain there: {error}",
                    self.to
                )));
            }
            completed
        })?;
        let has = bucket.length(&self.to)?;
        if has != Some(length) {
            let why = format!("was sent {length} B and has {has:?}; send it again with --force");
            return Err(Error::Protocol { source_name: self.to.to_string(), why });
        }
        (progress.done, progress.received) = (length, length);
        report(&Event::Progress(progress));
        Ok(SentObject {
            target: self.to.clone(),
            length,
            blake3: sums.blake3,
            time: begun.elapsed(),
        })
    }

    /// Returns the sums of all bytes read. Fails if they differ from the given sums, so that the
    /// file does not become an object.
    fn sums(&self, parts: Parts<'_>) -> Result<FileSums, Error> {
        let sums = parts.hasher.finish();
        self.options.sums.check(&self.from.display().to_string(), &sums)?;
        Ok(sums)
    }

    /// Sends all parts, several at a time, and returns their ids in order. When it fails, no
    /// request is in progress any more.
    async fn parts(
        &self,
        bucket: &Bucket,
        id: &MultipartId,
        parts: &mut Parts<'_>,
        progress: &mut Progress,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Vec<PartId>, Error> {
        let mut in_flight = JoinSet::new();
        let done = self.all_parts(bucket, id, parts, (&mut in_flight, progress), report).await;
        if done.is_err() {
            // A part that arrives after the upload was aborted would remain.
            bucket.stop.cancel();
            while in_flight.join_next().await.is_some() {}
        }
        done
    }

    async fn all_parts(
        &self,
        bucket: &Bucket,
        id: &MultipartId,
        parts: &mut Parts<'_>,
        (in_flight, progress): (&mut InFlight, &mut Progress),
        report: &mut dyn FnMut(&Event),
    ) -> Result<Vec<PartId>, Error> {
        let path = self.to.path()?;
        let mut sent: Vec<(usize, PartId)> = Vec::new();
        let (mut begun, mut ended) = (0, false);
        while !ended || !in_flight.is_empty() {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if !ended && in_flight.len() < self.options.streams {
                if let Some(part) = parts.next()? {
                    let (s3, path, id, number) =
                        (bucket.s3.clone(), path.clone(), id.clone(), begun);
                    let bytes = part.len() as u64;
                    in_flight.spawn(async move {
                        let part = s3.put_part(&path, &id, number, PutPayload::from(part)).await?;
                        Ok((number, part, bytes))
                    });
                    begun += 1;
                } else {
                    ended = true;
                }
                continue;
            }
            match tokio::time::timeout(CANCEL_CHECK, in_flight.join_next()).await {
                Ok(Some(Ok(Ok((number, part, bytes))))) => {
                    sent.push((number, part));
                    progress.done += bytes;
                }
                Ok(Some(Ok(Err(error)))) => return Err(self.error(error)),
                Ok(Some(Err(error))) => {
                    let why = format!("a part was not sent: {error}");
                    return Err(Error::Unreachable { source_name: self.to.to_string(), why });
                }
                Ok(None) | Err(_) => {}
            }
            progress.received = progress.done;
            report(&Event::Progress(*progress));
        }
        sent.sort_by_key(|(number, _)| *number);
        Ok(sent.into_iter().map(|(_, part)| part).collect())
    }

    fn error(&self, error: object_store::Error) -> Error {
        if self.cancel.is_cancelled() { Error::Cancelled } else { copy_error(&self.to, error) }
    }

    fn changed(&self, why: String) -> Error {
        Error::Changed { source_name: self.from.display().to_string(), why }
    }
}

/// The parts of a file in order, hashed as they are read.
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

/// Returns the length of a part in bytes. It is a multiple of 1 MiB, because the file is read in
/// such blocks.
fn part_bytes(length: u64) -> u64 {
    PART_BYTES.max(length.div_ceil(MAX_PARTS).next_multiple_of(1 << 20))
}

/// Returns whether a file was not written to between two readings of its metadata.
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
