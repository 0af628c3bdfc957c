//! The speed of recovering a dead server's data.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::servers::{Cluster, Replicated};
use crate::ours::TABLE;
use crate::promises::{Findings, Settings};
use crate::scenarios::VALUE_BYTES;
use crate::system::{Durability, Server, Setup};
use sprat_client::TableOptions;
use sprat_measure::goals::Goal;
use sprat_measure::load::keys::{Values, write_key};
use sprat_measure::load::{Workload, preload};
use sprat_measure::table::Table;
use sprat_units::figure::{self, digits};

/// Replicas of each log.
const COPIES: usize = 3;

/// Bytes of an object in the log: its header, a key of 30 B, and a value of 100 B.
const OBJECT_BYTES: u64 = 149;

/// Bytes of log to recover: by default, and with `--full`.
const BYTES: (u64, u64) = (256 << 20, 1 << 30);

/// Connections that fill the table.
const FILLERS: usize = 8;

/// Number of objects that are verified at the end, spread over the table.
const CHECKED_OBJECTS: u64 = 1000;

/// Number of reads, spread over the table, after which the table counts as readable. There are far
/// fewer recovery masters, so each of them has answered some of the reads.
const PARTS: u64 = 64;

/// The lease: the time after which the coordinator declares a silent server dead.
const LEASE_SECONDS: f64 = 0.4;

/// The result of recovering one server.
struct Recovery {
    objects: u64,
    bytes: u64,
    /// Seconds from the start of the recovery until the last object was durable, on the slowest
    /// recovery master.
    seconds: f64,
    /// CPU seconds that all recovery masters used to check and replay the log.
    replay: f64,
    /// CPU seconds that the other servers used from the kill until the table was readable: to read,
    /// sort, send and replay the log, and to write three new replicas.
    cpu: f64,
    /// Seconds from the kill until [`PARTS`] objects, spread over the table, had been read.
    readable: f64,
    lost: u64,
}

/// Kills a server that has a whole table. Each of the other servers recovers a part of the table.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bytes = if settings.full { BYTES.1 } else { BYTES.0 };
    let setup = Setup {
        core: None,
        durability: Durability::Buffered,
        memory_bytes: bytes * 5 / 2,
        ..settings.lab.setup.clone()
    };
    let mut rounds = Vec::new();
    for _ in 0..settings.lab.rounds {
        let mut cluster = Replicated::new(settings.program.clone(), COPIES).launch(&setup)?;
        rounds.push(death(&mut cluster, bytes / OBJECT_BYTES)?);
    }
    let median = |figure: &dyn Fn(&Recovery) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    let size = figure::bytes(bytes as f64);
    let objects = median(&|recovery| recovery.objects as f64 / recovery.replay);
    findings.row(
        "objects of 30 B + 100 B replayed a second of a core",
        objects,
        None,
        "1/s",
        Goal::AtLeast(1e6),
    );
    let mbytes = median(&|recovery| recovery.bytes as f64 / 1e6 / recovery.replay);
    findings.row("log replayed a second of a core", mbytes, None, "MB/s", Goal::AtLeast(300.0));
    let objects = median(&|recovery| recovery.objects as f64 / recovery.cpu);
    let name = "objects brought back a CPU second, backups and new replicas included";
    findings.row(name, objects, None, "1/s", Goal::Shown);
    let objects = median(&|recovery| recovery.objects as f64 / recovery.seconds);
    findings.row("objects a second, all servers on these cores", objects, None, "1/s", Goal::Shown);
    let rate = median(&|recovery| recovery.bytes as f64 / recovery.cpu);
    let readable = median(&|recovery| recovery.readable);
    let name = format!(
        "{size} of log: from SIGKILL until all of it is read from, lease of 0.4 s included"
    );
    findings.row(&name, readable, None, "s", Goal::AtMost(2.0 + LEASE_SECONDS));
    let lost = rounds.iter().map(|recovery| recovery.lost).max().map(|lost| lost as f64);
    findings.row(
        "acknowledged objects lost, of a thousand looked at",
        lost,
        None,
        "",
        Goal::AtMost(0.0),
    );
    let columns = [
        "objects",
        "log read",
        "order to durable",
        "CPU of the replay",
        "CPU of all",
        "SIGKILL to read",
        "lost",
    ];
    let mut table = Table::new(&columns);
    for Recovery { objects, bytes, seconds, replay, cpu, readable, lost } in &rounds {
        let time = |seconds: f64| format!("{} s", digits(seconds));
        let read = figure::bytes(*bytes as f64);
        let objects = objects.to_string();
        table.row(vec![
            objects,
            read,
            time(*seconds),
            time(*replay),
            time(*cpu),
            time(*readable),
            lost.to_string(),
        ]);
    }
    findings.table(
        &format!("{size} of a server's log brought back by the four others, all on this machine"),
        table,
    );
    if let Some(rate) = rate {
        findings.table(
            "What that makes of 64 GB, each server with one core for all of it",
            model(rate),
        );
    }
    Ok(())
}

