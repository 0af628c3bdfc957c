//! Advises changes to a host's kernel settings, from its facts.

use crate::change::{Candidate, Change, Class};
use crate::facts::Facts;
use std::collections::BTreeMap;

/// The advised read-ahead in KiB: one chunk of Cassandra's files. A smaller read-ahead is kept.
/// Rows are read in random order, so data that is read ahead is seldom used, and displaces useful
/// pages.
const READ_AHEAD_KIB: u64 = 16;

/// The advised limit on the memory maps of a process: Cassandra maps each of its files, and fails
/// at the limit. Larger limits are kept.
const MAPS: u64 = 1_048_575;

/// The advised upper bound of the limit on open files that a process may set (`fs.nr_open`). Larger
/// bounds are kept.
const OPEN_FILES: u64 = 1_048_576;

/// The advised limit on connections that wait to be accepted: after a restart all clients reconnect
/// at once. Larger limits are kept.
const BACKLOG: u64 = 4_096;

/// The advised limit on socket buffers, in bytes, for hints and streams between instances. Larger
/// limits are kept.
const SOCKET_BYTES: u64 = 16 << 20;

/// The advised time, in seconds, after which a silent connection is probed: firewalls forget silent
/// connections after some minutes. Shorter times are kept.
const KEEP_ALIVE_SECONDS: u64 = 60;

const PAGES: &str = "/sys/kernel/mm/transparent_hugepage";
const PROCESSORS: &str = "/sys/devices/system/cpu/cpu";

