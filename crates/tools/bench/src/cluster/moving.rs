//! What clients notice when a tablet migrates to another server under load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sprat_client::{Client, Table, TableOptions};
use sprat_wire::tablet::Range;

use super::servers::{Cluster, Replicated};
use crate::ours::TABLE;
use crate::promises::{Findings, Settings};
use crate::scenarios::VALUE_BYTES;
use crate::system::{Durability, Server, Setup};
use sprat_measure::cpu;
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::load::keys::{Values, write_key};
use sprat_measure::load::{Workload, preload};
use sprat_measure::table;
use sprat_units::figure::{self, digits};

/// Replicas of each log.
const COPIES: usize = 2;

/// Bytes of an object in the log: its header, a key of 30 B, and a value of 100 B.
const OBJECT_BYTES: u64 = 149;

/// Bytes that migrate: by default, and with `--full`.
const BYTES: (u64, u64) = (256 << 20, 1 << 30);

/// Connections that fill the table.
const FILLERS: usize = 8;

/// Time for which reads are measured before each migration.
const CALM: Duration = Duration::from_secs(3);

/// Time between two writes while reads are measured.
const BETWEEN_WRITES: Duration = Duration::from_millis(1);

/// Interval at which to poll whether the migration is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time after which a migration fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Latencies of reads: without a migration, and during one.
#[derive(Default)]
struct Found {
    calm: Latencies,
    moving: Latencies,
}

/// Migrates the only tablet of a table from server to server. Meanwhile one client reads from the
/// table as fast as possible, and another client writes to it.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bytes = if settings.full { BYTES.1 } else { BYTES.0 };
    let memory_bytes = bytes * 5 / 2;
    let setup = Setup {
        core: None,
        durability: Durability::Buffered,
        memory_bytes,
        ..settings.lab.setup.clone()
    };
    let cluster = Replicated::new(settings.program.clone(), COPIES).launch(&setup)?;
    let workload = Workload::writes(bytes / OBJECT_BYTES, VALUE_BYTES);
    let mut client = cluster.client()?;
    client.create_table_with(TABLE, TableOptions::of(1))?;
    preload(cluster.connect(FILLERS)?.as_mut(), &workload)?;
    let (found, moves, over) =
        (Mutex::new(Found::default()), AtomicBool::new(false), AtomicBool::new(false));
    let (wrong, longest_write) = (AtomicU64::new(0), AtomicU64::new(0));
    let options = cluster.client_options();
    let seconds = std::thread::scope(|scope| {
        let reading = scope
            .spawn(|| read(Client::connect(&options)?, &workload, &found, &moves, &over, &wrong));
        let writing =
            scope.spawn(|| write(Client::connect(&options)?, &workload, &over, &longest_write));
        let outcome = rounds(&cluster, &mut client, settings.lab.rounds, &moves);
        over.store(true, Ordering::Relaxed);
        reading.join().expect("a client's thread does not panic")?;
        writing.join().expect("a client's thread does not panic")?;
        outcome
    })?;
    let Found { calm, moving } = found.into_inner().expect("nobody panicked");
    let us = |latencies: &Latencies, quantile| Some(latencies.quantile(quantile) as f64 / 1000.0);
    let row = "100 B read while its tablet moves, p99, vs when none does";
    findings.row(row, us(&moving, 0.99), us(&calm, 0.99), "us", Goal::RatioAtMost(2.0));
    findings.row("the same, p50", us(&moving, 0.5), us(&calm, 0.5), "us", Goal::Shown);
    findings.row("the longest read", us(&moving, 1.0), us(&calm, 1.0), "us", Goal::Shown);
    let longest = longest_write.into_inner() as f64 / 1000.0;
    findings.row(
        "the longest of a thousand writes a second",
        Some(longest),
        None,
        "us",
        Goal::Shown,
    );
    let wrong = Some(wrong.into_inner() as f64);
    findings.row("reads with an error, or of another value", wrong, None, "", Goal::AtMost(0.0));
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    let rate = sorted.get(sorted.len() / 2).map(|seconds| bytes as f64 / 1e6 / seconds);
    findings.row("moved a second, two replicas made of it", rate, None, "MB/s", Goal::Shown);
    let mut list = table::Table::new(&["move", "from the order until it is served elsewhere"]);
    for (number, seconds) in (1..).zip(&seconds) {
        list.row(vec![format!("{number}"), format!("{} s", digits(*seconds))]);
    }
    findings.table(&format!("{} that move", figure::bytes(bytes as f64)), list);
    Ok(())
}

/// Migrates the tablet `rounds` times, each time to another server. Returns the seconds that each
/// migration takes.
fn rounds(
    cluster: &Cluster,
    client: &mut Client,
    rounds: usize,
    moves: &AtomicBool,
) -> Result<Vec<f64>> {
    let mut seconds = Vec::new();
    let Table(id) = client.table(TABLE)?;
    for _ in 0..rounds {
        cpu::pause(CALM);
        let at = cluster.servers_seen_by(client, TABLE)?;
        let servers = client.list_servers()?;
        let is_its = |locator: &str| at.iter().any(|&at| cluster.locators()[at] == locator);
        let to =
            servers.iter().find(|server| !is_its(&server.locator)).context("another server")?;
        moves.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        client.move_tablet(Table(id), Range::ALL, to.id)?;
        while cluster.locators()[cluster.servers_seen_by(client, TABLE)?[0]] != to.locator {
            anyhow::ensure!(
                begun.elapsed() < PATIENCE,
                "the tablet has not moved within {PATIENCE:?}"
            );
            cpu::pause(POLL_INTERVAL);
        }
        seconds.push(begun.elapsed().as_secs_f64());
        moves.store(false, Ordering::Relaxed);
    }
    Ok(seconds)
}

/// Reads one object after another until the end.
fn read(
    mut client: Client,
    workload: &Workload,
    found: &Mutex<Found>,
    moves: &AtomicBool,
    over: &AtomicBool,
    wrong: &AtomicU64,
) -> Result<()> {
    let table = client.table(TABLE)?;
    let values = Values::new(workload.value_bytes, workload.seed);
    let mut key = vec![0; workload.key_bytes];
    for number in (0..).map(|turn: u64| turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % workload.keys) {
        if over.load(Ordering::Relaxed) {
            break;
        }
        write_key(number, &mut key);
        let during = moves.load(Ordering::Relaxed);
        let begun = Instant::now();
        let object = client.get(table, &key);
        let took = begun.elapsed();
        let is_right = object
            .is_ok_and(|object| object.is_some_and(|object| object.value == values.of(number)));
        wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        let mut found = found.lock().expect("nobody panicked");
        let latencies = if during { &mut found.moving } else { &mut found.calm };
        latencies.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// Rewrites one object after another with an unchanged value until the end. Records the time of the
/// slowest write, in ns.
fn write(
    mut client: Client,
    workload: &Workload,
    over: &AtomicBool,
    longest: &AtomicU64,
) -> Result<()> {
    let table = client.table(TABLE)?;
    let values = Values::new(workload.value_bytes, workload.seed);
    let mut key = vec![0; workload.key_bytes];
    for number in (0..).map(|turn: u64| turn.wrapping_mul(0xD1B5_4A32_D192_ED03) % workload.keys) {
        if over.load(Ordering::Relaxed) {
            break;
        }
        write_key(number, &mut key);
        let begun = Instant::now();
        client.put(table, &key, values.of(number)).context("a write while a tablet moves")?;
        longest.fetch_max(
            u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        cpu::pause(BETWEEN_WRITES);
    }
    Ok(())
}
