//! The machine of a measurement, and the other processes on it.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{cpu, usage};

/// Time for which other processes are observed.
const WATCH: Duration = Duration::from_millis(300);

/// Limit on the neighbours that are listed. The busiest are listed.
const MAX_NEIGHBOURS: usize = 5;

/// A process that uses at least this share of a core counts as a neighbour.
const NEIGHBOUR_SHARE: f64 = 0.02;

/// Facts about the machine that a reader needs to judge a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The machine's memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel's clock source.
    pub clocksource: String,
    /// Whether the machine is virtual.
    pub virtual_machine: bool,
    /// The load average over the last minute, at the start.
    pub load_average: f64,
    /// The other processes that used at least 2 % of a core at the start, the busiest first. At
    /// most five are listed.
    pub neighbours: Vec<Neighbour>,
    /// Versions of the installed peers: Redis and memcached.
    pub peers: Vec<String>,
}

/// A process that ran at the same time as the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name of the process.
    pub name: String,
    /// Id of the process.
    pub pid: u32,
    /// The share of a core that the process used; 1 is a whole core.
    pub cores: f64,
}

impl Machine {
    /// Describes this machine. Takes at least 0.3 s, to observe other processes. Facts that cannot
    /// be read are left empty or 0.
    #[must_use]
    pub fn describe() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        Self {
            cpu: field("model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            memory_bytes: sprat_host::memory("MemTotal").unwrap_or(0),
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load_average: load_average(),
            neighbours: neighbours(),
            peers: ["redis-server", "memcached"].into_iter().filter_map(version).collect(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let kind = if self.virtual_machine { " (virtual machine)" } else { "" };
        writeln!(f, "machine   {}, {} cores, {gib:.1} GiB{kind}", self.cpu, self.cores)?;
        writeln!(f, "kernel    {}, clock source {}", self.kernel, self.clocksource)?;
        writeln!(
            f,
            "peers     {}",
            if self.peers.is_empty() { "none installed".into() } else { self.peers.join(", ") }
        )?;
        let mut beside = String::new();
        for Neighbour { name, pid, cores } in &self.neighbours {
            write!(beside, ", {name} [{pid}] {:.0} % of a core", cores * 100.0)?;
        }
        let beside = if beside.is_empty() { ", nothing else busy" } else { &beside };
        writeln!(f, "beside it load average {:.2}{beside}", self.load_average)
    }
}

/// Returns the load average over the last minute. Returns 0 if it cannot be read.
#[must_use]
pub fn load_average() -> f64 {
    read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "Redis server v=7.0.15 sha=..." and "memcached 1.6.18".
    let number = text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches("v=");
        word.starts_with(|first: char| first.is_ascii_digit()).then(|| word.to_owned())
    })?;
    Some(format!("{} {number}", program.trim_end_matches("-server")))
}

/// Returns the name and CPU ticks of every other process.
fn processes() -> HashMap<u32, (String, u64)> {
    let own = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else { return HashMap::new() };
    let pids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|&pid| pid != own).filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let name = stat.split_once('(')?.1.rsplit_once(')')?.0.to_owned();
        Some((pid, (name, usage::ticks_of(&stat)?)))
    });
    others.collect()
}

fn neighbours() -> Vec<Neighbour> {
    let before = processes();
    cpu::pause(WATCH);
    let mut busy: Vec<Neighbour> = processes()
        .into_iter()
        .filter_map(|(pid, (name, now))| {
            let then = before.get(&pid).map_or(0, |(_, then)| *then);
            let cores = usage::ticks(now.saturating_sub(then)).as_secs_f64() / WATCH.as_secs_f64();
            (cores >= NEIGHBOUR_SHARE).then_some(Neighbour { name, pid, cores })
        })
        .collect();
    busy.sort_by(|a, b| b.cores.total_cmp(&a.cores));
    busy.truncate(MAX_NEIGHBOURS);
    busy
}
