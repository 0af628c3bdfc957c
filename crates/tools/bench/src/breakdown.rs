//! Breaks the time of one operation down into five stages: client code, driver and network, server
//! code, driver and network, and client code.
//!
//! ```text
//! Co   client: from the call until its driver takes the request over
//! Uo   client's driver, network, server's driver
//! S    server: from its driver's receipt of the request until its driver takes the answer over
//! Ui   server's driver, network, client's driver
//! Ci   client: from its driver's receipt of the answer until the call returns
//! ```
//!
//! Only the sum of Uo and Ui is known, because the clocks of two machines differ.
//!
//! Client and server take a time stamp where a request enters or leaves their drivers; the server
//! reports the medians of its times as counters.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sprat_client::{Client, Mode};
use sprat_net::{Scale, stamp};

use crate::counts;
use crate::ours::Transport;
use crate::promises::{Chapter, Findings, Settings};
use crate::single::{Objects, OperationTimes, Single};
use sprat_measure::cpu::{Fifo, Pinned};
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::report::bars::{StackedBar, stacked};
use sprat_measure::table::Table;
use sprat_units::figure;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] =
    &[("memif", memif), ("virtio", virtio), ("fast+udp", udp), ("tcp", tcp)];

/// Object sizes in bytes.
pub(crate) const SIZES: [usize; 5] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20];

/// Approximate limit on the total bytes of the objects of one size. It limits the number of large
/// objects.
const SET_BYTES: usize = 16 << 20;

/// Limit on the objects of one size.
const MOST_KEYS: usize = 10_000;

/// Times of a 100 B read in the published system, in us: client, drivers and network, server,
/// total, and ping \[MMS\].
const PUBLISHED: [f64; 5] = [2.82, 8.35, 3.02, 14.19, 7.0];

/// A stage inside the server, with the names of two counters: the median of the stage's time, and
/// the mean number of hardware events in the stage.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    time: &'static str,
    pub(crate) events: &'static str,
}

/// The stages inside the server.
pub(crate) const INSIDE: [Stage; 4] = [
    Stage { name: "rpc", time: "request_rpc_p50_ns", events: "request_rpc_events_milli" },
    Stage { name: "parse", time: "request_parse_p50_ns", events: "request_parse_events_milli" },
    Stage {
        name: "look-up, append",
        time: "request_object_p50_ns",
        events: "request_object_events_milli",
    },
    Stage { name: "answer", time: "request_answer_p50_ns", events: "request_answer_events_milli" },
];

/// Returns the objects of one size.
pub(crate) fn objects(size: usize) -> Objects {
    Objects::new(size, (SET_BYTES / size).min(MOST_KEYS))
}

/// Medians of one kind of operation in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Stages {
    out: f64,
    server: f64,
    /// Stages inside the server, in the order of [`INSIDE`]. Each stage is measured on different
    /// requests, and its time includes one time stamp.
    inside: [f64; INSIDE.len()],
    back: f64,
    total: f64,
}

impl Stages {
    /// Returns the time in drivers and network in both directions: the total less the other stages.
    fn path(&self) -> f64 {
        (self.total - self.out - self.server - self.back).max(0.0)
    }
}

/// Measures the breakdown over memif, which is memory that both processes share.
///
/// # Errors
/// When the server cannot be started, gives a wrong answer, or gives no answer.
pub fn memif(settings: &Settings, findings: &mut Findings) -> Result<()> {
    over(Transport::Memif, settings, findings)
}

fn virtio(settings: &Settings, findings: &mut Findings) -> Result<()> {
    over(Transport::Virtio, settings, findings)
}

fn udp(settings: &Settings, findings: &mut Findings) -> Result<()> {
    over(Transport::Udp, settings, findings)
}

fn tcp(settings: &Settings, findings: &mut Findings) -> Result<()> {
    over(Transport::Tcp, settings, findings)
}

