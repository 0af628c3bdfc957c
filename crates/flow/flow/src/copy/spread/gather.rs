//! Fetches a set of files. The list of the set comes from any of the set's hosts. Each piece comes
//! from the host that has it, and is written directly to its place in the file.

use super::lane::{Missing, PieceStream, missing};
use super::manifest::{LIST, Manifest, ManifestFile};
use super::send::{SpreadOutcome, sibling};
use super::talk;
use crate::copy::client::Client;
use crate::copy::error::{Error, Trouble};
use crate::copy::event::{Event, Outcome, PROGRESS_INTERVAL, Progress, Served};
use crate::copy::fetch::{Fetch, Origin};
use crate::copy::finish::EndedTransfer;
use crate::copy::job::MAX_EVENTS;
use crate::copy::lane::backoff;
use crate::copy::options::{MAX_HOSTS, MAX_STREAMS, Options};
use crate::copy::plan::Plan;
use crate::copy::resume::{Wanted, resume_or_begin};
use crate::copy::shared::Shared;
use crate::copy::tree::TreeOutcome;
use crate::copy::unchanged::unchanged;
use crate::file::{Attributes, Destination, DestinationError};
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

/// The least number of streams to each host, as far as [`MAX_STREAMS`] allows. While one stream
/// waits for the values of a piece, others receive.
const STREAMS: usize = 4;

/// A fetch of a set that [`Spread`](super::Spread) sent to several hosts. Create it with
/// [`Gather::new`], add hosts with [`Gather::add_host`], and call [`run`](Gather::run), as for a
/// [`Fetch`].
#[derive(Debug)]
pub struct Gather {
    /// The addresses of the set at the hosts that may have the list, with credentials.
    hosts: Vec<Address>,
    target: PathBuf,
    options: Options,
    cancel: Cancel,
}

/// The hosts of a set while it is fetched.
struct Hosts {
    /// The folder of pieces at each host.
    folders: Vec<Address>,
    received: Vec<AtomicU64>,
}

impl Gather {
    /// Creates a fetch of the set at an address to `target`. `target` is the set's new name, or a
    /// directory in which the set keeps its name.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is invalid, a SHA-256 sum is given, verification is off, or
    /// `source` is not an address.
    pub fn new(source: &str, target: &Path, options: Options) -> Result<Self, Error> {
        options.check()?;
        if options.sums.sha256.is_some() || !options.verify {
            return Err(Error::Usage(
                "a spread set is always verified: leave --no-verify and --sha256 out; --blake3 \
                 checks it against a sum"
                    .to_owned(),
            ));
        }
        let set = Address::parse(source)?.with_token(options.token.as_deref());
        let set = sibling(&set, "", "");
        Ok(Self { hosts: vec![set], target: target.to_owned(), options, cancel: Cancel::default() })
    }

    /// Adds a host, `HOST[:PORT]`, that may have the list. The host gets the credentials of the
    /// set's first address. A host that only the list names gets no credentials.
    /// # Errors
    /// [`Error::Usage`] if `host` is not a host, or there would be more than [`MAX_HOSTS`].
    pub fn add_host(&mut self, host: &str) -> Result<(), Error> {
        if self.hosts.len() >= MAX_HOSTS {
            return Err(Error::Usage(format!("more than {MAX_HOSTS} hosts for one set")));
        }
        let other = self.hosts[0].at_host(host)?;
        self.hosts.push(other);
        Ok(())
    }

