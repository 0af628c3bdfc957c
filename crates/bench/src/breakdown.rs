//! Where the time of one operation goes: client code, driver and network, server code, driver and network, client code.
//!
//! ```text
//! Co   from the call until the driver takes the request over
//! Uo   driver, network, driver                                 } known as a sum only: two
//! S    from the driver that brought it to the one that takes   } machines' clocks differ
//!      the answer over
//! Ui   driver, network, driver
//! Ci   from the driver that brought the answer to the caller
//! ```
//!
//! Client and server are stamped where a request passes into or out of their drivers; the server tells its median.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sprat_client::{Client, Condition, Mode};
use sprat_net::{Scale, ticks};
use sprat_wire::op::{Request, Status};

use crate::cpu::{Fifo, Pinned};
use crate::goals::Goal;
use crate::load::keys::write_key;
use crate::ours::{PING_BYTES, TABLE, Transport};
use crate::promises::{Chapter, Findings, Settings};
use crate::table::Table;
use crate::units;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[("memif", memif), ("virtio", virtio), ("fast+udp", udp), ("tcp", tcp)];

/// Sizes of objects, bytes.
const SIZES: [usize; 5] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20];

/// Bytes of a key.
const KEY_BYTES: usize = 30;

/// Bytes of all objects of a size, about: those of 1 MB are few.
const SET_BYTES: usize = 16 << 20;

/// Most objects of a size.
const MOST_KEYS: usize = 10_000;

/// Longest an operation may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// What a 100 B read of the published system spent, us: client, drivers and network, server, in all; and its ping [MMS].
const PUBLISHED: [f64; 5] = [2.82, 8.35, 3.02, 14.19, 7.0];

/// Medians of one kind of operation, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Stages {
    out: f64,
    server: f64,
    back: f64,
    total: f64,
}

impl Stages {
    /// Drivers and network, both ways: what is left.
    fn path(&self) -> f64 {
        (self.total - self.out - self.server - self.back).max(0.0)
    }
}

/// Over memory that both processes share.
///
/// # Errors
/// When the server cannot be started or breaks.
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
    let lab = settings.undisturbed();
    let setup = lab.in_memory();
    let server = settings.sprat(transport, Mode::Spin).timed().launch(&setup)?;
    let mut client = Client::connect(&server.client_options())?;
    let mut bench = Bench {
        table: client.create_table(TABLE)?.0,
        locator: client.list_servers()?.first().context("a server that has enlisted")?.locator.clone(),
        client: &mut client,
        scale: Scale::measure(),
        duration: lab.duration / 4,
    };
    let _pinned = Pinned::to(lab.client_core)?;
    let fifo = lab.client_fifo.map(Fifo::current_thread).transpose()?;
    let mut rows = Vec::new();
    for size in SIZES {
        let keys = (SET_BYTES / size).min(MOST_KEYS);
        bench.fill(size, keys)?;
        // Rounds in turns: what drifts on the machine meets reads and writes alike.
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..lab.rounds {
            reads.push(bench.stages(size, keys, false)?);
            writes.push(bench.stages(size, keys, true)?);
        }
        rows.push((format!("{} read", units::object_size(size)), middle(reads)));
        rows.push((format!("{} write", units::object_size(size)), middle(writes)));
    }
    let ping = bench.ping()?;
    drop(fifo);
    drop(client);
    drop(server);

    let word = transport.word();
    tell(word, &rows, ping, findings);
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
    findings.row(&format!("100 B read, {word}: server code"), us(read.server), Some(server), "us", goal(0.25));
    findings.row(
        &format!("100 B read, {word}: client code"),
        us(read.out + read.back),
        Some(client),
        "us",
        Goal::Shown,
    );
    findings.row(&format!("100 B read, {word}: in all"), us(read.total), ping.map(|ns| ns / 1000.0), "us", Goal::Shown);
    findings.row("one time stamp, of which each of these stages holds one", Some(stamp), None, "ns", Goal::Shown);
    Ok(())
}

fn tell(word: &str, rows: &[(String, Stages)], ping: Option<f64>, findings: &mut Findings) {
    let mut table = Table::new(&["", "Co", "Ci", "client", "driver + network", "server", "total", "total / ping"]);
    for (name, stages) in rows {
        let Stages { out, server, back, total } = *stages;
        let times = [out, back, out + back, stages.path(), server, total].map(units::time);
        let ratio = ping.map_or_else(String::new, |ping| format!("{:.2}x", total / ping));
        table.row([vec![name.clone()], times.to_vec(), vec![ratio]].concat());
    }
    if let Some(ping) = ping {
        let (none, time) = (String::new, units::time(ping));
        table.row(vec!["ping".to_owned(), none(), none(), none(), time.clone(), none(), time, "1.00x".to_owned()]);
    }
    let [client, path, server, total, ping] = PUBLISHED.map(|us| units::time(us * 1000.0));
    let ratio = format!("{:.2}x", PUBLISHED[3] / PUBLISHED[4]);
    let none = String::new;
    table.row(vec!["100 B read [MMS]".to_owned(), none(), none(), client, path, server, total, ratio]);
    table.row(vec!["ping [MMS]".to_owned(), none(), none(), none(), ping.clone(), none(), ping, "1.00x".to_owned()]);
    findings.table(&format!("Where the time goes over {word}: medians, one operation at a time, both spinning"), table);
}

