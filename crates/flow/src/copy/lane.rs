//! One stream: takes runs of missing groups, receives them, checks each while its bytes are warm, and hands it to the sink.

use super::Error;
use super::Event;
use super::client::{Client, Reply};
use super::error::Trouble;
use super::http::answer::{Asked, Start};
use super::http::{Body, Fault, Wire, fault};
use super::job::Source;
use super::plan::GROUP_ATTEMPTS;
use super::shared::{Shared, bytes_of};
use crate::group::{GROUP_BYTES, Summing};
use sprat_pace::path::Path;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The pause after a first failure; it doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a pause goes on at most when there is nothing left to do.
const STEP: Duration = Duration::from_millis(200);

/// Groups between two looks at the round-trip time.
const LOOK: u64 = 64;

/// Bytes that are received, and summed while they are in the processor's cache, at a time; whole chunks of the tree.
const PIECE: usize = 256 << 10;

/// One stream of a transfer.
pub(crate) struct Lane<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) source: &'a Source,
    pub(crate) retries: u32,
}

impl Lane<'_> {
    /// Works until nothing is missing that nobody else fetches. `first` is an answer that has begun, with all of the file.
    pub(crate) fn run(&self, first: Option<Reply>) {
        if let Err(trouble) = self.work(first) {
            self.shared.fail(trouble);
        }
        self.shared.ended();
    }

    fn work(&self, mut first: Option<Reply>) -> Result<(), Trouble> {
        let mut kept = None;
        let mut failures = 0;
        loop {
            let Some(run) = self.shared.plan().take() else { return Ok(()) };
            let mut next = run.start;
            match self.fetch(first.take(), &mut kept, &run, &mut next) {
                Ok(()) => failures = 0,
                Err(trouble) => {
                    self.shared.plan().give_back(next..run.end);
                    kept = None;
                    if next > run.start {
                        failures = 0;
                    }
                    let (why, pause) = match trouble {
                        Trouble::Passing(why, pause) => (why, pause),
                        Trouble::Nobody(why) => (why, None),
                        other => return Err(other),
                    };
                    failures += 1;
                    self.pause(failures, why, pause)?;
                }
            }
        }
    }

    /// Fetches a run; `next` is the first group that has not come.
    fn fetch(
        &self,
        first: Option<Reply>,
        kept: &mut Option<Wire>,
        run: &Range<u64>,
        next: &mut u64,
    ) -> Result<(), Trouble> {
        let reply = match first {
            Some(reply) => reply,
            None => {
                let asked = Asked {
                    head_only: false,
                    range: Some(run.start * GROUP_BYTES..self.shared.length.min(run.end * GROUP_BYTES)),
                    length: Some(self.shared.length),
                    validator: self.source.validator.clone(),
                    verified: Some(self.source.verified),
                    fresh: self.shared.plan().was_wrong(run),
                };
                self.client.ask(&self.source.address, &asked, kept.take(), &self.shared.stop)?
            }
        };
        let Reply { mut wire, head, start } = reply;
        let mut body = Body::new(&mut wire, start.framing.clone());
        while *next < run.end {
            let bytes = bytes_of(self.shared.length, *next);
            self.shared.hold_back(bytes);
            self.group(&mut body, &start, *next, bytes)?;
            *next += 1;
            if (*next - run.start) % LOOK == 1 {
                self.look(&mut body);
            }
        }
        // What has no length of its own must end here too: more would mean another file.
        if !body.is_over() && body.fill(&mut [0]).map_err(|error| self.trouble(error))? > 0 {
            return Err(Trouble::Changed("it is longer than it was".to_owned()));
        }
        if body.is_over() && !head.close {
            *kept = Some(wire);
        }
        Ok(())
    }

    /// Receives a group, checks it, and hands it on.
    fn group(&self, body: &mut Body<'_>, start: &Start, index: u64, bytes: u64) -> Result<(), Trouble> {
        let length = self.shared.length;
        let mut buffer = self.shared.buffer()?;
        let len = usize::try_from(bytes).expect("a group is in memory");
        let mut told = [0; 32];
        let mut summing = Summing::begin(length, index);
        for at in (0..len).step_by(PIECE) {
            let piece = &mut buffer[at..len.min(at + PIECE)];
            let last = at + piece.len() == len;
            let told = if last && start.verified { &mut told[..] } else { &mut [] };
            if let Err(error) = body.fill_both(piece, told) {
                self.shared.recycle(buffer);
                return Err(self.trouble(error));
            }
            summing.add(piece);
        }
        let value = summing.value();
        if !start.verified || value == told {
            return self.shared.arrived(index, buffer, value);
        }
        self.shared.recycle(buffer);
        self.shared.counters.wrong.fetch_add(1, Relaxed);
        let times = self.shared.plan().wrong(index);
        let offset = index * GROUP_BYTES;
        self.shared.tell(Event::Wrong { offset, bytes, times });
        if times < GROUP_ATTEMPTS {
            return Ok(());
        }
        let why = format!(
            "the {bytes} B at {offset} arrive wrong, {times} times now; look at the network cards and the memory between here and there"
        );
        Err(Error::Corrupt { source_name: self.source.address.to_string(), why }.into())
    }

    /// Waits before the next attempt, or gives up.
    fn pause(&self, failures: u32, why: String, asked: Option<Duration>) -> Result<(), Trouble> {
        if failures > self.retries {
            return Err(Error::Unreachable { source_name: self.source.address.to_string(), why }.into());
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
        fault(&self.source.address.to_string(), error)
    }
}

/// The pause after so many failures: doubled each time, and anywhere in its upper half, so that many clients of a server that fell
/// do not all come back at once.
pub(crate) fn backoff(failures: u32) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    let chance = RandomState::new().hash_one(failures) % 1000;
    full / 2 + full.mul_f64(f64::from(u32::try_from(chance).expect("less than 1000")) / 2000.0)
}
