//! Fetching a set as one: its list from any of its hosts, each piece from the host that has it,
//! straight to its place in the file.

use super::lane::{Lane, Missing, missing};
use super::manifest::{LIST, Listed, Manifest};
use super::send::{SpreadOutcome, beside};
use super::talk;
use crate::copy::client::Client;
use crate::copy::error::{Error, Trouble};
use crate::copy::event::{Event, Outcome, PROGRESS_INTERVAL, Progress, Served};
use crate::copy::fetch::{Fetch, Origin};
use crate::copy::finish::Ready;
use crate::copy::job::MAX_EVENTS;
use crate::copy::lane::backoff;
use crate::copy::options::{MAX_HOSTS, MAX_STREAMS, Options};
use crate::copy::plan::Plan;
use crate::copy::resume::{Wanted, take_up};
use crate::copy::shared::Shared;
use crate::copy::tree::TreeOutcome;
use crate::copy::unchanged::unchanged;
use crate::file::{Attributes, Place, PlaceError};
use crate::group;
use sprat_http::date::time;
use sprat_http::xattrs::Xattrs;
use sprat_http::{Address, Cancel};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// Streams to each host, unless more are asked for: while one waits for the values of a piece,
/// others receive.
const STREAMS: usize = 4;

/// A set that is to be fetched.
#[derive(Debug)]
pub struct Gather {
    /// The set's address at hosts that may have its list, and may know who we are.
    hosts: Vec<Address>,
    target: PathBuf,
    options: Options,
    cancel: Cancel,
}

/// The hosts of a set, while it is fetched.
struct Hosts {
    /// Folders of pieces.
    folders: Vec<Address>,
    received: Vec<AtomicU64>,
}

