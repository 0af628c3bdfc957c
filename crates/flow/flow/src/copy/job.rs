//! Runs the fetch of one file, from the first request until the file has its name.

use super::answer::{FileRequest, Form};
use super::client::Client;
use super::error::{Error, Trouble};
use super::event::{Event, Outcome, PROGRESS_INTERVAL, Progress};
use super::fetch::{Fetch, Origin};
use super::finish::EndedTransfer;
use super::host::{Host, OpenedFile, RemoteFile};
use super::lane::{First, Stream, backoff};
use super::options::{MAX_STREAMS, Options};
use super::plan::{LEAST_RUN, Plan};
use super::resume::{Wanted, resume_or_begin};
use super::shared::Shared;
use super::sources::Sources;
use super::unchanged::unchanged;
use super::{local, unknown};
use crate::file::Attributes;
use crate::group::{self, GROUP_BYTES};
use crate::partial::bytes_of;
use sprat_http::Address;
use sprat_http::client::{Head, Wire};
use sprat_http::xattrs::Xattrs;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

/// Limit on how often a transfer starts over because the file changed meanwhile.
pub(super) const MAX_RESTARTS: u32 = 3;

/// Capacity of the queue of events from the streams.
pub(super) const MAX_EVENTS: usize = 64;

/// Limit on consecutive retries with the first of several hosts. After a further failure the next
/// host replaces it.
const FEW_RETRIES: u32 = 3;

impl Fetch {
    /// Fetches the file, and passes events to `report` on this thread.
    /// # Errors
    /// [`Error`]. The bytes received stay in a file next to the destination, unless the next
    /// attempt cannot use them.
    pub fn run(&self, report: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
        let begun = Instant::now();
        if !self.is_discarding() {
            self.destination.check()?;
        }
        let streams = self.options.streams.max(1 + self.others.len()).min(MAX_STREAMS);
        let receive_buffer = self.options.receive_buffer / streams;
        let client = Client::new(&self.options, receive_buffer)?;
        if self.options.insecure {
            report(&Event::Note("--insecure: anyone can impersonate the source".to_owned()));
        }
        let mut job = match &self.origin {
            Origin::Server(_) => Some(Job::new(self, &client)),
            Origin::File(_) => None,
        };
        let mut restarts = 0;
        loop {
            let attempt = match (&mut job, &self.origin) {
                (Some(job), _) => job.attempt(report),
                (None, Origin::File(path)) => {
                    local::attempt(self, path, self.options.restart || restarts > 0, report)
                }
                (None, Origin::Server(_)) => unreachable!("a server has its job"),
            };
            let trouble = match attempt {
                Ok(outcome) => return Ok(Outcome { time: begun.elapsed(), ..outcome }),
                Err(trouble) => trouble,
            };
            if let Trouble::Changed(why) = trouble {
                if restarts == MAX_RESTARTS {
                    return Err(Error::Changed { source_name: self.origin.to_string(), why });
                }
                restarts += 1;
                report(&Event::StartsOver { why: format!("the source has changed: {why}") });
                job.iter_mut().for_each(|job| job.fresh = true);
            } else if let Some(job) = &mut job {
                job.recover(trouble, report)?;
            } else {
                return Err(trouble.into_error(&self.origin.to_string()));
            }
        }
    }
}

/// A file that is being fetched in one or several attempts. In each attempt one host defines the
/// file.
pub(super) struct Job<'a> {
    fetch: &'a Fetch,
    client: &'a Client,
    sources: Sources,
    /// Whether to ignore the bytes of an earlier attempt.
    fresh: bool,
    /// Whether an attempt of this run has begun to receive. From then on, a source that has another
    /// file is an error, and the bytes received are kept.
    settled: bool,
    /// Consecutive failed attempts. An attempt that received bytes starts the count again, at one.
    losses: u32,
    /// Counters of the earlier attempts.
    before: Progress,
}

