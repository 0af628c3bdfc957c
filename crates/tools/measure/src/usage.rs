//! The resource usage of a process, from `/proc`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cpu;

/// Returns the resident memory of `pid`, in bytes.
///
/// # Errors
/// If `/proc/PID/status` cannot be read (there is no such process), or has no `VmRSS` (the process
/// has ended).
pub fn rss_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid}"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS: a process without memory")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")?;
    Ok(kib << 10)
}

/// Returns the CPU time that all threads of `pid` have used, user and system. It is exact to a
/// clock tick (10 ms).
///
/// # Errors
/// If `/proc/PID/stat` cannot be read or parsed: there is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid}"))?;
    ticks_of(&stat).map(ticks).with_context(|| format!("/proc/{pid}/stat"))
}

/// Measures the share of one core that `pid` uses over the next `span`; 0.01 is one per cent.
///
/// # Errors If there is no such process, or it ends before `span` is over.
pub fn cpu_share(pid: u32, span: Duration) -> Result<f64> {
    let (before, started) = (cpu_time(pid)?, Instant::now());
    cpu::pause(span);
    let used = cpu_time(pid)?.saturating_sub(before);
    Ok(used.as_secs_f64() / started.elapsed().as_secs_f64())
}

/// Parses the sum of user and system ticks from `/proc/PID/stat`. The process's name in it may
/// contain spaces and parentheses.
pub(crate) fn ticks_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

pub(crate) fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_micros(count.saturating_mul(1_000_000) / per_second)
}
