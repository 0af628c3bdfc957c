//! The steady state: a long transfer's rate on a path after its windows have grown. Measured from
//! memory to memory, and from disk to disk.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, fadvise};
use serde_json::Value;
use sprat_lab::line::LineSettings as Line;

use super::transfer::{Client, Fetched, Server, Serving, folder, make, median};
use crate::lab::net::{Net, delayed, gigabits};
use crate::lab::stream::payload_share;
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Bytes of the file: with `--full`, and by default.
const BYTES_FULL: u64 = 4_000_000_000;
const BYTES: u64 = 1_000_000_000;

/// Rates of the path in Gb/s: with `--full`, and by default.
const RATES_FULL: &[f64] = &[1.0, 2.0, 5.0];
const RATES: &[f64] = &[1.0, 2.0];

/// Rate of the path between disks in Gb/s: with `--full`, and by default.
const DISK_RATE_FULL: f64 = 5.0;
const DISK_RATE: f64 = 2.0;

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Warm-up time, in which windows grow.
const GROWTH: Duration = Duration::from_secs(3);

/// Interval between two readings of the line's counters.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The steady state ends when this share of the bytes has passed the line.
const END: f64 = 0.97;

/// Goals. From memory to memory: the share of the path's rate in %. From disk to disk: the share of
/// the slower of path and disks, 0 to 1.
const OF_MEMORY: f64 = 90.0;
const OF_DISKS: f64 = 0.8;

/// Time for which the disks' rate is measured.
const DISK_TIME: Duration = Duration::from_secs(5);

/// A transfer to measure.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    rate: f64,
    v6: bool,
    server: Server,
    client: Client,
}

/// The result of one transfer.
#[derive(Clone, Copy, Debug)]
struct TransferResult {
    /// Payload rate in the steady state, in Gb/s.
    gbits: f64,
    fetched: Fetched,
}

/// A transfer with the results of all rounds.
type Rounds = (Transfer, Vec<TransferResult>);

/// Measures one stream from memory to memory.
pub(super) fn memory(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (bytes, rates) = if settings.full { (BYTES_FULL, RATES_FULL) } else { (BYTES, RATES) };
    let (_folder, notes) = folder(settings)?;
    let files = tempfile::tempdir_in("/dev/shm").context("a folder in memory")?;
    make(&files.path().join("file"), bytes)?;
    let ways = rates.iter().flat_map(|&rate| {
        let ours = |v6| Transfer { rate, v6, server: Server::Sprat, client: Client::Sprat };
        [
            ours(false),
            ours(true),
            Transfer { server: Server::Nginx, client: Client::Curl, ..ours(false) },
        ]
    });
    let mut results: Vec<Rounds> = ways.map(|way| (way, Vec::new())).collect();
    for _ in 0..settings.lab.rounds {
        for (way, moved) in &mut results {
            moved.push(way.run(settings, files.path(), &notes, Path::new("/dev/null"))?);
        }
    }
    findings.table(
        &format!("{}, memory to memory, 200 ms, one stream", figure::decimal_bytes(bytes as f64)),
        table(&results, bytes),
    );
    for (way, moved) in results.iter().filter(|(way, _)| way.client == Client::Sprat) {
        let curl = results
            .iter()
            .find(|(other, _)| other.rate == way.rate && other.client == Client::Curl);
        let share = |way: &Transfer, moved: &[TransferResult]| {
            gbits(moved).map(|gbits| gbits / way.most() * 100.0)
        };
        let peer = curl.and_then(|(way, moved)| share(way, moved));
        let name = format!(
            "memory to memory, {} Gb/s, 200 ms, {}: of the pipe, and curl",
            way.rate,
            way.family()
        );
        findings.row(&name, share(way, moved), peer, "%", Goal::AtLeast(OF_MEMORY));
    }
    findings.note(format!(
        "Of the pipe: payload from second {} to the last {:.0} %, of what full segments could \
         carry. curl writes to /dev/null, from nginx, with windows as large as ours.",
        GROWTH.as_secs(),
        (1.0 - END) * 100.0
    ));
    Ok(())
}

/// Measures one stream from disk to disk. Before each transfer, the file is dropped from the page
/// cache.
pub(super) fn disk(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (bytes, rate) =
        if settings.full { (BYTES_FULL, DISK_RATE_FULL) } else { (BYTES, DISK_RATE) };
    let (_folder, at) = folder(settings)?;
    let (file, to) = (at.join("file"), at.join("fetched"));
    make(&file, bytes)?;
    let ours = Transfer { rate, v6: false, server: Server::Sprat, client: Client::Sprat };
    let mut results: Vec<Rounds> = vec![
        (ours, Vec::new()),
        (Transfer { server: Server::Nginx, client: Client::Curl, ..ours }, Vec::new()),
    ];
    let mut disks = Vec::new();
    for _ in 0..settings.lab.rounds {
        disks.push(shared_disks(&at)?);
        for (way, moved) in &mut results {
            // Write out the data of earlier transfers, and drop the file from the page cache.
            rustix::fs::sync();
            fadvise(File::open(&file)?, 0, None, Advice::DontNeed)?;
            moved.push(way.run(settings, &at, &at, &to)?);
            std::fs::remove_file(&to)?;
        }
    }
    findings.table(
        &format!("{}, disk to disk, 200 ms, one stream", figure::decimal_bytes(bytes as f64)),
        table(&results, bytes),
    );
    let disks = median(disks);
    findings.row(
        "what fio reads and writes at a time on that disk, the less of both",
        disks,
        None,
        "Gb/s",
        Goal::Shown,
    );
    let most = disks.map(|disks| disks.min(ours.most()));
    let name = format!("disk to disk, {rate} Gb/s, 200 ms: vs the less of pipe and disks");
    findings.row(&name, gbits(&results[0].1), most, "Gb/s", Goal::RatioAtLeast(OF_DISKS));
    findings.row(&format!("{name}, by curl"), gbits(&results[1].1), most, "Gb/s", Goal::Shown);
    Ok(())
}

