//! Uploads to a server. `sprat share --writable` receives a file in parts, verifies each part on
//! arrival, and gives the file its name when it is complete.
//!
//! The server keeps the parts that it has received, and a journal of them, so that the same command
//! resumes after an interruption of either end. The sender stores nothing.

mod ask;
pub(super) mod lane;
mod plan;
mod small;
pub(super) mod talk;
mod tree;
pub(super) mod walk;

use super::client::Client;
use super::error::{Error, Trouble};
use super::event::{Event, Outcome, PROGRESS_INTERVAL, Progress};
use super::job::{MAX_EVENTS, MAX_RESTARTS};
use super::lane::backoff;
use super::options::Options;
use super::shared::{Counters, Limit};
use super::sums::FileSums;
use super::unchanged::same_time;
use super::vouch::fetch_values;
use crate::file::{DestinationError, open_regular, xattrs_of};
use crate::group::{self, Value};
use crate::share::Version;
use ask::{Condition, UploadState, ask_following};
use lane::{MAX_ANSWER, Sending};
use plan::Plan;
use sprat_host::{lock, random};
use sprat_http::address::encode;
use sprat_http::xattrs::Xattrs;
use sprat_http::{Address, BLAKE3, Cancel, LENGTH, MODE, MTIME, UPLOAD, UPLOADED, XATTRS};
use sprat_pace::Pacer;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use talk::{Connection, Reply, check_accepted, request};
pub use tree::UploadTree;

/// Limit on the tries, and the interval between two tries, while the server still counts our former
/// streams as another transfer. This happens if the file changed and the upload starts over.
const MAX_WAITS: u32 = 50;
const AFTERMATH: Duration = Duration::from_millis(100);

/// Limit on the rounds of an upload. In each round it sends the groups that the server still lacks,
/// and tries to finish. If groups are missing after the last round, the upload fails.
const MAX_ROUNDS: u32 = 5;

/// An upload of one file to a server.
///
/// [`Upload::new`] takes source and destination. [`Upload::run`] sends, with one thread for each
/// stream, and reports progress to a callback on the caller's thread. The server keeps the groups
/// that it has received of an interrupted upload. A later upload of the same file to the same
/// address resumes from these groups. An upload may be run again after an error, unless it was
/// cancelled.
#[derive(Debug)]
pub struct Upload {
    from: PathBuf,
    /// The range of bytes to send as a file of its own; `None` sends the whole file. The range
    /// begins at the beginning of a group.
    part: Option<Range<u64>>,
    to: Address,
    options: Options,
    cancel: Cancel,
}

/// One attempt to send a file in one state.
struct Attempt<'a> {
    upload: &'a Upload,
    client: &'a Client,
    pacer: &'a Pacer,
    file: File,
    version: Version,
    /// The bytes of the file to send.
    bytes: Range<u64>,
    tag: String,
    to: Address,
    condition: Condition,
}

impl Upload {
    /// Creates an upload of the local file at `from` to an address. If the address ends with a
    /// slash or is a directory on the server, the file keeps its name in that directory.
    ///
    /// These options apply: `streams`, `retries`, `patience`, `force`, `restart`, `preserve`,
    /// `xattrs`, `pace`, `limit`, `token`, `authorities`, `insecure`, and the BLAKE3 sum.
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is invalid, a SHA-256 sum is given, verification is off, `to`
    /// is not an address, or `to` ends with a slash and `from` does not end in a name.
    pub fn new(from: &Path, to: &str, options: Options) -> Result<Self, Error> {
        options.check()?;
        if options.sums.sha256.is_some() {
            return Err(Error::Usage(
                "--sha256 works only for downloads; use --blake3 to check an upload".to_owned(),
            ));
        }
        if !options.verify {
            return Err(Error::Usage(
                "uploads are always verified; leave --no-verify out".to_owned(),
            ));
        }
        let to = Address::parse(to)?.with_token(options.token.as_deref());
        let mut upload =
            Self { from: from.to_owned(), part: None, to, options, cancel: Cancel::default() };
        if upload.to.path().ends_with('/') {
            let why =
                || format!("{}: does not end in a name; name the destination file", from.display());
            let name = upload.name().ok_or_else(|| Error::Usage(why()))?;
            upload.to = upload.to.with_path(&format!("{}{name}", upload.to.path()), None);
        }
        Ok(upload)
    }

