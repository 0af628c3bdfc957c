//! The cost of replicas for a write.

use anyhow::Result;

use super::servers::Replicated;
use crate::promises::{Findings, Settings, rate, us};
use crate::scenarios::{self, Lab};
use crate::system::{Durability, RedisReplicas, Setup, System};
use sprat_measure::goals::Goal;

/// Replicas of each log.
const COPIES: usize = 3;

/// Memory of each of our five servers, in bytes. Six Redis servers run at the same time.
const MEMORY: u64 = 512 << 20;

/// Measures reads and writes with one client and with fifty, all of them sleeping. A write reaches
/// the memory of three other servers before it is acknowledged.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let ours = Replicated::new(settings.program.clone(), COPIES);
    let (one, three) = (RedisReplicas { replicas: 1 }, RedisReplicas { replicas: 3 });
    let systems: [&dyn System; 3] = [&ours, &one, &three];
    // There are more processes than cores, so none is pinned.
    let setup = Setup { core: None, memory_bytes: MEMORY, ..settings.lab.setup.clone() };
    let lab = Lab { setup, client_core: None, keys: 10_000, ..settings.lab.clone() };
    let alone = scenarios::reads_and_writes(&lab, &systems, Durability::Buffered, 1)?;
    let many = scenarios::reads_and_writes(&lab, &systems, Durability::Buffered, 50)?;
    let read = |name: &str| us(&alone, &format!("{name} reads"), 0.5);
    let write = |name: &str| us(&alone, &format!("{name} writes"), 0.5);
    let (write_ours, read_ours) = (write(ours.name()), read(ours.name()));
    findings.row(
        "100 B write p50, -r 3 buffered, vs its read",
        write_ours,
        read_ours,
        "us",
        Goal::RatioAtMost(2.5),
    );
    let set = write(one.name());
    findings.row(
        "the same vs Redis SET + WAIT 1, one replica",
        write_ours,
        set,
        "us",
        Goal::RatioAtMost(0.5),
    );
    let set = write(three.name());
    findings.row(
        "the same vs Redis SET + WAIT 3, three replicas",
        write_ours,
        set,
        "us",
        Goal::Shown,
    );
    findings.row(
        "100 B read p50, sleeping, vs Redis GET",
        read_ours,
        read(one.name()),
        "us",
        Goal::Shown,
    );
    let p99 = |name: &str| us(&alone, &format!("{name} writes"), 0.99);
    findings.row(
        "100 B write p99 vs Redis SET + WAIT 1",
        p99(ours.name()),
        p99(one.name()),
        "us",
        Goal::Shown,
    );
    let writes = |name: &str| rate(&many, &format!("{name} writes"));
    for (name, peer) in
        [("writes, 50 connections, vs Redis SET + WAIT 1", &one), ("vs Redis SET + WAIT 3", &three)]
    {
        findings.row(name, writes(ours.name()), writes(peer.name()), "op/s", Goal::Shown);
    }
    findings.results(alone);
    findings.results(many);
    Ok(())
}
