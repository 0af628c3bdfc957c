//! Fills a target before it is read.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::keys::{MAX_KEY_BYTES, Values, write_key};
use super::run::Workload;
use crate::target::{Completion, LoadTarget, Op, Outcome};

/// Number of writes in flight on each connection.
const DEPTH: usize = 64;

/// Limit on the bytes of values in flight on all connections together. A longer value is written
/// alone.
const MAX_BYTES_IN_FLIGHT: usize = 16 << 20;

/// Filling fails if no operation completes for this time.
const STALL: Duration = Duration::from_secs(30);

/// Filling fails if the target reports full memory for this time without a successful write in
/// between. A store whose cleaner frees memory is not full for long.
const FULL_PATIENCE: Duration = Duration::from_secs(10);

/// Delay before a write that was refused because of full memory is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Writes all keys of `workload` once, and returns the time that this took. While the target's
/// memory is full, this function waits and repeats the rejected write.
///
/// # Errors
/// If the target cannot submit or poll (a broken connection), refuses a write, reports full memory
/// for ten seconds without a successful write, or completes nothing for half a minute.
pub fn preload(target: &mut dyn LoadTarget, workload: &Workload) -> Result<Duration> {
    preload_range(target, workload, 0..workload.keys)
}

/// Writes the keys `numbers` of `workload` once, and returns the time that this took.
///
/// # Errors
/// As for [`preload`]: a broken connection, a refused write, ten seconds of full memory, or half a
/// minute without a completion.
pub fn preload_range(
    target: &mut dyn LoadTarget,
    workload: &Workload,
    numbers: Range<u64>,
) -> Result<Duration> {
    let started = Instant::now();
    let values = Values::new(workload.value_bytes, workload.seed);
    let by_bytes = (MAX_BYTES_IN_FLIGHT / workload.value_bytes.max(1)).max(1);
    let window = (DEPTH * target.connections()).min(by_bytes) as u64;
    let mut key = [0; MAX_KEY_BYTES];
    let key = &mut key[..workload.key_bytes];
    let mut done = Vec::new();
    let (mut sent, mut answered, mut in_flight) = (numbers.start, numbers.start, 0);
    let (mut to_repeat, mut full) = (Vec::new(), None);
    let mut last_answer = Instant::now();
    while answered < numbers.end {
        let waits = full.as_ref().is_some_and(|full: &Full| Instant::now() < full.retry_at);
        while !waits && in_flight < window {
            let Some(number) = to_repeat.last().copied().or((sent < numbers.end).then_some(sent))
            else {
                break;
            };
            write_key(number, key);
            let connection = usize::try_from(number % target.connections() as u64)?;
            if !target.submit(connection, &Op::Put { key, value: values.of(number) }, number)? {
                break;
            }
            in_flight += 1;
            sent += u64::from(to_repeat.pop().is_none());
        }
        target.poll(if waits { FULL_PAUSE } else { Duration::from_millis(100) }, &mut done)?;
        if !done.is_empty() || waits {
            last_answer = Instant::now();
        } else if last_answer.elapsed() > STALL {
            bail!(
                "{}: no answer for {STALL:?}, {answered} of {} written",
                target.name(),
                numbers.end
            );
        }
        for completion in done.drain(..) {
            in_flight -= 1;
            match completion.outcome {
                Outcome::Ok { .. } => (answered, full) = (answered + 1, None),
                Outcome::Full
                    if full.as_ref().is_none_or(|full| full.since.elapsed() < FULL_PATIENCE) =>
                {
                    full = Some(Full::again(full));
                    to_repeat.push(completion.tag);
                }
                _ => return Err(refused(target, &completion)),
            }
        }
    }
    Ok(started.elapsed())
}

/// When the target's memory became full, and when to try again.
struct Full {
    since: Instant,
    retry_at: Instant,
}

impl Full {
    fn again(before: Option<Self>) -> Self {
        let now = Instant::now();
        Self { since: before.map_or(now, |full| full.since), retry_at: now + FULL_PAUSE }
    }
}

fn refused(target: &dyn LoadTarget, completion: &Completion) -> anyhow::Error {
    let why = target.failure().map_or_else(|| format!("{:?}", completion.outcome), str::to_owned);
    let waited = match completion.outcome {
        Outcome::Full => format!(", for {FULL_PATIENCE:?}; fewer --keys need less memory"),
        _ => String::new(),
    };
    anyhow!("{} refused to store key {}: {why}{waited}", target.name(), completion.tag)
}