fn over(transport: Transport, settings: &Settings, findings: &mut Findings) -> Result<()> {
    let lab = settings.lab.undisturbed();
    let setup = lab.in_memory();
    let server = settings.sprat(transport, Mode::Spin).timed().launch(&setup)?;
    let single = Single::new(Client::connect(&server.client_options())?)?;
    let mut bench = Bench { single, scale: Scale::measure(), duration: lab.duration / 4 };
    let _pinned = Pinned::to(lab.client_core)?;
    let fifo = lab.client_fifo.map(Fifo::current_thread).transpose()?;
    let mut rows = Vec::new();
    for size in SIZES {
        let objects = objects(size);
        bench.single.fill(&objects)?;
        // Reads and writes alternate, so that a drift of the machine affects both equally.
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..lab.rounds {
            reads.push(bench.stages(&objects, false)?);
            writes.push(bench.stages(&objects, true)?);
        }
        rows.push((format!("{} read", figure::object_size(size)), median_round(reads)));
        rows.push((format!("{} write", figure::object_size(size)), median_round(writes)));
    }
    let ping = bench.ping()?;
    drop(fifo);
    drop(bench);
    drop(server);

    let word = transport.word();
    report(word, &rows, ping, findings);
    inside(word, &rows, findings);
    draw(word, &rows, ping, findings);
    let stamp = stamp_cost();
    let read = rows[0].1;
    let us = |ns: f64| Some(ns / 1000.0);
    let bypass = transport == Transport::Memif;
    let goal = |bound| if bypass { Goal::AtMost(bound) } else { Goal::Shown };
    let [client, _, server, ..] = PUBLISHED;
    let code = read.out + read.back + read.server;
    findings.row(
        &format!("100 B read, {word}: client and server code"),
        us(code),
        Some(client + server),
        "us",
        goal(0.6),
    );
    findings.row(
        &format!("100 B read, {word}: server code"),
        us(read.server),
        Some(server),
        "us",
        goal(0.25),
    );
    findings.row(
        &format!("100 B read, {word}: client code"),
        us(read.out + read.back),
        Some(client),
        "us",
        Goal::Shown,
    );
    findings.row(
        &format!("100 B read, {word}: in all"),
        us(read.total),
        ping.map(|ns| ns / 1000.0),
        "us",
        Goal::Shown,
    );
    findings.row(
        "one time stamp, of which each of these stages holds one",
        Some(stamp),
        None,
        "ns",
        Goal::Shown,
    );
    counts::count(transport, settings, &lab, findings)
}

fn report(word: &str, rows: &[(String, Stages)], ping: Option<f64>, findings: &mut Findings) {
    let mut table = Table::new(&[
        "",
        "Co",
        "Ci",
        "client",
        "driver + network",
        "server",
        "total",
        "total / ping",
    ]);
    for (name, stages) in rows {
        let Stages { out, server, back, total, .. } = *stages;
        let times = [out, back, out + back, stages.path(), server, total].map(figure::time);
        let ratio = ping.map_or_else(String::new, |ping| format!("{:.2}x", total / ping));
        table.row([vec![name.clone()], times.to_vec(), vec![ratio]].concat());
    }
    if let Some(ping) = ping {
        let (none, time) = (String::new, figure::time(ping));
        table.row(vec![
            "ping".to_owned(),
            none(),
            none(),
            none(),
            time.clone(),
            none(),
            time,
            "1.00x".to_owned(),
        ]);
    }
    let [client, path, server, total, ping] = PUBLISHED.map(|us| figure::time(us * 1000.0));
    let ratio = format!("{:.2}x", PUBLISHED[3] / PUBLISHED[4]);
    let none = String::new;
    table.row(vec![
        "100 B read [MMS]".to_owned(),
        none(),
        none(),
        client,
        path,
        server,
        total,
        ratio,
    ]);
    table.row(vec![
        "ping [MMS]".to_owned(),
        none(),
        none(),
        none(),
        ping.clone(),
        none(),
        ping,
        "1.00x".to_owned(),
    ]);
    findings.table(
        &format!(
            "Where the time goes over {word}: medians, one operation at a time, both spinning"
        ),
        table,
    );
}

/// Adds the table of the stages inside the server.
fn inside(word: &str, rows: &[(String, Stages)], findings: &mut Findings) {
    let names = INSIDE.map(|stage| stage.name);
    let mut table = Table::new(&[&[""], &names[..], &["S without their stamps"]].concat());
    for (name, stages) in rows {
        let times = stages.inside.iter().chain([&stages.server]).map(|&ns| figure::time(ns));
        table.row(std::iter::once(name.clone()).chain(times).collect());
    }
    findings
        .table(&format!("Inside the server over {word}: medians, each with one time stamp"), table);
}

