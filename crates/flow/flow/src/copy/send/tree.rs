//! Uploads a folder. It sends many small files at a time, and large files one by one.

use super::Upload;
use super::ask::{Condition, is_folder};
use super::lane::MAX_ANSWER;
use super::small::{FileResult, SMALL, Task, Worker, ends_all};
use super::talk::{Connection, check_accepted, request};
use super::walk::{Entry, Walk};
use crate::copy::client::Client;
use crate::copy::error::Error;
use crate::copy::event::{Event, PROGRESS_INTERVAL, Progress};
use crate::copy::options::Options;
use crate::copy::tree::{TreeOutcome, listing};
use crate::copy::unchanged::same_time;
use crate::file::DestinationError;
use sprat_host::lock;
use sprat_http::address::encode;
use sprat_http::date::time;
use sprat_http::{Address, Cancel, MODE, MTIME};
use sprat_pace::Pacer;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// The least number of connections for small files, if there are as many files. While one
/// connection waits for the server's disk, others send.
const CONNECTIONS: usize = 4;

/// Capacity of the queue of events.
const MAX_EVENTS: usize = 256;

/// An upload of a folder with all its content. Create it with [`UploadTree::new`] and call
/// [`run`](UploadTree::run), as for an [`Upload`](super::Upload). Unless [`Options::force`] is set,
/// files that the server already has with the same length and time are not sent again.
#[derive(Debug)]
pub struct UploadTree {
    from: PathBuf,
    to: Address,
    options: Options,
    cancel: Cancel,
}

/// The folder's destination, and a connection to it.
struct Sending<'a> {
    tree: &'a UploadTree,
    client: &'a Client,
    pacer: &'a Pacer,
    /// The address of the folder on the server, which ends with a slash.
    folder: Address,
}

impl UploadTree {
    /// Creates an upload of the folder at `from` to an address. If the address is a directory on
    /// the server, the folder keeps its name in that directory.
    ///
    /// # Errors
    /// [`Error::Usage`] if a sum is given, an option is invalid or verification is off, or `to` is
    /// not an address.
    pub fn new(from: &Path, to: &str, options: Options) -> Result<Self, Error> {
        if options.sums.any() {
            return Err(Error::Usage("a sum is for one file, not for a folder".to_owned()));
        }
        // Options are valid if they are valid for one file.
        Upload::new(Path::new("file"), to, options.clone())?;
        let to = Address::parse(to)?.with_token(options.token.as_deref());
        Ok(Self { from: from.to_owned(), to, options, cancel: Cancel::default() })
    }

    /// Uses this handle, which may be shared, for cancellation.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Sends the folder, and passes events to `report`. Files that the server does not accept are
    /// reported and counted; the transfer continues with the other files.
    /// # Errors
    /// The [`Error`] that ended the transfer. Files that were sent before stay on the server.
    pub fn run(&self, report: &mut dyn FnMut(&Event)) -> Result<TreeOutcome, Error> {
        let begun = Instant::now();
        let mut walk = Walk::of(&self.from)?;
        let client = Client::new(&self.options, 0)?;
        let pacer = Pacer::start().map_err(|error| Error::file("a thread", error))?;
        let mut connection = Connection::new(&client, &pacer, self.options.pace, &self.cancel);
        let folder = self.target(&mut connection)?;
        let sending = Sending { tree: self, client: &client, pacer: &pacer, folder };
        let made = sending.folder(&mut connection, Path::new(""), None)?;
        let there = if made { HashMap::new() } else { sending.list_existing()? };
        for folder in walk.folders.iter().skip(1).filter(|folder| !there.contains_key(&folder.path))
        {
            sending.folder(&mut connection, &folder.path, None)?;
        }
        let mut outcome = TreeOutcome {
            target: sending.folder.to_string().into(),
            directories: walk.folders.len() as u64 - 1,
            left_out: std::mem::take(&mut walk.left_out),
            verified: true,
            ..TreeOutcome::default()
        };
        let tasks = sending.tasks(&walk.files, &there, &mut outcome, report);
        let total = tasks.iter().map(|task| task.entry.version.size).sum();
        report(&Event::Opened {
            source: self.from.display().to_string(),
            target: outcome.target.clone(),
            length: Some(total),
            verified: true,
            resumed: 0,
            streams: self.options.streams.max(CONNECTIONS),
            written: format!("{} files", tasks.len()),
        });
        let (small, large): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| task.entry.version.size <= SMALL);
        let (mut alone, mut progress) =
            (large, Progress { length: Some(total), ..Progress::default() });
        alone.extend(sending.many(small, &mut outcome, &mut progress, report)?);
        sending.one_by_one(alone, &mut outcome, &mut progress, report)?;
        // Directory times are set last, innermost first, because each new entry changes them.
        for folder in walk.folders.iter().rev() {
            sending.folder(&mut connection, &folder.path, Some(folder))?;
        }
        outcome.time = begun.elapsed();
        Ok(outcome)
    }

    /// Returns the address of the folder on the server. In an existing directory the folder keeps
    /// its name.
    fn target(&self, connection: &mut Connection<'_>) -> Result<Address, Error> {
        let path = self.to.path().trim_end_matches('/').to_owned();
        let to = self.to.with_path(&path, None);
        let into = path.is_empty()
            || is_folder(connection, &to)
                .map_err(|trouble| trouble.into_error(&self.to.to_string()))?;
        let folder = self.from.canonicalize().map_err(|error| Error::file(&self.from, error))?;
        match folder.file_name().map(encode) {
            Some(name) if into => Ok(self.to.with_path(&format!("{path}/{name}/"), None)),
            None if into => Err(Error::Usage(format!(
                "{}: does not end in a name; name the destination",
                self.from.display()
            ))),
            _ => Ok(self.to.with_path(&format!("{path}/"), None)),
        }
    }
}

