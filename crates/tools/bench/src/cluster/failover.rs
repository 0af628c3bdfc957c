//! What clients notice when a server dies under load: gaps, lost writes and repeated additions.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sprat_chance::Chance;
use sprat_client::{Client, Error, Table};

use super::servers::{Cluster, Replicated};
use crate::promises::{Findings, Settings};
use crate::system::{Durability, Setup};
use sprat_measure::cpu;
use sprat_measure::goals::Goal;
use sprat_measure::table;
use sprat_units::figure::digits;

/// Replicas of each log.
const COPIES: usize = 2;

/// Number of servers that are killed: by default, and with `--full`.
const DEATHS: (usize, usize) = (10, 100);

/// Number of clients. Each is a thread with one operation at a time.
const CLIENTS: u64 = 16;

/// Operations per second of all clients together.
const RATE: u64 = 10_000;

/// Number of keys of each client, and the number of these keys that are counters.
const KEYS: u64 = 200;
const SUMS: u64 = 50;

/// Time before each death, and from a death until the server is started again.
const BEFORE: Duration = Duration::from_millis(700);
const AFTER: Duration = Duration::from_millis(2500);

/// Memory of each server in bytes.
const MEMORY: u64 = 256 << 20;

/// The expected value of a key. Only one client changes the key.
#[derive(Clone, Copy, Default)]
struct Expected {
    value: Option<i64>,
    /// The value if the latest operation, which was not answered, was executed nevertheless.
    perhaps: Option<i64>,
}

/// The results of all clients so far.
#[derive(Default)]
struct Found {
    operations: u64,
    perhaps: u64,
    lost: u64,
    doubled: u64,
    /// The longest time since the last death in which one client completed no operation.
    gap: Duration,
}

/// Kills servers one after another while clients read, write and add at a fixed rate.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let deaths = if settings.full { DEATHS.1 } else { DEATHS.0 };
    let setup = Setup {
        core: None,
        durability: Durability::Buffered,
        memory_bytes: MEMORY,
        ..settings.lab.setup.clone()
    };
    let mut cluster = Replicated::new(settings.program.clone(), COPIES).launch(&setup)?;
    let mut client = cluster.client()?;
    let tables: Vec<String> =
        (0..cluster.locators().len()).map(|table| format!("bench-{table}")).collect();
    tables.iter().try_for_each(|table| client.create_table(table).map(drop))?;
    let (found, over) = (Mutex::new(Found::default()), AtomicBool::new(false));
    let options = cluster.client_options();
    let started = Instant::now();
    let gaps = std::thread::scope(|scope| {
        let workers = (0..CLIENTS).map(|number| {
            let (options, tables, found, over) = (&options, &tables, &found, &over);
            scope.spawn(move || work(Client::connect(options)?, tables, number, found, over))
        });
        let workers: Vec<_> = workers.collect();
        let gaps = kill(&mut cluster, deaths, &found);
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("a client's thread does not panic")?;
        }
        gaps
    })?;
    let found = found.into_inner().expect("nobody panicked");
    let rate = found.operations as f64 / started.elapsed().as_secs_f64();
    let (gaps, stalled) = gaps;
    let millis = |rank: usize| gaps.get(rank).map(|gap| gap.as_secs_f64() * 1000.0);
    let name = format!("longest time without an answer, {deaths} deaths, p50");
    findings.row(&name, millis(gaps.len() / 2), None, "ms", Goal::Shown);
    findings.row("the same, p99", millis(gaps.len() * 99 / 100), None, "ms", Goal::Shown);
    findings.row("acknowledged writes lost", Some(found.lost as f64), None, "", Goal::AtMost(0.0));
    findings.row(
        "additions that counted twice",
        Some(found.doubled as f64),
        None,
        "",
        Goal::AtMost(0.0),
    );
    findings.row(
        "operations that ended as perhaps",
        Some(found.perhaps as f64),
        None,
        "",
        Goal::Shown,
    );
    findings.row(
        "servers that stood still for longer than a lease",
        Some(stalled as f64),
        None,
        "",
        Goal::Shown,
    );
    let name = format!("operations a second of {RATE} asked for, deaths included");
    findings.row(&name, Some(rate), None, "op/s", Goal::Shown);
    let mut list = table::Table::new(&["death", "longest time without an answer"]);
    for (rank, gap) in (1..).zip(&gaps) {
        list.row(vec![format!("{rank}"), format!("{} ms", digits(gap.as_secs_f64() * 1000.0))]);
    }
    findings.table("Deaths, the least noticed first", list);
    Ok(())
}

