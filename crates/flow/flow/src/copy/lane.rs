//! One stream: takes runs of missing groups, receives them, checks each while its bytes are warm,
//! and hands it to the sink.

use super::answer::{Asked, Form, Start};
use super::client::{Client, Reply};
use super::error::{Error, Trouble, fault};
use super::event::Event;
use super::host::{Host, MAX_WRONG, Source};
use super::plan::{GROUP_ATTEMPTS, Turn};
use super::shared::Shared;
use super::vouch::values_of;
use crate::group::{self, GROUP_BYTES, Summing, Value};
use crate::partial::bytes_of;
use sprat_host::random;
use sprat_http::client::{Body, Fault, Wire};
use sprat_http::{Address, Cancel};
use sprat_pace::path::Path;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The pause after a first failure; it doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a pause goes on at most when there is nothing left to do.
const STEP: Duration = Duration::from_millis(200);

/// How long a lane that has nothing to do waits before it asks again.
const IDLE: Duration = Duration::from_millis(50);

/// Groups between two looks at the round-trip time.
const LOOK: u64 = 64;

/// Bytes that are received, and summed while they are in the processor's cache, at a time; whole
/// chunks of the tree.
pub(crate) const PIECE: usize = 256 << 10;

/// One stream of a transfer.
pub(crate) struct Lane<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    /// The source that decides what the file is.
    pub(crate) first: &'a Source,
    /// Whom this stream is to.
    pub(crate) host: &'a Host,
    /// Whether that is the first.
    pub(crate) is_first: bool,
    /// Its number in the plan.
    pub(crate) number: usize,
    pub(crate) retries: u32,
    /// The same of the first, without which nothing of the others' can be taken.
    pub(crate) first_retries: u32,
    /// Whether the verified form is asked for.
    pub(crate) verify: bool,
}

/// Connections that are kept from one run for the next: to the host, and to the first for its
/// values.
#[derive(Default)]
struct Kept {
    wire: Option<Wire>,
    values: Option<Wire>,
}

/// What a stream begins with.
#[derive(Default)]
pub(crate) enum First {
    #[default]
    Nothing,
    /// A connection to its host.
    Wire(Wire),
    /// An answer that has begun, with all of the file or its beginning.
    Reply(Box<Reply>),
}

/// Whose trouble it is.
enum Blame {
    Host(Trouble),
    First(Trouble),
}

impl From<Trouble> for Blame {
    fn from(trouble: Trouble) -> Self {
        Self::Host(trouble)
    }
}

