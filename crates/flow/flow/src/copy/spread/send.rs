//! Sends a set. Each host gets as many pieces as its rate allows. All hosts get the list when every
//! piece is stored.

use super::manifest::{
    FileLayout, LIST, Manifest, ManifestFile, ManifestFolder, PIECES, StoredPiece,
};
use super::pieces::{PieceTask, Pieces};
use super::talk;
use crate::copy::client::Client;
use crate::copy::error::{Error, Trouble};
use crate::copy::event::{Event, PROGRESS_INTERVAL, Served};
use crate::copy::job::MAX_EVENTS;
use crate::copy::lane::backoff;
use crate::copy::options::{MAX_HOSTS, Options};
use crate::copy::send::Upload;
use crate::copy::send::lane::MAX_ANSWER;
use crate::copy::send::talk::{Connection, check_accepted, request};
use crate::copy::send::walk::{Entry, Walk};
use crate::copy::shared::Counters;
use crate::copy::sums::Sums;
use crate::copy::tree::{TreeOutcome, listing};
use crate::copy::vouch::fetch_values;
use crate::file::{DestinationError, RegularError, irregular};
use crate::group::Value;
use crate::share::Version;
use sprat_host::lock;
use sprat_http::address::encode;
use sprat_http::{Address, Cancel};
use sprat_pace::Pacer;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The least number of streams to each host. While one stream waits until a piece is durable,
/// others send.
const STREAMS: usize = 4;

/// Interval at which an idle stream looks for work.
const IDLE: Duration = Duration::from_millis(50);

/// An upload of a file or a folder to several hosts, each of which gets some of its pieces. Create
/// it with [`Spread::new`], add hosts with [`Spread::add_host`], and call [`run`](Spread::run), as
/// for an [`Upload`]. [`Gather`](super::Gather) fetches the set again.
#[derive(Debug)]
pub struct Spread {
    from: PathBuf,
    /// The set's address at each host, without an ending.
    hosts: Vec<Address>,
    options: Options,
    cancel: Cancel,
}

/// The outcome of a [`Spread`] or a [`Gather`](super::Gather).
#[derive(Clone, Debug)]
pub struct SpreadOutcome {
    /// The outcome for the set's files. The target is the set's address at the first host, or its
    /// local path if the set was fetched.
    pub tree: TreeOutcome,
    /// Bytes of the set that each host has, or if the set was fetched, that each host sent in this
    /// run.
    pub hosts: Vec<Served>,
    /// BLAKE3 hash of a fetched set that is one file; `None` for other sets, and if the destination
    /// already had the file.
    pub blake3: Option<Value>,
}

/// A set that is being sent, as shared by its streams.
struct Sending<'a> {
    spread: &'a Spread,
    client: &'a Client,
    pacer: &'a Pacer,
    layouts: Vec<FileLayout>,
    /// Local paths of the files.
    paths: Vec<PathBuf>,
    /// For each piece the index of its file, and the piece's number in the file.
    index: Vec<(usize, usize)>,
    /// The folder of pieces at each host.
    folders: Vec<Address>,
    pieces: Mutex<Pieces>,
    counters: Counters,
    /// Streams that have not ended.
    running: AtomicUsize,
    /// Bytes of complete pieces sent in this run.
    sent: AtomicU64,
    failure: Mutex<Option<Error>>,
    stop: Cancel,
    events: SyncSender<Event>,
}

impl Spread {
    /// Creates an upload of the file or folder at `from` to an address. If the address ends with a
    /// slash, the set keeps the name of `from` in that directory. The same options apply as to an
    /// [`Upload`], except `preserve`, `xattrs` and the sum.
    ///
    /// # Errors
    /// [`Error::Usage`] if a sum is given, an option is invalid, verification is off, `to` is not
    /// an address, or `to` ends with a slash and no name can be found for `from`.
    pub fn new(from: &Path, to: &str, options: Options) -> Result<Self, Error> {
        if options.sums.any() {
            return Err(Error::Usage("a sum is for a file that is sent whole".to_owned()));
        }
        // Options are valid if they are valid for one file.
        Upload::new(Path::new("file"), to, options.clone())?;
        let mut to = Address::parse(to)?.with_token(options.token.as_deref());
        if to.path().ends_with('/') {
            let name = from.canonicalize().ok().and_then(|path| path.file_name().map(encode));
            let why = || format!("{}: does not end in a name; name the set", from.display());
            let name = name.ok_or_else(|| Error::Usage(why()))?;
            to = to.with_path(&format!("{}{name}", to.path()), None);
        }
        Ok(Self { from: from.to_owned(), hosts: vec![to], options, cancel: Cancel::default() })
    }

