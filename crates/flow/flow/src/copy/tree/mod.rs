//! Folders: what a server of ours lists, file by file, into the same folders here.

pub(in crate::copy) mod listing;
mod pattern;
mod small;

use super::client::Client;
use super::error::{Error, Trouble};
use super::event::{Event, PROGRESS_INTERVAL, Progress};
use super::fetch::{Fetch, Origin};
use super::lane::backoff;
use super::options::Options;
use super::unchanged::same_time;
use crate::file::{Attributes, Place, PlaceError, sync_directory};
use listing::{Entry, Listing};
use small::{BATCH_BYTES, BATCH_FILES, BATCH_REQUESTS, SMALL, Task, Worker};
use sprat_host::lock;
use sprat_http::{Address, Cancel};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Connections for small files, unless more streams are asked for: while one waits for the disk,
/// others receive.
const CONNECTIONS: usize = 4;

/// Most events that wait to be told.
const MAX_EVENTS: usize = 256;

/// A folder to be copied, or those of its files that a pattern stands for.
#[derive(Debug)]
pub struct Tree {
    folder: Address,
    pattern: Option<String>,
    recursive: bool,
    target: PathBuf,
    options: Options,
    cancel: Cancel,
}

/// What came of a folder.
#[derive(Clone, Debug, Default)]
pub struct TreeOutcome {
    /// The folder here.
    pub target: PathBuf,
    /// Files that were copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were there already, as long and as old as the source's.
    pub unchanged: u64,
    /// Folders in it.
    pub directories: u64,
    /// Files that could not be copied; each was told.
    pub failed: u64,
    /// What the server does not give (symbolic links, pipes, names that begin with a dot), or what
    /// is not sent, and why.
    pub left_out: Vec<String>,
    /// Whether every group of every file was verified on the way.
    pub verified: bool,
    /// How long it took.
    pub time: Duration,
}

impl TreeOutcome {
    /// Whether all of it is here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed == 0 && self.left_out.is_empty()
    }
}

/// What the workers share.
struct Shared {
    tasks: Mutex<VecDeque<Task>>,
    /// Files that are to be copied one by one: large ones, and small ones that met something.
    alone: Mutex<Vec<Task>>,
    files: AtomicU64,
    bytes: AtomicU64,
    unverified: AtomicBool,
    running: AtomicUsize,
    failure: Mutex<Option<Error>>,
    stop: Cancel,
    events: SyncSender<Event>,
}

impl Tree {
    /// Whether a source is a pattern: `*` or `?` in the last part of an address.
    #[must_use]
    pub fn has_pattern(source: &str) -> bool {
        Address::is_one(source) && source.rsplit('/').next().is_some_and(pattern::is_pattern)
    }

