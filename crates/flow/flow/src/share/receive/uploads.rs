//! Uploads of files in parts, over several connections one after the other or at the same time.
//! Until the file is complete, the groups that have arrived are in a hidden file next to the
//! destination, with a journal.

use super::parts::{self, Parts, Reserved};
use crate::file::{Attributes, Destination, DestinationError, Sink, SinkError};
use crate::group::{self, Value};
use crate::journal::{Identity, Journal, begin, boot, groups};
use crate::partial::{Partial, part_id};
use crate::share::Version;
use crate::share::put;
use rustix::io::Errno;
use sprat_disk::{Access, AlignedBuf};
use sprat_host::lock;
use sprat_http::server::condition::Version as Condition;
use sprat_http::server::refused::Refused;
use sprat_http::server::request::Request;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Limit on the files that are received at a time, not counting small files. A request to upload
/// another file is rejected with status 503.
pub const MAX_UPLOADS: usize = 16;

/// Limit on the connections that send parts of one upload at a time. A request on another
/// connection is rejected with status 503.
pub const MAX_UPLOAD_STREAMS: usize = 16;

/// Number of groups in memory for an upload. Each connection fills one group while the disk writes
/// others.
const BUFFERS: usize = MAX_UPLOAD_STREAMS + 8;
const _: () = assert!(BUFFERS <= crate::file::MAX_BUFFERS);

/// An open directory and a name in it. The file is stored in that directory even if the directory
/// is moved.
pub(super) struct PutTarget {
    folder: OwnedFd,
    name: OsString,
    /// The file's path in messages.
    shown: String,
}

/// Identifies a file by the device and inode of its directory, and its name. The key does not
/// depend on the path that leads to the file.
type Key = (u64, u64, OsString);

/// The uploads in progress.
pub(in crate::share) struct Uploads {
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    parts: Arc<Parts>,
    begun: Arc<Mutex<HashMap<Key, Begun>>>,
}

/// The first bytes of a group whose other bytes did not arrive because a connection broke. Each
/// upload has at most one such group, of at most 1 MiB.
struct Begun {
    tag: String,
    group: u64,
    bytes: Vec<u8>,
}

/// The place of an upload. While one connection closes the upload, a connection that opens it waits
/// here until the journal is written.
type Slot = Mutex<Option<Arc<Upload>>>;

/// A file that is being received.
pub(super) struct Upload {
    target: PutTarget,
    destination: Destination,
    pub(super) length: u64,
    tag: Option<String>,
    streams: AtomicUsize,
    state: Mutex<UploadState>,
    parts: Arc<Parts>,
    begun: Arc<Mutex<HashMap<Key, Begun>>>,
    _reserved: Reserved,
}

/// The state of an upload, shared by its connections.
struct UploadState {
    partial: Partial,
    /// Whether the upload has ended: the file was published under its name or discarded, so that
    /// nothing is kept.
    over: bool,
    /// Groups that were reported to a sender, which then does not send them. They are read back
    /// before the upload finishes.
    reported: BTreeSet<u64>,
}

impl PutTarget {
    pub(super) fn new(folder: OwnedFd, name: &OsStr, shown: String) -> Self {
        Self { folder, name: name.to_owned(), shown }
    }

