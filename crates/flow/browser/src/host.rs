//! The host, which receives requests, runs a bounded number of downloads, and sends reports.
//!
//! One thread makes all decisions. It gets events from one queue: requests from the thread that
//! reads them, results from the threads of downloads, and the signal to stop. Another thread writes
//! reports. When the browser closes its end, downloads are cancelled, and each keeps its journal.

use super::copies::{DownloadReporter, classify};
use super::protocol::{FailureCode, FileName, Id, PROTOCOL, Report, Request, SourceAddress, frame};
use sprat_flow::copy::{self, Fetch, MAX_STREAMS, Options};
use sprat_flow::file::Destination;
use sprat_flow::journal;
use sprat_http::Cancel;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Limit on the downloads that run at a time. Further downloads wait.
pub const MAX_RUNNING: usize = 4;

/// Limit on the downloads that wait for another to end. A further download is rejected.
pub const MAX_WAITING: usize = 256;

/// Limit on the probes for the verified form that run at a time. A further probe is answered at
/// once with "not verified".
const MAX_PROBES: usize = 16;

/// Capacity of the queue of reports, with room for several from each possible download.
const MAX_REPORTS: usize = 1024;
const _: () = assert!(MAX_REPORTS > 3 * (MAX_RUNNING + MAX_WAITING));

/// Capacity of the queue of events.
const MAX_INBOX: usize = 64;

/// Limit on the names that are tried for a file: `name`, and `name (1)` to `name (999)`. If none of
/// them is free, the download fails.
const MAX_NUMBER: u32 = 1000;

/// How many bytes of a journal are read to find its source, which is in the first record.
const JOURNAL_BYTES: u64 = 128 << 10;

/// Time limit for writing the last reports.
const FAREWELL: Duration = Duration::from_secs(1);

/// Time without progress after which a probe fails.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);

/// Program that opens a folder on desktops that follow freedesktop.org.
const FOLDER_OPENER: &str = "xdg-open";

/// An event for the deciding thread.
enum HostEvent {
    Request(Box<Request>),
    /// A message that is not a request.
    Invalid(String),
    /// A download has ended with this report; `None` if it was cancelled.
    Ended(Id, Option<Report>),
    Probed(Report),
    /// The browser has closed its end, or has sent a malformed frame, or reading has failed.
    /// Contains the reason in the last two cases.
    Closed(Option<String>),
    Stop,
}

/// A download in progress.
struct Running {
    name: FileName,
    cancel: Cancel,
    discard: bool,
}

/// A download that waits.
struct Waiting {
    id: Id,
    source: SourceAddress,
    name: Option<FileName>,
}

/// Serves one browser until the browser closes `input`, or a message arrives on `stop`. Files are
/// stored in `folder`, which is created if missing.
/// # Errors
/// The folder cannot be created, a thread cannot be started, or reading from the browser fails or
/// returns a malformed frame.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    folder: &Path,
    stop: Receiver<()>,
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (inbox, events) = sync_channel(MAX_INBOX);
    let (reports, to_write) = sync_channel(MAX_REPORTS);
    let (written, farewell) = sync_channel::<()>(1);
    spawn("sprat-write", move || write(output, &to_write, &written))?;
    let asks = inbox.clone();
    spawn("sprat-read", move || read(input, &asks))?;
    let stops = inbox.clone();
    spawn("sprat-stop", move || {
        if stop.recv().is_ok() {
            let _ = stops.send(HostEvent::Stop);
        }
    })?;
    let host = Host {
        folder: folder.to_owned(),
        inbox,
        reports,
        greeted: false,
        running: BTreeMap::new(),
        waiting: VecDeque::new(),
        probes: 0,
    };
    let ended = host.run(&events);
    // The wait ends at once, with an error, when the writer has ended and dropped its sender.
    let _ = farewell.recv_timeout(FAREWELL);
    ended
}

/// The state of the deciding thread.
struct Host {
    folder: PathBuf,
    inbox: SyncSender<HostEvent>,
    reports: SyncSender<Report>,
    /// Whether the browser has sent a hello of a supported version.
    greeted: bool,
    running: BTreeMap<Id, Running>,
    waiting: VecDeque<Waiting>,
    probes: usize,
}