/// The scope of the first request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FirstRequest {
    /// Only the head.
    Head,
    /// The whole file.
    Whole,
    /// The beginning of the file, which the first of several streams receives. This saves the round
    /// trip of a preceding `HEAD`.
    Beginning,
}

/// Bytes requested by [`FirstRequest::Beginning`].
const BEGINNING: u64 = LEAST_RUN * GROUP_BYTES;

/// The queue of events from the streams, and the callback that receives the events.
type EventRelay<'a> = (&'a Receiver<Event>, &'a mut dyn FnMut(&Event));

impl<'a> Job<'a> {
    fn new(fetch: &'a Fetch, client: &'a Client) -> Self {
        let Origin::Server(first) = &fetch.origin else {
            unreachable!("only a fetch from a server has a job")
        };
        let all = std::iter::once(first).chain(&fetch.others).cloned().collect();
        let sources = Sources::new(all);
        let (fresh, before) = (fetch.options.restart, Progress::default());
        Self { fetch, client, sources, fresh, settled: false, losses: 0, before }
    }

    /// Makes one attempt to fetch the file in one state.
    fn attempt(&mut self, report: &mut dyn FnMut(&Event)) -> Result<Outcome, Trouble> {
        let Fetch { destination, options, .. } = self.fetch;
        let nowhere = self.fetch.is_discarding();
        let exists = !nowhere && !options.force && destination.target().symlink_metadata().is_ok();
        let begun = !self.fresh
            && !nowhere
            && destination.journal().exists()
            && destination.part().exists();
        let first = match options.streams {
            _ if begun || exists || self.sources.are_several() => FirstRequest::Head,
            1 => FirstRequest::Whole,
            _ => FirstRequest::Beginning,
        };
        let ahead = if exists { 0 } else { options.streams - 1 };
        let (found, wires) = self.choose_and_connect(first, ahead, report)?;
        let first_address = &self.sources.all()[0];
        if found.source.address.path().ends_with('/') && !first_address.path().ends_with('/') {
            return Err(
                Error::Usage(format!("{first_address}: is a folder; -r copies folders")).into()
            );
        }
        if exists {
            let (modified, exact) = (found.attributes.modified, found.reply.head.changed.is_some());
            return Ok(unchanged(self.fetch, found.reply.start.length, modified, exact, report)?);
        }
        let Some(length) = found.reply.start.length else {
            return unknown::run(self.fetch, self.client, found, report);
        };
        let hosts = self.hosts(&found, report);
        // While the whole file is already arriving, no other stream requests any of it.
        let comes_whole = found.has_body && found.reply.start.end == Some(length);
        let several = sends_parts(&found) && !comes_whole;
        let streams = if several { options.streams.max(hosts.len()).min(MAX_STREAMS) } else { 1 };
        if streams < options.streams && !sends_parts(&found) {
            report(&Event::Note(
                "the server does not offer ranges of files: using one stream".to_owned(),
            ));
        }
        let wanted = Wanted {
            source: found.source.address.to_string(),
            length,
            validator: found.source.validator.clone(),
            values: found.source.verified.then_some((self.client, &found.source)),
            strict: self.settled && !self.fresh,
            streams,
        };
        let state = resume_or_begin(self.fetch, self.fresh, wanted, report)?;
        (self.fresh, self.settled) = (false, true);
        let resumed = state.values.keys().map(|group| bytes_of(length, *group)).sum();
        report(&Event::Opened {
            source: found.source.address.to_string(),
            target: destination.target().to_owned(),
            length: Some(length),
            verified: found.source.verified,
            resumed,
            streams,
            written: state.sink.describe().to_owned(),
        });
        let plan = Plan::new(group::count(length), &state.values, streams);
        let plan = if hosts.len() == 1 { plan.for_alike() } else { plan };
        let on_its_way =
            found.reply.start.end.filter(|_| found.has_body && several).map_or(0, group::count);
        let plan = plan.with_beginning(on_its_way);
        let (events, emitted) = sync_channel(MAX_EVENTS);
        let stop = self.fetch.cancel.child();
        let shared = Shared::new(length, self.before, state, plan, options.limit, stop, events);
        let OpenedFile { source, attributes, reply, has_body } = found;
        let first = match has_body {
            true if resumed == 0 => First::Reply(Box::new(reply)),
            true => First::Nothing, // parts appeared since the request was chosen
            false if reply.head.close => First::Nothing,
            false => First::Wire(reply.wire),
        };
        let firsts = std::iter::once(first).chain(wires.into_iter().map(First::Wire));
        self.run_streams(&shared, &hosts, &source, firsts, streams, (&emitted, report));
        let has_cut = shared.plan().has_cut();
        let (mut state, counters, failure) = shared.into_parts();
        let progress = counters.progress(Some(length));
        self.losses = if progress.received > self.before.received { 0 } else { self.losses };
        self.before = progress;
        self.sources.learn(&hosts);
        let ready = EndedTransfer {
            fetch: self.fetch,
            source_name: source.address.to_string(),
            verified: source.verified,
            attributes,
            length,
            progress,
            sources: self.sources.served(),
        };
        report(&Event::Progress(ready.progress));
        let whole = match failure {
            None if state.values.len() as u64 != group::count(length) => {
                Err(Trouble::Fatal(Error::Cancelled))
            }
            None if has_cut => self.confirm(&source, length),
            None => Ok(()),
            Some(trouble) => Err(trouble),
        };
        match whole {
            Ok(()) => Ok(ready.publish(&mut state, report)?),
            Err(trouble) => {
                ready.keep(&mut state);
                Err(trouble)
            }
        }
    }

