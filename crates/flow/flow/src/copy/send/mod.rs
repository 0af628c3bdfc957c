//! From here to a server: `sprat share --writable` takes files in parts, each verified while it
//! comes, and gives a file its name when all of it is there.
//!
//! The server keeps what has come, and a journal of it, so that the same command goes on after any
//! interruption of either end. Here nothing is written.

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
use super::sums::Summed;
use super::unchanged::same_time;
use super::vouch::values;
use crate::file::{PlaceError, open_regular, xattrs_of};
use crate::group::{self, Value};
use crate::share::Version;
use ask::{Condition, Told, ask_around};
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
use talk::{Line, Reply, request, taken};
pub use tree::UploadTree;

/// After a file was begun anew: how often, and after how long each time, a server is asked again
/// that takes our former streams for somebody else's.
const MAX_WAITS: u32 = 50;
const AFTERMATH: Duration = Duration::from_millis(100);

/// How often what the server lacks at the end is sent again.
const MAX_ROUNDS: u32 = 5;

/// A file that is to be sent.
#[derive(Debug)]
pub struct Upload {
    from: PathBuf,
    /// The bytes of it that are sent, as a file by themselves; none: all. They begin a group.
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
    /// The bytes of it that are sent.
    bytes: Range<u64>,
    tag: String,
    to: Address,
    condition: Condition,
}