impl Sending<'_> {
    /// Returns the address of a path in the folder.
    fn address(&self, path: &Path, slash: &str) -> Address {
        let parts: Vec<String> = path.iter().map(encode).collect();
        let slash = if parts.is_empty() { "" } else { slash };
        self.folder.with_path(&format!("{}{}{slash}", self.folder.path(), parts.join("/")), None)
    }

    /// Creates a directory, or sets its attributes. Returns whether the directory is new.
    fn folder(
        &self,
        connection: &mut Connection<'_>,
        path: &Path,
        attributes: Option<&Entry>,
    ) -> Result<bool, Error> {
        let address = self.address(path, "/");
        let time_and_mode = attributes.map(|entry| {
            (entry.version.modified.to_string(), format!("{:04o}", entry.version.mode & 0o777))
        });
        let mut fields = vec![("Content-Length", "0")];
        if let Some((modified, mode)) = &time_and_mode {
            fields.push((MTIME, modified));
            if self.tree.options.preserve {
                fields.push((MODE, mode));
            }
        }
        let head = request("PUT", &address, &fields);
        let reply = connection
            .call(&address, &head, MAX_ANSWER)
            .and_then(|reply| check_accepted(&address, reply));
        Ok(reply.map_err(|trouble| trouble.into_error(&address.to_string()))?.head.status == 201)
    }

    /// Lists the files that the server already has.
    fn list_existing(&self) -> Result<HashMap<PathBuf, listing::Entry>, Error> {
        let listed = listing::fetch(self.client, &self.folder, true, &self.tree.cancel);
        let (_, listing) =
            listed.map_err(|trouble| trouble.into_error(&self.folder.to_string()))?;
        Ok(listing.entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect())
    }

    /// Returns the files to send. Unless existing files are to be replaced, leaves out those that
    /// the server has, and counts them as unchanged (same length and time) or failed.
    fn tasks(
        &self,
        files: &[Entry],
        there: &HashMap<PathBuf, listing::Entry>,
        outcome: &mut TreeOutcome,
        report: &mut dyn FnMut(&Event),
    ) -> Vec<Task> {
        let mut tasks = Vec::new();
        for entry in files {
            let to = self.address(&entry.path, "");
            let condition = match there.get(&entry.path) {
                None => Condition::Nothing,
                Some(has) => {
                    let is = time(&entry.version.modified.to_string());
                    let same_time = has
                        .attributes
                        .modified
                        .zip(is)
                        .is_some_and(|(has, is)| same_time(is, has, true));
                    match &has.tag {
                        _ if !self.tree.options.force
                            && has.bytes == entry.version.size
                            && same_time =>
                        {
                            outcome.unchanged += 1;
                            continue;
                        }
                        Some(tag) if self.tree.options.force => Condition::Replaces(tag.clone()),
                        _ => {
                            outcome.failed += 1;
                            let why = DestinationError::Exists(to.to_string().into()).to_string();
                            report(&Event::Failed { name: entry.path.display().to_string(), why });
                            continue;
                        }
                    }
                }
            };
            tasks.push(Task { entry: entry.clone(), to, condition });
        }
        tasks
    }

    /// Sends small files over several connections. Returns the files that must be sent alone.
    fn many(
        &self,
        small: Vec<Task>,
        outcome: &mut TreeOutcome,
        progress: &mut Progress,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Vec<Task>, Error> {
        let connections = self.tree.options.streams.max(CONNECTIONS).min(small.len());
        let (files, bytes, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (tasks, alone, failure) =
            (Mutex::new(VecDeque::from(small)), Mutex::new(Vec::new()), Mutex::new(None));
        let running = AtomicUsize::new(connections);
        let (events, emitted) = sync_channel(MAX_EVENTS);
        let stop = self.tree.cancel.child();
        let end = |task: Task, end: FileResult| match end {
            FileResult::Done(note) => {
                if let Some(note) = note {
                    let _ = events.send(Event::Note(format!(
                        "{}: \
                            {note}",
                        task.entry.path.display()
                    ))); // the receiver outlives the workers
                }
                files.fetch_add(1, Relaxed);
                bytes.fetch_add(task.entry.version.size, Relaxed);
            }
            FileResult::Alone => lock(&alone).push(task),
            FileResult::Failed(error) => {
                failed.fetch_add(1, Relaxed);
                let name = task.entry.path.display().to_string();
                // The receiver outlives the workers.
                let _ = events.send(Event::Failed { name, why: error.to_string() });
            }
        };
        let xattrs = self.tree.options.xattrs;
        let is_stopped = || stop.is_cancelled();
        let root = &self.tree.from;
        let worker = Worker {
            root,
            preserve: self.tree.options.preserve,
            xattrs,
            tasks: &tasks,
            is_stopped: &is_stopped,
            end: &end,
        };
        std::thread::scope(|scope| {
            for _ in 0..connections {
                scope.spawn(|| {
                    let mut connection =
                        Connection::new(self.client, self.pacer, self.tree.options.pace, &stop);
                    if let Err(error) = worker.run(&mut connection) {
                        lock(&failure).get_or_insert(error);
                        stop.cancel();
                    }
                    running.fetch_sub(1, Relaxed);
                });
            }
            while running.load(Relaxed) > 0 {
                match emitted.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => report(&event),
                    Err(_) => {
                        let done = bytes.load(Relaxed);
                        report(&Event::Progress(Progress { done, received: done, ..*progress }));
                    }
                }
            }
        });
        emitted.try_iter().for_each(|event| report(&event));
        if let Some(error) = lock(&failure).take() {
            return Err(error);
        }
        outcome.files += files.load(Relaxed);
        outcome.bytes += bytes.load(Relaxed);
        outcome.failed += failed.load(Relaxed);
        (progress.done, progress.received) = (outcome.bytes, outcome.bytes);
        Ok(std::mem::take(&mut *lock(&alone)))
    }

    /// Sends files one after the other, each with all streams, resumption and retries.
    fn one_by_one(
        &self,
        tasks: Vec<Task>,
        outcome: &mut TreeOutcome,
        progress: &mut Progress,
        report: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        for Task { entry, to, .. } in tasks {
            let before = *progress;
            let upload = Upload {
                from: self.tree.from.join(&entry.path),
                part: None,
                to,
                options: self.tree.options.clone(),
                cancel: self.tree.cancel.clone(),
            };
            let sent = upload.run(&mut |event| match event {
                Event::Opened { .. } => {}
                Event::Progress(one) => {
                    let (done, received) = (before.done + one.done, before.received + one.received);
                    report(&Event::Progress(Progress {
                        done,
                        received,
                        length: before.length,
                        ..*one
                    }));
                }
                other => report(other),
            });
            match sent {
                Ok(sent) => {
                    (outcome.files, outcome.bytes) =
                        (outcome.files + 1, outcome.bytes + sent.length);
                    progress.done += sent.length;
                    progress.received += sent.progress.received;
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