    /// Adds a host, `HOST[:PORT]`, which gets pieces at the same path, with the same credentials.
    /// # Errors
    /// [`Error::Usage`] if `host` is not a host or was added before, or there would be more than
    /// [`MAX_HOSTS`].
    pub fn add_host(&mut self, host: &str) -> Result<(), Error> {
        let other = self.hosts[0].at_host(host)?;
        if self.hosts.contains(&other) {
            return Err(Error::Usage(format!("{other}: is named twice")));
        }
        if self.hosts.len() >= MAX_HOSTS {
            return Err(Error::Usage(format!("more than {MAX_HOSTS} hosts for one set")));
        }
        self.hosts.push(other);
        Ok(())
    }

    /// Uses this handle, which may be shared, for cancellation.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Sends the set, and passes events to `report`. A host that is unreachable for longer than
    /// `retries` allows, or that rejects pieces, is dropped; other hosts get its pieces.
    /// # Errors
    /// [`Error`]. The hosts keep the pieces that they have received for the next attempt.
    pub fn run(&self, report: &mut dyn FnMut(&Event)) -> Result<SpreadOutcome, Error> {
        let begun = Instant::now();
        let (walk, is_folder) = self.walk()?;
        let client = Client::new(&self.options, 0)?;
        let pacer = Pacer::start().map_err(|error| Error::file("a thread", error))?;
        let layouts: Vec<FileLayout> = walk
            .files
            .iter()
            .map(|file| FileLayout::new(encoded(&file.path), &file.version))
            .collect();
        let index: Vec<(usize, usize)> = (0..layouts.len())
            .flat_map(|file| {
                (0..layouts[file].count()).map(move |piece| (file, piece)).collect::<Vec<_>>()
            })
            .collect();
        let root = if is_folder {
            self.from.clone()
        } else {
            self.from.parent().unwrap_or(Path::new("")).to_owned()
        };
        let (events, emitted) = sync_channel(MAX_EVENTS);
        let sending = Sending {
            spread: self,
            client: &client,
            pacer: &pacer,
            paths: walk.files.iter().map(|file| root.join(&file.path)).collect(),
            folders: self.hosts.iter().map(|host| sibling(host, PIECES, "/")).collect(),
            pieces: Mutex::new(Pieces::new(0, &[])),
            counters: Counters::default(),
            running: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            failure: Mutex::new(None),
            stop: self.cancel.child(),
            events,
            layouts,
            index,
        };
        sending.begin(report)?;
        let total = sending.layouts.iter().map(|layout| layout.length).sum();
        report(&Event::Opened {
            source: self.from.display().to_string(),
            target: self.hosts[0].to_string().into(),
            length: Some(total),
            verified: true,
            resumed: sending.counters.done.load(Relaxed),
            streams: self.streams() * self.hosts.len(),
            written: format!("{} pieces by {} servers", sending.index.len(), self.hosts.len()),
        });
        // A host that rejects the list is dropped, and its pieces are sent to other hosts. This
        // happens at most once for each host.
        let manifest = loop {
            sending.pieces(total, &emitted, report)?;
            if let Some(manifest) = sending.end(&walk, report)? {
                break manifest;
            }
        };
        let sent = sending.sent.load(Relaxed);
        let was_there = sent == 0 && total > 0;
        Ok(SpreadOutcome {
            hosts: bytes_per_host(&manifest),
            blake3: None,
            tree: TreeOutcome {
                target: self.hosts[0].to_string().into(),
                files: if was_there { 0 } else { manifest.files.len() as u64 },
                bytes: sent,
                unchanged: if was_there { manifest.files.len() as u64 } else { 0 },
                directories: manifest.folders.len() as u64,
                failed: 0,
                left_out: walk.left_out,
                verified: true,
                time: begun.elapsed(),
            },
        })
    }

