//! One file from the first request to its name.

use super::answer::{Asked, Form};
use super::client::Client;
use super::error::{Error, Trouble};
use super::event::{Event, Outcome, PROGRESS_INTERVAL, Progress};
use super::fetch::{Fetch, Origin};
use super::finish::Ready;
use super::host::{Found, Host, Source};
use super::lane::{First, Lane, backoff};
use super::options::{MAX_STREAMS, Options};
use super::plan::{LEAST_RUN, Plan};
use super::resume::{Wanted, take_up};
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

/// How often a file that changes meanwhile is begun anew.
pub(super) const MAX_RESTARTS: u32 = 3;

/// Most events that wait to be told.
pub(super) const MAX_EVENTS: usize = 64;

/// Failures one after the other after which the first of several hosts leaves it to the next to say
/// what the file is.
const FEW_RETRIES: u32 = 3;

impl Fetch {
    /// Fetches the file, and reports how it goes.
    ///
    /// # Errors
    /// [`Error`]. What has arrived stays beside the destination, for the next attempt, unless it is
    /// of no use.
    pub fn run(&self, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
        let begun = Instant::now();
        if !self.is_for_nowhere() {
            self.place.check()?;
        }
        let lanes = self.options.streams.max(1 + self.others.len()).min(MAX_STREAMS);
        let receive_buffer = self.options.receive_buffer / lanes;
        let client = Client::new(&self.options, receive_buffer)?;
        if self.options.insecure {
            tell(&Event::Note("--insecure: anybody may pretend to be the source".to_owned()));
        }
        let mut job = match &self.origin {
            Origin::Server(_) => Some(Job::new(self, &client)),
            Origin::File(_) => None,
        };
        let mut restarts = 0;
        loop {
            let attempt = match (&mut job, &self.origin) {
                (Some(job), _) => job.once(tell),
                (None, Origin::File(path)) => {
                    local::once(self, path, self.options.restart || restarts > 0, tell)
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
                tell(&Event::StartsOver { why: format!("the source has changed: {why}") });
                job.iter_mut().for_each(|job| job.fresh = true);
            } else if let Some(job) = &mut job {
                job.without_first(trouble, tell)?;
            } else {
                return Err(trouble.into_error(&self.origin.to_string()));
            }
        }
    }
}

/// A file that is fetched, in as many attempts as it takes: each has one host that decides what the
/// file is.
pub(super) struct Job<'a> {
    fetch: &'a Fetch,
    client: &'a Client,
    sources: Sources,
    /// Whether nothing of an earlier attempt is used.
    fresh: bool,
    /// Whether an attempt of this run has begun to receive: what is here then stays.
    settled: bool,
    /// Attempts that ended one after the other without a byte between them.
    losses: u32,
    /// What was counted in the attempts before.
    before: Progress,
}

/// What a source is asked for first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FirstAsked {
    /// What there is.
    Head,
    /// All of it.
    Whole,
    /// As much as one of several streams would begin with: a round trip less than to ask first what
    /// there is.
    Beginning,
}

/// Bytes of that.
const BEGINNING: u64 = LEAST_RUN * GROUP_BYTES;

/// What is told by the streams, and whom it is told on.
type Telling<'a> = (&'a Receiver<Event>, &'a mut dyn FnMut(&Event));

impl<'a> Job<'a> {
    fn new(fetch: &'a Fetch, client: &'a Client) -> Self {
        let Origin::Server(first) = &fetch.origin else {
            unreachable!("asked by who has a server")
        };
        let all = std::iter::once(first).chain(&fetch.others).cloned().collect();
        let sources = Sources::new(all);
        let (fresh, before) = (fetch.options.restart, Progress::default());
        Self { fetch, client, sources, fresh, settled: false, losses: 0, before }
    }