impl Host {
    fn run(mut self, events: &Receiver<HostEvent>) -> io::Result<()> {
        let why = loop {
            match events.recv().expect("we have a sender ourselves") {
                HostEvent::Request(request) => self.request(*request)?,
                HostEvent::Invalid(why) => self.refuse(None, why),
                HostEvent::Ended(id, report) => {
                    self.ended(&id, report);
                    self.next()?;
                }
                HostEvent::Probed(report) => {
                    self.probes -= 1;
                    self.report(report);
                }
                HostEvent::Closed(why) => break why,
                HostEvent::Stop => break None,
            }
        };
        for running in self.running.values() {
            running.cancel.cancel();
        }
        while !self.running.is_empty() {
            if let HostEvent::Ended(id, report) = events.recv().expect(
                "we have a sender \
                ourselves",
            ) {
                self.ended(&id, report);
            }
        }
        why.map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    fn request(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Hello { protocol: PROTOCOL } => {
                self.greeted = true;
                let (version, folder) =
                    (env!("CARGO_PKG_VERSION"), self.folder.display().to_string().into());
                self.report(Report::Hello { protocol: PROTOCOL, version, folder });
            }
            Request::Hello { protocol } => {
                let why = format!(
                    "the extension speaks version {protocol} of the messages, sprat {PROTOCOL}: \
                     run sprat browser install \
                     and load the extension again"
                );
                self.refuse(None, why);
            }
            _ if !self.greeted => self.refuse(None, "the first message must be hello".to_owned()),
            Request::Start { id, source, name } => return self.start(Waiting { id, source, name }),
            Request::Probe { id, source } => return self.probe(id, &source),
            Request::Cancel { id, discard } => self.cancel(id, discard),
            Request::Discard { id, name } => self.discard(id, &name),
            Request::Show { id } => self.show(id),
        }
        Ok(())
    }

    fn start(&mut self, wanted: Waiting) -> io::Result<()> {
        let twice = self.running.contains_key(&wanted.id)
            || self.waiting.iter().any(|one| one.id == wanted.id);
        if twice {
            self.refuse(Some(wanted.id), "the download is in progress already".to_owned());
        } else if self.waiting.len() >= MAX_WAITING {
            self.refuse(
                Some(wanted.id),
                format!("{MAX_WAITING} downloads are waiting, which is the limit"),
            );
        } else {
            if self.running.len() >= MAX_RUNNING {
                self.report(Report::Waiting { id: wanted.id.clone() });
            }
            self.waiting.push_back(wanted);
            return self.next();
        }
        Ok(())
    }

    /// Starts waiting downloads as long as there is room.
    fn next(&mut self) -> io::Result<()> {
        while self.running.len() < MAX_RUNNING
            && let Some(Waiting { id, source, name }) = self.waiting.pop_front()
        {
            let begun = self.name(&source, name).and_then(|name| {
                let options = Options { streams: MAX_STREAMS, ..Options::default() };
                let copy = Fetch::new(source.as_str(), &self.folder.join(name.as_str()), options);
                Ok((name, copy.map_err(classify)?))
            });
            match begun {
                Ok((name, copy)) => {
                    let running =
                        Running { name: name.clone(), cancel: copy.cancel(), discard: false };
                    let (inbox, reports, this) =
                        (self.inbox.clone(), self.reports.clone(), id.clone());
                    spawn("sprat-copy", move || {
                        let last = DownloadReporter::new(&this, &name, &reports).run(&copy);
                        let _ = inbox.send(HostEvent::Ended(this, last));
                    })?;
                    self.running.insert(id, running);
                }
                Err((code, why)) => self.report(Report::Failed { id, code, why: why.into() }),
            }
        }
        Ok(())
    }

    /// Returns the name of a download's file: the name that it had before, or otherwise the first
    /// name that is free or belongs to an interrupted download from the same source.
    fn name(
        &self,
        source: &SourceAddress,
        had: Option<FileName>,
    ) -> Result<FileName, (FailureCode, String)> {
        if let Some(name) = had {
            let busy = self.running.values().any(|running| running.name == name);
            let why = || {
                (
                    FailureCode::Exists,
                    format!("another download is writing {}; wait for it to end", name.as_str()),
                )
            };
            return if busy { Err(why()) } else { Ok(name) };
        }
        let address = source.address();
        let first = FileName::safe(&address.name().unwrap_or_default());
        let numbered = (1..MAX_NUMBER).map(|number| first.numbered(number));
        let free = std::iter::once(first.clone()).chain(numbered).find(|name| {
            self.running.values().all(|running| running.name != *name)
                && is_free(&self.folder, name, &address.to_string())
        });
        free.ok_or_else(|| {
            (
                FailureCode::Exists,
                format!("there are {MAX_NUMBER} files of the name {}", first.as_str()),
            )
        })
    }

