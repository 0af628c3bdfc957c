//! The chapter about backups: how long they take, and what clients notice of them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sprat_client::{Batch, Client, Mode, Options, Table};

use crate::ours::{SpratServer, TABLE, Transport};
use crate::promises::{Findings, Settings};
use crate::system::{Durability, Setup, own_folder};
use sprat_chance::Chance;
use sprat_measure::cpu;
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::load::keys::{Values, write_key};

/// The largest number of objects: 1 GB.
const OBJECTS: u64 = 1_000_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 1000;

/// Bytes of a key.
const KEY_BYTES: usize = 30;

/// Objects of a batch by which the table is filled.
const BATCH: u64 = 500;

/// Interval between two operations: 10,000 a second. One of [`READS`] is a write.
const INTERVAL: Duration = Duration::from_micros(100);
const READS: u64 = 10;

/// How long reads are measured without a backup.
const CALM: Duration = Duration::from_secs(10);

/// Fills a server with 1 GB of objects, and measures reads under load while it is backed up.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let objects = settings.objects.min(OBJECTS);
    let bytes = objects * VALUE_BYTES as u64;
    let setup = Setup {
        durability: Durability::Buffered,
        memory_bytes: 3 * bytes + (1 << 30),
        ..settings.lab.setup.clone()
    };
    let sprat = settings.sprat(Transport::Udp, Mode::Adaptive);
    let server = sprat.launch(&setup)?;
    let mut load = Load::new(&server, objects)?;
    load.fill()?;
    let folder = own_folder(&setup.data, "backups")?;
    let folder = folder.path().join("backups");
    let calm = load.run(CALM, || Ok(true))?;
    let (first, busy) = load.back_up(&server, &folder)?;
    let again = load.run(CALM, || Ok(true))?;
    let (second, less_busy) = load.back_up(&server, &folder)?;
    let restored = {
        let begun = Instant::now();
        let from = format!("{TABLE}=copy");
        let mut command = server.command(["restore", text(&folder)?, &from, "--quiet"]);
        ensure!(command.status()?.success(), "the table was not restored");
        begun.elapsed()
    };

    let us = |latencies: &Latencies, quantile| Some(latencies.quantile(quantile) as f64 / 1000.0);
    let row = "read p99 at 10 k op/s during the first backup, vs before";
    findings.row(row, us(&busy, 0.99), us(&calm, 0.99), "us", Goal::RatioAtMost(1.5));
    let row = "the same during the next backup";
    findings.row(row, us(&less_busy, 0.99), us(&again, 0.99), "us", Goal::RatioAtMost(1.5));
    findings.row("read p50 during the first", us(&busy, 0.5), us(&calm, 0.5), "us", Goal::Shown);
    findings.row("the longest read", us(&busy, 1.0), us(&calm, 1.0), "us", Goal::Shown);
    let gigabytes = bytes as f64 / 1e9;
    for (which, made) in [("first", &first), ("next", &second)] {
        let number = |name: &str| made[name].as_f64();
        let row = format!("time of the {which} backup of {gigabytes} GB");
        findings.row(&row, number("seconds"), None, "s", Goal::Shown);
        let copied = number("copied_bytes").map(|bytes| bytes / 1e6);
        findings.row("bytes that it copied", copied, None, "MB", Goal::Shown);
        let row = "answers were held back for";
        findings.row(row, number("held_ms"), None, "ms", Goal::Shown);
    }
    let rate = bytes as f64 / 1e6 / restored.as_secs_f64();
    findings.row("the table restored into the same server", Some(rate), None, "MB/s", Goal::Shown);
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

/// A client that reads and writes at a constant rate.
struct Load {
    client: Client,
    table: Table,
    values: Values,
    objects: u64,
    chance: Chance,
}

impl Load {
    fn new(server: &SpratServer, objects: u64) -> Result<Self> {
        let coordinator = server.coordinator().to_owned();
        let options = Options { coordinator, waiting: Mode::Adaptive, ..Options::default() };
        let mut client = Client::connect(&options)?;
        let table = client.create_table(TABLE)?;
        let values = Values::new(VALUE_BYTES, 1);
        Ok(Self { client, table, values, objects, chance: Chance::new(1) })
    }

    fn fill(&mut self) -> Result<()> {
        let mut keys = vec![vec![0; KEY_BYTES]; usize::try_from(BATCH)?];
        for first in (0..self.objects).step_by(usize::try_from(BATCH)?) {
            let numbers = first..(first + BATCH).min(self.objects);
            let mut batch = Batch::new();
            numbers.clone().zip(&mut keys).for_each(|(number, key)| write_key(number, key));
            for (number, key) in numbers.zip(&keys) {
                batch.put(self.table, key, self.values.of(number));
            }
            for result in self.client.batch(&batch) {
                result?;
            }
        }
        Ok(())
    }

    /// Reads and writes for at least `least`, and until `is_over`. Returns the latencies of reads,
    /// each counted from when it was due.
    fn run(
        &mut self,
        least: Duration,
        mut is_over: impl FnMut() -> Result<bool>,
    ) -> Result<Latencies> {
        let (begun, mut latencies) = (Instant::now(), Latencies::new());
        let mut key = vec![0; KEY_BYTES];
        for operation in 0_u32.. {
            let due = begun + INTERVAL * operation;
            cpu::pause(due.saturating_duration_since(Instant::now()));
            let number = self.chance.below(self.objects);
            write_key(number, &mut key);
            if self.chance.below(READS) == 0 {
                self.client.put(self.table, &key, self.values.of(number))?;
            } else {
                let object = self.client.get(self.table, &key)?;
                latencies.record(u64::try_from(due.elapsed().as_nanos())?);
                ensure!(object.is_some(), "an object is missing");
            }
            if operation % 1000 == 0 && begun.elapsed() >= least && is_over()? {
                break;
            }
        }
        Ok(latencies)
    }

    /// Backs the server up under load; returns what the command prints.
    fn back_up(
        &mut self,
        server: &SpratServer,
        folder: &Path,
    ) -> Result<(serde_json::Value, Latencies)> {
        let mut command = server.command(["backup", "create", text(folder)?, "--json"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn()?;
        let latencies = self.run(Duration::ZERO, || Ok(child.try_wait()?.is_some()))?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "the backup failed");
        Ok((serde_json::from_slice(&output.stdout)?, latencies))
    }
}
