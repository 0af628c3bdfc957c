//! What is advised for a host's kernel, by what it says of itself.

use crate::change::{Candidate, Change, Class};
use crate::facts::Facts;
use std::collections::BTreeMap;

/// What the kernel may read beyond what was asked for, KiB: one of Cassandra's chunks. Rows lie
/// anywhere, so what is behind one is not asked for next, and takes memory from what is.
const READ_AHEAD_KIB: u64 = 16;

/// Maps a process may have: Cassandra maps each of its files, and refuses to go on where it may
/// not.
const MAPS: u64 = 1_048_575;

/// Files a process may be allowed to have open.
const OPEN_FILES: u64 = 1_048_576;

/// Connections that wait to be accepted: all clients come back at once after a restart.
const BACKLOG: u64 = 4_096;

/// What a connection may hold of what was not read yet, bytes: hints and streams between instances.
const SOCKET_BYTES: u64 = 16 << 20;

/// Seconds until a silent connection is asked whether it lives: firewalls forget it after some
/// minutes.
const KEEP_ALIVE_SECONDS: u64 = 60;

const PAGES: &str = "/sys/kernel/mm/transparent_hugepage";
const PROCESSORS: &str = "/sys/devices/system/cpu/cpu";

/// What a file is to say.
#[derive(Clone, Copy)]
enum Want {
    Is(&'static str),
    AtLeast(u64),
    AtMost(u64),
}

impl Want {
    /// What to write, unless it is so.
    fn unlike(self, present: &str) -> Option<String> {
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

/// What is worth a try on hosts. All that belongs to a class is tried on all of them at once.
#[must_use]
pub(crate) fn candidates(hosts: &[(String, Facts)]) -> Vec<Candidate> {
    let mut found: BTreeMap<Class, (Vec<Change>, Vec<String>)> = BTreeMap::new();
    for (host, facts) in hosts {
        for (class, path, value) in of(facts) {
            let present = facts.value(&path).unwrap_or_default();
            let (changes, told) = found.entry(class).or_default();
            told.push(format!("{} {present} -> {value}", short(&path)));
            changes.push(Change::Host { host: host.clone(), path, value });
        }
    }
    let candidate = |(class, (changes, mut told)): (Class, (Vec<Change>, Vec<String>))| {
        told.sort_unstable();
        told.dedup();
        let (present, what) = told
            .iter()
            .filter_map(|line| line.split_once(" -> "))
            .map(|(present, value)| {
                (present.to_owned(), format!("{} {value}", present.split(' ').next().unwrap_or("")))
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        Candidate {
            class,
            what: what.join(", "),
            present: present.join(", "),
            why: why(class),
            changes,
        }
    };
    found.into_iter().map(candidate).collect()
}

/// What a host is to be changed to: class, file, value.
fn of(facts: &Facts) -> Vec<(Class, String, String)> {
    let mut all = Vec::new();
    let mut want = |class, path: String, want: Want| {
        if let Some(value) = facts.value(&path).and_then(|present| want.unlike(present)) {
            all.push((class, path, value));
        }
    };
    for disk in &facts.disks {
        let of_disk = |file: &str| format!("/sys/block/{disk}/queue/{file}");
        want(Class::ReadAhead, of_disk("read_ahead_kb"), Want::AtMost(READ_AHEAD_KIB));
        let scheduler = of_disk("scheduler");
        // Disks that turn are left alone: so say all that are not real, whatever is below them.
        if facts.value(&of_disk("rotational")) == Some("0") && facts.offers(&scheduler, "none") {
            want(Class::Scheduler, scheduler, Want::Is("none"));
        }
    }
    want(Class::Memory, format!("{PAGES}/enabled"), Want::Is("madvise"));
    want(Class::Memory, format!("{PAGES}/defrag"), Want::Is("madvise"));
    let kernel = |name: &str| format!("/proc/sys/{name}");
    want(Class::Memory, kernel("vm/swappiness"), Want::AtMost(1));
    want(Class::Memory, kernel("vm/zone_reclaim_mode"), Want::Is("0"));
    want(Class::Limits, kernel("vm/max_map_count"), Want::AtLeast(MAPS));
    want(Class::Limits, kernel("fs/nr_open"), Want::AtLeast(OPEN_FILES));
    for number in 0..facts.cores {
        if facts.offers(
            &format!("{PROCESSORS}{number}/cpufreq/scaling_available_governors"),
            "performance",
        ) {
            want(
                Class::Governor,
                format!("{PROCESSORS}{number}/cpufreq/scaling_governor"),
                Want::Is("performance"),
            );
        }
    }
    want(Class::Network, kernel("net/core/somaxconn"), Want::AtLeast(BACKLOG));
    want(Class::Network, kernel("net/core/rmem_max"), Want::AtLeast(SOCKET_BYTES));
    want(Class::Network, kernel("net/core/wmem_max"), Want::AtLeast(SOCKET_BYTES));
    want(Class::Network, kernel("net/ipv4/tcp_slow_start_after_idle"), Want::Is("0"));
    want(Class::Network, kernel("net/ipv4/tcp_keepalive_time"), Want::AtMost(KEEP_ALIVE_SECONDS));
    for name in ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"] {
        all.extend(
            widened(facts, &kernel(name)).map(|value| (Class::Network, kernel(name), value)),
        );
    }
    all.extend(spread(facts));
    all
}

/// Least, usual and most of a connection's memory, with a most that is large enough.
fn widened(facts: &Facts, path: &str) -> Option<String> {
    let numbers: Vec<u64> =
        facts.value(path)?.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [least, usual, most] = numbers[..] else { return None };
    (most < SOCKET_BYTES).then(|| format!("{least} {usual} {SOCKET_BYTES}"))
}

/// Interrupts of a card that has several, all of which one core serves: each goes to a core of its
/// own.
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
            "rows lie anywhere: what is read beyond one is thrown away, and something else with it"
        }
        Class::Scheduler => "disks without moving parts sort requests themselves",
        Class::Memory => {
            "pages are joined where a program asks for it, and Java's heap stays in memory"
        }
        Class::Limits => "Cassandra maps and opens a file for each part of each table",
        Class::Governor => "a processor that sleeps deeply wakes late",
        Class::Interrupts => "a core that serves all of a card is full before the others",
        Class::Network => "connections that rest keep their window, and many come at once",
        _ => "",
    }
}

/// What a file is called for short.
fn short(path: &str) -> &str {
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        return name;
    }
    match path.strip_prefix("/sys/block/") {
        Some(rest) => rest,
        None => path.strip_prefix("/sys/kernel/mm/").unwrap_or(path),
    }
}