    /// One attempt at a file in one state.
    fn once(&mut self, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Trouble> {
        let Fetch { place, options, .. } = self.fetch;
        let nowhere = self.fetch.is_for_nowhere();
        let exists = !nowhere && !options.force && place.target().symlink_metadata().is_ok();
        let begun = !self.fresh && !nowhere && place.journal().exists() && place.part().exists();
        let first = match options.streams {
            _ if begun || exists || self.sources.are_several() => FirstAsked::Head,
            1 => FirstAsked::Whole,
            _ => FirstAsked::Beginning,
        };
        let ahead = if exists { 0 } else { options.streams - 1 };
        let (found, wires) = self.choose_and_connect(first, ahead, tell)?;
        let asked = &self.sources.all()[0];
        if found.source.address.path().ends_with('/') && !asked.path().ends_with('/') {
            return Err(Error::Usage(format!("{asked}: is a folder; -r copies folders")).into());
        }
        if exists {
            let (modified, exact) = (found.attributes.modified, found.reply.head.changed.is_some());
            return Ok(unchanged(self.fetch, found.reply.start.length, modified, exact, tell)?);
        }
        let Some(length) = found.reply.start.length else {
            return unknown::run(self.fetch, self.client, found, tell);
        };
        let hosts = self.hosts(&found, tell);
        // Of what is on its way nobody else is asked for anything.
        let comes_whole = found.has_body && found.reply.start.end == Some(length);
        let several = sends_parts(&found) && !comes_whole;
        let lanes = if several { options.streams.max(hosts.len()).min(MAX_STREAMS) } else { 1 };
        if lanes < options.streams && !sends_parts(&found) {
            tell(&Event::Note(
                "the server does not say that it sends parts of files: one stream".to_owned(),
            ));
        }
        let wanted = Wanted {
            source: found.source.address.to_string(),
            length,
            validator: found.source.validator.clone(),
            values: found.source.verified.then_some((self.client, &found.source)),
            strict: self.settled && !self.fresh,
            lanes,
        };
        let state = take_up(self.fetch, self.fresh, wanted, tell)?;
        (self.fresh, self.settled) = (false, true);
        let resumed = state.values.keys().map(|group| bytes_of(length, *group)).sum();
        tell(&Event::Opened {
            source: found.source.address.to_string(),
            target: place.target().to_owned(),
            length: Some(length),
            verified: found.source.verified,
            resumed,
            streams: lanes,
            written: state.sink.describe().to_owned(),
        });
        let plan = Plan::new(group::count(length), &state.values, lanes);
        let plan = if hosts.len() == 1 { plan.for_alike() } else { plan };
        let on_its_way =
            found.reply.start.end.filter(|_| found.has_body && several).map_or(0, group::count);
        let plan = plan.with_beginning(on_its_way);
        let (events, told) = sync_channel(MAX_EVENTS);
        let stop = self.fetch.cancel.part();
        let shared = Shared::new(length, self.before, state, plan, options.limit, stop, events);
        let Found { source, attributes, reply, has_body } = found;
        let first = match has_body {
            true if resumed == 0 => First::Reply(Box::new(reply)),
            true => First::Nothing, // there is some of it all at once, and not a moment ago
            false if reply.head.close => First::Nothing,
            false => First::Wire(reply.wire),
        };
        let firsts = std::iter::once(first).chain(wires.into_iter().map(First::Wire));
        self.lanes(&shared, &hosts, &source, firsts, lanes, (&told, tell));
        let has_cut = shared.plan().has_cut();
        let (mut state, counters, failure) = shared.into_parts();
        let progress = counters.progress(Some(length));
        self.losses = if progress.received > self.before.received { 0 } else { self.losses };
        self.before = progress;
        self.sources.learn(&hosts);
        let ready = Ready {
            fetch: self.fetch,
            source_name: source.address.to_string(),
            verified: source.verified,
            attributes,
            length,
            progress,
            sources: self.sources.served(),
        };
        tell(&Event::Progress(ready.progress));
        let whole = match failure {
            None if state.values.len() as u64 != group::count(length) => {
                Err(Trouble::Fatal(Error::Cancelled))
            }
            None if has_cut => self.confirm(&source, length),
            None => Ok(()),
            Some(trouble) => Err(trouble),
        };
        match whole {
            Ok(()) => Ok(ready.publish(&mut state, tell)?),
            Err(trouble) => {
                ready.keep(&mut state);
                Err(trouble)
            }
        }
    }

    /// The hosts that take part: the first, and the others if it can be known that they have the
    /// same file.
    fn hosts(&self, found: &Found, tell: &mut dyn FnMut(&Event)) -> Vec<Host> {
        let mut hosts = vec![Host::ready(found.source.clone())];
        if !self.sources.are_several() {
            return hosts;
        }
        if !sends_parts(found) {
            tell(&Event::Note(
                "the first host does not say that it sends parts of files: it sends all".to_owned(),
            ));
        } else if !found.source.verified && !self.fetch.options.sums.any() {
            let why = "no host tells values of the file's parts, so that nobody knows whether all have the same file: the first sends all; with \
                       --blake3 or --sha256 the others may help";
            tell(&Event::Note(why.to_owned()));
        } else {
            hosts.extend(self.sources.all()[1..].iter().cloned().map(Host::new));
        }
        hosts
    }

    /// [`Job::choose`], and meanwhile so many more connections to an only source: its streams then
    /// need not wait for theirs. Fewer come of it when the source is not where it was looked
    /// for, or does not take as many; the streams see to that.
    fn choose_and_connect(
        &mut self,
        first: FirstAsked,
        ahead: usize,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(Found, Vec<Wire>), Trouble> {
        let [only] = self.sources.all() else { return Ok((self.choose(first, tell)?, Vec::new())) };
        let (asked, client, cancel) = (only.clone(), self.client, self.fetch.cancel.part());
        std::thread::scope(|scope| {
            let connecting: Vec<_> =
                (0..ahead).map(|_| scope.spawn(|| client.connect(&asked, &cancel).ok())).collect();
            let found = self.choose(first, tell);
            let is_there =
                found.as_ref().is_ok_and(|found| found.source.address.is_at_host_of(&asked));
            if !is_there {
                cancel.ask();
            }
            let wires = connecting.into_iter().filter_map(|thread| thread.join().ok().flatten());
            let wires = wires.filter(|_| is_there).collect();
            Ok((found?, wires))
        })
    }

    /// The first source that answers and tells the values of groups; if none does, the first that
    /// answers. It comes to stand before all others, and those that do not have the file are no
    /// sources any more.
    fn choose(
        &mut self,
        first: FirstAsked,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Found, Trouble> {
        if let [only] = self.sources.all() {
            return self.open(only, first, self.fetch.options.retries, tell);
        }
        let (mut index, mut plain, mut failure) = (0, None, None);
        while index < self.sources.all().len() {
            let address = self.sources.all()[index].clone();
            match self.open(&address, first, 0, tell) {
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
                    tell(&Event::Without { source: address.to_string(), why: error.why() });
                    if matches!(error, Error::Unreachable { .. }) {
                        index += 1; // it may be back later
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
            (None, Some(Error::Unreachable { why, .. })) => Err(Trouble::Nobody(why)),
            (None, failure) => Err(failure.unwrap_or(Error::Cancelled).into()),
        }
    }

    /// The first request.
    fn open(
        &self,
        address: &Address,
        first: FirstAsked,
        retries: u32,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Found, Trouble> {
        let form = (!self.fetch.options.verify).then_some(Form::Plain);
        let head_only = first == FirstAsked::Head;
        let beginning = (first == FirstAsked::Beginning).then_some(BEGINNING);
        let mut asked = Asked {
            head_only,
            beginning,
            form,
            xattrs: self.fetch.options.xattrs,
            ..Asked::default()
        };
        let mut failures = 0;
        loop {
            match self.client.ask_around(address, &asked, &self.fetch.cancel) {
                Ok((address, reply)) => {
                    let (verified, validator) = (reply.start.verified, reply.head.validator());
                    let is_folder = address.path().ends_with('/');
                    if address.wants_verified() && !verified && !is_folder {
                        let why = "does not have the verified form that sprat:// insists on; ask it by http:// or https://";
                        return Err(Error::Protocol {
                            source_name: address.to_string(),
                            why: why.to_owned(),
                        }
                        .into());
                    }
                    let xattrs = self.xattrs(&reply.head, tell);
                    let attributes = Attributes {
                        mode: reply.head.mode,
                        modified: reply.head.changed(),
                        xattrs,
                    };
                    let source = Source { address, verified, validator };
                    return Ok(Found { source, attributes, reply, has_body: !asked.head_only });
                }
                // An empty file has no first byte, so that its server answers 416: its head is
                // asked for.
                Err(Trouble::Changed(_)) if asked.beginning.is_some() => {
                    (asked.beginning, asked.head_only) = (None, true);
                }
                // That nobody is there is said at once: a name may be wrong.
                Err(Trouble::Passing(why, pause)) if failures < retries => {
                    failures += 1;
                    let pause = pause.unwrap_or_else(|| backoff(failures));
                    tell(&Event::Retry { why, pause });
                    if self.fetch.cancel.wait(pause) {
                        return Err(Error::Cancelled.into());
                    }
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// The extended attributes that a file gets, and what is to be said of them.
    fn xattrs(&self, head: &Head, tell: &mut dyn FnMut(&Event)) -> Xattrs {
        if !self.fetch.options.xattrs {
            return Xattrs::default();
        }
        let Some(told) = &head.xattrs else {
            tell(&Event::Note(
                "the server tells no extended attributes; `sprat share --xattrs` does".to_owned(),
            ));
            return Xattrs::default();
        };
        if told.left_out() > 0 {
            let left_out = told.left_out();
            tell(&Event::Note(format!(
                "{left_out} extended attributes find no room in an answer, and are left out"
            )));
        }
        told.clone()
    }

    /// The streams, and the telling meanwhile.
    fn lanes(
        &self,
        shared: &Shared,
        hosts: &[Host],
        source: &Source,
        mut firsts: impl Iterator<Item = First>,
        lanes: usize,
        (told, tell): Telling<'_>,
    ) {
        let Options { retries, verify, .. } = self.fetch.options;
        let first_retries = if hosts.len() > 1 { retries.min(FEW_RETRIES) } else { retries };
        shared.running.store(lanes, Ordering::Release);
        std::thread::scope(|scope| {
            for number in 0..lanes {
                let (host, is_first) = (&hosts[number % hosts.len()], number % hosts.len() == 0);
                let lane = Lane {
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
                scope.spawn(move || lane.run(first));
            }
            while shared.running.load(Ordering::Acquire) > 0 {
                match told.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(event) => tell(&event),
                    Err(_) => tell(&Event::Progress(shared.counters.progress(Some(shared.length)))),
                }
            }
        });
        told.try_iter().for_each(|event| tell(&event));
    }

    /// Whether the source still has the file in the same state. A server looks whether a file has
    /// changed before the last bytes of an answer leave; of an answer that was not heard to its
    /// end nobody knows.
    fn confirm(&self, source: &Source, length: u64) -> Result<(), Trouble> {
        let Some(validator) = source.validator.clone() else { return Ok(()) };
        let asked = Asked {
            head_only: true,
            length: Some(length),
            validator: Some(validator),
            form: Some(source.form()),
            ..Asked::default()
        };
        self.client.ask(&source.address, &asked, None, &self.fetch.cancel).map(drop)
    }

    /// After an attempt that failed: sees to it that another can be made, by another host if there
    /// is one; or gives up.
    fn without_first(
        &mut self,
        trouble: Trouble,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        let first = self
            .sources
            .all()
            .first()
            .map_or_else(|| self.fetch.origin.to_string(), ToString::to_string);
        let passing = matches!(trouble, Trouble::Passing(..) | Trouble::Nobody(_));
        let error = trouble.into_error(&first);
        let another =
            self.settled && (passing || (self.sources.are_several() && error.is_of_source()));
        self.losses += 1;
        if !another || self.losses > self.fetch.options.retries {
            return Err(error);
        }
        if !passing {
            tell(&Event::Without { source: first, why: error.why() });
            if matches!(error, Error::Unreachable { .. }) {
                self.sources.demote();
            } else {
                self.sources.remove(0);
            }
        }
        // Once around without a byte from anybody, they are given time.
        let around = u32::try_from(self.sources.all().len()).unwrap_or(u32::MAX);
        if let Some(times) = self.losses.checked_sub(around).filter(|times| *times > 0) {
            let pause = backoff(times);
            tell(&Event::Retry { why: error.why(), pause });
            if self.fetch.cancel.wait(pause) {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }
}

/// Whether a server sends parts of the file.
fn sends_parts(found: &Found) -> bool {
    found.reply.head.ranges || found.reply.head.range.is_some() || found.source.verified
}