/// Models the recovery of 64 GB by various numbers of servers. `rate` is the number of bytes that
/// all the work of a recovery handles per CPU second, as measured here.
fn model(rate: f64) -> Table {
    const LOST: f64 = 64e9;
    let mut table = Table::new(&["servers", "64 GB, and the lease"]);
    for servers in [1.0, 10.0, 60.0, 120.0] {
        table.row(vec![
            digits(servers),
            format!("{} s", digits(LEASE_SECONDS + LOST / servers / rate)),
        ]);
    }
    table
}

fn death(cluster: &mut Cluster, objects: u64) -> Result<Recovery> {
    let workload = Workload::writes(objects, VALUE_BYTES);
    cluster.client()?.create_table_with(TABLE, TableOptions::of(1))?;
    preload(cluster.connect(FILLERS)?.as_mut(), &workload)?;
    let mut client = cluster.client()?;
    let table = client.table(TABLE)?;
    let key_of = |number: u64| {
        let mut key = vec![0; workload.key_bytes];
        write_key(number, &mut key);
        key
    };
    ensure!(client.get(table, &key_of(0))?.is_some(), "the first object is there");
    let before = cluster.servers_of(TABLE)?;
    ensure!(before.len() == 1, "one server has all of it");
    let others: Vec<usize> =
        (0..cluster.locators().len()).filter(|server| !before.contains(server)).collect();
    let used = |cluster: &Cluster| -> Result<f64> {
        others.iter().map(|&server| cluster.cpu_seconds(server)).sum()
    };
    let already = used(cluster)?;
    let killed = Instant::now();
    cluster.kill(before[0]);
    for part in 0..PARTS {
        client.get(table, &key_of(part * (objects / PARTS))).context("a read after the death")?;
    }
    let readable = killed.elapsed().as_secs_f64();
    let cpu = used(cluster)? - already;
    let by = cluster.servers_of(TABLE)?;
    ensure!(!by.contains(&before[0]), "other servers have the table");
    let values = Values::new(workload.value_bytes, workload.seed);
    let mut lost = 0;
    for check in 0..CHECKED_OBJECTS {
        let number = check * (objects / CHECKED_OBJECTS);
        let found = client.get(table, &key_of(number))?;
        lost += u64::from(found.is_none_or(|object| object.value != values.of(number)));
    }
    let counters = |name| -> Result<Vec<u64>> {
        by.iter().map(|&server| cluster.counter(server, name)).collect()
    };
    let micros = counters("recovery_micros_total")?.into_iter().max().unwrap_or(0);
    let replay = Duration::from_micros(counters("recovery_cpu_micros_total")?.into_iter().sum());
    Ok(Recovery {
        objects: counters("recovered_objects_total")?.into_iter().sum(),
        bytes: counters("recovered_bytes_total")?.into_iter().sum(),
        seconds: Duration::from_micros(micros).as_secs_f64(),
        replay: replay.as_secs_f64(),
        cpu,
        readable,
        lost,
    })
}