    /// A copy of a folder to `target`; into it, under its own name, if that is a directory. Or of
    /// what matches, into that directory.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(
        source: &str,
        target: &Path,
        recursive: bool,
        options: Options,
    ) -> Result<Self, Error> {
        options.check()?;
        if options.sums.any() {
            return Err(Error::Usage("a sum is for one file, not for a folder".to_owned()));
        }
        let (folder, pattern) = match source.rsplit_once('/') {
            Some((folder, last)) if Self::has_pattern(source) => {
                (format!("{folder}/"), Some(last.to_owned()))
            }
            _ => (format!("{}/", source.trim_end_matches('/')), None),
        };
        let folder = Address::parse(&folder)?.with_token(options.token.as_deref());
        if pattern.is_some() && !target.is_dir() {
            let why =
                format!("{}: is no directory, and several files may go there", target.display());
            return Err(Error::Usage(why));
        }
        let own = folder.folder_name().filter(|_| pattern.is_none() && target.is_dir());
        let target = own.map_or_else(|| target.to_owned(), |name| target.join(name));
        Ok(Self { folder, pattern, recursive, target, options, cancel: Cancel::default() })
    }

    /// A handle that stops it.
    #[must_use]
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Stops when this handle says so, which others may share.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Makes the copy, telling how it goes. Files that cannot be copied are told of and counted;
    /// the others are copied.
    ///
    /// # Errors
    /// [`Error`]: what ends all of it. What was copied stays.
    pub fn run(&self, tell: &mut dyn FnMut(&Event)) -> Result<TreeOutcome, Error> {
        let begun = Instant::now();
        let connections = self.options.streams.max(CONNECTIONS);
        let receive_buffer = self.options.receive_buffer / connections;
        let client = Client::new(&self.options, receive_buffer)?;
        let (folder, mut listing) = self.list(&client, tell)?;
        let mut outcome =
            TreeOutcome { target: self.target.clone(), verified: true, ..TreeOutcome::default() };
        self.choose(&mut listing, &mut outcome);
        outcome.left_out.append(&mut listing.left_out);
        if listing.hidden > 0 {
            let hidden = listing.hidden;
            outcome.left_out.push(format!(
                "{hidden} names that begin with a dot; `sprat share --hidden` gives them"
            ));
        }
        let folders: Vec<_> = listing.entries.iter().filter(|entry| entry.is_folder).collect();
        std::fs::create_dir_all(&self.target).map_err(|error| Error::file(&self.target, error))?;
        for folder in &folders {
            let path = self.target.join(&folder.path);
            std::fs::create_dir_all(&path).map_err(|error| Error::file(path, error))?;
        }
        outcome.directories = folders.len() as u64;
        let tasks = self.tasks(&folder, &listing, &mut outcome, tell)?;
        let total = tasks.iter().map(|task| task.entry.bytes).sum();
        tell(&Event::Opened {
            source: folder.to_string(),
            target: self.target.clone(),
            length: Some(total),
            verified: self.options.verify,
            resumed: 0,
            streams: connections,
            written: format!("{} files", tasks.len()),
        });
        let parents: BTreeSet<PathBuf> = tasks
            .iter()
            .filter_map(|task| task.place.target().parent())
            .map(Path::to_owned)
            .collect();
        let (small, large): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| task.entry.bytes <= SMALL);
        let (events, told) = sync_channel(MAX_EVENTS);
        let shared = Shared {
            tasks: Mutex::new(small.into()),
            alone: Mutex::new(large),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            unverified: AtomicBool::new(false),
            running: AtomicUsize::new(connections),
            failure: Mutex::new(None),
            stop: self.cancel.part(),
            events,
        };
        self.many(&shared, &client, connections, total, &told, tell);
        let alone = std::mem::take(&mut *lock(&shared.alone));
        if let Some(error) = lock(&shared.failure).take() {
            return Err(error);
        }
        self.one_by_one(alone, &shared, &mut outcome, total, tell)?;
        // Folders get their times when nothing in them changes any more; the innermost first.
        for folder in folders.iter().rev() {
            let mode = folder
                .attributes
                .mode
                .filter(|_| self.options.preserve)
                .or(Some(0o777 & !crate::file::umask()));
            let path = self.target.join(&folder.path);
            let given = File::open(&path)
                .and_then(|file| Attributes { mode, ..folder.attributes.clone() }.give(&file));
            if let Err(error) = given {
                tell(&Event::Note(format!(
                    "{}: time or permissions cannot be set: {error}",
                    path.display()
                )));
            }
        }
        parents.iter().try_for_each(|folder| sync_directory(folder))?;
        (outcome.files, outcome.bytes) = (shared.files.load(Relaxed), shared.bytes.load(Relaxed));
        outcome.verified &= !shared.unverified.load(Relaxed);
        outcome.time = begun.elapsed();
        Ok(outcome)
    }

    fn list(
        &self,
        client: &Client,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(Address, Listing), Error> {
        let mut failures = 0;
        loop {
            let (why, pause) =
                match listing::fetch(client, &self.folder, self.recursive, &self.cancel) {
                    Ok(found) => return Ok(found),
                    Err(Trouble::Fatal(error)) => return Err(error),
                    Err(Trouble::Passing(why, pause)) if failures < self.options.retries => {
                        (why, pause)
                    }
                    Err(
                        Trouble::Passing(why, _) | Trouble::Nobody(why) | Trouble::Changed(why),
                    ) => {
                        return Err(Error::Unreachable {
                            source_name: self.folder.to_string(),
                            why,
                        });
                    }
                };
            failures += 1;
            let pause = pause.unwrap_or_else(|| backoff(failures));
            tell(&Event::Retry { why, pause });
            if self.cancel.wait(pause) {
                return Err(Error::Cancelled);
            }
        }
    }

    /// Keeps the entries that are meant.
    fn choose(&self, listing: &mut Listing, outcome: &mut TreeOutcome) {
        let Some(pattern) = &self.pattern else { return };
        let named = |entry: &Entry| {
            let first = entry
                .path
                .components()
                .next()
                .map(|part| part.as_os_str().to_string_lossy().into_owned());
            first.is_some_and(|name| pattern::matches(pattern, &name))
        };
        listing.entries.retain(named);
        listing.left_out.retain(|text| {
            let first = listing::left_out_name(text);
            first.is_none_or(|name| {
                pattern::matches(pattern, name.split('/').next().unwrap_or_default())
            })
        });
        if !pattern.starts_with('.') {
            listing.hidden = 0;
        }
        if !self.recursive {
            let folders = listing.entries.extract_if(.., |entry| entry.is_folder);
            outcome.left_out.extend(
                folders.map(|entry| {
                    format!("{}: is a folder; -r copies folders", entry.path.display())
                }),
            );
        }
    }

    /// What is to be fetched: not what is there, as long and as old as the source's.
    fn tasks(
        &self,
        folder: &Address,
        listing: &Listing,
        outcome: &mut TreeOutcome,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Vec<Task>, Error> {
        let mut tasks = Vec::new();
        for entry in listing.entries.iter().filter(|entry| !entry.is_folder) {
            let target = self.target.join(&entry.path);
            let place = Place::of(&target)?;
            if let Err(error) = place.check() {
                outcome.failed += 1;
                tell(&Event::Failed {
                    name: entry.path.display().to_string(),
                    why: error.to_string(),
                });
                continue;
            }
            match target.symlink_metadata() {
                Ok(_) if self.options.force => {}
                Ok(meta) => {
                    let same = meta.is_file() && meta.len() == entry.bytes;
                    let (theirs, ours) = (entry.attributes.modified, meta.modified().ok());
                    if same
                        && theirs
                            .zip(ours)
                            .is_some_and(|(theirs, ours)| same_time(theirs, ours, true))
                    {
                        outcome.unchanged += 1;
                    } else {
                        outcome.failed += 1;
                        let why = PlaceError::Exists(target).to_string();
                        tell(&Event::Failed { name: entry.path.display().to_string(), why });
                    }
                    continue;
                }
                Err(_) => {}
            }
            let address = folder.with_path(&format!("{}{}", folder.path(), entry.href), None);
            tasks.push(Task { entry: entry.clone(), address, place });
        }
        Ok(tasks)
    }

    /// Copies small files, several connections at a time.
    fn many(
        &self,
        shared: &Shared,
        client: &Client,
        connections: usize,
        total: u64,
        told: &Receiver<Event>,
        tell: &mut dyn FnMut(&Event),
    ) {
        let progress = || {
            Event::Progress(Progress {
                done: shared.bytes.load(Relaxed),
                received: shared.bytes.load(Relaxed),
                length: Some(total),
                ..Progress::default()
            })
        };
        std::thread::scope(|scope| {
            for _ in 0..connections {
                scope.spawn(|| {
                    let mut worker = Worker::new(client, &shared.stop, &self.options);
                    while shared.step(&mut worker) {}
                    shared.running.fetch_sub(1, Relaxed);
                    let _ = shared.events.try_send(progress()); // who waits looks again
                });
            }
            while shared.running.load(Relaxed) > 0 {
                match told.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => tell(&event),
                    Err(_) => tell(&progress()),
                }
            }
        });
        told.try_iter().for_each(|event| tell(&event));
    }

    /// Copies files one after the other, each with all streams, resumption and patience.
    fn one_by_one(
        &self,
        tasks: Vec<Task>,
        shared: &Shared,
        outcome: &mut TreeOutcome,
        total: u64,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        for Task { entry, address, place } in tasks {
            let before = shared.bytes.load(Relaxed);
            let fetch = Fetch {
                origin: Origin::Server(address),
                others: Vec::new(),
                place,
                options: self.options.clone(),
                cancel: self.cancel.clone(),
            };
            let copied = fetch.run(&mut |event| match event {
                Event::Opened { .. } => {}
                Event::Progress(progress) => {
                    let (done, received) = (before + progress.done, before + progress.received);
                    tell(&Event::Progress(Progress {
                        done,
                        received,
                        length: Some(total.max(done)),
                        ..*progress
                    }));
                }
                other => tell(other),
            });
            match copied {
                Ok(copied) => {
                    shared.files.fetch_add(1, Relaxed);
                    shared.bytes.fetch_add(copied.length, Relaxed);
                    outcome.verified &= copied.verified;
                }
                Err(error) if ends_all(&error) => return Err(error),
                Err(error) => {
                    outcome.failed += 1;
                    tell(&Event::Failed {
                        name: entry.path.display().to_string(),
                        why: error.to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Shared {
    /// One batch; gives whether there may be another.
    fn step(&self, worker: &mut Worker<'_>) -> bool {
        let mut batch = Vec::new();
        {
            let mut tasks = lock(&self.tasks);
            let (mut bytes, mut requests) = (0, 0);
            while let Some(task) = tasks.front()
                && batch.len() < BATCH_FILES
                && (batch.is_empty()
                    || (bytes + task.entry.bytes <= BATCH_BYTES
                        && requests + task.request_bytes() <= BATCH_REQUESTS))
            {
                bytes += task.entry.bytes;
                requests += task.request_bytes();
                batch.extend(tasks.pop_front());
            }
        }
        if batch.is_empty() || self.stop.is_asked() {
            return false;
        }
        let copied = worker.batch(&batch, &mut |task, verified| {
            self.files.fetch_add(1, Relaxed);
            self.bytes.fetch_add(task.entry.bytes, Relaxed);
            self.unverified.fetch_or(!verified, Relaxed);
        });
        let Err((done, trouble)) = copied else { return true };
        if let Trouble::Fatal(error) = trouble
            && ends_all(&error)
        {
            lock(&self.failure).get_or_insert(error);
            self.stop.ask();
            return false;
        }
        // What met something is tried alone, with all that one file is given; what stood behind it
        // is asked for again.
        let mut rest = batch.drain(done..);
        lock(&self.alone).extend(rest.next());
        let mut tasks = lock(&self.tasks);
        rest.rev().for_each(|task| tasks.push_front(task));
        true
    }
}

/// Whether no other file would fare better.
fn ends_all(error: &Error) -> bool {
    matches!(
        error,
        Error::Cancelled | Error::Sink(_) | Error::Untrusted { .. } | Error::Unreachable { .. }
    )
}
