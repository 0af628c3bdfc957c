//! One file from the first request to its name.

use super::client::{Client, Reply};
use super::error::Trouble;
use super::finish::Ready;
use super::http::Trust;
use super::http::answer::Asked;
use super::lane::{Lane, backoff};
use super::plan::Plan;
use super::resume::take_up;
use super::shared::{Shared, bytes_of};
use super::{Address, Copy, Error, Event, Origin, Outcome, TELL, local, unknown};
use crate::file::{Attributes, Place, PlaceError};
use crate::group;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a file that changes meanwhile is begun anew.
const MAX_RESTARTS: u32 = 3;

/// Most events that wait to be told.
const MAX_EVENTS: usize = 64;

/// Makes the copy.
pub(super) fn run(copy: &Copy, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Error> {
    let begun = Instant::now();
    let trust = Trust::new(copy.options.authorities.as_deref(), copy.options.insecure)?;
    let receive_buffer = copy.options.receive_buffer / copy.options.streams;
    let client = Client { trust, receive_buffer, patience: copy.options.patience };
    if copy.options.insecure {
        tell(&Event::Note("--insecure: anybody may pretend to be the source".to_owned()));
    }
    for restarts in 0..=MAX_RESTARTS {
        let fresh = copy.options.restart || restarts > 0;
        let attempt = match &copy.origin {
            Origin::Server(address) => Job { copy, address, client: &client, fresh }.once(tell),
            Origin::File(path) => local::once(copy, path, fresh, tell),
        };
        match attempt {
            Ok(outcome) => return Ok(Outcome { time: begun.elapsed(), ..outcome }),
            Err(Trouble::Fatal(error)) => return Err(error),
            Err(Trouble::Passing(why, _) | Trouble::Nobody(why)) => {
                return Err(Error::Unreachable { source_name: copy.origin.to_string(), why });
            }
            Err(Trouble::Changed(why)) if restarts == MAX_RESTARTS => {
                return Err(Error::Changed { source_name: copy.origin.to_string(), why });
            }
            Err(Trouble::Changed(why)) => tell(&Event::StartsOver { why: format!("the source has changed: {why}") }),
        }
    }
    unreachable!("the last round returns")
}

/// One attempt at a file in one state.
pub(super) struct Job<'a> {
    copy: &'a Copy,
    address: &'a Address,
    client: &'a Client,
    /// Whether nothing of an earlier attempt is used.
    fresh: bool,
}

/// What the first answer told.
pub(super) struct Found {
    pub(super) source: Source,
    /// When the file changed, and its permissions, as told.
    pub(super) attributes: Attributes,
    pub(super) reply: Reply,
    /// Whether the reply has a body, all of the file.
    pub(super) has_body: bool,
}

/// Where the bytes come from, and how those of this state of the file are asked for.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) address: Address,
    pub(super) verified: bool,
    pub(super) validator: Option<String>,
}

