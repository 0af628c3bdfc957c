//! The chapter about objects that expire.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sprat_client::{Batch, Client, Condition, Mode, Options, Table, Ttl};

use crate::ours::{SpratServer, TABLE, Transport};
use crate::promises::{Findings, Settings};
use crate::scenarios::VALUE_BYTES;
use crate::system::{Durability, Server, Setup};
use sprat_chance::Chance;
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::load::Workload;
use sprat_measure::load::keys::{Values, write_key};
use sprat_measure::{cpu, usage};

/// Time within which all objects expire, each at a random moment.
const WINDOW: Duration = Duration::from_secs(60);

/// Objects a second that are surely written, so that none expires before all are there.
const WRITTEN_A_SECOND: u64 = 150_000;

/// Time between the last write and the first expiry, in which reads are measured for comparison.
const CALM: Duration = Duration::from_secs(5);

/// Objects of a batch by which the table is filled.
const BATCH: u64 = 500;

/// Objects that do not expire, and are read all the time.
const KEPT: u64 = 100_000;

/// Log, hash table and index of an object, in bytes, at most: the memory to configure.
const OBJECT_BYTES: u64 = 250;

/// Rounds of writes with and without a time to live, and writes of each.
const WRITE_ROUNDS: usize = 20;
const WRITES: u64 = 2_000;

/// Share of the objects' log memory that is free when the memory counts as free again.
const FREE: f64 = 0.9;

/// The server's counter of free log memory.
const FREE_BYTES: &str = "memory_free_bytes";

/// How long to wait for the memory at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// When to look how much memory the process has given back to the system: after the last expiry.
const GIVEN_BACK: Duration = Duration::from_secs(10);

/// Fills a server with objects that expire within a minute, and measures reads of others meanwhile,
/// and how soon their memory is free again.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let objects = settings.objects;
    let workload = Workload::writes(objects, VALUE_BYTES);
    let setup = Setup {
        durability: Durability::Memory,
        memory_bytes: objects * OBJECT_BYTES + (1 << 30),
        ..settings.lab.setup.clone()
    };
    let sprat = settings.sprat(Transport::Udp, Mode::Spin);
    let permanent = {
        let server = sprat.launch(&setup)?;
        let mut bench = Bench::new(&server, &workload)?;
        let empty = usage::rss_bytes(server.pid())?;
        bench.fill(0..objects, |_| None)?;
        usage::rss_bytes(server.pid())?.saturating_sub(empty)
    };

    let server = sprat.launch(&setup)?;
    let mut bench = Bench::new(&server, &workload)?;
    let [plain, timed] = bench.compare_writes()?;
    let kept_objects = objects..objects + KEPT;
    bench.fill(kept_objects.clone(), |_| None)?;
    let kept = usage::rss_bytes(server.pid())?;
    let free_before = server.counter(FREE_BYTES)?;
    let first = Instant::now() + CALM + Duration::from_secs(1 + objects / WRITTEN_A_SECOND);
    let mut chance = Chance::new(1);
    bench.fill(0..objects, |now| {
        let after = first.saturating_duration_since(now) + WINDOW.mul_f64(chance.share());
        Ttl::of(after).ok()
    })?;
    let full = usage::rss_bytes(server.pid())?;
    let free_full = server.counter(FREE_BYTES)?;
    ensure!(Instant::now() + CALM <= first, "the objects were written too slowly");
    cpu::pause(first.saturating_duration_since(Instant::now()).saturating_sub(CALM));
    let calm = bench.read_until(kept_objects.clone(), first)?;
    let expiring = bench.read_until(kept_objects, first + WINDOW)?;
    let enough = free_full as f64 + FREE * free_before.saturating_sub(free_full) as f64;
    let over = Instant::now();
    while (server.counter(FREE_BYTES)? as f64) < enough && over.elapsed() < PATIENCE {
        cpu::pause(Duration::from_millis(20));
    }
    let free_after = over.elapsed();
    cpu::pause(GIVEN_BACK.saturating_sub(over.elapsed()));
    let given = full.saturating_sub(usage::rss_bytes(server.pid())?);
    let left = bench.objects()?.saturating_sub(KEPT);

    let us = |latencies: &Latencies, quantile| Some(latencies.quantile(quantile) as f64 / 1000.0);
    let millions = objects as f64 / 1e6;
    let row = format!("100 B read p99 while {millions} M objects expire in 60 s, vs before");
    findings.row(&row, us(&expiring, 0.99), us(&calm, 0.99), "us", Goal::RatioAtMost(1.5));
    findings.row("the same, p50", us(&expiring, 0.5), us(&calm, 0.5), "us", Goal::Shown);
    findings.row("the longest read", us(&expiring, 1.0), us(&calm, 1.0), "us", Goal::Shown);
    let seconds = (free_after < PATIENCE).then_some(free_after.as_secs_f64());
    let row = "time after the last expiry until nine tenths of their log memory are free";
    findings.row(row, seconds, None, "s", Goal::AtMost(10.0));
    let row = "objects left then that have expired";
    findings.row(row, Some(left as f64), None, "", Goal::AtMost(0.0));
    let row = "share of their RSS that the system has back 10 s after the last expiry";
    let share = 100.0 * given as f64 / full.saturating_sub(kept).max(1) as f64;
    findings.row(row, Some(share), None, "%", Goal::Shown);
    let each = |bytes: u64| bytes as f64 / objects as f64;
    let row = "RSS an object of 30 B + 100 B that expires, vs one that does not";
    let brief = full.saturating_sub(kept);
    findings.row(row, Some(each(brief)), Some(each(permanent)), "B", Goal::Shown);
    let row = "100 B write p50 with a time to live, vs without";
    findings.row(row, us(&timed, 0.5), us(&plain, 0.5), "us", Goal::Shown);
    Ok(())
}