impl Upload {
    /// Of the local file at `from` to an address; into it, under its own name, if that ends with a
    /// slash or is a directory there. Of a copy's options `streams`, `retries`, `patience`,
    /// `force`, `restart`, `preserve`, `pace`, `limit`, the sum and whom to trust are of account.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(from: &Path, to: &str, options: Options) -> Result<Self, Error> {
        options.check()?;
        if options.sums.sha256.is_some() {
            return Err(Error::Usage(
                "--sha256 is for what is fetched; --blake3 holds what is sent against a sum"
                    .to_owned(),
            ));
        }
        if !options.verify {
            return Err(Error::Usage(
                "what is sent to a server is verified always; leave --no-verify out".to_owned(),
            ));
        }
        let to = Address::parse(to)?.with_token(options.token.as_deref());
        let mut upload =
            Self { from: from.to_owned(), part: None, to, options, cancel: Cancel::default() };
        if upload.to.path().ends_with('/') {
            let why = || {
                format!(
                    "{}: has no name at its end; say what the file is to be called",
                    from.display()
                )
            };
            let name = upload.name().ok_or_else(|| Error::Usage(why()))?;
            upload.to = upload.to.with_path(&format!("{}{name}", upload.to.path()), None);
        }
        Ok(upload)
    }

    /// A part of a file, to become a file of its own at that address; its bytes begin a group.
    pub(super) fn of_part(
        from: PathBuf,
        part: Range<u64>,
        to: Address,
        options: Options,
        cancel: Cancel,
    ) -> Self {
        Self { from, part: Some(part), to, options, cancel }
    }

    /// Stops when this handle says so, which others may share.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// Sends it, telling how it goes. The outcome's target is the address.
    ///
    /// # Errors
    /// [`Error`]. What has come stays at the server, for the next attempt.
    pub fn run(&self, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
        let begun = Instant::now();
        let client = Client::new(&self.options, 0)?;
        let pacer = Pacer::start().map_err(|error| Error::file("a thread", error))?;
        if self.options.insecure {
            tell(&Event::Note("--insecure: anybody may pretend to be the destination".to_owned()));
        }
        let source_name = self.from.display().to_string();
        let (mut restarts, mut waits) = (0, 0);
        loop {
            let mut line = Line::new(&client, &pacer, self.options.pace, &self.cancel);
            match self.once(&client, &pacer, &mut line, tell) {
                Ok(outcome) => return Ok(Outcome { time: begun.elapsed(), ..outcome }),
                Err(Trouble::Changed(why)) if restarts < MAX_RESTARTS => {
                    restarts += 1;
                    tell(&Event::StartsOver { why: format!("the source has changed: {why}") });
                }
                Err(Trouble::Changed(why)) => return Err(Error::Changed { source_name, why }),
                // Our own streams of before: the server has yet to see that they have ended.
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

    /// The name that it keeps in a directory, as part of an address.
    fn name(&self) -> Option<String> {
        self.from.file_name().map(encode)
    }

    /// One attempt to send a file in one state, its first stream by that connection.
    pub(super) fn once(
        &self,
        client: &Client,
        pacer: &Pacer,
        line: &mut Line<'_>,
        tell: &mut dyn FnMut(&Event),
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
        // A name that no earlier attempt had: nothing of one is found.
        let tag = if self.options.restart { format!("{tag}-{:x}", random()) } else { tag };
        let (to, told) = self.begin(line, &tag, length, tell)?;
        let condition = match &told.there {
            None => Condition::Nothing,
            Some(there) => {
                let modified = meta.modified().ok();
                let same_time =
                    there.modified.zip(modified).is_some_and(|(has, is)| same_time(is, has, true));
                if !self.options.force {
                    if there.length == Some(length) && same_time {
                        return self.unchanged(client, &to, length, tell);
                    }
                    return Err(Error::from(PlaceError::Exists(to.to_string().into())).into());
                }
                Condition::Replaces(there.tag.clone())
            }
        };
        Attempt { upload: self, client, pacer, file, version, bytes, tag, to, condition }
            .run(line, told, tell)
    }

    /// What comes of a file that is at the server already, as long and as old. Of a hash that is
    /// asked for, the server computes the values from what it has on its disk.
    fn unchanged(
        &self,
        client: &Client,
        to: &Address,
        length: u64,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Trouble> {
        let sums = &self.options.sums;
        let blake3 = if sums.any() {
            tell(&Event::Checking { bytes: length });
            let blake3 = group::root(&values(client, to, length, None, &mut None, &self.cancel)?);
            sums.hold(&to.to_string(), &Summed { blake3, sha256: None })?;
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

    /// The first question, with patience, once somebody has answered.
    fn begin(
        &self,
        line: &mut Line<'_>,
        tag: &str,
        length: u64,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(Address, Told), Trouble> {
        let mut failures = 0;
        loop {
            match ask_around(line, &self.to, self.name().as_deref(), tag, length) {
                Err(Trouble::Passing(why, pause)) if failures < self.options.retries => {
                    line.close();
                    failures += 1;
                    let pause = pause.unwrap_or_else(|| backoff(failures));
                    tell(&Event::Retry { why, pause });
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
    /// Bytes that are sent.
    fn length(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    fn run(
        self,
        line: &mut Line<'_>,
        told: Told,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Trouble> {
        let options = &self.upload.options;
        let length = self.length();
        let resumed: u64 =
            told.groups.keys().map(|group| crate::partial::bytes_of(length, *group)).sum();
        tell(&Event::Opened {
            source: self.upload.from.display().to_string(),
            target: self.to.to_string().into(),
            length: Some(length),
            verified: true,
            resumed,
            streams: options.streams,
            written: "by the server".to_owned(),
        });
        let mut before = Progress { done: resumed, length: Some(length), ..Progress::default() };
        let mut values = told.groups;
        let (mut there, mut begun) = (values.clone(), told.begun);
        for _ in 0..MAX_ROUNDS {
            self.send(line, (&there, begun), &mut values, &mut before, tell)?;
            let now =
                self.file.metadata().map_err(|error| Error::file(&self.upload.from, error))?;
            if Version::of(&now) != self.version {
                return Err(Trouble::Changed("it was written to while it was read".to_owned()));
            }
            let all: Vec<Value> = values.values().copied().collect();
            let blake3 = group::root(&all);
            let has = Summed { blake3, sha256: None };
            options.sums.hold(&self.upload.from.display().to_string(), &has)?;
            if self.end(line, &blake3, tell)? {
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
            Told { groups: there, begun, .. } = ask::ask(line, &self.to, &self.tag, length)?;
            before.done = there.keys().map(|group| crate::partial::bytes_of(length, *group)).sum();
        }
        let why = format!("lacks groups that it said it had, {MAX_ROUNDS} times now");
        Err(Error::Protocol { source_name: self.to.to_string(), why }.into())
    }

    /// Sends what is not there, by all streams.
    fn send(
        &self,
        line: &mut Line<'_>,
        (there, begun): (&BTreeMap<u64, Value>, Option<(u64, u64)>),
        values: &mut BTreeMap<u64, Value>,
        before: &mut Progress,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(), Trouble> {
        let options = &self.upload.options;
        let length = self.length();
        let plan = Plan::new(group::count(length), there, options.streams);
        if plan.is_empty() {
            return Ok(());
        }
        let (events, told) = sync_channel(MAX_EVENTS);
        let stop = self.upload.cancel.part();
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
                let mut line = Line::new(self.client, self.pacer, options.pace, &stop);
                let sending = &sending;
                scope.spawn(move || sending.lane(&mut line));
            }
            // The connection that asked is the first stream's.
            let sending = &sending;
            scope.spawn(move || sending.lane(line));
            while sending.running.load(Acquire) > 0 {
                match told.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => tell(&event),
                    Err(_) => tell(&Event::Progress(sending.counters.progress(Some(length)))),
                }
            }
        });
        told.try_iter().for_each(|event| tell(&event));
        *before = sending.counters.progress(Some(length));
        *values = std::mem::take(&mut *lock(&sending.values));
        match lock(&sending.failure).take() {
            Some(trouble) => Err(trouble),
            None if self.upload.cancel.is_asked() => Err(Error::Cancelled.into()),
            None => Ok(()),
        }
    }

    /// Ends the upload: the file gets its name. False: the server lacks some of it.
    fn end(
        &self,
        line: &mut Line<'_>,
        blake3: &Value,
        tell: &mut dyn FnMut(&Event),
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
        let xattrs = self.xattrs(tell)?;
        if !xattrs.is_empty() {
            fields.push((XATTRS, &xattrs));
        }
        let head = request("PUT", &self.to, &fields);
        let mut failures = 0;
        loop {
            let said =
                line.call(&self.to, &head, MAX_ANSWER).and_then(|reply| taken(&self.to, reply));
            let (why, pause) = match said {
                Ok(Reply { head, .. }) => {
                    if let Some(note) = head.note {
                        tell(&Event::Note(format!("{}: {note}", self.to)));
                    }
                    return Ok(head.missing.is_none());
                }
                // The answer to an end that came before may have been lost.
                Err(Trouble::Fatal(Error::Refused { status: 409 | 412, .. }))
                    if failures > 0 && self.is_there(line)? =>
                {
                    return Ok(true);
                }
                Err(Trouble::Passing(why, pause)) => (why, pause),
                Err(Trouble::Nobody(why)) => (why, None),
                Err(other) => return Err(other),
            };
            line.close();
            failures += 1;
            if failures > self.upload.options.retries {
                return Err(Error::Unreachable { source_name: self.to.to_string(), why }.into());
            }
            let pause = pause.unwrap_or_else(|| backoff(failures));
            tell(&Event::Retry { why, pause });
            if self.upload.cancel.wait(pause) {
                return Err(Error::Cancelled.into());
            }
        }
    }

    /// The extended attributes that go along, as a field has them.
    fn xattrs(&self, tell: &mut dyn FnMut(&Event)) -> Result<String, Error> {
        if !self.upload.options.xattrs {
            return Ok(String::new());
        }
        let told =
            xattrs_of(&self.file).map_err(|error| Error::file(&self.upload.from, error))?.field();
        if let Some(left_out) =
            Xattrs::parse(&told).map(|told| told.left_out()).filter(|count| *count > 0)
        {
            let what = format!(
                "{left_out} extended attributes find no room in a request, and are left out"
            );
            tell(&Event::Note(format!("{}: {what}", self.upload.from.display())));
        }
        Ok(told)
    }

    /// Whether the file has its name already.
    fn is_there(&self, line: &mut Line<'_>) -> Result<bool, Trouble> {
        let told = ask::ask(line, &self.to, &self.tag, self.length())?;
        let modified = sprat_http::date::time(&self.version.modified.to_string());
        Ok(told.there.is_some_and(|there| {
            let same =
                there.modified.zip(modified).is_some_and(|(has, is)| same_time(is, has, true));
            there.length == Some(self.length()) && same
        }))
    }
}