struct Bench<'a> {
    client: &'a mut Client,
    table: u32,
    locator: String,
    scale: Scale,
    duration: Duration,
}

impl Bench<'_> {
    fn fill(&mut self, size: usize, keys: usize) -> Result<()> {
        let value = vec![0x5a; size];
        for number in 0..keys {
            self.operate(number, &value, true)?;
        }
        Ok(())
    }

    /// One operation: Co, Ci and the total, in ticks.
    fn operate(&mut self, number: usize, value: &[u8], write: bool) -> Result<[u64; 3]> {
        let mut key = [0; KEY_BYTES];
        write_key(number as u64, &mut key);
        // Objects of each size are others.
        key[0] = value.len().ilog2().to_le_bytes()[0] | 0x80;
        let (table, now) = (self.table, self.client.now());
        let core = self.client.core_mut();
        core.note_passing(table)?;
        let request = match write {
            true => Request::Write { table, key: &key, value, condition: Condition::None },
            false => Request::Read { table, key: &key },
        };
        let begun = ticks();
        core.submit(now, 0, &request, now + DEADLINE)?;
        core.flush();
        let mut ended = None;
        while ended.is_none() {
            core.poll(now, &mut |_, answer| {
                let bytes = if write { 0 } else { value.len() };
                let right = answer.is_ok_and(|answer| answer.status == Status::Ok && answer.body.len() == bytes);
                ended = Some((ticks(), right));
            })?;
            if begun.abs_diff(ticks()) > LOOK_AGAIN {
                break; // the clock has to go on for what is sent again
            }
        }
        let passed = core.passed(table)?;
        while ended.is_none() {
            let now = self.client.now();
            self.client.core_mut().poll(now, &mut |_, answer| ended = Some((ticks(), answer.is_ok())))?;
        }
        let (end, right) = ended.expect("the loops end with it");
        ensure!(right, "an operation of {} B was not answered as it should be", value.len());
        Ok([passed.left.saturating_sub(begun), end.saturating_sub(passed.came), end - begun])
    }

    /// Medians over a turn.
    fn stages(&mut self, size: usize, keys: usize, write: bool) -> Result<Stages> {
        let value = vec![0x5a; size];
        // Has the server forget the times of whatever was before.
        self.client.server_stats(&self.locator)?;
        let mut samples: [Vec<u64>; 3] = Default::default();
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < self.duration {
            number = (number + 7919) % keys;
            let found = self.operate(number, &value, write)?;
            samples.iter_mut().zip(found).for_each(|(samples, ticks)| samples.push(ticks));
        }
        let stats = self.client.server_stats(&self.locator)?;
        let server = stats.iter().find(|counter| counter.name == "request_p50_ns").context("a server that is timed")?;
        let [out, back, total] = samples.map(|mut samples| {
            samples.sort_unstable();
            self.scale.nanos(samples[samples.len() / 2])
        });
        Ok(Stages { out, back, total, server: server.value as f64 })
    }

    /// The median of the drivers' own round trip, ns; `None` for drivers without one.
    fn ping(&mut self) -> Result<Option<f64>> {
        let mut samples = Vec::new();
        let start = Instant::now();
        for number in 0.. {
            if start.elapsed() >= self.duration {
                break;
            }
            let (table, now) = (self.table, self.client.now());
            let core = self.client.core_mut();
            let begun = ticks();
            if core.ping(table, number, PING_BYTES).is_err() {
                return Ok(None);
            }
            while core.take_pong() != Some(number) {
                core.poll(now, &mut |_, _| {})?;
                ensure!(start.elapsed() < DEADLINE, "a ping was lost");
            }
            samples.push(ticks() - begun);
        }
        samples.sort_unstable();
        Ok(samples.get(samples.len() / 2).map(|&ticks| self.scale.nanos(ticks)))
    }
}

/// Ticks after which an answer is late, some milliseconds.
const LOOK_AGAIN: u64 = 10_000_000;

/// The median of the rounds, by their totals.
fn middle(mut rounds: Vec<Stages>) -> Stages {
    rounds.sort_by(|a, b| a.total.total_cmp(&b.total));
    rounds[rounds.len() / 2]
}

/// What one stamp costs, ns.
fn stamp_cost() -> f64 {
    const STAMPS: u32 = 1_000_000;
    let start = Instant::now();
    let mut sum = 0_u64;
    for _ in 0..STAMPS {
        sum = sum.wrapping_add(ticks());
    }
    std::hint::black_box(sum);
    start.elapsed().as_nanos() as f64 / f64::from(STAMPS)
}