/// A client that spins, and its table.
struct Bench {
    client: Client,
    table: Table,
    values: Values,
    key_bytes: usize,
}

impl Bench {
    fn new(server: &SpratServer, workload: &Workload) -> Result<Self> {
        let coordinator = server.coordinator().to_owned();
        let options = Options { coordinator, waiting: Mode::Spin, ..Options::default() };
        let mut client = Client::connect(&options)?;
        let table = client.create_table(TABLE)?;
        let values = Values::new(workload.value_bytes, workload.seed);
        Ok(Self { client, table, values, key_bytes: workload.key_bytes })
    }

    /// Writes objects in batches; `ttl` returns the time to live of one that is written now.
    fn fill(
        &mut self,
        numbers: Range<u64>,
        mut ttl: impl FnMut(Instant) -> Option<Ttl>,
    ) -> Result<()> {
        let mut keys = vec![vec![0; self.key_bytes]; usize::try_from(BATCH)?];
        for first in numbers.clone().step_by(usize::try_from(BATCH)?) {
            let numbers = first..(first + BATCH).min(numbers.end);
            numbers.clone().zip(&mut keys).for_each(|(number, key)| write_key(number, key));
            let mut batch = Batch::new();
            let now = Instant::now();
            for (number, key) in numbers.zip(&keys) {
                let value = self.values.of(number);
                match ttl(now) {
                    None => batch.put(self.table, key, value),
                    Some(ttl) => batch.put_for(self.table, key, value, ttl, Condition::None),
                };
            }
            for result in self.client.batch(&batch) {
                result?;
            }
        }
        Ok(())
    }

    /// Reads the objects that do not expire, in random order, until then.
    fn read_until(&mut self, kept: Range<u64>, until: Instant) -> Result<Latencies> {
        let mut latencies = Latencies::new();
        let mut key = vec![0; self.key_bytes];
        let mut chance = Chance::new(2);
        loop {
            let number = kept.start + chance.below(kept.end - kept.start);
            write_key(number, &mut key);
            let begun = Instant::now();
            if begun >= until {
                return Ok(latencies);
            }
            let object = self.client.get(self.table, &key)?;
            latencies.record(u64::try_from(begun.elapsed().as_nanos())?);
            ensure!(
                object.is_some_and(|object| object.value == self.values.of(number)),
                "an object that does not expire is missing or wrong"
            );
        }
    }

    /// Writes objects without and with a time to live, alternately; removes them again.
    fn compare_writes(&mut self) -> Result<[Latencies; 2]> {
        let mut found = [Latencies::new(), Latencies::new()];
        let mut key = vec![0; self.key_bytes];
        let ttl = Ttl::of(Duration::from_secs(3600))?;
        for round in 0..2 * WRITE_ROUNDS {
            for number in 0..WRITES {
                write_key(number, &mut key);
                let value = self.values.of(number);
                let begun = Instant::now();
                match round % 2 {
                    0 => self.client.put(self.table, &key, value)?,
                    _ => self.client.put_for(self.table, &key, value, ttl, Condition::None)?,
                };
                found[round % 2].record(u64::try_from(begun.elapsed().as_nanos())?);
            }
        }
        for number in 0..WRITES {
            write_key(number, &mut key);
            self.client.remove(self.table, &key)?;
        }
        Ok(found)
    }

    fn objects(&mut self) -> Result<u64> {
        Ok(self.client.table_stats(self.table)?.objects)
    }
}
