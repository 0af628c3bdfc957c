//! Fetches folders, file by file, as `sprat share` lists them.

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
use crate::file::{Attributes, Destination, DestinationError, sync_directory};
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

/// The least number of connections for small files. While one connection waits for the disk, others
/// receive.
const CONNECTIONS: usize = 4;

/// Capacity of the queue of events.
const MAX_EVENTS: usize = 256;

/// A fetch of a folder, or of the files in it whose names match a pattern. A recursive fetch also
/// copies the folders in that folder, or those whose names match the pattern. Create the fetch with
/// [`FetchTree::new`] and call [`run`](FetchTree::run), as for a [`Fetch`]. Unless
/// [`Options::force`] is set, files that exist locally with the same length and time are not
/// fetched again. Small files are fetched many at a time over several connections. Large files are
/// fetched one by one with all streams.
#[derive(Debug)]
pub struct FetchTree {
    folder: Address,
    pattern: Option<String>,
    recursive: bool,
    target: PathBuf,
    options: Options,
    cancel: Cancel,
}

/// The outcome of a transfer of a folder.
#[derive(Clone, Debug, Default)]
pub struct TreeOutcome {
    /// The destination folder.
    pub target: PathBuf,
    /// Number of files that were copied.
    pub files: u64,
    /// Number of bytes of the copied files.
    pub bytes: u64,
    /// Number of files that the destination already had with the same length and time.
    pub unchanged: u64,
    /// Number of directories in the folder.
    pub directories: u64,
    /// Number of files that could not be copied. Each was reported.
    pub failed: u64,
    /// Entries that were left out, each with the reason: the source does not offer them or does not
    /// send them. Examples are symbolic links, pipes and names that begin with a dot.
    pub left_out: Vec<String>,
    /// Whether every group of every copied file was verified on arrival.
    pub verified: bool,
    /// Duration of the run.
    pub time: Duration,
}

impl TreeOutcome {
    /// Returns whether no file failed and no entry was left out.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed == 0 && self.left_out.is_empty()
    }
}

/// State shared by the workers.
struct Shared {
    tasks: Mutex<VecDeque<Task>>,
    /// Files to copy one by one: large files, and small files that failed in a batch.
    alone: Mutex<Vec<Task>>,
    files: AtomicU64,
    bytes: AtomicU64,
    unverified: AtomicBool,
    running: AtomicUsize,
    failure: Mutex<Option<Error>>,
    stop: Cancel,
    events: SyncSender<Event>,
}

impl FetchTree {
    /// Returns whether a source is a pattern: an address with `*` or `?` in its last part.
    #[must_use]
    pub fn has_pattern(source: &str) -> bool {
        Address::is_address(source) && source.rsplit('/').next().is_some_and(pattern::is_pattern)
    }