    /// Returns a path to the file through the open directory.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(&self.name)
    }

    pub(super) fn destination(&self) -> Destination {
        Destination::hidden(&self.path()).expect("a name")
    }

    /// Returns the key of the file's part.
    fn part_key(&self) -> Option<parts::Key> {
        let (device, inode, _) = self.key().ok()?;
        Some((device, inode, self.destination().part().file_name()?.to_owned()))
    }

    fn key(&self) -> io::Result<Key> {
        let stat = rustix::fs::fstat(&self.folder)?;
        Ok((stat.st_dev, stat.st_ino, self.name.clone()))
    }

    /// Returns the version of the file that has the name, if there is one. Rejects the request with
    /// status 409 if something other than a regular file has the name.
    pub(super) fn existing(&self) -> Result<Option<Version>, Refused> {
        match self.path().symlink_metadata() {
            Ok(meta) if meta.is_file() => Ok(Some(Version::of(&meta))),
            Ok(_) => Err(conflict("something that is not a file has that name".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Checks whether the request's conditions allow a file to get the name. Returns the version of
    /// the existing file, if there is one.
    pub(super) fn check_condition(&self, request: &Request) -> Result<Option<Version>, Refused> {
        let existing = self.existing()?;
        let tag = existing.map(|existing| existing.tag()).unwrap_or_default();
        put::may_replace(
            request,
            existing.map(|existing| Condition { tag: &tag, modified: existing.modified }),
        )?;
        Ok(existing)
    }

    /// Gives the part its final name if the request's conditions still hold. The part must be
    /// complete and durable. Returns the file's version, and whether it replaced a file.
    pub(super) fn publish(&self, request: &Request) -> Result<(Version, bool), Refused> {
        let replaced = self.check_condition(request)?.is_some();
        self.destination().publish(replaced).map_err(|error| match error {
            DestinationError::Exists(_) => {
                Refused { status: 412, reason: "the file exists by now".to_owned() }
            }
            DestinationError::NoName(_) => Refused::bad("a file has a name"),
            DestinationError::Other { kind, .. } => conflict(format!("{kind} has that name")),
            DestinationError::Io { source, .. } => failed(&source),
        })?;
        let meta = self.path().symlink_metadata().map_err(|error| failed(&error))?;
        Ok((Version::of(&meta), replaced))
    }

    /// Turns a failure to write into a response. `find_kept` says whether the sender can resume.
    pub(super) fn refuse(&self, error: &SinkError, find_kept: bool) -> Refused {
        match error {
            SinkError::NoSpace { bytes, .. } if find_kept => {
                let part = self
                    .destination()
                    .part()
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let reason = format!(
                    "no space for the {bytes} B of {}; what has arrived stays beside it as \
                     {part}, and the same command continues from there",
                    self.shown
                );
                Refused { status: 507, reason }
            }
            SinkError::NoSpace { bytes, .. } => Refused {
                status: 507,
                reason: format!("no space for the {bytes} B of {}", self.shown),
            },
            SinkError::Busy(_) => {
                Refused { status: 503, reason: "another transfer writes this file".to_owned() }
            }
            SinkError::Io { source, .. } => failed(source),
        }
    }
}

impl Uploads {
    pub(in crate::share) fn new(parts: Arc<Parts>) -> Self {
        Self { slots: Mutex::default(), parts, begun: Arc::default() }
    }

    /// Joins an upload in progress, resumes an interrupted upload, or begins a new one. An upload
    /// without a tag cannot be resumed.
    pub(super) fn open(
        &self,
        target: PutTarget,
        tag: Option<&str>,
        length: u64,
    ) -> Result<UploadStream, Refused> {
        let key = target.key().map_err(|error| failed(&error))?;
        let slot = {
            let mut slots = lock(&self.slots);
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || lock(slot).is_some());
            if slots.len() >= MAX_UPLOADS && !slots.contains_key(&key) {
                let reason = format!(
                    "{MAX_UPLOADS} files are being received, which is the limit; try again soon"
                );
                return Err(Refused { status: 503, reason });
            }
            slots.entry(key).or_default().clone()
        };
        let mut held = lock(&slot);
        let upload = match &*held {
            Some(live) => {
                let same = tag.is_some() && live.tag.as_deref() == tag && live.length == length;
                if !same || lock(&live.state).over {
                    return Err(conflict("another transfer writes this file".to_owned()));
                }
                live.clone()
            }
            None => held.insert(Arc::new(Upload::open(target, tag, length, self)?)).clone(),
        };
        if upload.streams.fetch_add(1, Ordering::AcqRel) >= MAX_UPLOAD_STREAMS {
            upload.streams.fetch_sub(1, Ordering::AcqRel);
            let reason = format!(
                "{MAX_UPLOAD_STREAMS} connections are sending parts of this file, which \
                     is the limit"
            );
            return Err(Refused { status: 503, reason });
        }
        Ok(UploadStream { upload: Some(upload), slot: slot.clone() })
    }

    /// Returns the group of an upload that has arrived in part, and how many bytes of it have
    /// arrived.
    pub(super) fn begun(&self, target: &PutTarget, tag: &str) -> Option<(u64, usize)> {
        let begun = lock(&self.begun);
        let begun = begun.get(&target.key().ok()?).filter(|begun| begun.tag == tag)?;
        Some((begun.group, begun.bytes.len()))
    }

    /// Encodes the state of an upload as a journal, with the groups that have arrived.
    pub(super) fn encode_state(
        &self,
        target: &PutTarget,
        asked: &put::Upload,
    ) -> Result<Vec<u8>, Refused> {
        let key = target.key().map_err(|error| failed(&error))?;
        let slot = lock(&self.slots).get(&key).cloned().unwrap_or_default();
        let held = lock(&slot);
        let values = match &*held {
            Some(live) if live.tag.as_ref() == Some(&asked.tag) => {
                let mut state = lock(&live.state);
                let values = state.partial.values.clone();
                state.reported.extend(values.keys());
                values
            }
            Some(_) => BTreeMap::new(),
            None => find_kept(target, &asked.tag, asked.length)
                .map(|(_, values)| values)
                .unwrap_or_default(),
        };
        let mut encoded = begin(&identity(&asked.tag, asked.length, String::new(), String::new()));
        groups(&mut encoded, &values);
        Ok(encoded)
    }
}

impl Upload {
    fn open(
        target: PutTarget,
        tag: Option<&str>,
        length: u64,
        uploads: &Uploads,
    ) -> Result<Self, Refused> {
        let parts = &uploads.parts;
        let destination = target.destination();
        let reserved = parts.reserve(target.part_key().as_ref(), &target.folder, length)?;
        if destination.part().symlink_metadata().is_ok_and(|meta| !meta.is_file()) {
            return Err(conflict(
                "something that is not a file has the name of its incomplete file".to_owned(),
            ));
        }
        let is_kept = || tag.is_some_and(|tag| find_kept(&target, tag, length).is_some());
        let open = || Sink::open(destination.part(), Access::Direct, Some(length), BUFFERS);
        let sink = open().or_else(|error| match error {
            // Remove the part of an earlier upload with another tag, to make room.
            SinkError::NoSpace { .. } if !is_kept() && destination.discard().is_ok() => open(),
            error => Err(error),
        });
        let sink = sink.map_err(|error| target.refuse(&error, is_kept()))?;
        // The part is locked from here on, so it cannot change after it was examined.
        let had = tag.and_then(|tag| find_kept(&target, tag, length));
        let mut partial = Partial::new(sink, None);
        let identity = |tag| identity(tag, length, part_id(destination.part()), boot());
        match (had, tag) {
            (Some((journal, values)), Some(_)) => {
                (partial.journal, partial.values) = (Some(journal), values);
            }
            (_, Some(tag)) => {
                partial.journal = Some(
                    Journal::begin(destination.journal(), &identity(tag))
                        .map_err(|error| failed(&error))?,
                );
            }
            // The journal of an earlier upload would describe bytes that will be overwritten.
            (_, None) => destination.remove_journal().map_err(|error| failed(&error))?,
        }
        if let Some(key) = target.part_key() {
            parts.begin(key);
        }
        let reported = partial.values.keys().copied().collect();
        let (tag, state) =
            (tag.map(str::to_owned), Mutex::new(UploadState { partial, over: false, reported }));
        Ok(Self {
            target,
            destination,
            length,
            tag,
            streams: AtomicUsize::new(0),
            state,
            parts: parts.clone(),
            begun: uploads.begun.clone(),
            _reserved: reserved,
        })
    }

    /// Keeps the first bytes of an incomplete group. An upload thus progresses even if the
    /// connection breaks within every megabyte.
    pub(super) fn keep_begun(&self, group: u64, bytes: &[u8]) {
        let (Some(tag), Ok(key)) = (self.tag.clone(), self.target.key()) else { return };
        let mut all = lock(&self.begun);
        if all.len() >= MAX_UPLOADS && !all.contains_key(&key) {
            all.clear(); // the senders will send them again
        }
        let is_less =
            |had: &Begun| had.tag == tag && had.group == group && had.bytes.len() >= bytes.len();
        if !bytes.is_empty() && !all.get(&key).is_some_and(is_less) {
            all.insert(key, Begun { tag, group, bytes: bytes.to_vec() });
        }
    }

    /// Removes and returns the first `have` bytes of a group, if they were kept.
    pub(super) fn take_begun(&self, group: u64, have: usize) -> Option<Vec<u8>> {
        let key = self.target.key().ok()?;
        let mut all = lock(&self.begun);
        let is_it = |had: &&Begun| {
            self.tag.as_ref() == Some(&had.tag) && had.group == group && had.bytes.len() >= have
        };
        all.get(&key).filter(is_it)?;
        let mut bytes = all.remove(&key)?.bytes;
        bytes.truncate(have);
        Some(bytes)
    }

    /// Returns whether this is the given upload, and it is still in progress.
    pub(super) fn is(&self, target: &PutTarget, upload: &put::Upload) -> bool {
        let same = self.tag.as_ref() == Some(&upload.tag) && self.length == upload.length;
        let key = |target: &PutTarget| target.key().ok();
        same && key(&self.target) == key(target) && !lock(&self.state).over
    }

    /// Begins the journal again, with only these groups.
    fn journal(&self, values: &BTreeMap<u64, Value>) -> io::Result<Journal> {
        let tag = self.tag.as_deref().unwrap_or_default();
        let identity = identity(tag, self.length, part_id(self.destination.part()), boot());
        let mut journal = Journal::begin(self.destination.journal(), &identity)?;
        journal.append(values)?;
        Ok(journal)
    }

    /// Verifies the complete file and gives it its name.
    pub(super) fn finish(
        &self,
        request: &Request,
        blake3: Option<&Value>,
        attributes: &Attributes,
    ) -> Result<PublishedFile, FinishError> {
        let mut state = lock(&self.state);
        let UploadState { partial, reported, over } = &mut *state;
        if !*over && !reported.is_empty() {
            // The disk, or another program, may have damaged the groups since they were reported.
            let checked = partial.check(self.length, &|group| reported.contains(&group), &|| false);
            let wrong = checked.map_err(|error| self.target.refuse(&error, true))?;
            reported.clear();
            if wrong != Some(0) {
                partial.journal = self.journal(&partial.values).ok();
            }
        }
        let missing = group::count(self.length) - state.partial.values.len() as u64;
        if state.over || missing > 0 {
            return Err(FinishError::Missing(missing));
        }
        let values: Vec<Value> = state.partial.values.values().copied().collect();
        if blake3.is_some_and(|blake3| *blake3 != group::root(&values)) {
            // The bytes are not those of the sender's file, so none of them can be used.
            state.over = true;
            let _ = self.destination.discard();
            let reason = "the received file has another hash and was discarded".to_owned();
            return Err(Refused { status: 422, reason }.into());
        }
        let finished = state.partial.sink.finish(self.length, attributes);
        let attribute_error = finished.map_err(|error| self.target.refuse(&error, true))?;
        let (version, replaced) = self.target.publish(request)?;
        state.over = true;
        Ok(PublishedFile { version, replaced, attribute_error })
    }
}

/// An uploaded file that has got its name.
pub(super) struct PublishedFile {
    pub(super) version: Version,
    /// Whether the file replaced another file.
    pub(super) replaced: bool,
    /// Why some of the file's attributes could not be set; `None` if all were set.
    pub(super) attribute_error: Option<io::Error>,
}

/// Why an upload cannot be finished.
pub(super) enum FinishError {
    /// This number of groups is missing.
    Missing(u64),
    Refused(Refused),
}

impl From<Refused> for FinishError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.over {
            return;
        }
        // Keep the groups that are durable, and free all other space. A failure to write was
        // already reported to the sender.
        let _ = state.partial.sink.release_all_but(state.partial.values.keys().copied());
        state.partial.journal_durable();
        if state.partial.values.is_empty() || state.partial.journal.is_none() {
            let _ = self.destination.discard();
        } else if let Some(key) = self.target.part_key() {
            self.parts.keep(key, state.partial.bytes(self.length));
        }
    }
}

