//! One stream. It takes runs of missing groups and receives them. It verifies each group while its
//! bytes are in the cache, and passes the group to the sink.

use super::answer::{BodyStart, FileRequest, Form};
use super::client::{Client, Reply};
use super::error::{Error, Trouble, fault};
use super::event::Event;
use super::host::{Host, MAX_WRONG, RemoteFile};
use super::plan::{Assignment, GROUP_ATTEMPTS};
use super::shared::Shared;
use super::vouch::values_request;
use crate::group::{self, GROUP_BYTES, GroupHasher, Value};
use crate::partial::bytes_of;
use sprat_host::random;
use sprat_http::client::{Body, Fault, Wire};
use sprat_http::{Address, Cancel};
use sprat_pace::path::Path;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Upper limit of the pause after the first failure. The limit doubles with each consecutive
/// failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Upper limit of any pause that the server does not request itself.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest time for which a pause continues after the file is complete.
const STEP: Duration = Duration::from_millis(200);

/// Interval at which an idle stream looks for work in the plan.
const IDLE: Duration = Duration::from_millis(50);

/// Groups between two samples of the round-trip time.
const RTT_SAMPLE_GROUPS: u64 = 64;

/// Number of bytes received at a time, and hashed while they are in the cache. It is a multiple of
/// BLAKE3's chunk.
pub(crate) const PIECE: usize = 256 << 10;

/// One stream of a fetch.
pub(crate) struct Stream<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    /// The source that defines the file.
    pub(crate) first: &'a RemoteFile,
    /// The host that this stream fetches from.
    pub(crate) host: &'a Host,
    /// Whether `host` is the first host.
    pub(crate) is_first: bool,
    /// Index of the stream in the plan.
    pub(crate) number: usize,
    pub(crate) retries: u32,
    /// Limit on retries of requests to the first host, with whose values the groups of all other
    /// hosts are compared.
    pub(crate) first_retries: u32,
    /// Whether to request the verified form.
    pub(crate) verify: bool,
}

/// Connections kept from one run to the next: one to the host, and one to the first host for the
/// values of groups.
#[derive(Default)]
struct Kept {
    wire: Option<Wire>,
    values: Option<Wire>,
}

/// The connection or response with which a stream starts.
#[derive(Default)]
pub(crate) enum First {
    #[default]
    Nothing,
    /// A connection to the stream's host.
    Wire(Wire),
    /// A response whose head has arrived, with all of the file or its beginning.
    Reply(Box<Reply>),
}

/// The host that a failure concerns: the stream's host, or the first host.
enum Blame {
    Host(Trouble),
    First(Trouble),
}

impl From<Trouble> for Blame {
    fn from(trouble: Trouble) -> Self {
        Self::Host(trouble)
    }
}