/// Renders the results of all transfers.
fn table(results: &[Rounds], bytes: u64) -> Table {
    let gigabytes = bytes as f64 / 1e9;
    let mut table = Table::new(&[
        "fetched by",
        "pipe, Gb/s",
        "over",
        "steady, Gb/s",
        "in all, s",
        "sender CPU s/GB",
        "receiver CPU s/GB",
    ]);
    for (way, moved) in results {
        let of = |what: fn(&TransferResult) -> f64| {
            median(moved.iter().map(what).collect()).map_or("-".to_owned(), figure::digits)
        };
        let per_gigabyte = |what: fn(&TransferResult) -> f64| {
            median(moved.iter().map(|moved| what(moved) / gigabytes).collect())
                .map_or("-".to_owned(), figure::digits)
        };
        table.row(vec![
            way.client.name(),
            way.rate.to_string(),
            way.family().to_owned(),
            of(|moved| moved.gbits),
            of(|moved| moved.fetched.seconds),
            per_gigabyte(|moved| moved.fetched.sender),
            per_gigabyte(|moved| moved.fetched.receiver),
        ]);
    }
    table
}

fn gbits(moved: &[TransferResult]) -> Option<f64> {
    median(moved.iter().map(|moved| moved.gbits).collect())
}

impl Transfer {
    fn family(&self) -> &'static str {
        if self.v6 { "IPv6" } else { "IPv4" }
    }

    /// Returns the greatest possible payload rate in Gb/s, that of full segments.
    fn most(&self) -> f64 {
        self.rate * payload_share(self.v6)
    }

    /// Transfers the file over a new path. The path's buffer has the size of the bandwidth-delay
    /// product.
    fn run(
        &self,
        settings: &Settings,
        files: &Path,
        notes: &Path,
        to: &Path,
    ) -> Result<TransferResult> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some megabytes"
        )]
        let buffer = (self.rate * 1e9 / 8.0 * ROUND_TRIP.as_secs_f64()) as u64;
        let there = Line { rate: gigabits(self.rate), buffer, ..delayed(ROUND_TRIP / 2) };
        let net = Net::pair(there, delayed(ROUND_TRIP / 2))?;
        let program = &settings.program;
        let serving = Serving::start(
            self.server,
            &net.hosts[0],
            net.address(0, self.v6),
            program,
            files,
            notes,
        )?;
        let bytes = std::fs::metadata(files.join("file"))?.len();
        let begun = Instant::now();
        let mut samples = Vec::new();
        let sample = || {
            samples.push((begun.elapsed(), net.line(1)?.counters.left.bytes));
            Ok(())
        };
        let fetched = serving.fetch_sampled(
            self.client,
            &net.hosts[1],
            "file",
            to,
            SAMPLE_INTERVAL,
            sample,
        )?;
        Ok(TransferResult {
            gbits: steady(&samples, bytes).context("it was over before windows had grown")?,
            fetched,
        })
    }
}

/// Returns the payload rate in Gb/s, between [`GROWTH`] and [`END`], of a transfer of `bytes`. The
/// bytes on the line include headers and retransmissions, which are assumed to be a constant share.
/// `None` if the transfer was too short.
fn steady(samples: &[(Duration, u64)], bytes: u64) -> Option<f64> {
    let all = samples.last()?.1;
    let counted =
        |sample: &&(Duration, u64)| sample.0 >= GROWTH && (sample.1 as f64) < all as f64 * END;
    let (first, last) = (samples.iter().find(counted)?, samples.iter().rfind(counted)?);
    let seconds = last.0.checked_sub(first.0).filter(|time| !time.is_zero())?.as_secs_f64();
    Some((last.1 - first.1) as f64 / all as f64 * bytes as f64 * 8e-9 / seconds)
}

/// Measures with fio how fast a folder's disk reads and writes at the same time, without the page
/// cache. Returns the lower of the two rates, in Gb/s.
fn shared_disks(folder: &Path) -> Result<f64> {
    let place = folder.display();
    let common = [
        "--direct=1",
        "--bs=1M",
        "--iodepth=8",
        "--ioengine=io_uring",
        "--time_based",
        "--size=1G",
        "--output-format=json",
    ];
    let mut command = Command::new("fio");
    command.args(common).arg(format!("--runtime={}", DISK_TIME.as_secs()));
    for (name, direction) in [("reads", "read"), ("writes", "write")] {
        command.args([
            format!("--name={name}"),
            format!("--rw={direction}"),
            format!("--filename={place}/fio-{name}"),
        ]);
    }
    let output = command.output().context("starting fio; scripts/setup installs it")?;
    for name in ["reads", "writes"] {
        // Fails if fio has not made the file.
        let _ = std::fs::remove_file(folder.join(format!("fio-{name}")));
    }
    ensure!(
        output.status.success(),
        "fio: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("what fio says")?;
    let rate = |job: usize, direction: &str| report["jobs"][job][direction]["bw_bytes"].as_f64();
    let (reads, writes) = rate(0, "read").zip(rate(1, "write")).context("fio tells no rates")?;
    Ok(reads.min(writes) * 8e-9)
}
