//! Filling a target before it is read.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::keys::{MAX_KEY_BYTES, Values, write_key};
use super::run::Workload;
use crate::target::{Completion, Op, Outcome, Target};

/// Writes kept in flight on each connection.
const DEPTH: usize = 64;

/// Bytes of values kept in flight on all connections together.
const MAX_BYTES_IN_FLIGHT: usize = 16 << 20;

/// Longest time without any answer before filling is given up.
const STALL: Duration = Duration::from_secs(30);

/// Longest time that memory may be full without a write in between: a store that cleans is not full
/// for long.
const FULL_PATIENCE: Duration = Duration::from_secs(10);

/// Wait until a write that met full memory is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Writes all keys of `workload` once; returns how long that took. While the target's memory is
/// full it waits.
///
/// # Errors
/// When a connection breaks, a write is refused, memory stays full for ten seconds, or nothing is
/// answered for half a minute.
pub fn preload(target: &mut dyn Target, workload: &Workload) -> Result<Duration> {
    preload_range(target, workload, 0..workload.keys)
}

/// Writes the keys `numbers` of `workload` once; returns how long that took.
///
/// # Errors
/// As [`preload`].
pub fn preload_range(
    target: &mut dyn Target,
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
    let (mut again, mut full) = (Vec::new(), None);
    let mut last_answer = Instant::now();
    while answered < numbers.end {
        let waits = full.as_ref().is_some_and(|full: &Full| Instant::now() < full.retry_at);
        while !waits && in_flight < window {
            let Some(number) = again.last().copied().or((sent < numbers.end).then_some(sent))
            else {
                break;
            };
            write_key(number, key);
            let connection = usize::try_from(number % target.connections() as u64)?;
            if !target.submit(connection, &Op::Put { key, value: values.of(number) }, number)? {
                break;
            }
            in_flight += 1;
            sent += u64::from(again.pop().is_none());
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
                    again.push(completion.tag);
                }
                _ => return Err(refused(target, &completion)),
            }
        }
    }
    Ok(started.elapsed())
}

/// Since when the target's memory has been full, and when to try again.
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

fn refused(target: &dyn Target, completion: &Completion) -> anyhow::Error {
    let why = target.failure().map_or_else(|| format!("{:?}", completion.outcome), str::to_owned);
    let waited = match completion.outcome {
        Outcome::Full => format!(", for {FULL_PATIENCE:?}; fewer --keys need less memory"),
        _ => String::new(),
    };
    anyhow!("{} refused to store key {}: {why}{waited}", target.name(), completion.tag)
}