impl Stream<'_> {
    /// Fetches until the file is complete, the stream's host is dropped, or the transfer fails.
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
        // These connections were opened before the handle that stops only the streams existed.
        for wire in first.as_mut().map(|reply| &mut reply.wire).into_iter().chain(&mut wire) {
            wire.stop_with(&self.shared.stop);
        }
        let mut kept = Kept { wire, values: None };
        let mut failures = 0;
        while !self.host.is_dropped() {
            let run = match self.shared.take(self.number) {
                Assignment::Run(run) => run,
                Assignment::Wait if self.shared.stop.wait(IDLE) => {
                    return Err(Error::Cancelled.into());
                }
                Assignment::Wait => continue,
                Assignment::Done => {
                    // The file is complete. Interrupt streams that still wait for bytes.
                    self.shared.stop.cancel();
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
                        return self.drop_own_host(trouble);
                    }
                }
                Blame::Host(trouble) | Blame::First(trouble) => {
                    self.pause((failures, self.first_retries), trouble, &self.first.address)?;
                }
            }
        }
        Ok(())
    }

    /// Fetches a run of groups. `next` becomes the first group that was not received.
    fn fetch(
        &self,
        first: Option<Reply>,
        kept: &mut Kept,
        run: &Range<u64>,
        next: &mut u64,
    ) -> Result<(), Blame> {
        let (length, stop) = (self.shared.length, &self.shared.stop);
        let source = self.host.source(self.client, self.verify, length, stop)?;
        // A server without the verified form can send the missing part of a group and all later
        // groups in one response.
        let mut begun = Vec::new();
        if !source.verified {
            begun = self.shared.begun_bytes(*next);
        } else if let Some(begun) = self.shared.take_begun(*next)
            && self.fetch_group_rest(&source, kept, *next, &begun)?
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
            let file_request = values_request(self.first, run, length);
            let reply =
                self.client.ask(&self.first.address, &file_request, kept.values.take(), stop);
            Some(reply.map_err(Blame::First)?)
        };
        // Other streams may have taken over a part of this run before this stream began.
        let is_part = first.as_ref().is_some_and(|reply| reply.start.end < Some(length));
        let reply = match first {
            Some(reply) => reply,
            None => {
                let file_request = FileRequest {
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
                    fresh: self.shared.plan().was_corrupt(run),
                };
                self.client.ask(&source.address, &file_request, kept.wire.take(), stop)?
            }
        };
        let Reply { mut wire, head, start } = reply;
        let mut body = Body::new(&mut wire, start.framing.clone());
        let mut values =
            vouching.as_mut().map(|reply| Body::new(&mut reply.wire, reply.start.framing.clone()));
        let mut goes_on = true;
        while goes_on {
            let bytes = bytes_of(length, *next);
            self.shared.throttle(bytes);
            self.group(
                &mut body,
                values.as_mut(),
                &start,
                (*next, bytes),
                &std::mem::take(&mut begun),
            )?;
            goes_on = self.shared.done(self.number, *next);
            *next += 1;
            if (*next - run.start) % RTT_SAMPLE_GROUPS == 1 {
                self.sample_rtt(&mut body);
            }
        }
        if *next < run.end || is_part && !body.is_over() {
            return Ok(()); // another stream has the other groups of the run
        }
        // A body without a stated length must end here too. More bytes mean that the file has
        // changed.
        if !body.is_over() && body.fill(&mut [0]).map_err(|error| self.trouble(error))? > 0 {
            return Err(Trouble::Changed("it has become longer".to_owned()).into());
        }
        if body.is_over() && !head.close {
            kept.wire = Some(wire);
        }
        let all_values_read = values.is_some_and(|values| values.is_over());
        kept.values =
            vouching.filter(|reply| all_values_read && !reply.head.close).map(|reply| reply.wire);
        Ok(())
    }

    /// Receives a group, verifies it and stores it. `begun` has the group's first bytes if they
    /// were received before.
    fn group(
        &self,
        body: &mut Body<'_>,
        values: Option<&mut Body<'_>>,
        start: &BodyStart,
        (index, bytes): (u64, u64),
        begun: &[u8],
    ) -> Result<(), Blame> {
        let length = self.shared.length;
        let mut buffer = self.shared.buffer()?;
        let len = usize::try_from(bytes).expect("a group is in memory");
        let mut stated = [0; 32];
        let mut hasher = GroupHasher::begin(length, index);
        buffer[..begun.len()].copy_from_slice(begun);
        hasher.add(begun);
        for at in (begun.len()..len).step_by(PIECE) {
            let piece = &mut buffer[at..len.min(at + PIECE)];
            let last = at + piece.len() == len;
            let stated = if last && start.verified { &mut stated[..] } else { &mut [] };
            if let Err(error) = body.fill_both(piece, stated) {
                self.shared.keep_begun(index, &buffer[..at + body.received()]);
                self.shared.recycle(buffer);
                return Err(self.trouble(error).into());
            }
            hasher.add(piece);
        }
        let value = hasher.value();
        let right = match values {
            Some(values) => {
                let mut right = [0; 32];
                if let Err(error) = values.fill_both(&mut right, &mut []) {
                    self.shared.recycle(buffer);
                    return Err(Blame::First(fault(&self.first.address.to_string(), error)));
                }
                Some(right)
            }
            None => start.verified.then_some(stated),
        };
        if right.is_none_or(|right| right == value) {
            let new = self.shared.arrived(index, buffer, value)?;
            self.host.received.fetch_add(new, Relaxed);
            return Ok(());
        }
        self.shared.recycle(buffer);
        let is_its_own = start.verified && value == stated;
        Ok(self.handle_corrupt(index, bytes, is_its_own)?)
    }

    /// Fetches, in plain form, the bytes of a group that are missing because a connection broke,
    /// and verifies the whole group. Returns false if the source does not supply the group's value;
    /// the group must then be fetched from its beginning.
    fn fetch_group_rest(
        &self,
        source: &RemoteFile,
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
        self.shared.throttle((len - have) as u64);
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
        self.handle_corrupt(index, len as u64, false)?;
        Ok(true)
    }

    /// Handles a group with a wrong value. `is_its_own` says that the group has the value that its
    /// own host states.
    fn handle_corrupt(&self, index: u64, bytes: u64, is_its_own: bool) -> Result<(), Trouble> {
        let (offset, source_name) = (index * GROUP_BYTES, self.host.address().to_string());
        if is_its_own && !self.is_first {
            let why = format!(
                "has another file: the {bytes} B at offset {offset} differ from the first host's"
            );
            return Err(Error::Corrupt { source_name, why }.into());
        }
        self.shared.counters.wrong.fetch_add(1, Relaxed);
        self.shared.take_begun(index);
        let (times, most) = if self.is_first {
            (self.shared.plan().mark_corrupt(self.number, index), GROUP_ATTEMPTS)
        } else {
            self.shared.plan().retry(self.number, index);
            (self.host.wrong.fetch_add(1, Relaxed) + 1, MAX_WRONG)
        };
        self.shared.emit(Event::Wrong { offset, bytes, times });
        if times < most {
            return Ok(());
        }
        let why = format!(
            "the {bytes} B at offset {offset} arrived corrupt {times} times; check the network \
             cards and the memory of both machines"
        );
        Err(Error::Corrupt { source_name, why }.into())
    }

    /// Drops the stream's host if the failure concerns that host. Otherwise returns the failure.
    fn drop_own_host(&self, trouble: Trouble) -> Result<(), Trouble> {
        let (why, for_good) = match &trouble {
            Trouble::Changed(why) => (why.clone(), false),
            Trouble::Fatal(error) if error.is_of_source() => {
                (error.why(), !matches!(error, Error::Unreachable { .. }))
            }
            _ => return Err(trouble),
        };
        if self.host.drop_host(for_good) {
            self.shared.emit(Event::HostDropped { source: self.host.address().to_string(), why });
        }
        Ok(())
    }

    /// Waits before the next attempt. Gives up after too many failures, or at once if another
    /// attempt would fail too.
    fn pause(
        &self,
        (failures, most): (u32, u32),
        trouble: Trouble,
        address: &Address,
    ) -> Result<(), Trouble> {
        let (why, retry_after) = match trouble {
            Trouble::Transient(why, pause) => (why, pause),
            Trouble::Unreachable(why) => (why, None),
            other => return Err(other),
        };
        if failures > most {
            return Err(Error::Unreachable { source_name: address.to_string(), why }.into());
        }
        let pause = retry_after.unwrap_or_else(|| backoff(failures));
        self.shared.counters.retries.fetch_add(1, Relaxed);
        self.shared.emit(Event::Retry { why, pause });
        // Other streams may complete the file meanwhile.
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.shared.is_complete() {
            if self.shared.stop.wait(STEP.min(until.saturating_duration_since(Instant::now()))) {
                return Err(Error::Cancelled.into());
            }
        }
        Ok(())
    }

    fn sample_rtt(&self, body: &mut Body<'_>) {
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

/// Fetches the bytes of a group from its byte `have` on, in plain form. `group` is the group's
/// range of bytes in a file of `length` bytes.
pub(in crate::copy) fn fetch_rest(
    client: &Client,
    source: &RemoteFile,
    (group, length): (&Range<u64>, u64),
    into: &mut [u8],
    have: &mut usize,
    kept: &mut Option<Wire>,
    stop: &Cancel,
) -> Result<(), Trouble> {
    if *have == into.len() {
        return Ok(());
    }
    let file_request = FileRequest {
        range: Some(group.start + *have as u64..group.end),
        length: Some(length),
        validator: source.validator.clone(),
        form: Some(Form::Plain),
        ..FileRequest::default()
    };
    let Reply { mut wire, head, start } =
        client.ask(&source.address, &file_request, kept.take(), stop)?;
    let mut body = Body::new(&mut wire, start.framing);
    let filled = body.fill_both(&mut into[*have..], &mut []);
    *have += body.received();
    filled.map_err(|error| fault(&source.address.to_string(), error))?;
    if body.is_over() && !head.close {
        *kept = Some(wire);
    }
    Ok(())
}

/// Fetches the value of a group from a source. `None` if the source states no values.
fn value_of(
    client: &Client,
    source: &RemoteFile,
    length: u64,
    index: u64,
    stop: &Cancel,
) -> Result<Option<Value>, Trouble> {
    if !source.verified {
        return Ok(None);
    }
    let mut reply = client.ask(
        &source.address,
        &values_request(source, &(index..index + 1), length),
        None,
        stop,
    )?;
    let mut value = [0; 32];
    let filled = Body::new(&mut reply.wire, reply.start.framing).fill_both(&mut value, &mut []);
    filled.map_err(|error| fault(&source.address.to_string(), error))?;
    Ok(Some(value))
}

/// Returns the pause after `failures` consecutive failures. Its limit doubles with each failure.
/// The pause is a random time between half the limit and the limit, so that the clients of a failed
/// server do not all return at once.
pub(crate) fn backoff(failures: u32) -> Duration {
    let full =
        FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    let chance = random() % 1000;
    full / 2 + full.mul_f64(f64::from(u32::try_from(chance).expect("less than 1000")) / 2000.0)
}