    /// Returns the hosts to use: the first, and also the others if the first offers ranges and
    /// Sprat can verify that the others have the same file.
    fn hosts(&self, found: &OpenedFile, report: &mut dyn FnMut(&Event)) -> Vec<Host> {
        let mut hosts = vec![Host::ready(found.source.clone())];
        if !self.sources.are_several() {
            return hosts;
        }
        if !sends_parts(found) {
            report(&Event::Note(
                "the first host does not offer ranges of files: it sends the whole file".to_owned(),
            ));
        } else if !found.source.verified && !self.fetch.options.sums.any() {
            let why = "no host provides hashes of the file's parts, so Sprat cannot check that \
                 all hosts have the same file: the first host sends all of it; give --blake3 or \
                 --sha256 to use the others too";
            report(&Event::Note(why.to_owned()));
        } else {
            hosts.extend(self.sources.all()[1..].iter().cloned().map(Host::new));
        }
        hosts
    }

    /// Runs [`Job::choose`]. If there is only one source, meanwhile opens `ahead` more connections
    /// to the source, so that the streams need not wait for connections. Returns fewer connections
    /// if the source redirects or accepts fewer; the other streams then connect themselves.
    fn choose_and_connect(
        &mut self,
        first: FirstRequest,
        ahead: usize,
        report: &mut dyn FnMut(&Event),
    ) -> Result<(OpenedFile, Vec<Wire>), Trouble> {
        let [only] = self.sources.all() else {
            return Ok((self.choose(first, report)?, Vec::new()));
        };
        let (only_address, client, cancel) = (only.clone(), self.client, self.fetch.cancel.child());
        std::thread::scope(|scope| {
            let connecting: Vec<_> = (0..ahead)
                .map(|_| scope.spawn(|| client.connect(&only_address, &cancel).ok()))
                .collect();
            let found = self.choose(first, report);
            let is_there = found
                .as_ref()
                .is_ok_and(|found| found.source.address.is_same_server(&only_address));
            if !is_there {
                cancel.cancel();
            }
            let wires = connecting.into_iter().filter_map(|thread| thread.join().ok().flatten());
            let wires = wires.filter(|_| is_there).collect();
            Ok((found?, wires))
        })
    }

