//! The host: takes requests, keeps a bounded number of downloads going, and reports.
//!
//! One thread decides; it is told everything through one inbox: requests by a thread that reads,
//! ends of downloads by the threads that make them, and that it is to stop. Another thread writes
//! reports. When the browser closes its end, downloads are stopped as Ctrl-C would, each with its
//! journal.

use super::copies::{Teller, judge};
use super::protocol::{Code, FileName, Id, PROTOCOL, Report, Request, Source, frame};
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

/// Most downloads at a time; others wait.
pub const MAX_RUNNING: usize = 4;

/// Most downloads that wait; one more is refused.
pub const MAX_WAITING: usize = 256;

/// Most servers that are asked at a time whether they have the verified form; one more has not.
const MAX_PROBES: usize = 16;

/// Most reports that wait to be written: several of each download there can be.
const MAX_REPORTS: usize = 1024;
const _: () = assert!(MAX_REPORTS > 3 * (MAX_RUNNING + MAX_WAITING));

/// Most requests and ends that wait to be looked at.
const MAX_INBOX: usize = 64;

/// Most files of one name: the last is `name (999)`.
const MAX_NUMBER: u32 = 1000;

/// Bytes of a journal that are read to see what it is about: its first record is shorter.
const JOURNAL_BYTES: u64 = 128 << 10;

/// How long the last reports may take to be written.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long a server may take to answer a probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);

/// What shows a folder, on every desktop that follows freedesktop.org.
const SHOWS: &str = "xdg-open";

/// What the deciding thread is told.
enum Told {
    Asked(Box<Request>),
    /// A message that is no request.
    Nonsense(String),
    /// A download has ended, with this report; none: it was stopped.
    Ended(Id, Option<Report>),
    Probed(Report),
    /// The browser has closed its end, or what it sends makes no sense any more.
    Closed(Option<String>),
    Stop,
}

/// A download under way.
struct Running {
    name: FileName,
    cancel: Cancel,
    discard: bool,
}

/// A download that waits.
struct Waiting {
    id: Id,
    source: Source,
    name: Option<FileName>,
}