    /// Creates a fetch of a folder to `target`. If `target` is a directory, the folder keeps its
    /// name in it. With a pattern, the matching entries are copied into the directory `target`.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is invalid, a sum is given, `source` is not an address, or a
    /// pattern is given and `target` is not a directory.
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
            let why = format!(
                "{}: is not a directory, but several files may be copied there",
                target.display()
            );
            return Err(Error::Usage(why));
        }
        let own = folder.folder_name().filter(|_| pattern.is_none() && target.is_dir());
        let target = own.map_or_else(|| target.to_owned(), |name| target.join(name));
        Ok(Self { folder, pattern, recursive, target, options, cancel: Cancel::default() })
    }

    /// Returns a handle that cancels the fetch.
    #[must_use]
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Uses this handle, which may be shared, for cancellation.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Copies the folder, and passes events to `report`. Files that cannot be copied are reported
    /// and counted; the transfer continues with the other files.
    /// # Errors
    /// The [`Error`] that ended the transfer. Files that were copied before stay.
    pub fn run(&self, report: &mut dyn FnMut(&Event)) -> Result<TreeOutcome, Error> {
        let begun = Instant::now();
        let connections = self.options.streams.max(CONNECTIONS);
        let receive_buffer = self.options.receive_buffer / connections;
        let client = Client::new(&self.options, receive_buffer)?;
        let (folder, mut listing) = self.list(&client, report)?;
        let mut outcome =
            TreeOutcome { target: self.target.clone(), verified: true, ..TreeOutcome::default() };
        self.choose(&mut listing, &mut outcome);
        outcome.left_out.append(&mut listing.left_out);
        if listing.hidden > 0 {
            let hidden = listing.hidden;
            outcome.left_out.push(format!(
                "{hidden} names that begin with a dot; `sprat share --hidden` serves them"
            ));
        }
        let folders: Vec<_> = listing.entries.iter().filter(|entry| entry.is_folder).collect();
        std::fs::create_dir_all(&self.target).map_err(|error| Error::file(&self.target, error))?;
        for folder in &folders {
            let path = self.target.join(&folder.path);
            std::fs::create_dir_all(&path).map_err(|error| Error::file(path, error))?;
        }
        outcome.directories = folders.len() as u64;
        let tasks = self.tasks(&folder, &listing, &mut outcome, report)?;
        let total = tasks.iter().map(|task| task.entry.bytes).sum();
        report(&Event::Opened {
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
            .filter_map(|task| task.destination.target().parent())
            .map(Path::to_owned)
            .collect();
        let (small, large): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| task.entry.bytes <= SMALL);
        let (events, emitted) = sync_channel(MAX_EVENTS);
        let shared = Shared {
            tasks: Mutex::new(small.into()),
            alone: Mutex::new(large),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            unverified: AtomicBool::new(false),
            running: AtomicUsize::new(connections),
            failure: Mutex::new(None),
            stop: self.cancel.child(),
            events,
        };
        self.many(&shared, &client, connections, total, &emitted, report);
        let alone = std::mem::take(&mut *lock(&shared.alone));
        if let Some(error) = lock(&shared.failure).take() {
            return Err(error);
        }
        self.one_by_one(alone, &shared, &mut outcome, total, report)?;
        // Directory times are set last, innermost first, because each new entry changes them.
        for folder in folders.iter().rev() {
            let stated = folder.attributes.mode.filter(|_| self.options.preserve);
            let mode = stated.or(Some(crate::file::folder_mode()));
            let path = self.target.join(&folder.path);
            let given = File::open(&path)
                .and_then(|file| Attributes { mode, ..folder.attributes.clone() }.apply_to(&file));
            if let Err(error) = given {
                report(&Event::Note(format!(
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
        report: &mut dyn FnMut(&Event),
    ) -> Result<(Address, Listing), Error> {
        let mut failures = 0;
        loop {
            let (why, pause) =
                match listing::fetch(client, &self.folder, self.recursive, &self.cancel) {
                    Ok(found) => return Ok(found),
                    Err(Trouble::Fatal(error)) => return Err(error),
                    Err(Trouble::Transient(why, pause)) if failures < self.options.retries => {
                        (why, pause)
                    }
                    Err(
                        Trouble::Transient(why, _)
                        | Trouble::Unreachable(why)
                        | Trouble::Changed(why),
                    ) => {
                        return Err(Error::Unreachable {
                            source_name: self.folder.to_string(),
                            why,
                        });
                    }
                };
            failures += 1;
            let pause = pause.unwrap_or_else(|| backoff(failures));
            report(&Event::Retry { why, pause });
            if self.cancel.wait(pause) {
                return Err(Error::Cancelled);
            }
        }
    }

    /// If there is a pattern, removes the entries that it excludes, and without `-r` the
    /// directories.
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

    /// Returns the files to fetch. Unless existing files are to be replaced, leaves out those that
    /// exist locally, and counts them as unchanged or failed.
    fn tasks(
        &self,
        folder: &Address,
        listing: &Listing,
        outcome: &mut TreeOutcome,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Vec<Task>, Error> {
        let mut tasks = Vec::new();
        for entry in listing.entries.iter().filter(|entry| !entry.is_folder) {
            let target = self.target.join(&entry.path);
            let destination = Destination::new(&target)?;
            if let Err(error) = destination.check() {
                outcome.failed += 1;
                report(&Event::Failed {
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
                        let why = DestinationError::Exists(target).to_string();
                        report(&Event::Failed { name: entry.path.display().to_string(), why });
                    }
                    continue;
                }
                Err(_) => {}
            }
            let address = folder.with_path(&format!("{}{}", folder.path(), entry.href), None);
            tasks.push(Task { entry: entry.clone(), address, destination });
        }
        Ok(tasks)
    }

    /// Copies small files over several connections.
    fn many(
        &self,
        shared: &Shared,
        client: &Client,
        connections: usize,
        total: u64,
        emitted: &Receiver<Event>,
        report: &mut dyn FnMut(&Event),
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
                    let _ = shared.events.try_send(progress()); // wakes the loop below
                });
            }
            while shared.running.load(Relaxed) > 0 {
                match emitted.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => report(&event),
                    Err(_) => report(&progress()),
                }
            }
        });
        emitted.try_iter().for_each(|event| report(&event));
    }

    /// Copies files one after the other, each with all streams, resumption and retries.
    fn one_by_one(
        &self,
        tasks: Vec<Task>,
        shared: &Shared,
        outcome: &mut TreeOutcome,
        total: u64,
        report: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        for Task { entry, address, destination } in tasks {
            let before = shared.bytes.load(Relaxed);
            let fetch = Fetch {
                origin: Origin::Server(address),
                others: Vec::new(),
                destination,
                options: self.options.clone(),
                cancel: self.cancel.clone(),
            };
            let copied = fetch.run(&mut |event| match event {
                Event::Opened { .. } => {}
                Event::Progress(progress) => {
                    let (done, received) = (before + progress.done, before + progress.received);
                    report(&Event::Progress(Progress {
                        done,
                        received,
                        length: Some(total.max(done)),
                        ..*progress
                    }));
                }
                other => report(other),
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
                    report(&Event::Failed {
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
    /// Copies one batch. Returns whether there may be another batch.
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
        if batch.is_empty() || self.stop.is_cancelled() {
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
            self.stop.cancel();
            return false;
        }
        // The file that failed is fetched alone, with the retries of a single file. The files after
        // it are requested again.
        let mut rest = batch.drain(done..);
        lock(&self.alone).extend(rest.next());
        let mut tasks = lock(&self.tasks);
        rest.rev().for_each(|task| tasks.push_front(task));
        true
    }
}

/// Returns whether the error would recur for every other file.
fn ends_all(error: &Error) -> bool {
    matches!(
        error,
        Error::Cancelled | Error::Sink(_) | Error::Untrusted { .. } | Error::Unreachable { .. }
    )
}