impl Lane<'_> {
    /// Works until everything is here, or its host is done without.
    pub(crate) fn run(&self, first: First) {
        if let Err(trouble) = self.work(first) {
            self.shared.plan().give_back(self.number);
            self.shared.fail(trouble);
        }
        self.shared.ended();
    }

    fn work(&self, first: First) -> Result<(), Trouble> {
        let (mut first, mut wire) = match first {
            First::Nothing => (None, None),
            First::Wire(wire) => (None, Some(wire)),
            First::Reply(reply) => (Some(*reply), None),
        };
        // They were made before there was anything else than the whole to be stopped.
        for wire in first.as_mut().map(|reply| &mut reply.wire).into_iter().chain(&mut wire) {
            wire.stop_with(&self.shared.stop);
        }
        let mut kept = Kept { wire, values: None };
        let mut failures = 0;
        while !self.host.is_left() {
            let run = match self.shared.take(self.number) {
                Turn::Run(run) => run,
                Turn::Wait if self.shared.stop.wait(IDLE) => return Err(Error::Cancelled.into()),
                Turn::Wait => continue,
                Turn::Over => {
                    // Who still waits for bytes need not.
                    self.shared.stop.ask();
                    return Ok(());
                }
            };
            let mut next = run.start;
            let had = self.shared.begun(next);
            let Err(blame) = self.fetch(first.take(), &mut kept, &run, &mut next) else {
                failures = 0;
                continue;
            };
            self.shared.plan().give_back(self.number);
            kept = Kept::default();
            if next > run.start || self.shared.begun(next) > had {
                failures = 0;
            }
            failures += 1;
            match blame {
                Blame::Host(trouble) if !self.is_first => {
                    if let Err(trouble) =
                        self.pause((failures, self.retries), trouble, self.host.address())
                    {
                        return self.leave(trouble);
                    }
                }
                Blame::Host(trouble) | Blame::First(trouble) => {
                    self.pause((failures, self.first_retries), trouble, &self.first.address)?;
                }
            }
        }
        Ok(())
    }

    /// Fetches a run; `next` is the first group that has not come.
    fn fetch(
        &self,
        first: Option<Reply>,
        kept: &mut Kept,
        run: &Range<u64>,
        next: &mut u64,
    ) -> Result<(), Blame> {
        let (length, stop) = (self.shared.length, &self.shared.stop);
        let source = self.host.source(self.client, self.verify, length, stop)?;
        // Other servers than ours are asked for what is missing of a group and all behind it at
        // once.
        let mut begun = Vec::new();
        if !source.verified {
            begun = self.shared.begun_bytes(*next);
        } else if let Some(begun) = self.shared.take_begun(*next)
            && self.rest(&source, kept, *next, &begun)?
        {
            let goes_on = self.shared.done(self.number, *next);
            *next += 1;
            if !goes_on {
                return Ok(());
            }
        }
        let run = &(*next..run.end);
        let mut vouching = if self.is_first || !self.first.verified {
            None
        } else {
            let asked = values_of(self.first, run, length);
            let reply = self.client.ask(&self.first.address, &asked, kept.values.take(), stop);
            Some(reply.map_err(Blame::First)?)
        };
        // Of it others may have taken a part before this stream began.
        let is_part = first.as_ref().is_some_and(|reply| reply.start.end < Some(length));
        let reply = match first {
            Some(reply) => reply,
            None => {
                let asked = Asked {
                    head_only: false,
                    xattrs: false,
                    beginning: None,
                    range: Some(
                        run.start * GROUP_BYTES + begun.len() as u64
                            ..length.min(run.end * GROUP_BYTES),
                    ),
                    length: Some(length),
                    validator: source.validator.clone(),
                    form: Some(source.form()),
                    fresh: self.shared.plan().was_wrong(run),
                };
                self.client.ask(&source.address, &asked, kept.wire.take(), stop)?
            }
        };
        let Reply { mut wire, head, start } = reply;
        let mut body = Body::new(&mut wire, start.framing.clone());
        let mut values =
            vouching.as_mut().map(|reply| Body::new(&mut reply.wire, reply.start.framing.clone()));
        let mut goes_on = true;
        while goes_on {
            let bytes = bytes_of(length, *next);
            self.shared.hold_back(bytes);
            self.group(
                &mut body,
                values.as_mut(),
                &start,
                (*next, bytes),
                &std::mem::take(&mut begun),
            )?;
            goes_on = self.shared.done(self.number, *next);
            *next += 1;
            if (*next - run.start) % LOOK == 1 {
                self.look(&mut body);
            }
        }
        if *next < run.end || is_part && !body.is_over() {
            return Ok(()); // another lane has the rest, and what is on its way here is of no use
        }
        // What has no length of its own must end here too: more would mean another file.
        if !body.is_over() && body.fill(&mut [0]).map_err(|error| self.trouble(error))? > 0 {
            return Err(Trouble::Changed("it is longer than it was".to_owned()).into());
        }
        if body.is_over() && !head.close {
            kept.wire = Some(wire);
        }
        let all_told = values.is_some_and(|values| values.is_over());
        kept.values =
            vouching.filter(|reply| all_told && !reply.head.close).map(|reply| reply.wire);
        Ok(())
    }

    /// Receives a group, of which the beginning may be here, checks it, and hands it on.
    fn group(
        &self,
        body: &mut Body<'_>,
        values: Option<&mut Body<'_>>,
        start: &Start,
        (index, bytes): (u64, u64),
        begun: &[u8],
    ) -> Result<(), Blame> {
        let length = self.shared.length;
        let mut buffer = self.shared.buffer()?;
        let len = usize::try_from(bytes).expect("a group is in memory");
        let mut told = [0; 32];
        let mut summing = Summing::begin(length, index);
        buffer[..begun.len()].copy_from_slice(begun);
        summing.add(begun);
        for at in (begun.len()..len).step_by(PIECE) {
            let piece = &mut buffer[at..len.min(at + PIECE)];
            let last = at + piece.len() == len;
            let told = if last && start.verified { &mut told[..] } else { &mut [] };
            if let Err(error) = body.fill_both(piece, told) {
                self.shared.keep_begun(index, &buffer[..at + body.came()]);
                self.shared.recycle(buffer);
                return Err(self.trouble(error).into());
            }
            summing.add(piece);
        }
        let value = summing.value();
        let right = match values {
            Some(values) => {
                let mut right = [0; 32];
                if let Err(error) = values.fill_both(&mut right, &mut []) {
                    self.shared.recycle(buffer);
                    return Err(Blame::First(fault(&self.first.address.to_string(), error)));
                }
                Some(right)
            }
            None => start.verified.then_some(told),
        };
        if right.is_none_or(|right| right == value) {
            let new = self.shared.arrived(index, buffer, value)?;
            self.host.received.fetch_add(new, Relaxed);
            return Ok(());
        }
        self.shared.recycle(buffer);
        let is_its_own = start.verified && value == told;
        Ok(self.wrong(index, bytes, is_its_own)?)
    }

    /// Fetches what did not come of a group before a connection broke, as it is, and holds the
    /// whole against its value. False: whoever should tell the value does not, and the group is to
    /// be fetched from its beginning.
    fn rest(
        &self,
        source: &Source,
        kept: &mut Kept,
        index: u64,
        begun: &[u8],
    ) -> Result<bool, Blame> {
        let (length, stop) = (self.shared.length, &self.shared.stop);
        let group = group::range(length, index);
        let len = usize::try_from(group.end - group.start).expect("a group is in memory");
        let mut buffer = self.shared.buffer()?;
        let mut have = begun.len();
        buffer[..have].copy_from_slice(begun);
        self.shared.hold_back((len - have) as u64);
        let fetched = fetch_rest(
            self.client,
            source,
            (&group, length),
            &mut buffer[..len],
            &mut have,
            &mut kept.wire,
            stop,
        );
        let value = fetched.map_err(Blame::Host).and_then(|()| {
            let vouching = if self.first.verified { self.first } else { source };
            let right =
                value_of(self.client, vouching, length, index, stop).map_err(Blame::First)?;
            Ok((group::value(length, index, &buffer[..len]), right))
        });
        let (value, right) = match value {
            Ok(both) => both,
            Err(Blame::First(Trouble::Fatal(Error::Protocol { .. }))) => {
                self.shared.recycle(buffer);
                return Ok(false);
            }
            Err(blame) => {
                self.shared.keep_begun(index, &buffer[..have]);
                self.shared.recycle(buffer);
                return Err(blame);
            }
        };
        if right.is_none_or(|right| right == value) {
            let new = self.shared.arrived(index, buffer, value)?;
            self.host.received.fetch_add(new, Relaxed);
            return Ok(true);
        }
        self.shared.recycle(buffer);
        self.wrong(index, len as u64, false)?;
        Ok(true)
    }

    /// A group has another value than it should; `is_its_own`: the one that the host says.
    fn wrong(&self, index: u64, bytes: u64, is_its_own: bool) -> Result<(), Trouble> {
        let (offset, source_name) = (index * GROUP_BYTES, self.host.address().to_string());
        if is_its_own && !self.is_first {
            let why = format!(
                "has another file: the {bytes} B at {offset} are not those of the first host's"
            );
            return Err(Error::Corrupt { source_name, why }.into());
        }
        self.shared.counters.wrong.fetch_add(1, Relaxed);
        self.shared.take_begun(index);
        let (times, most) = if self.is_first {
            (self.shared.plan().wrong(self.number, index), GROUP_ATTEMPTS)
        } else {
            self.shared.plan().again(self.number, index);
            (self.host.wrong.fetch_add(1, Relaxed) + 1, MAX_WRONG)
        };
        self.shared.tell(Event::Wrong { offset, bytes, times });
        if times < most {
            return Ok(());
        }
        let why = format!(
            "the {bytes} B at {offset} arrive wrong, {times} times now; look at the network cards and the memory between here and there"
        );
        Err(Error::Corrupt { source_name, why }.into())
    }

    /// Does without the host, if the trouble is its own.
    fn leave(&self, trouble: Trouble) -> Result<(), Trouble> {
        let (why, for_good) = match &trouble {
            Trouble::Changed(why) => (why.clone(), false),
            Trouble::Fatal(error) if error.is_of_source() => {
                (error.why(), !matches!(error, Error::Unreachable { .. }))
            }
            _ => return Err(trouble),
        };
        if self.host.leave(for_good) {
            self.shared.tell(Event::Without { source: self.host.address().to_string(), why });
        }
        Ok(())
    }

    /// Waits before the next attempt, or gives up: at once where another attempt is of no use.
    fn pause(
        &self,
        (failures, most): (u32, u32),
        trouble: Trouble,
        whom: &Address,
    ) -> Result<(), Trouble> {
        let (why, asked) = match trouble {
            Trouble::Passing(why, pause) => (why, pause),
            Trouble::Nobody(why) => (why, None),
            other => return Err(other),
        };
        if failures > most {
            return Err(Error::Unreachable { source_name: whom.to_string(), why }.into());
        }
        let pause = asked.unwrap_or_else(|| backoff(failures));
        self.shared.counters.retries.fetch_add(1, Relaxed);
        self.shared.tell(Event::Retry { why, pause });
        // Meanwhile other streams may fetch the rest.
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.shared.is_complete() {
            if self.shared.stop.wait(STEP.min(until.saturating_duration_since(Instant::now()))) {
                return Err(Error::Cancelled.into());
            }
        }
        Ok(())
    }

    fn look(&self, body: &mut Body<'_>) {
        if let Ok(path) = Path::of(body.socket()) {
            let rtt = if path.rtt.is_zero() { path.receive_rtt } else { path.rtt };
            let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
            self.shared.counters.rtt.store(micros, Relaxed);
        }
    }

    fn trouble(&self, error: Fault) -> Trouble {
        fault(&self.host.address().to_string(), error)
    }
}