/// Kills servers one after another, and starts each of them again. Returns the longest gap after
/// each death, in ascending order, and the number of servers that were declared dead without having
/// been killed.
fn kill(
    cluster: &mut Cluster,
    deaths: usize,
    found: &Mutex<Found>,
) -> Result<(Vec<Duration>, usize)> {
    let (mut gaps, mut stalled) = (Vec::new(), cluster.revive()?);
    let servers = cluster.locators().len();
    cpu::pause(BEFORE);
    for death in 0..deaths {
        found.lock().expect("nobody panicked").gap = Duration::ZERO;
        // Each server in turn, in an order in which neighbours do not follow each other.
        let victim = (death * 2 + death / servers) % servers;
        cluster.kill(victim);
        cpu::pause(AFTER);
        cluster.start(victim).with_context(|| format!("starting server {victim} again"))?;
        stalled += cluster.revive()?;
        cpu::pause(BEFORE);
        gaps.push(found.lock().expect("nobody panicked").gap);
    }
    gaps.sort_unstable();
    ensure!(!gaps.is_empty(), "at least one death");
    Ok((gaps, stalled))
}

/// Runs one client on its own keys until the end, then verifies all its keys.
fn work(
    mut client: Client,
    tables: &[String],
    number: u64,
    found: &Mutex<Found>,
    over: &AtomicBool,
) -> Result<()> {
    let tables: Vec<Table> =
        tables.iter().map(|table| client.table(table)).collect::<Result<_, Error>>()?;
    let mut expected: BTreeMap<u64, Expected> = BTreeMap::new();
    let mut chance = Chance::new(number);
    let rest = Duration::from_nanos(1_000_000_000 * CLIENTS / RATE);
    let (mut due, mut last) = (Instant::now(), Instant::now());
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if let Some(early) = due.checked_duration_since(now) {
            cpu::pause(early);
        }
        // Operations that could not start in time are skipped.
        due = (due + rest).max(now);
        let key = chance.below(KEYS);
        let name = [number, key].map(u64::to_le_bytes).concat();
        let table = tables[usize::try_from(key).expect("few") % tables.len()];
        let entry = expected.entry(key).or_default();
        let value = i64::from_le_bytes(chance.draw().to_le_bytes());
        let answered = if chance.one_in(2) {
            read(&mut client, table, &name, entry, found)
        } else if key < SUMS {
            add(&mut client, table, &name, entry, found)
        } else {
            write(&mut client, table, &name, value, entry)
        };
        let mut found = found.lock().expect("nobody panicked");
        match answered {
            Ok(()) => {
                found.operations += 1;
                found.gap = found.gap.max(last.elapsed());
                last = Instant::now();
            }
            Err(error) if error.is_indeterminate() => found.perhaps += 1,
            Err(Error::Timeout { .. } | Error::Recovering { .. }) => {} // not executed
            Err(error) => return Err(error.into()),
        }
    }
    for (key, mut entry) in expected {
        let name = [number, key].map(u64::to_le_bytes).concat();
        read(
            &mut client,
            tables[usize::try_from(key).expect("few") % tables.len()],
            &name,
            &mut entry,
            found,
        )?;
    }
    Ok(())
}

/// Reads a key and compares it with the expected value.
fn read(
    client: &mut Client,
    table: Table,
    name: &[u8],
    expected: &mut Expected,
    found: &Mutex<Found>,
) -> Result<(), Error> {
    let object = client.get(table, name)?;
    let value = object.and_then(|object| object.value.try_into().ok().map(i64::from_le_bytes));
    if value != expected.value {
        if value.is_some() && value == expected.perhaps {
            *expected = Expected { value, perhaps: None };
        } else {
            found.lock().expect("nobody panicked").lost += 1;
            expected.value = value;
        }
    }
    Ok(())
}

fn write(
    client: &mut Client,
    table: Table,
    name: &[u8],
    value: i64,
    expected: &mut Expected,
) -> Result<(), Error> {
    match client.put(table, name, &value.to_le_bytes()) {
        Ok(_) => *expected = Expected { value: Some(value), perhaps: None },
        Err(error) => {
            expected.perhaps = error.is_indeterminate().then_some(value).or(expected.perhaps);
            return Err(error);
        }
    }
    Ok(())
}

/// Adds one to a counter and compares the sum with the expected value.
fn add(
    client: &mut Client,
    table: Table,
    name: &[u8],
    expected: &mut Expected,
    found: &Mutex<Found>,
) -> Result<(), Error> {
    let before = expected.value.unwrap_or(0);
    match client.increment_i64(table, name, 1) {
        Ok((sum, _)) => {
            let most = expected.perhaps.unwrap_or(before).max(before) + 1;
            let mut found = found.lock().expect("nobody panicked");
            found.doubled += u64::from(sum > most);
            found.lost += u64::from(sum <= before);
            *expected = Expected { value: Some(sum), perhaps: None };
        }
        Err(error) => {
            if error.is_indeterminate() {
                expected.perhaps = Some(expected.perhaps.unwrap_or(before) + 1);
            }
            return Err(error);
        }
    }
    Ok(())
}