    /// Uses this handle, which may be shared, for cancellation.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Fetches the set, and passes events to `report`.
    /// # Errors
    /// [`Error`]. The bytes received stay in files next to the destination for the next attempt.
    pub fn run(&self, report: &mut dyn FnMut(&Event)) -> Result<SpreadOutcome, Error> {
        let begun = Instant::now();
        let receive_buffer = self.options.receive_buffer / MAX_STREAMS;
        let client = Client::new(&self.options, receive_buffer)?;
        let manifest = self.list(&client, report)?;
        if manifest.is_folder && self.options.sums.any() {
            return Err(Error::Usage("a sum is for one file, and the set is a folder".to_owned()));
        }
        let known = |folder: &Address| self.hosts.iter().any(|host| host.is_same_server(folder));
        let folders = manifest.hosts.iter().cloned().map(|folder| match known(&folder) {
            true => folder.with_token(self.options.token.as_deref()),
            false => folder,
        });
        let hosts = Hosts {
            folders: folders.collect(),
            received: manifest.hosts.iter().map(|_| AtomicU64::new(0)).collect(),
        };
        let target = self.destination_path(&manifest)?;
        let total = manifest.files.iter().map(|file| file.layout.length).sum();
        report(&Event::Opened {
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
                    Event::Progress(now) => report(&Event::Progress(sum(&before, now))),
                    other => report(other),
                });
            match fetched {
                Ok(fetched) if fetched.unchanged => outcome.unchanged += 1,
                Ok(fetched) => {
                    (outcome.files, outcome.bytes) =
                        (outcome.files + 1, outcome.bytes + fetched.length);
                    before = sum(&before, &fetched.progress);
                    blake3 = fetched.blake3.filter(|_| !manifest.is_folder);
                }
                Err(
                    error @ Error::Destination(
                        DestinationError::Exists(_) | DestinationError::Other { .. },
                    ),
                ) if manifest.is_folder => {
                    outcome.failed += 1;
                    report(&Event::Failed {
                        name: file.local().display().to_string(),
                        why: error.to_string(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        self.finish_folders(&manifest, &target, report);
        outcome.time = begun.elapsed();
        let received = hosts.folders.iter().zip(&hosts.received);
        let served = received
            .map(|(host, bytes)| Served { source: host.to_string(), bytes: bytes.load(Relaxed) });
        Ok(SpreadOutcome { tree: outcome, hosts: served.collect(), blake3 })
    }

    /// Fetches the list from the first host that serves it.
    fn list(&self, client: &Client, report: &mut dyn FnMut(&Event)) -> Result<Manifest, Error> {
        let mut last = None;
        for (number, host) in self.hosts.iter().enumerate() {
            let list = sibling(host, LIST, "");
            let mut failures = 0;
            let error = loop {
                let (why, pause) = match talk::fetch(client, &list, &self.cancel) {
                    Ok(Some(manifest)) => return Ok(manifest),
                    Ok(None) => {
                        break Error::NotFound { source_name: list.to_string(), status: 404 };
                    }
                    // A host that cannot be reached is reported at once, because its name may be
                    // misspelled.
                    Err(Trouble::Transient(why, pause)) if failures < self.options.retries => {
                        (why, pause)
                    }
                    Err(trouble) => break trouble.into_error(&list.to_string()),
                };
                failures += 1;
                let pause = pause.unwrap_or_else(|| backoff(failures));
                report(&Event::Retry { why, pause });
                if self.cancel.wait(pause) {
                    return Err(Error::Cancelled);
                }
            };
            if !error.is_of_source() {
                return Err(error);
            }
            if number + 1 < self.hosts.len() {
                report(&Event::HostDropped { source: list.to_string(), why: error.why() });
            }
            last.get_or_insert(error);
        }
        Err(last.expect("there is a host at least"))
    }

    /// Returns the local path of the set.
    fn destination_path(&self, manifest: &Manifest) -> Result<PathBuf, Error> {
        let is_folder =
            self.target.is_dir() || self.target.as_os_str().as_encoded_bytes().ends_with(b"/");
        if !is_folder {
            return Ok(self.target.clone());
        }
        let name = self.hosts[0].name().filter(|_| manifest.is_folder);
        let name =
            name.map(PathBuf::from).or_else(|| manifest.files.first().map(ManifestFile::local));
        let why = || format!("{}: does not end in a name; name the set", self.hosts[0]);
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

    /// Sets the directories' times, innermost first. This comes last because each new entry changes
    /// them.
    fn finish_folders(&self, manifest: &Manifest, target: &Path, report: &mut dyn FnMut(&Event)) {
        for folder in manifest.folders.iter().rev() {
            let Some(path) = crate::copy::tree::listing::local(&folder.path) else { continue };
            let stated = Some(folder.mode & 0o777).filter(|_| self.options.preserve);
            let mode = stated.or(Some(crate::file::folder_mode()));
            let attributes =
                Attributes { mode, modified: time(&folder.mtime), xattrs: Xattrs::default() };
            let path = target.join(path);
            if let Err(error) = File::open(&path).and_then(|file| attributes.apply_to(&file)) {
                report(&Event::Note(format!(
                    "{}: time or permissions cannot be set: {error}",
                    path.display()
                )));
            }
        }
    }

    fn streams(&self, manifest: &Manifest) -> usize {
        self.options.streams.max(STREAMS).min(MAX_STREAMS / manifest.hosts.len()).max(1)
    }

    /// Fetches one file of the set.
    fn file(
        &self,
        client: &Client,
        manifest: &Manifest,
        hosts: &Hosts,
        file: &ManifestFile,
        target: &Path,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Error> {
        let (set, length) = (&self.hosts[0], file.layout.length);
        let fetch = Fetch {
            origin: Origin::Server(set.clone()),
            others: Vec::new(),
            destination: Destination::new(target)?,
            options: self.options.clone(),
            cancel: self.cancel.clone(),
        };
        let modified = time(&file.mtime);
        if !fetch.is_discarding() {
            fetch.destination.check()?;
        }
        if !fetch.is_discarding() && !self.options.force && target.symlink_metadata().is_ok() {
            return unchanged(&fetch, Some(length), modified, true, report);
        }
        let streams = self.streams(manifest);
        let total_streams = streams * hosts.folders.len();
        // The set is equal at all its hosts, and the name of a file's state is unique. The journal
        // therefore need not name a host.
        let source = format!("{}{LIST} {}", set.path(), file.layout.path);
        let validator = Some(file.layout.state.clone());
        let wanted = Wanted {
            source,
            length,
            validator,
            values: None,
            strict: false,
            streams: total_streams,
        };
        let source_name = set.to_string();
        let state = resume_or_begin(&fetch, self.options.restart, wanted, report)
            .map_err(|error| error.into_error(&source_name))?;
        let mut queues: Vec<VecDeque<Missing>> = vec![VecDeque::new(); hosts.folders.len()];
        for (number, piece) in file.pieces.iter().enumerate() {
            let runs =
                missing(&file.layout.range(number), |group| state.values.contains_key(&group));
            if !runs.is_empty() {
                queues[piece.host].push_back(Missing { piece: number, runs });
            }
        }
        let queues: Vec<Mutex<VecDeque<Missing>>> = queues.into_iter().map(Mutex::new).collect();
        let (events, emitted) = sync_channel(MAX_EVENTS);
        // The plan stays empty. Each piece is on one host, so the queues assign the work.
        let plan = Plan::new(0, &BTreeMap::new(), 1);
        let limit = self.options.limit;
        let shared = Shared::new(
            length,
            Progress::default(),
            state,
            plan,
            limit,
            self.cancel.child(),
            events,
        );
        shared.running.store(total_streams, Release);
        std::thread::scope(|scope| {
            for ((host, queue), received) in hosts.folders.iter().zip(&queues).zip(&hosts.received)
            {
                for _ in 0..streams {
                    let (shared, retries) = (&shared, self.options.retries);
                    let stream =
                        PieceStream { shared, client, host, file, queue, retries, received };
                    scope.spawn(move || stream.run());
                }
            }
            while shared.running.load(Acquire) > 0 {
                match emitted.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => report(&event),
                    Err(_) => report(&Event::Progress(shared.counters.progress(Some(length)))),
                }
            }
        });
        emitted.try_iter().for_each(|event| report(&event));
        let (mut state, counters, failure) = shared.into_parts();
        let mode = Some(file.mode);
        let ready = EndedTransfer {
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
                ready.publish(&mut state, report)
            }
            failure => {
                ready.keep(&mut state);
                Err(failure.map_or(Error::Cancelled, |trouble| trouble.into_error(&source_name)))
            }
        }
    }
}

/// Adds the progress of the current file to that of the earlier files.
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