/// A connection's use of an upload. The upload stays open as long as a connection uses it.
pub(in crate::share) struct UploadStream {
    /// `Some` until this value is dropped.
    upload: Option<Arc<Upload>>,
    slot: Arc<Slot>,
}

impl UploadStream {
    /// Returns a buffer for a group.
    pub(super) fn buffer(&self) -> Result<AlignedBuf, Refused> {
        let mut state = lock(&self.upload().state);
        let buffer = state.partial.sink.buffer().map_err(|error| self.refuse(&state, &error))?;
        Ok(buffer.expect("there are more buffers than lanes"))
    }

    /// Gives back a buffer that was not written.
    pub(super) fn recycle(&self, buffer: AlignedBuf) {
        lock(&self.upload().state).partial.sink.recycle(buffer);
    }

    /// Stores a group that has arrived, unless it is stored already or the upload has ended.
    pub(super) fn arrived(
        &self,
        index: u64,
        buffer: AlignedBuf,
        len: usize,
        value: Value,
    ) -> Result<(), Refused> {
        let mut state = lock(&self.upload().state);
        if state.over || state.partial.values.contains_key(&index) {
            state.partial.sink.recycle(buffer);
            return Ok(());
        }
        state.partial.values.insert(index, value);
        if let Err(error) = state.partial.sink.write(index, buffer, len) {
            state.partial.values.remove(&index);
            return Err(self.refuse(&state, &error));
        }
        state.partial.journal_durable();
        Ok(())
    }