/// Serves one browser until it closes `input`, or something comes on `stop`. Files go into
/// `folder`, which is made when it is not there.
///
/// # Errors
/// The folder cannot be made, or a thread cannot be started; or what the browser sent is no frame.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    folder: &Path,
    stop: Receiver<()>,
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (inbox, told) = sync_channel(MAX_INBOX);
    let (reports, to_write) = sync_channel(MAX_REPORTS);
    let (written, farewell) = sync_channel::<()>(1);
    spawn("sprat-write", move || write(output, &to_write, &written))?;
    let asks = inbox.clone();
    spawn("sprat-read", move || read(input, &asks))?;
    let stops = inbox.clone();
    spawn("sprat-stop", move || {
        if stop.recv().is_ok() {
            let _ = stops.send(Told::Stop);
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
    let ended = host.run(&told);
    let _ = farewell.recv_timeout(FAREWELL); // an error says that the writer has ended, which is what is waited for
    ended
}

struct Host {
    folder: PathBuf,
    inbox: SyncSender<Told>,
    reports: SyncSender<Report>,
    /// Whether the browser said hello, in a version that we know.
    greeted: bool,
    running: BTreeMap<Id, Running>,
    waiting: VecDeque<Waiting>,
    probes: usize,
}

impl Host {
    fn run(mut self, told: &Receiver<Told>) -> io::Result<()> {
        let why = loop {
            match told.recv().expect("we have a sender ourselves") {
                Told::Asked(request) => self.request(*request)?,
                Told::Nonsense(why) => self.refuse(None, why),
                Told::Ended(id, report) => {
                    self.ended(&id, report);
                    self.next()?;
                }
                Told::Probed(report) => {
                    self.probes -= 1;
                    self.report(report);
                }
                Told::Closed(why) => break why,
                Told::Stop => break None,
            }
        };
        for running in self.running.values() {
            running.cancel.cancel();
        }
        while !self.running.is_empty() {
            if let Told::Ended(id, report) = told.recv().expect("we have a sender ourselves") {
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
                    "the extension speaks version {protocol} of the messages, sprat {PROTOCOL}: run sprat browser install \
                     and load the extension again"
                );
                self.refuse(None, why);
            }
            _ if !self.greeted => self.refuse(None, "hello comes first".to_owned()),
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
            self.refuse(Some(wanted.id), "it is under way".to_owned());
        } else if self.waiting.len() >= MAX_WAITING {
            self.refuse(Some(wanted.id), format!("{MAX_WAITING} downloads wait already"));
        } else {
            if self.running.len() >= MAX_RUNNING {
                self.report(Report::Waiting { id: wanted.id.clone() });
            }
            self.waiting.push_back(wanted);
            return self.next();
        }
        Ok(())
    }

    /// Begins downloads that wait, as long as there is room.
    fn next(&mut self) -> io::Result<()> {
        while self.running.len() < MAX_RUNNING
            && let Some(Waiting { id, source, name }) = self.waiting.pop_front()
        {
            let begun = self.name(&source, name).and_then(|name| {
                let options = Options { streams: MAX_STREAMS, ..Options::default() };
                let copy = Fetch::new(source.as_str(), &self.folder.join(name.as_str()), options);
                Ok((name, copy.map_err(judge)?))
            });
            match begun {
                Ok((name, copy)) => {
                    let running =
                        Running { name: name.clone(), cancel: copy.cancel(), discard: false };
                    let (inbox, reports, this) =
                        (self.inbox.clone(), self.reports.clone(), id.clone());
                    spawn("sprat-copy", move || {
                        let last = Teller::new(&this, &name, &reports).run(&copy);
                        let _ = inbox.send(Told::Ended(this, last));
                    })?;
                    self.running.insert(id, running);
                }
                Err((code, why)) => self.report(Report::Failed { id, code, why: why.into() }),
            }
        }
        Ok(())
    }

    /// The name that a download gets: the one it had, or the first that is free or was begun from
    /// the same source.
    fn name(&self, source: &Source, had: Option<FileName>) -> Result<FileName, (Code, String)> {
        if let Some(name) = had {
            let busy = self.running.values().any(|running| running.name == name);
            let why = || {
                (Code::Exists, format!("another download writes {}; wait for it", name.as_str()))
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
            (Code::Exists, format!("there are {MAX_NUMBER} files of the name {}", first.as_str()))
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
            self.refuse(Some(id), "it is not under way".to_owned());
        }
    }

    /// A download's thread has ended.
    fn ended(&mut self, id: &Id, report: Option<Report>) {
        let Some(running) = self.running.remove(id) else { return };
        match report {
            Some(report) => self.report(report),
            None if running.discard => self.discard(id.clone(), &running.name),
            None => self.report(Report::Stopped { id: id.clone(), discarded: false }),
        }
    }

    /// Throws away what there is of a file that is not whole.
    fn discard(&self, id: Id, name: &FileName) {
        if self.running.values().any(|running| running.name == *name) {
            return self.refuse(Some(id), format!("another download writes {}", name.as_str()));
        }
        let discarded =
            Destination::new(&self.folder.join(name.as_str())).and_then(|place| place.discard());
        match discarded {
            Ok(()) => self.report(Report::Stopped { id, discarded: true }),
            Err(error) => self.refuse(Some(id), error.to_string()),
        }
    }

    fn probe(&mut self, id: Id, source: &Source) -> io::Result<()> {
        if self.probes >= MAX_PROBES {
            self.report(Report::Probed { id, verified: false });
            return Ok(());
        }
        self.probes += 1;
        let (inbox, address) = (self.inbox.clone(), source.address());
        spawn("sprat-probe", move || {
            let options = Options { patience: PROBE_PATIENCE, ..Options::default() };
            let verified = copy::probe(&address, &options).is_ok_and(|look| look.verified);
            let _ = inbox.send(Told::Probed(Report::Probed { id, verified }));
        })
    }

    /// Shows the folder. Nothing of it comes from a page.
    fn show(&self, id: Id) {
        let null = Stdio::null;
        let mut command = Command::new(SHOWS);
        command.arg(&self.folder).stdin(null()).stdout(null()).stderr(null());
        // Its end is awaited only so that no dead process stays behind.
        let shown =
            command.spawn().and_then(|mut child| spawn("sprat-show", move || drop(child.wait())));
        match shown {
            Ok(()) => self.report(Report::Shown { id }),
            Err(error) => self.refuse(Some(id), format!("{SHOWS} cannot be run: {error}")),
        }
    }

    fn refuse(&self, id: Option<Id>, why: String) {
        self.report(Report::Refused { id, why: why.into() });
    }

    /// Reports; when the browser is gone there is nobody to hear it, which the reader tells us.
    fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }
}

/// Whether a new download of `source` may have this name: nothing has it, or only what an earlier
/// one from there left.
fn is_free(folder: &Path, name: &FileName, source: &str) -> bool {
    let Ok(place) = Destination::new(&folder.join(name.as_str())) else { return false };
    let there = |path: &Path| path.symlink_metadata().is_ok();
    if there(place.target()) {
        return false;
    }
    if !there(place.part()) && !there(place.journal()) {
        return true;
    }
    let mut bytes = Vec::new();
    let read = File::open(place.journal())
        .and_then(|file| file.take(JOURNAL_BYTES).read_to_end(&mut bytes));
    read.is_ok() && journal::parse(&bytes).is_some_and(|parsed| parsed.identity.source == source)
}

/// Reads requests until there are no more.
fn read(mut input: impl Read, inbox: &SyncSender<Told>) {
    loop {
        let told = match frame::read(&mut input) {
            Ok(Some(body)) => match Request::parse(&body) {
                Ok(request) => Told::Asked(Box::new(request)),
                Err(why) => Told::Nonsense(why),
            },
            Ok(None) => Told::Closed(None),
            Err(error) => Told::Closed(Some(error.to_string())),
        };
        let last = matches!(told, Told::Closed(_));
        if inbox.send(told).is_err() || last {
            return;
        }
    }
}

/// Writes reports until there are no more, or nobody reads them.
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