    /// Creates an upload of a part of a file as a file of its own. The part begins at a group.
    pub(super) fn of_part(
        from: PathBuf,
        part: Range<u64>,
        to: Address,
        options: Options,
        cancel: Cancel,
    ) -> Self {
        Self { from, part: Some(part), to, options, cancel }
    }

    /// Uses this handle, which may be shared, for cancellation.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Sends the file, and passes events to `report`. The outcome's target is the address.
    /// # Errors
    /// [`Error`]. The server keeps the groups that it has received for the next attempt.
    pub fn run(&self, report: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
        let begun = Instant::now();
        let client = Client::new(&self.options, 0)?;
        let pacer = Pacer::start().map_err(|error| Error::file("a thread", error))?;
        if self.options.insecure {
            report(&Event::Note("--insecure: anyone can impersonate the destination".to_owned()));
        }
        let source_name = self.from.display().to_string();
        let (mut restarts, mut waits) = (0, 0);
        loop {
            let mut connection = Connection::new(&client, &pacer, self.options.pace, &self.cancel);
            match self.attempt(&client, &pacer, &mut connection, report) {
                Ok(outcome) => return Ok(Outcome { time: begun.elapsed(), ..outcome }),
                Err(Trouble::Changed(why)) if restarts < MAX_RESTARTS => {
                    restarts += 1;
                    report(&Event::StartsOver { why: format!("the source has changed: {why}") });
                }
                Err(Trouble::Changed(why)) => return Err(Error::Changed { source_name, why }),
                // The server has not noticed yet that our former streams have ended.
                Err(Trouble::Fatal(Error::Refused { status: 409, .. }))
                    if restarts > 0 && waits < MAX_WAITS =>
                {
                    waits += 1;
                    if self.cancel.wait(AFTERMATH) {
                        return Err(Error::Cancelled);
                    }
                }
                Err(trouble) => return Err(trouble.into_error(&self.to.to_string())),
            }
        }
    }

    /// Returns the name that the file keeps in a directory, percent-encoded.
    fn name(&self) -> Option<String> {
        self.from.file_name().map(encode)
    }

    /// Attempts once to send the file in one state. The first stream uses `connection`.
    pub(super) fn attempt(
        &self,
        client: &Client,
        pacer: &Pacer,
        connection: &mut Connection<'_>,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Trouble> {
        let (file, meta) = open_regular(&self.from).map_err(Error::from)?;
        let version = Version::of(&meta);
        let bytes = self.part.clone().unwrap_or(0..version.size);
        if bytes.end > version.size {
            return Err(Trouble::Changed("it has become shorter".to_owned()));
        }
        let length = bytes.end - bytes.start;
        let tag = version.tag().trim_matches('"').to_owned();
        let tag = if self.part.is_some() {
            format!("{tag}-{:x}-{:x}", bytes.start, bytes.end)
        } else {
            tag
        };
        // No earlier attempt had this tag, so the server finds nothing to resume.
        let tag = if self.options.restart { format!("{tag}-{:x}", random()) } else { tag };
        let (to, state) = self.begin(connection, &tag, length, report)?;
        let condition = match &state.there {
            None => Condition::Nothing,
            Some(there) => {
                let modified = meta.modified().ok();
                let same_time =
                    there.modified.zip(modified).is_some_and(|(has, is)| same_time(is, has, true));
                if !self.options.force {
                    if there.length == Some(length) && same_time {
                        return self.unchanged(client, &to, length, report);
                    }
                    return Err(Error::from(DestinationError::Exists(to.to_string().into())).into());
                }
                Condition::Replaces(there.tag.clone())
            }
        };
        Attempt { upload: self, client, pacer, file, version, bytes, tag, to, condition }
            .run(connection, state, report)
    }