    /// Returns the upload.
    pub(super) fn upload(&self) -> &Upload {
        self.upload.as_ref().expect("there until it is dropped")
    }

    fn refuse(&self, state: &UploadState, error: &SinkError) -> Refused {
        self.upload().target.refuse(error, state.partial.journal.is_some())
    }
}

impl Drop for UploadStream {
    fn drop(&mut self) {
        let mut held = lock(&self.slot);
        let Some(upload) = self.upload.take() else { return };
        let was_last = upload.streams.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_last || lock(&upload.state).over {
            // Another upload may have taken the slot.
            held.take_if(|other| Arc::ptr_eq(other, &upload));
        }
        // When the last reference is dropped, the journal is written. The slot is still locked at
        // that time.
        drop(upload);
    }
}

/// Returns the journal and the groups of this upload that an earlier connection left, if they are
/// valid.
fn find_kept(
    target: &PutTarget,
    tag: &str,
    length: u64,
) -> Option<(Journal, BTreeMap<u64, Value>)> {
    let destination = target.destination();
    let meta = destination.part().symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    let (journal, parsed) = Journal::resume(destination.journal(), length).ok()??;
    let has = (&parsed.identity.validator[..], parsed.identity.length, &parsed.identity.part);
    let same = has == (tag, length, &part_id(destination.part())) && meta.len() >= length;
    same.then_some((journal, parsed.groups))
}

fn identity(tag: &str, length: u64, part: String, boot: String) -> Identity {
    Identity { source: String::new(), length, validator: tag.to_owned(), part, boot }
}

/// Turns an error of the filesystem into a response.
pub(super) fn failed(error: &io::Error) -> Refused {
    let status = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => 507,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => 403,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::WOULDBLOCK) => 503,
        _ => 500,
    };
    Refused { status, reason: format!("the server cannot write that: {error}") }
}

pub(super) fn conflict(reason: String) -> Refused {
    Refused { status: 409, reason }
}