/// Adds a drawing for each size, with bars for the read, the write, and the ping. Only the sum of
/// the times to and from the server is known, so the drawing shows each of the two as half of the
/// sum.
fn draw(word: &str, rows: &[(String, Stages)], ping: Option<f64>, findings: &mut Findings) {
    const KINDS: [&str; 7] = [
        "client code (Co, Ci)",
        "driver, network, driver (Uo, Ui: halves of their sum)",
        "ping",
        "server code (S): rpc",
        "S: parse",
        "S: look-up, append",
        "S: answer",
    ];
    let inside = (3..).zip(0..INSIDE.len());
    for (pair, size) in rows.chunks(2).zip(SIZES) {
        let bar = |(name, stages): &(String, Stages)| {
            let half = stages.path() / 2.0;
            // Scaled so that the stages add up to the server's time, which has no stamps in it.
            let scale = stages.server / stages.inside.iter().sum::<f64>().max(1.0);
            let mut parts = vec![(0, stages.out), (1, half)];
            parts.extend(inside.clone().map(|(kind, stage)| (kind, stages.inside[stage] * scale)));
            parts.extend([(1, half), (0, stages.back)]);
            StackedBar { name: name.clone(), parts }
        };
        let mut bars: Vec<StackedBar> = pair.iter().map(bar).collect();
        bars.extend(
            ping.map(|ping| StackedBar { name: "ping".to_owned(), parts: vec![(2, ping)] }),
        );
        let svg = stacked("median of its time", &KINDS, &bars, figure::short_time);
        findings.figure(&format!("{} over {word}", figure::object_size(size)), svg);
    }
}

/// Measures medians. Each measurement takes `duration`.
struct Bench {
    single: Single,
    scale: Scale,
    duration: Duration,
}

impl Bench {
    /// Measures the stages of reads or writes.
    fn stages(&mut self, objects: &Objects, write: bool) -> Result<Stages> {
        // Reading the counters resets the server's times.
        self.single.counters()?;
        let mut parts = [(); 3].map(|()| Latencies::new());
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < self.duration {
            number += 7919;
            let OperationTimes { out, back, total, .. } =
                self.single.operate_stamped(objects, number, write)?;
            parts
                .iter_mut()
                .zip([out, back, total])
                .for_each(|(times, ticks)| times.record_ticks(self.scale, ticks));
        }
        let counters = self.single.counters()?;
        let counter = |name| -> Result<f64> {
            Ok(counters.get(name).context("a server that is timed")? as f64)
        };
        let server = counter("request_p50_ns")?;
        let mut inside = [0.0; INSIDE.len()];
        for (median, stage) in inside.iter_mut().zip(INSIDE) {
            *median = counter(stage.time)?;
        }
        let [out, back, total] = parts.map(|times| times.quantile(0.5) as f64);
        Ok(Stages { out, server, inside, back, total })
    }

    /// Measures the median of the drivers' ping in ns. Returns `None` if the driver has no ping.
    fn ping(&mut self) -> Result<Option<f64>> {
        let mut times = Latencies::new();
        let start = Instant::now();
        for number in 0.. {
            if start.elapsed() >= self.duration {
                break;
            }
            let Some(ticks) = self.single.ping(number)? else { return Ok(None) };
            times.record_ticks(self.scale, ticks);
        }
        Ok((times.count() > 0).then(|| times.quantile(0.5) as f64))
    }
}

/// Returns the round with the median total.
fn median_round(mut rounds: Vec<Stages>) -> Stages {
    rounds.sort_by(|a, b| a.total.total_cmp(&b.total));
    rounds[rounds.len() / 2]
}

/// Measures the cost of one time stamp in ns.
fn stamp_cost() -> f64 {
    const STAMPS: u32 = 1_000_000;
    let start = Instant::now();
    let mut sum = 0_u64;
    for _ in 0..STAMPS {
        sum = sum.wrapping_add(stamp());
    }
    std::hint::black_box(sum);
    start.elapsed().as_nanos() as f64 / f64::from(STAMPS)
}