    /// Chooses the first source that responds and states the values of groups. If no source states
    /// values, chooses the first that responds. Moves the chosen source to the front. Removes
    /// sources that failed, except those that cannot be reached now.
    fn choose(
        &mut self,
        first: FirstRequest,
        report: &mut dyn FnMut(&Event),
    ) -> Result<OpenedFile, Trouble> {
        if let [only] = self.sources.all() {
            return self.open(only, first, self.fetch.options.retries, report);
        }
        let (mut index, mut plain, mut failure) = (0, None, None);
        while index < self.sources.all().len() {
            let address = self.sources.all()[index].clone();
            match self.open(&address, first, 0, report) {
                Ok(found) if found.source.verified => {
                    self.sources.promote(index);
                    return Ok(found);
                }
                Ok(found) => {
                    plain.get_or_insert((index, found));
                    index += 1;
                }
                Err(trouble) => {
                    let error = trouble.into_error(&address.to_string());
                    if !error.is_of_source() {
                        return Err(error.into());
                    }
                    report(&Event::HostDropped { source: address.to_string(), why: error.why() });
                    if matches!(error, Error::Unreachable { .. }) {
                        index += 1; // the host may be back later
                    } else {
                        self.sources.remove(index);
                    }
                    failure.get_or_insert(error);
                }
            }
        }
        match (plain, failure) {
            (Some((index, found)), _) => {
                self.sources.promote(index);
                Ok(found)
            }
            (None, Some(Error::Unreachable { why, .. })) => Err(Trouble::Unreachable(why)),
            (None, failure) => Err(failure.unwrap_or(Error::Cancelled).into()),
        }
    }