/// Fetches the bytes of a group of a file of `length` bytes, from the `have`th on, as they are.
pub(in crate::copy) fn fetch_rest(
    client: &Client,
    source: &Source,
    (group, length): (&Range<u64>, u64),
    into: &mut [u8],
    have: &mut usize,
    kept: &mut Option<Wire>,
    stop: &Cancel,
) -> Result<(), Trouble> {
    if *have == into.len() {
        return Ok(());
    }
    let asked = Asked {
        range: Some(group.start + *have as u64..group.end),
        length: Some(length),
        validator: source.validator.clone(),
        form: Some(Form::Plain),
        ..Asked::default()
    };
    let Reply { mut wire, head, start } = client.ask(&source.address, &asked, kept.take(), stop)?;
    let mut body = Body::new(&mut wire, start.framing);
    let filled = body.fill_both(&mut into[*have..], &mut []);
    *have += body.came();
    filled.map_err(|error| fault(&source.address.to_string(), error))?;
    if body.is_over() && !head.close {
        *kept = Some(wire);
    }
    Ok(())
}

/// The value of a group at a source; none: it tells none.
fn value_of(
    client: &Client,
    source: &Source,
    length: u64,
    index: u64,
    stop: &Cancel,
) -> Result<Option<Value>, Trouble> {
    if !source.verified {
        return Ok(None);
    }
    let mut reply =
        client.ask(&source.address, &values_of(source, &(index..index + 1), length), None, stop)?;
    let mut value = [0; 32];
    let filled = Body::new(&mut reply.wire, reply.start.framing).fill_both(&mut value, &mut []);
    filled.map_err(|error| fault(&source.address.to_string(), error))?;
    Ok(Some(value))
}

/// The pause after so many failures: doubled each time, and anywhere in its upper half, so that
/// many clients of a server that fell do not all come back at once.
pub(crate) fn backoff(failures: u32) -> Duration {
    let full =
        FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    let chance = random() % 1000;
    full / 2 + full.mul_f64(f64::from(u32::try_from(chance).expect("less than 1000")) / 2000.0)
}