impl Gather {
    /// Of the set at an address, to `target`: the name that it will have, or a directory in which
    /// it keeps its own.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(source: &str, target: &Path, options: Options) -> Result<Self, Error> {
        options.check()?;
        if options.sums.sha256.is_some() || !options.verify {
            return Err(Error::Usage(
                "what was spread is verified always, and held against --blake3 at most".to_owned(),
            ));
        }
        let set = Address::parse(source)?.with_token(options.token.as_deref());
        let set = beside(&set, "", "");
        Ok(Self { hosts: vec![set], target: target.to_owned(), options, cancel: Cancel::default() })
    }

    /// Another host, `HOST[:PORT]`, that may have the list, and that is told the same of who we
    /// are. Hosts that the list names, and nobody here, are told nothing.
    ///
    /// # Errors
    /// [`Error::Usage`]: no host, or more than [`MAX_HOSTS`].
    pub fn also(&mut self, host: &str) -> Result<(), Error> {
        if self.hosts.len() >= MAX_HOSTS {
            return Err(Error::Usage(format!("more than {MAX_HOSTS} hosts for one set")));
        }
        let other = self.hosts[0].at_host(host)?;
        self.hosts.push(other);
        Ok(())
    }

    /// Stops when this handle says so, which others may share.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Fetches it, telling how it goes.
    ///
    /// # Errors
    /// [`Error`]. What has arrived stays beside the destination, for the next attempt.
    pub fn run(&self, tell: &mut dyn FnMut(&Event)) -> Result<SpreadOutcome, Error> {
        let begun = Instant::now();
        let receive_buffer = self.options.receive_buffer / MAX_STREAMS;
        let client = Client::new(&self.options, receive_buffer)?;
        let manifest = self.list(&client, tell)?;
        if manifest.is_folder && self.options.sums.any() {
            return Err(Error::Usage("a sum is for one file, and the set is a folder".to_owned()));
        }
        let known = |folder: &Address| self.hosts.iter().any(|host| host.is_at_host_of(folder));
        let folders = manifest.hosts.iter().cloned().map(|folder| match known(&folder) {
            true => folder.with_token(self.options.token.as_deref()),
            false => folder,
        });
        let hosts = Hosts {
            folders: folders.collect(),
            received: manifest.hosts.iter().map(|_| AtomicU64::new(0)).collect(),
        };
        let target = self.place(&manifest)?;
        let total = manifest.files.iter().map(|file| file.shape.length).sum();
        tell(&Event::Opened {
            source: self.hosts[0].to_string(),
            target: target.clone(),
            length: Some(total),
            verified: true,
            resumed: 0,
            streams: self.streams(&manifest) * manifest.hosts.len(),
            written: format!("{} files from {} hosts", manifest.files.len(), manifest.hosts.len()),
        });
        let mut outcome = TreeOutcome {
            target: target.clone(),
            directories: manifest.folders.len() as u64,
            verified: true,
            ..TreeOutcome::default()
        };
        self.make_folders(&manifest, &target)?;
        let (mut before, mut blake3) =
            (Progress { length: Some(total), ..Progress::default() }, None);
        for file in &manifest.files {
            let at = if manifest.is_folder { target.join(file.local()) } else { target.clone() };
            let fetched =
                self.file(&client, &manifest, &hosts, file, &at, &mut |event| match event {
                    Event::Progress(now) => tell(&Event::Progress(sum(&before, now))),
                    other => tell(other),
                });
            match fetched {
                Ok(fetched) if fetched.unchanged => outcome.unchanged += 1,
                Ok(fetched) => {
                    (outcome.files, outcome.bytes) =
                        (outcome.files + 1, outcome.bytes + fetched.length);
                    before = sum(&before, &fetched.progress);
                    blake3 = fetched.blake3.filter(|_| !manifest.is_folder);
                }
                Err(error @ Error::Place(PlaceError::Exists(_) | PlaceError::Other { .. }))
                    if manifest.is_folder =>
                {
                    outcome.failed += 1;
                    tell(&Event::Failed {
                        name: file.local().display().to_string(),
                        why: error.to_string(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        self.finish_folders(&manifest, &target, tell);
        outcome.time = begun.elapsed();
        let received = hosts.folders.iter().zip(&hosts.received);
        let served = received
            .map(|(host, bytes)| Served { source: host.to_string(), bytes: bytes.load(Relaxed) });
        Ok(SpreadOutcome { tree: outcome, hosts: served.collect(), blake3 })
    }

    /// The list, from the first host that has it.
    fn list(&self, client: &Client, tell: &mut dyn FnMut(&Event)) -> Result<Manifest, Error> {
        let mut last = None;
        for (number, host) in self.hosts.iter().enumerate() {
            let list = beside(host, LIST, "");
            let mut failures = 0;
            let error = loop {
                let (why, pause) = match talk::fetch(client, &list, &self.cancel) {
                    Ok(Some(manifest)) => return Ok(manifest),
                    Ok(None) => {
                        break Error::NotFound { source_name: list.to_string(), status: 404 };
                    }
                    // That nobody is there is said at once: a name may be wrong.
                    Err(Trouble::Passing(why, pause)) if failures < self.options.retries => {
                        (why, pause)
                    }
                    Err(trouble) => break trouble.into_error(&list.to_string()),
                };
                failures += 1;
                let pause = pause.unwrap_or_else(|| backoff(failures));
                tell(&Event::Retry { why, pause });
                if self.cancel.wait(pause) {
                    return Err(Error::Cancelled);
                }
            };
            if !error.is_of_source() {
                return Err(error);
            }
            if number + 1 < self.hosts.len() {
                tell(&Event::Without { source: list.to_string(), why: error.why() });
            }
            last.get_or_insert(error);
        }
        Err(last.expect("there is a host at least"))
    }

    /// Where the set goes.
    fn place(&self, manifest: &Manifest) -> Result<PathBuf, Error> {
        let is_folder =
            self.target.is_dir() || self.target.as_os_str().as_encoded_bytes().ends_with(b"/");
        if !is_folder {
            return Ok(self.target.clone());
        }
        let name = self.hosts[0].name().filter(|_| manifest.is_folder);
        let name = name.map(PathBuf::from).or_else(|| manifest.files.first().map(Listed::local));
        let why = || {
            format!("{}: has no name at its end; say what the set is to be called", self.hosts[0])
        };
        Ok(self.target.join(name.ok_or_else(|| Error::Usage(why()))?))
    }

    fn make_folders(&self, manifest: &Manifest, target: &Path) -> Result<(), Error> {
        if !manifest.is_folder {
            return Ok(());
        }
        let all = manifest
            .folders
            .iter()
            .filter_map(|folder| crate::copy::tree::listing::local(&folder.path));
        for folder in std::iter::once(target.to_owned()).chain(all.map(|path| target.join(path))) {
            std::fs::create_dir_all(&folder).map_err(|error| Error::file(folder, error))?;
        }
        Ok(())
    }

    /// Folders get their times when nothing in them changes any more; the innermost first.
    fn finish_folders(&self, manifest: &Manifest, target: &Path, tell: &mut dyn FnMut(&Event)) {
        for folder in manifest.folders.iter().rev() {
            let Some(path) = crate::copy::tree::listing::local(&folder.path) else { continue };
            let mode = Some(folder.mode & 0o777).filter(|_| self.options.preserve);
            let attributes =
                Attributes { mode, modified: time(&folder.mtime), xattrs: Xattrs::default() };
            let path = target.join(path);
            if let Err(error) = File::open(&path).and_then(|file| attributes.give(&file)) {
                tell(&Event::Note(format!(
                    "{}: time or permissions cannot be set: {error}",
                    path.display()
                )));
            }
        }
    }

    fn streams(&self, manifest: &Manifest) -> usize {
        self.options.streams.max(STREAMS).min(MAX_STREAMS / manifest.hosts.len()).max(1)
    }

    /// One file of the set.
    fn file(
        &self,
        client: &Client,
        manifest: &Manifest,
        hosts: &Hosts,
        file: &Listed,
        target: &Path,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Error> {
        let (set, length) = (&self.hosts[0], file.shape.length);
        let fetch = Fetch {
            origin: Origin::Server(set.clone()),
            others: Vec::new(),
            place: Place::of(target)?,
            options: self.options.clone(),
            cancel: self.cancel.clone(),
        };
        let modified = time(&file.mtime);
        if !fetch.is_for_nowhere() {
            fetch.place.check()?;
        }
        if !fetch.is_for_nowhere() && !self.options.force && target.symlink_metadata().is_ok() {
            return unchanged(&fetch, Some(length), modified, true, tell);
        }
        let streams = self.streams(manifest);
        let lanes = streams * hosts.folders.len();
        // It is the same set at any of its hosts, and its files' states have names that nothing
        // else has.
        let source = format!("{}{LIST} {}", set.path(), file.shape.path);
        let validator = Some(file.shape.state.clone());
        let wanted = Wanted { source, length, validator, values: None, strict: false, lanes };
        let source_name = set.to_string();
        let state = take_up(&fetch, self.options.restart, wanted, tell)
            .map_err(|error| error.into_error(&source_name))?;
        let mut queues: Vec<VecDeque<Missing>> = vec![VecDeque::new(); hosts.folders.len()];
        for (number, piece) in file.pieces.iter().enumerate() {
            let runs =
                missing(&file.shape.range(number), |group| state.values.contains_key(&group));
            if !runs.is_empty() {
                queues[piece.host].push_back(Missing { piece: number, runs });
            }
        }
        let queues: Vec<Mutex<VecDeque<Missing>>> = queues.into_iter().map(Mutex::new).collect();
        let (events, told) = sync_channel(MAX_EVENTS);
        // Who fetches what is not this plan's affair: each piece is at one host.
        let plan = Plan::new(0, &BTreeMap::new(), 1);
        let limit = self.options.limit;
        let shared = Shared::new(
            length,
            Progress::default(),
            state,
            plan,
            limit,
            self.cancel.part(),
            events,
        );
        shared.running.store(lanes, Release);
        std::thread::scope(|scope| {
            for ((host, queue), received) in hosts.folders.iter().zip(&queues).zip(&hosts.received)
            {
                for _ in 0..streams {
                    let (shared, retries) = (&shared, self.options.retries);
                    let lane = Lane { shared, client, host, file, queue, retries, received };
                    scope.spawn(move || lane.run());
                }
            }
            while shared.running.load(Acquire) > 0 {
                match told.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => tell(&event),
                    Err(_) => tell(&Event::Progress(shared.counters.progress(Some(length)))),
                }
            }
        });
        told.try_iter().for_each(|event| tell(&event));
        let (mut state, counters, failure) = shared.into_parts();
        let mode = Some(file.mode);
        let ready = Ready {
            fetch: &fetch,
            source_name: source_name.clone(),
            verified: true,
            attributes: Attributes { mode, modified, xattrs: Xattrs::default() },
            length,
            progress: counters.progress(Some(length)),
            sources: Vec::new(),
        };
        match failure {
            None if state.values.len() as u64 == group::count(length) => {
                ready.publish(&mut state, tell)
            }
            failure => {
                ready.keep(&mut state);
                Err(failure.map_or(Error::Cancelled, |trouble| trouble.into_error(&source_name)))
            }
        }
    }
}

/// Where a set is, of which some files are done and one is being fetched.
fn sum(before: &Progress, now: &Progress) -> Progress {
    Progress {
        done: before.done + now.done,
        received: before.received + now.received,
        length: before.length,
        rtt: now.rtt,
        retries: before.retries + now.retries,
        wrong: before.wrong + now.wrong,
    }
}
