//! The chapter about backups: how long they take, and what clients notice of them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sprat_client::{Client, Mode, Options};

use crate::ours::{SpratServer, TABLE, Transport};
use crate::promises::{Findings, Settings};
use crate::system::{Durability, Server as _, Setup, own_folder};
use sprat_measure::cpu;
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::load::keys::{Chooser, KeyDistribution, Values, write_key};
use sprat_measure::load::{Arrivals, LoadPlan, Pace, Workload, preload, run};
use sprat_measure::target::{LoadTarget, Wait};

/// The largest number of objects: 1 GB.
const OBJECTS: u64 = 1_000_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 1000;

/// Reads a second, and the interval between two writes: 10,000 operations a second.
const READS: f64 = 9_000.0;
const WRITE_INTERVAL: Duration = Duration::from_millis(1);

/// Reads in flight, at most. Reads begin at their times, whether or not earlier ones have ended, so
/// that a late answer does not delay others.
const DEPTH: usize = 256;

/// How often the end of a backup is noticed.
const SLICE: Duration = Duration::from_millis(500);

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
    let mut target = server.connect(1)?;
    let workload = Workload::reads(objects, VALUE_BYTES);
    preload(target.as_mut(), &workload)?;
    let folder = own_folder(&setup.data, "backups")?;
    let folder = folder.path().join("backups");
    let ends = AtomicBool::new(false);
    let (calm, (first, busy), again, (second, less_busy)) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&server, &workload, &ends));
        let mut load = Load { server: &server, target: target.as_mut(), workload: &workload };
        let measured = load.measure(&folder);
        ends.store(true, Ordering::Release);
        writer.join().expect("the writer does not panic")?;
        measured
    })?;
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

/// Writes random objects at a constant rate until `ends` is set.
fn write(server: &SpratServer, workload: &Workload, ends: &AtomicBool) -> Result<()> {
    let options = Options {
        coordinator: server.coordinator().to_owned(),
        waiting: Mode::Sleep,
        ..Options::default()
    };
    let mut client = Client::connect(&options)?;
    let table = client.table(TABLE)?;
    let values = Values::new(workload.value_bytes, workload.seed);
    let mut numbers = Chooser::new(KeyDistribution::Uniform, workload.keys, workload.seed + 1);
    let mut key = vec![0; workload.key_bytes];
    let mut due = Instant::now();
    while !ends.load(Ordering::Acquire) {
        cpu::pause(due.saturating_duration_since(Instant::now()));
        due += WRITE_INTERVAL;
        let number = numbers.draw();
        write_key(number, &mut key);
        client.put(table, &key, values.of(number))?;
    }
    Ok(())
}

/// Reads at a constant rate.
struct Load<'a> {
    server: &'a SpratServer,
    target: &'a mut dyn LoadTarget,
    workload: &'a Workload,
}

/// A backup as the command describes it, and the latencies of reads meanwhile.
type Backup = (serde_json::Value, Latencies);

impl Load<'_> {
    /// Measures reads twice without a backup and then during one.
    fn measure(&mut self, folder: &Path) -> Result<(Latencies, Backup, Latencies, Backup)> {
        Ok((self.rest()?, self.back_up(folder)?, self.rest()?, self.back_up(folder)?))
    }

    fn rest(&mut self) -> Result<Latencies> {
        let begun = Instant::now();
        self.read(|| Ok(begun.elapsed() >= CALM))
    }

    fn back_up(&mut self, folder: &Path) -> Result<Backup> {
        let mut command = self.server.command(["backup", "create", text(folder)?, "--json"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn()?;
        let latencies = self.read(|| Ok(child.try_wait()?.is_some()))?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "the backup failed");
        Ok((serde_json::from_slice(&output.stdout)?, latencies))
    }

    /// Reads until `is_over`. Returns the latencies, each counted from when the read was due.
    fn read(&mut self, mut is_over: impl FnMut() -> Result<bool>) -> Result<Latencies> {
        let mut latencies = Latencies::new();
        let mut plan = LoadPlan {
            depth: DEPTH,
            pace: Pace::Open { rate: READS, arrivals: Arrivals::Poisson },
            warm_up: Duration::ZERO,
            duration: SLICE,
            ..LoadPlan::one_client(self.workload.clone(), Wait::Sleep)
        };
        loop {
            plan.workload.seed += 1;
            let measured = run(self.target, &plan)?;
            ensure!(measured.failures() == 0, "{} reads failed", measured.failures());
            latencies.merge(&measured.latencies);
            if is_over()? {
                return Ok(latencies);
            }
        }
    }
}