impl Job<'_> {
    fn once(&self, tell: &mut dyn FnMut(&Event)) -> Result<Outcome, Trouble> {
        let Copy { place, options, cancel, .. } = self.copy;
        let nowhere = self.copy.is_for_nowhere();
        let exists = !nowhere && !options.force && place.target().symlink_metadata().is_ok();
        let begun = !self.fresh && !nowhere && place.journal().exists() && place.part().exists();
        let found = self.open(begun || exists || options.streams > 1, tell)?;
        let path = found.source.address.path();
        if path.ends_with('/') && !self.address.path().ends_with('/') {
            let why = format!("{}: is a folder; -r copies folders", self.address);
            return Err(Error::Usage(why).into());
        }
        if exists {
            let (modified, exact) = (found.attributes.modified, found.reply.head.changed.is_some());
            return Ok(unchanged(place, found.reply.start.length, modified, exact)?);
        }
        if found.source.address.wants_verified() && !found.source.verified {
            let why =
                "does not have the verified form that sprat:// insists on; ask it by http:// or https://".to_owned();
            return Err(Error::Protocol { source_name: found.source.address.to_string(), why }.into());
        }
        let Some(length) = found.reply.start.length else {
            return unknown::run(self.copy, self.client, found, tell);
        };
        let parts = found.reply.head.ranges || found.source.verified;
        let streams = if parts { options.streams } else { 1 };
        if streams < options.streams {
            tell(&Event::Note("the server does not say that it sends parts of files: one stream".to_owned()));
        }
        let identity = (found.source.address.to_string(), length, found.source.validator.clone());
        let state = take_up(self.copy, self.fresh, identity, tell)?;
        let resumed = state.values.keys().map(|group| bytes_of(length, *group)).sum();
        tell(&Event::Opened {
            source: found.source.address.to_string(),
            target: place.target().to_owned(),
            length: Some(length),
            verified: found.source.verified,
            resumed,
            streams,
            written: state.sink.describe().to_owned(),
        });
        let plan = Plan::new(group::count(length), &state.values, streams);
        let (events, told) = sync_channel(MAX_EVENTS);
        let shared = Shared::new(length, state, plan, options.limit, cancel.part(), events);
        let Found { source, attributes, reply, has_body } = found;
        self.lanes(&shared, &source, has_body.then_some(reply), streams, &told, tell);
        let (mut state, counters, failure) = shared.into_parts();
        let ready = Ready {
            copy: self.copy,
            source_name: source.address.to_string(),
            verified: source.verified,
            attributes,
            length,
            progress: counters.progress(Some(length)),
        };
        tell(&Event::Progress(ready.progress));
        match failure {
            None if state.values.len() as u64 == group::count(length) => Ok(ready.publish(&mut state, tell)?),
            failure => {
                ready.keep(&mut state);
                Err(failure.unwrap_or(Trouble::Fatal(Error::Cancelled)))
            }
        }
    }

    /// The first request: only the head, or the file as well.
    fn open(&self, head_only: bool, tell: &mut dyn FnMut(&Event)) -> Result<Found, Trouble> {
        let verified = (!self.copy.options.verify).then_some(false);
        let asked = Asked { head_only, verified, ..Asked::default() };
        let mut failures = 0;
        loop {
            match self.client.ask_around(self.address, &asked, &self.copy.cancel) {
                Ok((address, reply)) => {
                    let (verified, validator) = (reply.start.verified, reply.head.validator());
                    let attributes = Attributes { mode: reply.head.mode, modified: reply.head.changed() };
                    let source = Source { address, verified, validator };
                    return Ok(Found { source, attributes, reply, has_body: !head_only });
                }
                // That nobody is there is said at once: a name may be wrong.
                Err(Trouble::Passing(why, pause)) if failures < self.copy.options.retries => {
                    failures += 1;
                    let pause = pause.unwrap_or_else(|| backoff(failures));
                    tell(&Event::Retry { why, pause });
                    if self.copy.cancel.wait(pause) {
                        return Err(Error::Cancelled.into());
                    }
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// The streams, and the telling meanwhile.
    fn lanes(
        &self,
        shared: &Shared,
        source: &Source,
        mut first: Option<Reply>,
        streams: usize,
        told: &Receiver<Event>,
        tell: &mut dyn FnMut(&Event),
    ) {
        let retries = self.copy.options.retries;
        shared.running.store(streams, Ordering::Release);
        std::thread::scope(|scope| {
            for _ in 0..streams {
                let lane = Lane { shared, client: self.client, source, retries };
                let first = first.take();
                scope.spawn(move || lane.run(first));
            }
            while shared.running.load(Ordering::Acquire) > 0 {
                match told.recv_timeout(TELL) {
                    Ok(event) => tell(&event),
                    Err(_) => tell(&Event::Progress(shared.counters.progress(Some(shared.length)))),
                }
            }
        });
        told.try_iter().for_each(|event| tell(&event));
    }
}

/// What becomes of a destination that is there: nothing, if it is as long and as old as the source, to the second where the source
/// says no more.
pub(super) fn unchanged(
    place: &Place,
    length: Option<u64>,
    modified: Option<SystemTime>,
    exact: bool,
) -> Result<Outcome, Error> {
    let target = place.target().to_owned();
    let meta = target.symlink_metadata().map_err(|error| Error::file(&target, error))?;
    let same_time = modified.is_some_and(|theirs| meta.modified().is_ok_and(|ours| same_time(theirs, ours, exact)));
    if !meta.is_file() || length != Some(meta.len()) || !same_time {
        return Err(PlaceError::Exists(target).into());
    }
    let (length, progress) = (meta.len(), super::Progress { length: Some(meta.len()), ..Default::default() });
    Ok(Outcome { target, length, blake3: None, verified: false, unchanged: true, progress, time: Duration::ZERO })
}

/// Whether two times are the same as far as both ends tell and keep them: some do only to the second.
pub(super) fn same_time(theirs: SystemTime, ours: SystemTime, exact: bool) -> bool {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
    let (Some(theirs), Some(ours)) = (since(theirs), since(ours)) else { return theirs == ours };
    theirs == ours || (theirs.as_secs() == ours.as_secs() && (!exact || ours.subsec_nanos() == 0))
}
