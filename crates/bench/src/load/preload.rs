//! Filling a target before it is read.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::keys::{MAX_KEY_BYTES, Values, write_key};
use super::run::Workload;
use crate::target::{Op, Outcome, Target};

/// Writes kept in flight on each connection.
const DEPTH: usize = 64;

/// Bytes of values kept in flight on all connections together.
const MAX_BYTES_IN_FLIGHT: usize = 16 << 20;

/// Longest time without any answer before filling is given up.
const STALL: Duration = Duration::from_secs(30);

/// Writes all keys of `workload` once; returns how long that took.
///
/// # Errors
/// When a connection breaks, a write is refused or nothing is answered for half a minute.
pub fn preload(target: &mut dyn Target, workload: &Workload) -> Result<Duration> {
    preload_range(target, workload, 0..workload.keys)
}

/// Writes the keys `numbers` of `workload` once; returns how long that took.
///
/// # Errors
/// As [`preload`].
pub fn preload_range(target: &mut dyn Target, workload: &Workload, numbers: Range<u64>) -> Result<Duration> {
    let started = Instant::now();
    let values = Values::new(workload.value_bytes, workload.seed);
    let by_bytes = (MAX_BYTES_IN_FLIGHT / workload.value_bytes.max(1)).max(1);
    let window = (DEPTH * target.connections()).min(by_bytes) as u64;
    let mut key = [0; MAX_KEY_BYTES];
    let key = &mut key[..workload.key_bytes];
    let mut done = Vec::new();
    let (mut sent, mut answered) = (numbers.start, numbers.start);
    let mut last_answer = Instant::now();
    while answered < numbers.end {
        while sent < numbers.end && sent - answered < window {
            write_key(sent, key);
            let connection = usize::try_from(sent % target.connections() as u64)?;
            if !target.submit(connection, &Op::Put { key, value: values.of(sent) }, sent)? {
                break;
            }
            sent += 1;
        }
        target.poll(Duration::from_millis(100), &mut done)?;
        if !done.is_empty() {
            last_answer = Instant::now();
        } else if last_answer.elapsed() > STALL {
            bail!("{}: no answer for {STALL:?}, {answered} of {} written", target.name(), numbers.end);
        }
        for completion in done.drain(..) {
            let ok = matches!(completion.outcome, Outcome::Ok { .. });
            ensure!(ok, "{} refused to store key {}: {:?}", target.name(), completion.tag, completion.outcome);
            answered += 1;
        }
    }
    Ok(started.elapsed())
}