    /// Returns the outcome for a file that the server already has with the same length and time. If
    /// a sum is given, fetches the values of the file's groups, which the server computes from its
    /// disk, and checks them against the sum.
    fn unchanged(
        &self,
        client: &Client,
        to: &Address,
        length: u64,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Trouble> {
        let sums = &self.options.sums;
        let blake3 = if sums.any() {
            report(&Event::Checking { bytes: length });
            let blake3 =
                group::root(&fetch_values(client, to, length, None, &mut None, &self.cancel)?);
            sums.check(&to.to_string(), &FileSums { blake3, sha256: None })?;
            Some(blake3)
        } else {
            None
        };
        Ok(Outcome {
            target: to.to_string().into(),
            length,
            blake3,
            verified: blake3.is_some(),
            unchanged: true,
            progress: Progress { length: Some(length), ..Progress::default() },
            sources: Vec::new(),
            time: Duration::ZERO,
        })
    }

    /// Sends the first query. Retries after a transient failure, but not if the server cannot be
    /// reached.
    fn begin(
        &self,
        connection: &mut Connection<'_>,
        tag: &str,
        length: u64,
        report: &mut dyn FnMut(&Event),
    ) -> Result<(Address, UploadState), Trouble> {
        let mut failures = 0;
        loop {
            match ask_following(connection, &self.to, self.name().as_deref(), tag, length) {
                Err(Trouble::Transient(why, pause)) if failures < self.options.retries => {
                    connection.close();
                    failures += 1;
                    let pause = pause.unwrap_or_else(|| backoff(failures));
                    report(&Event::Retry { why, pause });
                    if self.cancel.wait(pause) {
                        return Err(Error::Cancelled.into());
                    }
                }
                other => return other,
            }
        }
    }
}

impl Attempt<'_> {
    /// Returns how many bytes are sent.
    fn length(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    fn run(
        self,
        connection: &mut Connection<'_>,
        state: UploadState,
        report: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Trouble> {
        let options = &self.upload.options;
        let length = self.length();
        let resumed: u64 =
            state.groups.keys().map(|group| crate::partial::bytes_of(length, *group)).sum();
        report(&Event::Opened {
            source: self.upload.from.display().to_string(),
            target: self.to.to_string().into(),
            length: Some(length),
            verified: true,
            resumed,
            streams: options.streams,
            written: "by the server".to_owned(),
        });
        let mut before = Progress { done: resumed, length: Some(length), ..Progress::default() };
        let mut values = state.groups;
        let (mut there, mut begun) = (values.clone(), state.begun);
        for _ in 0..MAX_ROUNDS {
            self.send(connection, (&there, begun), &mut values, &mut before, report)?;
            let now =
                self.file.metadata().map_err(|error| Error::file(&self.upload.from, error))?;
            if Version::of(&now) != self.version {
                return Err(Trouble::Changed("it was written to while it was read".to_owned()));
            }
            let all: Vec<Value> = values.values().copied().collect();
            let blake3 = group::root(&all);
            let has = FileSums { blake3, sha256: None };
            options.sums.check(&self.upload.from.display().to_string(), &has)?;
            if self.end(connection, &blake3, report)? {
                return Ok(Outcome {
                    target: self.to.to_string().into(),
                    length,
                    blake3: Some(blake3),
                    verified: true,
                    unchanged: false,
                    progress: Progress { done: length, ..before },
                    sources: Vec::new(),
                    time: Duration::ZERO,
                });
            }
            UploadState { groups: there, begun, .. } =
                ask::ask(connection, &self.to, &self.tag, length)?;
            before.done = there.keys().map(|group| crate::partial::bytes_of(length, *group)).sum();
        }
        let why = format!("reported groups as received that it lacks, {MAX_ROUNDS} times");
        Err(Error::Protocol { source_name: self.to.to_string(), why }.into())
    }

    /// Sends the groups that the server lacks, over all streams.
    fn send(
        &self,
        connection: &mut Connection<'_>,
        (there, begun): (&BTreeMap<u64, Value>, Option<(u64, u64)>),
        values: &mut BTreeMap<u64, Value>,
        before: &mut Progress,
        report: &mut dyn FnMut(&Event),
    ) -> Result<(), Trouble> {
        let options = &self.upload.options;
        let length = self.length();
        let plan = Plan::new(group::count(length), there, options.streams);
        if plan.is_empty() {
            return Ok(());
        }
        let (events, emitted) = sync_channel(MAX_EVENTS);
        let stop = self.upload.cancel.child();
        let sending = Sending {
            to: &self.to,
            path: &self.upload.from,
            file: &self.file,
            begin: self.bytes.start,
            length,
            tag: &self.tag,
            condition: &self.condition,
            retries: options.retries,
            plan: Mutex::new(plan),
            begun: Mutex::new(begun),
            values: Mutex::new(std::mem::take(values)),
            counters: Counters::from(*before),
            limit: options.limit.map(|rate| Mutex::new(Limit::new(rate))),
            running: AtomicUsize::new(options.streams),
            failure: Mutex::new(None),
            stop: stop.clone(),
            events,
        };
        std::thread::scope(|scope| {
            for _ in 1..options.streams {
                let mut connection = Connection::new(self.client, self.pacer, options.pace, &stop);
                let sending = &sending;
                scope.spawn(move || sending.run_stream(&mut connection));
            }
            // The first stream uses the connection that queried the state.
            let sending = &sending;
            scope.spawn(move || sending.run_stream(connection));
            while sending.running.load(Acquire) > 0 {
                match emitted.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => report(&event),
                    Err(_) => report(&Event::Progress(sending.counters.progress(Some(length)))),
                }
            }
        });
        emitted.try_iter().for_each(|event| report(&event));
        *before = sending.counters.progress(Some(length));
        *values = std::mem::take(&mut *lock(&sending.values));
        match lock(&sending.failure).take() {
            Some(trouble) => Err(trouble),
            None if self.upload.cancel.is_cancelled() => Err(Error::Cancelled.into()),
            None => Ok(()),
        }
    }

    /// Finishes the upload, so that the server gives the file its name. Returns false if the server
    /// lacks groups.
    fn end(
        &self,
        connection: &mut Connection<'_>,
        blake3: &Value,
        report: &mut dyn FnMut(&Event),
    ) -> Result<bool, Trouble> {
        let (name, value) = self.condition.field();
        let hash = blake3::Hash::from_bytes(*blake3).to_hex();
        let (length, modified) = (self.length().to_string(), self.version.modified.to_string());
        let mode = format!("{:04o}", self.version.mode & 0o777);
        let mut fields = vec![
            ("Content-Type", UPLOADED),
            ("Content-Length", "0"),
            (UPLOAD, &self.tag[..]),
            (LENGTH, &length),
            (BLAKE3, &hash),
            (MTIME, &modified),
            (name, value),
        ];
        if self.upload.options.preserve {
            fields.push((MODE, &mode));
        }
        let xattrs = self.xattrs(report)?;
        if !xattrs.is_empty() {
            fields.push((XATTRS, &xattrs));
        }
        let head = request("PUT", &self.to, &fields);
        let mut failures = 0;
        loop {
            let reply = connection
                .call(&self.to, &head, MAX_ANSWER)
                .and_then(|reply| check_accepted(&self.to, reply));
            let (why, pause) = match reply {
                Ok(Reply { head, .. }) => {
                    if let Some(note) = head.note {
                        report(&Event::Note(format!("{}: {note}", self.to)));
                    }
                    return Ok(head.missing.is_none());
                }
                // The response to an earlier attempt to finish may have been lost. That attempt may
                // also be one of a process that was killed, whose request the server executed only
                // after this process had asked it for the state of the upload.
                Err(Trouble::Fatal(Error::Refused { status: 409 | 412, .. }))
                    if self.is_there(connection)? =>
                {
                    return Ok(true);
                }
                Err(Trouble::Transient(why, pause)) => (why, pause),
                Err(Trouble::Unreachable(why)) => (why, None),
                Err(other) => return Err(other),
            };
            connection.close();
            failures += 1;
            if failures > self.upload.options.retries {
                return Err(Error::Unreachable { source_name: self.to.to_string(), why }.into());
            }
            let pause = pause.unwrap_or_else(|| backoff(failures));
            report(&Event::Retry { why, pause });
            if self.upload.cancel.wait(pause) {
                return Err(Error::Cancelled.into());
            }
        }
    }

    /// Returns the extended attributes to send, as a header field.
    fn xattrs(&self, report: &mut dyn FnMut(&Event)) -> Result<String, Error> {
        if !self.upload.options.xattrs {
            return Ok(String::new());
        }
        let field =
            xattrs_of(&self.file).map_err(|error| Error::file(&self.upload.from, error))?.field();
        if let Some(left_out) =
            Xattrs::parse(&field).map(|xattrs| xattrs.left_out()).filter(|count| *count > 0)
        {
            let what = format!(
                "{left_out} extended attributes do not fit into a request and are left out"
            );
            report(&Event::Note(format!("{}: {what}", self.upload.from.display())));
        }
        Ok(field)
    }

    /// Returns whether the server already has this file under its name.
    fn is_there(&self, connection: &mut Connection<'_>) -> Result<bool, Trouble> {
        let state = ask::ask(connection, &self.to, &self.tag, self.length())?;
        let modified = sprat_http::date::time(&self.version.modified.to_string());
        Ok(state.there.is_some_and(|there| {
            let same =
                there.modified.zip(modified).is_some_and(|(has, is)| same_time(is, has, true));
            there.length == Some(self.length()) && same
        }))
    }
}
