//! Sending a set: hosts take pieces by turns, each as many as it is good for; the list goes to all
//! of them when nothing is missing.

use super::manifest::{Folder, LIST, Listed, Manifest, PIECES, Piece, Shape};
use super::pieces::{Pieces, Turn};
use super::talk;
use crate::copy::client::Client;
use crate::copy::error::{Error, Trouble};
use crate::copy::event::{Event, PROGRESS_INTERVAL, Served};
use crate::copy::job::MAX_EVENTS;
use crate::copy::lane::backoff;
use crate::copy::options::{MAX_HOSTS, Options};
use crate::copy::send::Upload;
use crate::copy::send::lane::MAX_ANSWER;
use crate::copy::send::talk::{Line, request, taken};
use crate::copy::send::walk::{Entry, Walk};
use crate::copy::shared::Counters;
use crate::copy::sums::Sums;
use crate::copy::tree::{TreeOutcome, listing};
use crate::copy::vouch::values;
use crate::file::{PlaceError, RegularError, irregular};
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

/// Streams to each host, unless more are asked for: while one waits for the end of a piece to be
/// durable, others send.
const STREAMS: usize = 4;

/// How long a stream that has nothing to do waits before it asks again.
const IDLE: Duration = Duration::from_millis(50);

/// A file or a folder that is to be sent to several hosts, pieces of it to each.
#[derive(Debug)]
pub struct Spread {
    from: PathBuf,
    /// The set's address at each host, without an ending.
    hosts: Vec<Address>,
    options: Options,
    cancel: Cancel,
}

/// What came of a set.
#[derive(Clone, Debug)]
pub struct SpreadOutcome {
    /// What came of its files. The target is the set: its address at the first host, or its place
    /// here.
    pub tree: TreeOutcome,
    /// What each host has of it, or sent of it in this run.
    pub hosts: Vec<Served>,
    /// The BLAKE3 hash of a set that is one file and was fetched.
    pub blake3: Option<Value>,
}

/// A set that is being sent, as all streams see it.
struct Sending<'a> {
    spread: &'a Spread,
    client: &'a Client,
    pacer: &'a Pacer,
    shapes: Vec<Shape>,
    /// Where the files are.
    paths: Vec<PathBuf>,
    /// Of each piece its file, and its number there.
    index: Vec<(usize, usize)>,
    /// The folder of pieces at each host.
    folders: Vec<Address>,
    pieces: Mutex<Pieces>,
    counters: Counters,
    /// Streams that have not ended.
    running: AtomicUsize,
    /// Bytes that were sent in this run, whole pieces only.
    sent: AtomicU64,
    failure: Mutex<Option<Error>>,
    stop: Cancel,
    events: SyncSender<Event>,
}