    fn streams(&self) -> usize {
        self.options.streams.max(STREAMS)
    }

    /// Lists the files to send, and returns whether the set is a folder.
    fn walk(&self) -> Result<(Walk, bool), Error> {
        let meta = std::fs::metadata(&self.from).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Usage(format!("{}: there is no such file", self.from.display()))
            }
            _ => Error::file(&self.from, error),
        })?;
        if meta.is_dir() {
            return Ok((Walk::of(&self.from)?, true));
        }
        if let Some(kind) = irregular(meta.file_type()) {
            return Err(RegularError::Other { path: self.from.clone(), kind }.into());
        }
        let name = self.from.file_name().map(PathBuf::from);
        let path = name.ok_or_else(|| {
            Error::Usage(format!("{}: does not end in a name", self.from.display()))
        })?;
        let file = Entry { path, version: Version::of(&meta) };
        Ok((Walk { files: vec![file], ..Walk::default() }, false))
    }
}

impl Sending<'_> {
    /// Finds out which pieces each host has. Drops hosts that are unreachable or reject pieces.
    fn begin(&self, report: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        let found: Vec<Result<Vec<bool>, Trouble>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..self.folders.len())
                .map(|host| scope.spawn(move || self.listed(host)))
                .collect();
            asking.into_iter().map(|thread| thread.join().expect("it says what is wrong")).collect()
        });
        let (mut lists, mut errors) = (Vec::new(), Vec::new());
        for (host, found) in found.into_iter().enumerate() {
            match found {
                Ok(list) => lists.push(list),
                Err(trouble) => {
                    let error = trouble.into_error(&self.folders[host].to_string());
                    if !is_of_host(&error) {
                        return Err(error);
                    }
                    lists.push(Vec::new());
                    errors.push((host, error));
                }
            }
        }
        let mut pieces = Pieces::new(self.index.len(), &lists);
        let here = (0..self.index.len())
            .filter(|piece| pieces.is_at_host(*piece))
            .map(|piece| self.bytes(piece));
        self.counters.done.store(here.sum(), Relaxed);
        for (host, error) in errors {
            pieces.drop_host(host);
            if pieces.no_host_is_left() {
                return Err(error);
            }
            report(&Event::HostDropped {
                source: self.folders[host].to_string(),
                why: error.why(),
            });
        }
        *lock(&self.pieces) = pieces;
        Ok(())
    }

    /// Creates the folder of pieces at a host, and returns which pieces the host already has. A
    /// different set with the same name is an error, unless the option `force` allows to replace
    /// it.
    fn listed(&self, host: usize) -> Result<Vec<bool>, Trouble> {
        let folder = &self.folders[host];
        let mut connection = self.connection(&self.stop);
        let head = request("PUT", folder, &[("Content-Length", "0")]);
        let made =
            check_accepted(folder, connection.call(folder, &head, MAX_ANSWER)?)?.head.status == 201;
        let list = self.list(host);
        if !self.spread.options.force
            && let Some(there) = talk::fetch(self.client, &list, &self.stop)?
            && !there.is_of(&self.layouts.iter().collect::<Vec<_>>())
        {
            return Err(Error::from(DestinationError::Exists(list.to_string().into())).into());
        }
        if made || self.spread.options.restart {
            return Ok(Vec::new());
        }
        let (_, listing) = listing::fetch(self.client, folder, false, &self.stop)?;
        let has: HashMap<PathBuf, u64> =
            listing.entries.into_iter().map(|entry| (entry.path, entry.bytes)).collect();
        let is_there = |piece: usize| {
            let (file, number) = self.index[piece];
            has.get(Path::new(&self.layouts[file].name(number))) == Some(&self.bytes(piece))
        };
        Ok((0..self.index.len()).map(is_there).collect())
    }

    /// Sends all missing pieces, each to one host, over the streams to all hosts.
    fn pieces(
        &self,
        total: u64,
        emitted: &Receiver<Event>,
        report: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        let (hosts, streams) = (self.folders.len(), self.spread.streams());
        self.running.store(hosts * streams, Release);
        std::thread::scope(|scope| {
            // The hosts' streams start interleaved, so that each host gets some pieces even if
            // there are only a few.
            for _ in 0..streams {
                for host in 0..hosts {
                    scope.spawn(move || {
                        if let Err(error) = self.stream(host) {
                            lock(&self.failure).get_or_insert(error);
                            self.stop.cancel();
                        }
                        self.running.fetch_sub(1, Release);
                    });
                }
            }
            while self.running.load(Acquire) > 0 {
                match emitted.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => report(&event),
                    Err(_) => report(&Event::Progress(self.counters.progress(Some(total)))),
                }
            }
        });
        emitted.try_iter().for_each(|event| report(&event));
        match lock(&self.failure).take() {
            _ if self.spread.cancel.is_cancelled() => Err(Error::Cancelled),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Runs one stream to a host, until there is no more work for it.
    fn stream(&self, host: usize) -> Result<(), Error> {
        let mut connection = self.connection(&self.stop);
        let mut kept = None;
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let turn = self.lock().take(host);
            let (piece, done) = match turn {
                PieceTask::Done => return Ok(()),
                PieceTask::Wait => {
                    self.stop.wait(IDLE);
                    continue;
                }
                PieceTask::Send(piece) => (piece, self.send(&mut connection, host, piece)),
                PieceTask::Verify(piece) => {
                    let (at, length) = (self.address(host, piece), self.bytes(piece));
                    let has = fetch_values(self.client, &at, length, None, &mut kept, &self.stop);
                    let has = has.map(|values| crate::group::root(&values));
                    match has.and_then(|has| Ok((has, self.local(piece)?))) {
                        // The piece was damaged on the host since it was sent, so it is sent again.
                        Ok((has, wanted)) if has != wanted => {
                            self.counters.done.fetch_sub(length, Relaxed);
                            self.lock().give_back(piece);
                            continue;
                        }
                        checked => (piece, checked.map(|(has, _)| has)),
                    }
                }
            };
            match done {
                Ok(blake3) => {
                    failures = 0;
                    self.lock().record_stored(piece, host, blake3);
                }
                Err(trouble) => {
                    // Another stream may send the piece meanwhile.
                    self.lock().give_back(piece);
                    if matches!(turn, PieceTask::Verify(_)) {
                        self.counters.done.fetch_sub(self.bytes(piece), Relaxed);
                    }
                    connection.close();
                    kept = None;
                    failures += 1;
                    self.handle_failure(host, failures, trouble)?;
                }
            }
        }
        Ok(())
    }

    /// Sends a piece, and returns its hash.
    fn send(
        &self,
        connection: &mut Connection<'_>,
        host: usize,
        piece: usize,
    ) -> Result<Value, Trouble> {
        let (file, number) = self.index[piece];
        let (to, range) = (self.address(host, piece), self.layouts[file].range(number));
        // Try only once: if the attempt fails, another host may be faster than a retry.
        let options = Options {
            streams: 1,
            retries: 0,
            force: true,
            preserve: false,
            xattrs: false,
            limit: self.limit(),
            ..self.spread.options.clone()
        };
        let part = Upload::of_part(self.paths[file].clone(), range, to, options, self.stop.clone());
        let (mut done, mut received) = (0, 0);
        let outcome = part.attempt(self.client, self.pacer, connection, &mut |event| match event {
            Event::Progress(progress) => {
                self.counters.done.fetch_add(progress.done.saturating_sub(done), Relaxed);
                self.counters
                    .received
                    .fetch_add(progress.received.saturating_sub(received), Relaxed);
                (done, received) = (done.max(progress.done), received.max(progress.received));
                self.counters
                    .rtt
                    .store(u64::try_from(progress.rtt.as_micros()).unwrap_or(u64::MAX), Relaxed);
            }
            Event::Opened { .. } => {}
            Event::Wrong { .. } => {
                self.counters.wrong.fetch_add(1, Relaxed);
                self.emit(event.clone());
            }
            other => self.emit(other.clone()),
        });
        let all = self.bytes(piece);
        match outcome {
            Ok(outcome) if self.is_unchanged(file) => {
                self.counters.done.fetch_add(all - done.min(all), Relaxed);
                self.counters
                    .received
                    .fetch_add((outcome.progress.received).saturating_sub(received), Relaxed);
                self.sent.fetch_add(all, Relaxed);
                match outcome.blake3 {
                    Some(blake3) => Ok(blake3),
                    // The piece was there already, because another program has stored it meanwhile.
                    None => {
                        let at = self.address(host, piece);
                        Ok(crate::group::root(&fetch_values(
                            self.client,
                            &at,
                            all,
                            None,
                            &mut None,
                            &self.stop,
                        )?))
                    }
                }
            }
            Ok(_) => Err(Trouble::Changed("it was written to while it was read".to_owned())),
            Err(trouble) => {
                self.counters.done.fetch_sub(done, Relaxed);
                Err(trouble)
            }
        }
    }

    /// Hashes a piece of the local file.
    fn local(&self, piece: usize) -> Result<Value, Error> {
        let (file, number) = self.index[piece];
        let range = self.layouts[file].range(number);
        Ok(Sums::default().hash_file(&self.paths[file], Some(range), &self.stop)?.blake3)
    }

    /// Returns whether a file is still in the state that is part of the names of its pieces.
    fn is_unchanged(&self, file: usize) -> bool {
        let now = std::fs::metadata(&self.paths[file]).map(|meta| Version::of(&meta));
        now.is_ok_and(|now| now.tag().trim_matches('"') == self.layouts[file].state)
    }

    /// Handles a failed piece: pauses, or drops the host. An error ends the whole transfer.
    fn handle_failure(&self, host: usize, failures: u32, trouble: Trouble) -> Result<(), Error> {
        let source = self.folders[host].to_string();
        let (why, pause) = match trouble {
            Trouble::Transient(why, pause) => (why, pause),
            Trouble::Unreachable(why) => (why, None),
            Trouble::Changed(why) => {
                return Err(Error::Changed {
                    source_name: self.spread.from.display().to_string(),
                    why,
                });
            }
            Trouble::Fatal(Error::Unreachable { why, .. }) => (why, None),
            Trouble::Fatal(error) if is_of_host(&error) => return self.drop_host(host, error),
            Trouble::Fatal(error) => return Err(error),
        };
        if failures > self.spread.options.retries {
            return self.drop_host(host, Error::Unreachable { source_name: source, why });
        }
        let pause = pause.unwrap_or_else(|| backoff(failures));
        self.counters.retries.fetch_add(1, Relaxed);
        self.emit(Event::Retry { why: format!("{source}: {why}"), pause });
        // The pause ends when the other hosts have completed the set.
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.stop.is_cancelled() && !self.lock().is_over() {
            self.stop.wait(IDLE.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Drops a host. Returns `error` if no host is left.
    fn drop_host(&self, host: usize, error: Error) -> Result<(), Error> {
        let mut pieces = self.lock();
        let before: u64 =
            (0..self.index.len()).filter(|p| pieces.is_at_host(*p)).map(|p| self.bytes(p)).sum();
        let is_new = pieces.drop_host(host);
        let after: u64 =
            (0..self.index.len()).filter(|p| pieces.is_at_host(*p)).map(|p| self.bytes(p)).sum();
        self.counters.done.fetch_sub(before - after, Relaxed);
        if pieces.no_host_is_left() {
            return Err(error);
        }
        drop(pieces);
        if is_new {
            self.emit(Event::HostDropped {
                source: self.folders[host].to_string(),
                why: error.why(),
            });
        }
        Ok(())
    }

    /// Sends the list to all hosts. Returns `None` if a host rejects the list or was dropped, so
    /// that pieces are missing again.
    fn end(&self, walk: &Walk, report: &mut dyn FnMut(&Event)) -> Result<Option<Manifest>, Error> {
        let (all, hosts) = {
            let pieces = self.lock();
            let hosts: Vec<usize> =
                (0..self.folders.len()).filter(|host| !pieces.is_dropped(*host)).collect();
            // A host may have been dropped after the streams to all other hosts had ended.
            let Some(all) = pieces.all() else { return Ok(None) };
            (all, hosts)
        };
        let manifest = self.manifest(walk, &all, &hosts);
        let bytes = manifest.bytes();
        for &host in &hosts {
            let mut connection = self.connection(&self.spread.cancel);
            let mut failures = 0;
            while let Err(trouble) = talk::put(&mut connection, &self.list(host), &bytes) {
                connection.close();
                failures += 1;
                let (why, pause) = match trouble {
                    Trouble::Transient(why, pause) => (why, pause),
                    Trouble::Unreachable(why) => (why, None),
                    other => {
                        let error = other.into_error(&self.list(host).to_string());
                        self.drop_host(host, error)?;
                        return Ok(None);
                    }
                };
                if failures > self.spread.options.retries {
                    self.drop_host(
                        host,
                        Error::Unreachable { source_name: self.list(host).to_string(), why },
                    )?;
                    return Ok(None);
                }
                let pause = pause.unwrap_or_else(|| backoff(failures));
                report(&Event::Retry { why, pause });
                if self.spread.cancel.wait(pause) {
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(Some(manifest))
    }

    /// Creates the list, with the hosts in use.
    fn manifest(&self, walk: &Walk, all: &[StoredPiece], hosts: &[usize]) -> Manifest {
        let number = |host: usize| {
            hosts
                .iter()
                .position(|other| *other == host)
                .expect("pieces are at hosts that are left")
        };
        let mut places = all.iter().map(|piece| StoredPiece { host: number(piece.host), ..*piece });
        let files = walk.files.iter().zip(&self.layouts).map(|(file, layout)| ManifestFile {
            layout: layout.clone(),
            mtime: file.version.modified.to_string(),
            mode: file.version.mode & 0o777,
            pieces: places.by_ref().take(layout.count()).collect(),
        });
        let files = files.collect();
        let folders = walk.folders.iter().skip(1).map(|folder| ManifestFolder {
            path: encoded(&folder.path),
            mtime: folder.version.modified.to_string(),
            mode: folder.version.mode & 0o777,
        });
        let hosts =
            hosts.iter().map(|host| self.folders[*host].clone().without_authorization()).collect();
        let is_folder = !walk.folders.is_empty();
        Manifest { is_folder, hosts, folders: folders.collect(), files }
    }

    fn connection(&self, stop: &Cancel) -> Connection<'_> {
        Connection::new(self.client, self.pacer, self.spread.options.pace, stop)
    }

    /// Returns the rate limit of each stream, which is an equal share of the total limit.
    fn limit(&self) -> Option<u64> {
        let streams = (self.folders.len() * self.spread.streams()) as u64;
        self.spread.options.limit.map(|all| (all / streams).max(1))
    }

    fn list(&self, host: usize) -> Address {
        sibling(&self.spread.hosts[host], LIST, "")
    }

    fn address(&self, host: usize, piece: usize) -> Address {
        let (file, number) = self.index[piece];
        let folder = &self.folders[host];
        folder.with_path(&format!("{}{}", folder.path(), self.layouts[file].name(number)), None)
    }

    /// Returns the length of a piece in bytes.
    fn bytes(&self, piece: usize) -> u64 {
        let (file, number) = self.index[piece];
        let range = self.layouts[file].range(number);
        range.end - range.start
    }

    fn emit(&self, event: Event) {
        let _ = self.events.try_send(event); // dropped if the queue is full
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        lock(&self.pieces)
    }
}

/// Returns the address of a set's list or of its folder of pieces.
pub(super) fn sibling(set: &Address, ending: &str, slash: &str) -> Address {
    set.with_path(&format!("{}{ending}{slash}", set.path().trim_end_matches('/')), None)
}

/// Returns how many bytes of a set each host has.
fn bytes_per_host(manifest: &Manifest) -> Vec<Served> {
    let mut bytes = vec![0; manifest.hosts.len()];
    for file in &manifest.files {
        for (number, piece) in file.pieces.iter().enumerate() {
            let range = file.layout.range(number);
            bytes[piece.host] += range.end - range.start;
        }
    }
    manifest
        .hosts
        .iter()
        .zip(bytes)
        .map(|(host, bytes)| Served { source: host.to_string(), bytes })
        .collect()
}

/// Returns whether an error concerns a host, so that other hosts might succeed.
fn is_of_host(error: &Error) -> bool {
    error.is_of_source() || matches!(error, Error::Refused { .. })
}

/// Percent-encodes a path in the set.
fn encoded(path: &Path) -> String {
    path.iter().map(encode).collect::<Vec<_>>().join("/")
}