/// The advised value of a kernel file.
#[derive(Clone, Copy)]
enum Wanted {
    Is(&'static str),
    AtLeast(u64),
    AtMost(u64),
}

impl Wanted {
    /// Returns the value to write, or `None` if the present value is fine.
    fn if_different(self, present: &str) -> Option<String> {
        let number = present.parse::<u64>().ok();
        match self {
            Self::Is(value) => (present != value).then(|| value.to_owned()),
            Self::AtLeast(least) => {
                number.filter(|number| *number < least).map(|_| least.to_string())
            }
            Self::AtMost(most) => number.filter(|number| *number > most).map(|_| most.to_string()),
        }
    }
}

/// Returns the candidates for hosts. All changes of one class are tried together on all hosts.
#[must_use]
pub(crate) fn candidates(hosts: &[(String, Facts)]) -> Vec<Candidate> {
    let mut found: BTreeMap<Class, (Vec<Change>, Vec<String>)> = BTreeMap::new();
    for (host, facts) in hosts {
        for (class, path, value) in advice(facts) {
            let present = facts.value(&path).unwrap_or_default();
            let (changes, lines) = found.entry(class).or_default();
            lines.push(format!("{} {present} -> {value}", short(&path)));
            changes.push(Change::Host { host: host.clone(), path, value });
        }
    }
    let candidate = |(class, (changes, mut lines)): (Class, (Vec<Change>, Vec<String>))| {
        lines.sort_unstable();
        lines.dedup();
        let (present, proposed) = lines
            .iter()
            .filter_map(|line| line.split_once(" -> "))
            .map(|(present, value)| {
                (present.to_owned(), format!("{} {value}", present.split(' ').next().unwrap_or("")))
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        Candidate {
            class,
            proposed: proposed.join(", "),
            present: present.join(", "),
            why: why(class),
            changes,
        }
    };
    found.into_iter().map(candidate).collect()
}

/// Returns the advised changes of a host: class, path, value.
fn advice(facts: &Facts) -> Vec<(Class, String, String)> {
    let mut all = Vec::new();
    let mut want = |class, path: String, wanted: Wanted| {
        if let Some(value) = facts.value(&path).and_then(|present| wanted.if_different(present)) {
            all.push((class, path, value));
        }
    };
    for disk in &facts.disks {
        let of_disk = |file: &str| format!("/sys/block/{disk}/queue/{file}");
        want(Class::ReadAhead, of_disk("read_ahead_kb"), Wanted::AtMost(READ_AHEAD_KIB));
        let scheduler = of_disk("scheduler");
        // The scheduler of rotating disks is left unchanged. Virtual disks always report that they
        // rotate, whatever the host's disks are.
        if facts.value(&of_disk("rotational")) == Some("0") && facts.offers(&scheduler, "none") {
            want(Class::Scheduler, scheduler, Wanted::Is("none"));
        }
    }
    want(Class::Memory, format!("{PAGES}/enabled"), Wanted::Is("madvise"));
    want(Class::Memory, format!("{PAGES}/defrag"), Wanted::Is("madvise"));
    let kernel = |name: &str| format!("/proc/sys/{name}");
    want(Class::Memory, kernel("vm/swappiness"), Wanted::AtMost(1));
    want(Class::Memory, kernel("vm/zone_reclaim_mode"), Wanted::Is("0"));
    want(Class::Limits, kernel("vm/max_map_count"), Wanted::AtLeast(MAPS));
    want(Class::Limits, kernel("fs/nr_open"), Wanted::AtLeast(OPEN_FILES));
    for number in 0..facts.cores {
        if facts.offers(
            &format!("{PROCESSORS}{number}/cpufreq/scaling_available_governors"),
            "performance",
        ) {
            want(
                Class::Governor,
                format!("{PROCESSORS}{number}/cpufreq/scaling_governor"),
                Wanted::Is("performance"),
            );
        }
    }
    want(Class::Network, kernel("net/core/somaxconn"), Wanted::AtLeast(BACKLOG));
    want(Class::Network, kernel("net/core/rmem_max"), Wanted::AtLeast(SOCKET_BYTES));
    want(Class::Network, kernel("net/core/wmem_max"), Wanted::AtLeast(SOCKET_BYTES));
    want(Class::Network, kernel("net/ipv4/tcp_slow_start_after_idle"), Wanted::Is("0"));
    want(Class::Network, kernel("net/ipv4/tcp_keepalive_time"), Wanted::AtMost(KEEP_ALIVE_SECONDS));
    for name in ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"] {
        all.extend(
            widened(facts, &kernel(name)).map(|value| (Class::Network, kernel(name), value)),
        );
    }
    all.extend(spread(facts));
    all
}

/// Returns the three limits on a connection's memory (minimum, default, maximum) with a larger
/// maximum. Returns `None` if the maximum is large enough.
fn widened(facts: &Facts, path: &str) -> Option<String> {
    let numbers: Vec<u64> =
        facts.value(path)?.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [least, usual, most] = numbers[..] else { return None };
    (most < SOCKET_BYTES).then(|| format!("{least} {usual} {SOCKET_BYTES}"))
}

/// If one core serves all interrupts of a network card, assigns the interrupts to the cores in
/// turn.
fn spread(facts: &Facts) -> Vec<(Class, String, String)> {
    let mut all = Vec::new();
    if facts.irqbalance || facts.cores < 2 {
        return all;
    }
    for irqs in facts.irqs.values().filter(|irqs| irqs.len() > 1) {
        let path = |irq: &u32| format!("/proc/irq/{irq}/smp_affinity_list");
        let cores: Vec<_> = irqs.iter().filter_map(|irq| facts.value(&path(irq))).collect();
        let one = cores.len() == irqs.len()
            && cores[0].parse::<u32>().is_ok()
            && cores.iter().all(|core| *core == cores[0]);
        if one {
            let each = irqs
                .iter()
                .enumerate()
                .map(|(at, irq)| (path(irq), (at % facts.cores).to_string()));
            all.extend(
                each.filter(|(path, core)| facts.value(path) != Some(core))
                    .map(|(path, core)| (Class::Interrupts, path, core)),
            );
        }
    }
    all
}

fn why(class: Class) -> &'static str {
    match class {
        Class::ReadAhead => {
            "rows are scattered: what is read beyond one is not used, and evicts other pages from \
             the cache"
        }
        Class::Scheduler => "disks without moving parts sort requests themselves",
        Class::Memory => {
            "huge pages are used only where a program requests them, and Java's heap is not \
             swapped out"
        }
        Class::Limits => "Cassandra maps and opens a file for each part of each table",
        Class::Governor => "a processor in a deep sleep state wakes up late",
        Class::Interrupts => {
            "a core that handles all interrupts of a card is busy before the others"
        }
        Class::Network => "idle connections keep their window, and many can connect at once",
        _ => "",
    }
}

/// Shortens the path of a kernel file.
fn short(path: &str) -> &str {
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        return name;
    }
    match path.strip_prefix("/sys/block/") {
        Some(rest) => rest,
        None => path.strip_prefix("/sys/kernel/mm/").unwrap_or(path),
    }
}