impl Spread {
    /// Of the file, or the folder, at `from`, to an address: into it, under its own name, if that
    /// ends with a slash. Options are of account as with an upload.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(from: &Path, to: &str, options: Options) -> Result<Self, Error> {
        if options.sums.any() {
            return Err(Error::Usage("a sum is for a file that is sent whole".to_owned()));
        }
        // What is asked of one file is asked of all.
        Upload::new(Path::new("file"), to, options.clone())?;
        let mut to = Address::parse(to)?.with_token(options.token.as_deref());
        if to.path().ends_with('/') {
            let name = from.canonicalize().ok().and_then(|path| path.file_name().map(encode));
            let why = || {
                format!(
                    "{}: has no name at its end; say what the set is to be called",
                    from.display()
                )
            };
            let name = name.ok_or_else(|| Error::Usage(why()))?;
            to = to.with_path(&format!("{}{name}", to.path()), None);
        }
        Ok(Self { from: from.to_owned(), hosts: vec![to], options, cancel: Cancel::default() })
    }

    /// Another host that takes pieces: `HOST[:PORT]` for the same path there, by the same token.
    ///
    /// # Errors
    /// [`Error::Usage`]: no host, one that is named already, or more than [`MAX_HOSTS`].
    pub fn also(&mut self, host: &str) -> Result<(), Error> {
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

    /// Stops when this handle says so, which others may share.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Sends it, telling how it goes. A host that is gone for longer than `retries`, or takes
    /// nothing more, is done without: others get what it had.
    ///
    /// # Errors
    /// [`Error`]. What has come stays at the hosts, for the next attempt.
    pub fn run(&self, tell: &mut dyn FnMut(&Event)) -> Result<SpreadOutcome, Error> {
        let begun = Instant::now();
        let (walk, is_folder) = self.walk()?;
        let client = Client::new(&self.options, 0)?;
        let pacer = Pacer::start().map_err(|error| Error::file("a thread", error))?;
        let shapes: Vec<Shape> =
            walk.files.iter().map(|file| Shape::new(encoded(&file.path), &file.version)).collect();
        let index: Vec<(usize, usize)> = (0..shapes.len())
            .flat_map(|file| {
                (0..shapes[file].count()).map(move |piece| (file, piece)).collect::<Vec<_>>()
            })
            .collect();
        let root = if is_folder {
            self.from.clone()
        } else {
            self.from.parent().unwrap_or(Path::new("")).to_owned()
        };
        let (events, told) = sync_channel(MAX_EVENTS);
        let sending = Sending {
            spread: self,
            client: &client,
            pacer: &pacer,
            paths: walk.files.iter().map(|file| root.join(&file.path)).collect(),
            folders: self.hosts.iter().map(|host| beside(host, PIECES, "/")).collect(),
            pieces: Mutex::new(Pieces::new(0, &[])),
            counters: Counters::default(),
            running: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            failure: Mutex::new(None),
            stop: self.cancel.part(),
            events,
            shapes,
            index,
        };
        sending.begin(tell)?;
        let total = sending.shapes.iter().map(|shape| shape.length).sum();
        tell(&Event::Opened {
            source: self.from.display().to_string(),
            target: self.hosts[0].to_string().into(),
            length: Some(total),
            verified: true,
            resumed: sending.counters.done.load(Relaxed),
            streams: self.streams() * self.hosts.len(),
            written: format!("{} pieces by {} servers", sending.index.len(), self.hosts.len()),
        });
        // A host that does not take the list is done without, and what it had is sent again: at
        // most once for each.
        let manifest = loop {
            sending.pieces(total, &told, tell)?;
            if let Some(manifest) = sending.end(&walk, tell)? {
                break manifest;
            }
        };
        let sent = sending.sent.load(Relaxed);
        let was_there = sent == 0 && total > 0;
        Ok(SpreadOutcome {
            hosts: held(&manifest),
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

    /// What is to be sent; and whether it is a folder.
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
        if let Some(what) = irregular(meta.file_type()) {
            return Err(RegularError::Other { path: self.from.clone(), what }.into());
        }
        let name = self.from.file_name().map(PathBuf::from);
        let path = name.ok_or_else(|| {
            Error::Usage(format!("{}: has no name at its end", self.from.display()))
        })?;
        let file = Entry { path, version: Version::of(&meta) };
        Ok((Walk { files: vec![file], ..Walk::default() }, false))
    }
}

impl Sending<'_> {
    /// Finds out what each host has. One that is not there, or takes nothing, is done without.
    fn begin(&self, tell: &mut dyn FnMut(&Event)) -> Result<(), Error> {
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
            pieces.leave(host);
            if pieces.nobody_is_left() {
                return Err(error);
            }
            tell(&Event::Without { source: self.folders[host].to_string(), why: error.why() });
        }
        *lock(&self.pieces) = pieces;
        Ok(())
    }

    /// Makes the folder of pieces at a host; gives which are in it already. A set of that name that
    /// is another's stays, unless it is to be replaced.
    fn listed(&self, host: usize) -> Result<Vec<bool>, Trouble> {
        let folder = &self.folders[host];
        let mut line = self.line(&self.stop);
        let head = request("PUT", folder, &[("Content-Length", "0")]);
        let made = taken(folder, line.call(folder, &head, MAX_ANSWER)?)?.head.status == 201;
        let list = self.list(host);
        if !self.spread.options.force
            && let Some(there) = talk::fetch(self.client, &list, &self.stop)?
            && !there.is_of(&self.shapes.iter().collect::<Vec<_>>())
        {
            return Err(Error::from(PlaceError::Exists(list.to_string().into())).into());
        }
        if made || self.spread.options.restart {
            return Ok(Vec::new());
        }
        let (_, listing) = listing::fetch(self.client, folder, false, &self.stop)?;
        let has: HashMap<PathBuf, u64> =
            listing.entries.into_iter().map(|entry| (entry.path, entry.bytes)).collect();
        let is_there = |piece: usize| {
            let (file, number) = self.index[piece];
            has.get(Path::new(&self.shapes[file].name(number))) == Some(&self.bytes(piece))
        };
        Ok((0..self.index.len()).map(is_there).collect())
    }

    /// Sends all that is missing, by all hosts.
    fn pieces(
        &self,
        total: u64,
        told: &Receiver<Event>,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        let (hosts, streams) = (self.folders.len(), self.spread.streams());
        self.running.store(hosts * streams, Release);
        std::thread::scope(|scope| {
            // By turns, so that of a few pieces each host has some.
            for _ in 0..streams {
                for host in 0..hosts {
                    scope.spawn(move || {
                        if let Err(error) = self.stream(host) {
                            lock(&self.failure).get_or_insert(error);
                            self.stop.ask();
                        }
                        self.running.fetch_sub(1, Release);
                    });
                }
            }
            while self.running.load(Acquire) > 0 {
                match told.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => tell(&event),
                    Err(_) => tell(&Event::Progress(self.counters.progress(Some(total)))),
                }
            }
        });
        told.try_iter().for_each(|event| tell(&event));
        match lock(&self.failure).take() {
            _ if self.spread.cancel.is_asked() => Err(Error::Cancelled),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// One stream to a host, until there is nothing more for it.
    fn stream(&self, host: usize) -> Result<(), Error> {
        let mut line = self.line(&self.stop);
        let mut kept = None;
        let mut failures = 0;
        while !self.stop.is_asked() {
            let turn = self.lock().take(host);
            let (piece, done) = match turn {
                Turn::Over => return Ok(()),
                Turn::Wait => {
                    self.stop.wait(IDLE);
                    continue;
                }
                Turn::Send(piece) => (piece, self.send(&mut line, host, piece)),
                Turn::Ask(piece) => {
                    let (at, length) = (self.address(host, piece), self.bytes(piece));
                    let has = values(self.client, &at, length, None, &mut kept, &self.stop);
                    let has = has.map(|values| crate::group::root(&values));
                    match has.and_then(|has| Ok((has, self.local(piece)?))) {
                        // Damaged there since it was sent: it is sent again.
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
                    self.lock().is_there(piece, host, blake3);
                }
                Err(trouble) => {
                    // Others may send it meanwhile.
                    self.lock().give_back(piece);
                    if matches!(turn, Turn::Ask(_)) {
                        self.counters.done.fetch_sub(self.bytes(piece), Relaxed);
                    }
                    line.close();
                    kept = None;
                    failures += 1;
                    self.trouble(host, failures, trouble)?;
                }
            }
        }
        Ok(())
    }

    /// Sends a piece; gives its hash.
    fn send(&self, line: &mut Line<'_>, host: usize, piece: usize) -> Result<Value, Trouble> {
        let (file, number) = self.index[piece];
        let (to, range) = (self.address(host, piece), self.shapes[file].range(number));
        // One attempt: if it fails, another host may be faster than this one comes back.
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
        let outcome = part.once(self.client, self.pacer, line, &mut |event| match event {
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
                self.tell(event.clone());
            }
            other => self.tell(other.clone()),
        });
        let all = self.bytes(piece);
        match outcome {
            Ok(outcome) if self.is_as_it_was(file) => {
                self.counters.done.fetch_add(all - done.min(all), Relaxed);
                self.counters
                    .received
                    .fetch_add((outcome.progress.received).saturating_sub(received), Relaxed);
                self.sent.fetch_add(all, Relaxed);
                match outcome.blake3 {
                    Some(blake3) => Ok(blake3),
                    // It was there already: somebody sent it meanwhile.
                    None => {
                        let at = self.address(host, piece);
                        Ok(crate::group::root(&values(
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

    /// The hash of a piece as it is here.
    fn local(&self, piece: usize) -> Result<Value, Error> {
        let (file, number) = self.index[piece];
        let range = self.shapes[file].range(number);
        Ok(Sums::default().of_file(&self.paths[file], Some(range), &self.stop)?.blake3)
    }

    /// Whether a file is in the state that its pieces are called by.
    fn is_as_it_was(&self, file: usize) -> bool {
        let now = std::fs::metadata(&self.paths[file]).map(|meta| Version::of(&meta));
        now.is_ok_and(|now| now.tag().trim_matches('"') == self.shapes[file].state)
    }

    /// What follows from a piece's not being sent: a pause, or doing without the host. An error
    /// ends all of it.
    fn trouble(&self, host: usize, failures: u32, trouble: Trouble) -> Result<(), Error> {
        let source = self.folders[host].to_string();
        let (why, pause) = match trouble {
            Trouble::Passing(why, pause) => (why, pause),
            Trouble::Nobody(why) => (why, None),
            Trouble::Changed(why) => {
                return Err(Error::Changed {
                    source_name: self.spread.from.display().to_string(),
                    why,
                });
            }
            Trouble::Fatal(Error::Unreachable { why, .. }) => (why, None),
            Trouble::Fatal(error) if is_of_host(&error) => return self.leave(host, error),
            Trouble::Fatal(error) => return Err(error),
        };
        if failures > self.spread.options.retries {
            return self.leave(host, Error::Unreachable { source_name: source, why });
        }
        let pause = pause.unwrap_or_else(|| backoff(failures));
        self.counters.retries.fetch_add(1, Relaxed);
        self.tell(Event::Retry { why: format!("{source}: {why}"), pause });
        // When the others have done all of it meanwhile, nobody waits for this one.
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.stop.is_asked() && !self.lock().is_over() {
            self.stop.wait(IDLE.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Does without a host, as long as there is another.
    fn leave(&self, host: usize, error: Error) -> Result<(), Error> {
        let mut pieces = self.lock();
        let before: u64 =
            (0..self.index.len()).filter(|p| pieces.is_at_host(*p)).map(|p| self.bytes(p)).sum();
        let is_new = pieces.leave(host);
        let after: u64 =
            (0..self.index.len()).filter(|p| pieces.is_at_host(*p)).map(|p| self.bytes(p)).sum();
        self.counters.done.fetch_sub(before - after, Relaxed);
        if pieces.nobody_is_left() {
            return Err(error);
        }
        drop(pieces);
        if is_new {
            self.tell(Event::Without { source: self.folders[host].to_string(), why: error.why() });
        }
        Ok(())
    }

    /// Gives the list to all hosts. None: one of them does not take it, or was done without, and
    /// some pieces are nowhere.
    fn end(&self, walk: &Walk, tell: &mut dyn FnMut(&Event)) -> Result<Option<Manifest>, Error> {
        let (all, hosts) = {
            let pieces = self.lock();
            let hosts: Vec<usize> =
                (0..self.folders.len()).filter(|host| !pieces.has_left(*host)).collect();
            // A host may have been done without when all others had ended.
            let Some(all) = pieces.all() else { return Ok(None) };
            (all, hosts)
        };
        let manifest = self.manifest(walk, &all, &hosts);
        let bytes = manifest.bytes();
        for &host in &hosts {
            let mut line = self.line(&self.spread.cancel);
            let mut failures = 0;
            while let Err(trouble) = talk::put(&mut line, &self.list(host), &bytes) {
                line.close();
                failures += 1;
                let (why, pause) = match trouble {
                    Trouble::Passing(why, pause) => (why, pause),
                    Trouble::Nobody(why) => (why, None),
                    other => {
                        let error = other.into_error(&self.list(host).to_string());
                        self.leave(host, error)?;
                        return Ok(None);
                    }
                };
                if failures > self.spread.options.retries {
                    self.leave(
                        host,
                        Error::Unreachable { source_name: self.list(host).to_string(), why },
                    )?;
                    return Ok(None);
                }
                let pause = pause.unwrap_or_else(|| backoff(failures));
                tell(&Event::Retry { why, pause });
                if self.spread.cancel.wait(pause) {
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(Some(manifest))
    }

    /// The list, of the hosts that are left.
    fn manifest(&self, walk: &Walk, all: &[Piece], hosts: &[usize]) -> Manifest {
        let number = |host: usize| {
            hosts
                .iter()
                .position(|other| *other == host)
                .expect("pieces are at hosts that are left")
        };
        let mut places = all.iter().map(|piece| Piece { host: number(piece.host), ..*piece });
        let files = walk.files.iter().zip(&self.shapes).map(|(file, shape)| Listed {
            shape: shape.clone(),
            mtime: file.version.modified.to_string(),
            mode: file.version.mode & 0o777,
            pieces: places.by_ref().take(shape.count()).collect(),
        });
        let files = files.collect();
        let folders = walk.folders.iter().skip(1).map(|folder| Folder {
            path: encoded(&folder.path),
            mtime: folder.version.modified.to_string(),
            mode: folder.version.mode & 0o777,
        });
        let hosts =
            hosts.iter().map(|host| self.folders[*host].clone().without_authorization()).collect();
        let is_folder = !walk.folders.is_empty();
        Manifest { is_folder, hosts, folders: folders.collect(), files }
    }

    fn line(&self, stop: &Cancel) -> Line<'_> {
        Line::new(self.client, self.pacer, self.spread.options.pace, stop)
    }

    /// The limit of each stream: they share that of all.
    fn limit(&self) -> Option<u64> {
        let streams = (self.folders.len() * self.spread.streams()) as u64;
        self.spread.options.limit.map(|all| (all / streams).max(1))
    }

    fn list(&self, host: usize) -> Address {
        beside(&self.spread.hosts[host], LIST, "")
    }

    fn address(&self, host: usize, piece: usize) -> Address {
        let (file, number) = self.index[piece];
        let folder = &self.folders[host];
        folder.with_path(&format!("{}{}", folder.path(), self.shapes[file].name(number)), None)
    }

    /// Bytes of a piece.
    fn bytes(&self, piece: usize) -> u64 {
        let (file, number) = self.index[piece];
        let range = self.shapes[file].range(number);
        range.end - range.start
    }

    fn tell(&self, event: Event) {
        let _ = self.events.try_send(event); // one who does not listen misses it
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        lock(&self.pieces)
    }
}

/// What is beside a set, or its folder of pieces.
pub(super) fn beside(set: &Address, ending: &str, slash: &str) -> Address {
    set.with_path(&format!("{}{ending}{slash}", set.path().trim_end_matches('/')), None)
}

/// What each host has of a set.
fn held(manifest: &Manifest) -> Vec<Served> {
    let mut bytes = vec![0; manifest.hosts.len()];
    for file in &manifest.files {
        for (number, piece) in file.pieces.iter().enumerate() {
            let range = file.shape.range(number);
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

/// Whether an error is about a host, so that others may do.
fn is_of_host(error: &Error) -> bool {
    error.is_of_source() || matches!(error, Error::Refused { .. })
}

/// A path in the set as part of an address.
fn encoded(path: &Path) -> String {
    path.iter().map(encode).collect::<Vec<_>>().join("/")
}