    /// Sends the first request, with retries.
    fn open(
        &self,
        address: &Address,
        first: FirstRequest,
        retries: u32,
        report: &mut dyn FnMut(&Event),
    ) -> Result<OpenedFile, Trouble> {
        let form = (!self.fetch.options.verify).then_some(Form::Plain);
        let head_only = first == FirstRequest::Head;
        let beginning = (first == FirstRequest::Beginning).then_some(BEGINNING);
        let mut file_request = FileRequest {
            head_only,
            beginning,
            form,
            xattrs: self.fetch.options.xattrs,
            ..FileRequest::default()
        };
        let mut failures = 0;
        loop {
            match self.client.ask_following(address, &file_request, &self.fetch.cancel) {
                Ok((address, reply)) => {
                    let (verified, validator) = (reply.start.verified, reply.head.validator());
                    let is_folder = address.path().ends_with('/');
                    if address.wants_verified() && !verified && !is_folder {
                        let why = "does not send the verified form, which sprat:// requires; use \
                             http:// or https://";
                        return Err(Error::Protocol {
                            source_name: address.to_string(),
                            why: why.to_owned(),
                        }
                        .into());
                    }
                    let xattrs = self.xattrs(&reply.head, report);
                    let attributes = Attributes {
                        mode: reply.head.mode,
                        modified: reply.head.changed(),
                        xattrs,
                    };
                    let source = RemoteFile { address, verified, validator };
                    return Ok(OpenedFile {
                        source,
                        attributes,
                        reply,
                        has_body: !file_request.head_only,
                    });
                }
                // An empty file has no first byte, so a server responds to the range with 416.
                // Request its head instead.
                Err(Trouble::Changed(_)) if file_request.beginning.is_some() => {
                    (file_request.beginning, file_request.head_only) = (None, true);
                }
                // A host that cannot be reached is reported at once, because its name may be
                // misspelled.
                Err(Trouble::Transient(why, pause)) if failures < retries => {
                    failures += 1;
                    let pause = pause.unwrap_or_else(|| backoff(failures));
                    report(&Event::Retry { why, pause });
                    if self.fetch.cancel.wait(pause) {
                        return Err(Error::Cancelled.into());
                    }
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Returns the extended attributes to set, and reports those that are missing.
    fn xattrs(&self, head: &Head, report: &mut dyn FnMut(&Event)) -> Xattrs {
        if !self.fetch.options.xattrs {
            return Xattrs::default();
        }
        let Some(xattrs) = &head.xattrs else {
            report(&Event::Note(
                "the server sends no extended attributes; `sprat share --xattrs` does".to_owned(),
            ));
            return Xattrs::default();
        };
        if xattrs.left_out() > 0 {
            let left_out = xattrs.left_out();
            report(&Event::Note(format!(
                "{left_out} extended attributes do not fit into a response and are left out"
            )));
        }
        xattrs.clone()
    }

    /// Runs the streams, and reports their events until they have ended.
    fn run_streams(
        &self,
        shared: &Shared,
        hosts: &[Host],
        source: &RemoteFile,
        mut firsts: impl Iterator<Item = First>,
        streams: usize,
        (emitted, report): EventRelay<'_>,
    ) {
        let Options { retries, verify, .. } = self.fetch.options;
        let first_retries = if hosts.len() > 1 { retries.min(FEW_RETRIES) } else { retries };
        shared.running.store(streams, Ordering::Release);
        std::thread::scope(|scope| {
            for number in 0..streams {
                let (host, is_first) = (&hosts[number % hosts.len()], number % hosts.len() == 0);
                let stream = Stream {
                    shared,
                    client: self.client,
                    first: source,
                    host,
                    is_first,
                    number,
                    retries,
                    first_retries,
                    verify,
                };
                let first = firsts.next().unwrap_or_default();
                scope.spawn(move || stream.run(first));
            }
            while shared.running.load(Ordering::Acquire) > 0 {
                match emitted.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => report(&event),
                    Err(_) => {
                        report(&Event::Progress(shared.counters.progress(Some(shared.length))))
                    }
                }
            }
        });
        emitted.try_iter().for_each(|event| report(&event));
    }

    /// Checks that the source still has the file in the same state. A server checks the state
    /// before it sends the last bytes of a response, but not if the response was cut short.
    fn confirm(&self, source: &RemoteFile, length: u64) -> Result<(), Trouble> {
        let Some(validator) = source.validator.clone() else { return Ok(()) };
        let file_request = FileRequest {
            head_only: true,
            length: Some(length),
            validator: Some(validator),
            form: Some(source.form()),
            ..FileRequest::default()
        };
        self.client.ask(&source.address, &file_request, None, &self.fetch.cancel).map(drop)
    }

    /// Prepares the next attempt after a failed attempt. If the failure is not transient, the next
    /// attempt begins with another host. Gives up if a further attempt cannot succeed, or after too
    /// many attempts.
    fn recover(&mut self, trouble: Trouble, report: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        let first = self
            .sources
            .all()
            .first()
            .map_or_else(|| self.fetch.origin.to_string(), ToString::to_string);
        let passing = matches!(trouble, Trouble::Transient(..) | Trouble::Unreachable(_));
        let error = trouble.into_error(&first);
        let another =
            self.settled && (passing || (self.sources.are_several() && error.is_of_source()));
        self.losses += 1;
        if !another || self.losses > self.fetch.options.retries {
            return Err(error);
        }
        if !passing {
            report(&Event::HostDropped { source: first, why: error.why() });
            if matches!(error, Error::Unreachable { .. }) {
                self.sources.demote();
            } else {
                self.sources.remove(0);
            }
        }
        // After all hosts have failed in turn without a byte, pause.
        let around = u32::try_from(self.sources.all().len()).unwrap_or(u32::MAX);
        if let Some(times) = self.losses.checked_sub(around).filter(|times| *times > 0) {
            let pause = backoff(times);
            report(&Event::Retry { why: error.why(), pause });
            if self.fetch.cancel.wait(pause) {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }
}

/// Returns whether the server supports ranges.
fn sends_parts(found: &OpenedFile) -> bool {
    found.reply.head.ranges || found.reply.head.range.is_some() || found.source.verified
}