    fn cancel(&mut self, id: Id, discard: bool) {
        if let Some(running) = self.running.get_mut(&id) {
            running.discard = discard;
            running.cancel.cancel();
        } else if let Some(at) = self.waiting.iter().position(|one| one.id == id) {
            let waiting = self.waiting.remove(at).expect("it was found there");
            match waiting.name.filter(|_| discard) {
                Some(name) => self.discard(id, &name),
                None => self.report(Report::Stopped { id, discarded: discard }),
            }
        } else {
            self.refuse(Some(id), "the download is not in progress".to_owned());
        }
    }

    /// Handles the end of a download's thread.
    fn ended(&mut self, id: &Id, report: Option<Report>) {
        let Some(running) = self.running.remove(id) else { return };
        match report {
            Some(report) => self.report(report),
            None if running.discard => self.discard(id.clone(), &running.name),
            None => self.report(Report::Stopped { id: id.clone(), discarded: false }),
        }
    }

    /// Removes the part and the journal of an incomplete file.
    fn discard(&self, id: Id, name: &FileName) {
        if self.running.values().any(|running| running.name == *name) {
            return self.refuse(Some(id), format!("another download is writing {}", name.as_str()));
        }
        let discarded = Destination::new(&self.folder.join(name.as_str()))
            .and_then(|destination| destination.discard());
        match discarded {
            Ok(()) => self.report(Report::Stopped { id, discarded: true }),
            Err(error) => self.refuse(Some(id), error.to_string()),
        }
    }

    fn probe(&mut self, id: Id, source: &SourceAddress) -> io::Result<()> {
        if self.probes >= MAX_PROBES {
            self.report(Report::Probed { id, verified: false });
            return Ok(());
        }
        self.probes += 1;
        let (inbox, address) = (self.inbox.clone(), source.address());
        spawn("sprat-probe", move || {
            let options = Options { patience: PROBE_PATIENCE, ..Options::default() };
            let verified = copy::probe(&address, &options).is_ok_and(|info| info.verified);
            let _ = inbox.send(HostEvent::Probed(Report::Probed { id, verified }));
        })
    }

    /// Opens the folder on the desktop. No part of the command comes from a web page.
    fn show(&self, id: Id) {
        let null = Stdio::null;
        let mut command = Command::new(FOLDER_OPENER);
        command.arg(&self.folder).stdin(null()).stdout(null()).stderr(null());
        // Wait for the process only so that no zombie is left.
        let shown =
            command.spawn().and_then(|mut child| spawn("sprat-show", move || drop(child.wait())));
        match shown {
            Ok(()) => self.report(Report::Shown { id }),
            Err(error) => self.refuse(Some(id), format!("{FOLDER_OPENER} cannot be run: {error}")),
        }
    }

    fn refuse(&self, id: Option<Id>, why: String) {
        self.report(Report::Refused { id, why: why.into() });
    }

    /// Sends a report. If the browser has closed its end, the report is lost, and the reading
    /// thread notices the end.
    fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }
}

/// Returns whether a new download of `source` may have this name. There must be no file of this
/// name, and no part or journal except those of an interrupted download from the same source.
fn is_free(folder: &Path, name: &FileName, source: &str) -> bool {
    let Ok(destination) = Destination::new(&folder.join(name.as_str())) else { return false };
    let there = |path: &Path| path.symlink_metadata().is_ok();
    if there(destination.target()) {
        return false;
    }
    if !there(destination.part()) && !there(destination.journal()) {
        return true;
    }
    let mut bytes = Vec::new();
    let read = File::open(destination.journal())
        .and_then(|file| file.take(JOURNAL_BYTES).read_to_end(&mut bytes));
    read.is_ok() && journal::parse(&bytes).is_some_and(|parsed| parsed.identity.source == source)
}

/// Reads requests until the browser closes its end or reading fails.
fn read(mut input: impl Read, inbox: &SyncSender<HostEvent>) {
    loop {
        let event = match frame::read(&mut input) {
            Ok(Some(body)) => match Request::parse(&body) {
                Ok(request) => HostEvent::Request(Box::new(request)),
                Err(why) => HostEvent::Invalid(why),
            },
            Ok(None) => HostEvent::Closed(None),
            Err(error) => HostEvent::Closed(Some(error.to_string())),
        };
        let last = matches!(event, HostEvent::Closed(_));
        if inbox.send(event).is_err() || last {
            return;
        }
    }
}

/// Writes reports until the host drops its senders, or the browser has closed its end.
fn write(mut output: impl Write, reports: &Receiver<Report>, _written: &SyncSender<()>) {
    for report in reports {
        if frame::write(&mut output, &report.bytes()).is_err() {
            return;
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
