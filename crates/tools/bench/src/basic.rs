//! The basic latency table: one client reads and writes objects of 100 B to 1 MB with keys of 30 B.
//! The output shows the results next to the figures that \[MMS\] published ("RAMCloud on Micro
//! Modular Server with ATOM C2000", May 2014).

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use sprat_measure::hist::Summary;
use sprat_measure::load::{
    Entry, LoadPlan, Pace, PeriodAverages, Series, Workload, interleave, preload, preload_range,
};
use sprat_measure::table::Table;
use sprat_measure::target::{LoadTarget, Wait};
use sprat_units::figure;

/// Object sizes in bytes: decimal, as in \[MMS\].
pub const SIZES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

/// Limit on the total bytes of the values of one size.
const WORKING_SET: usize = 64_000_000;

/// Limit on the keys of one size. Fewer keys are used if their values would exceed [`WORKING_SET`].
const MAX_KEYS: usize = 10_000;

/// Limit on the operations that one client of an open loop has in flight.
const OPEN_DEPTH: usize = 64;

/// Read or write.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    /// Read.
    Read,
    /// Write.
    Write,
}

/// A line of \[MMS\]'s table. Times are in us. Bandwidths are in the source's "MB/s", which are
/// MiB/s: 100 B in 13.8 us are 6.9 MiB/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Read or write.
    pub kind: OpKind,
    /// Bytes of the object.
    pub bytes: usize,
    /// Atom server with a store-and-forward switch in the path: mean of the averages over 100 ms.
    pub atom_avg: f64,
    /// The smallest of these averages.
    pub atom_min: f64,
    /// The greatest of these averages.
    pub atom_max: f64,
    /// Bandwidth of the Atom server.
    pub atom_bandwidth: f64,
    /// The Atom server with its switch in cut-through mode: average.
    pub cut_avg: f64,
    /// Xeon server with 32 Gb/s InfiniBand (and backups for writes): average.
    pub xeon_avg: f64,
    /// Bandwidth of the Xeon server.
    pub xeon_bandwidth: f64,
}

const fn line(
    kind: OpKind,
    bytes: usize,
    atom: [f64; 4],
    cut_avg: f64,
    xeon: [f64; 2],
) -> Published {
    Published {
        kind,
        bytes,
        atom_avg: atom[0],
        atom_min: atom[1],
        atom_max: atom[2],
        atom_bandwidth: atom[3],
        cut_avg,
        xeon_avg: xeon[0],
        xeon_bandwidth: xeon[1],
    }
}

/// The figures that \[MMS\] published: reads, then writes, by size.
pub const PUBLISHED: [Published; 10] = [
    line(OpKind::Read, 100, [13.8, 13.3, 32.7, 6.9], 13.8, [5.1, 18.7]),
    line(OpKind::Read, 1_000, [20.7, 20.0, 37.7, 46.1], 17.9, [6.9, 137.6]),
    line(OpKind::Read, 10_000, [52.8, 52.1, 68.6, 180.8], 48.6, [10.4, 914.1]),
    line(OpKind::Read, 100_000, [373.2, 371.3, 379.0, 255.5], 369.0, [47.2, 2_048.0]),
    line(OpKind::Read, 1_000_000, [3_900.0, 3_800.0, 3_900.0, 247.2], 3_800.0, [420.8, 2_252.8]),
    line(OpKind::Write, 100, [18.2, 17.4, 43.6, 5.2], 18.1, [15.7, 6.1]),
    line(OpKind::Write, 1_000, [25.6, 24.7, 64.1, 37.2], 22.7, [19.9, 48.0]),
    line(OpKind::Write, 10_000, [64.2, 62.5, 95.5, 148.6], 60.1, [38.5, 247.7]),
    line(OpKind::Write, 100_000, [431.4, 423.2, 463.0, 221.0], 428.3, [235.3, 405.3]),
    line(OpKind::Write, 1_000_000, [4_700.0, 4_600.0, 4_800.0, 204.6], 4_600.0, [2_200.0, 436.0]),
];

/// How the table is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the clients spin or sleep.
    pub wait: Wait,
    /// Number of clients, each with its own connection. One generator thread drives all clients.
    pub clients: usize,
    /// Operations that each client keeps in flight in a closed load; with 1, it waits for every
    /// answer. In an open load, each client has up to 64 operations in flight.
    pub depth: usize,
    /// Whether clients send the next operation after an answer (closed) or at given times (open).
    pub pace: Pace,
    /// Warm-up time before each measurement. Its operations do not count.
    pub warm_up: Duration,
    /// Duration of each measurement.
    pub duration: Duration,
    /// Number of measurements of each line of the table, for each target.
    pub rounds: usize,
    /// Object sizes in bytes.
    pub sizes: Vec<usize>,
    /// Number of keys of each size. `None`: 10,000, or fewer if their values exceed 64 MB.
    pub keys: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Wait::Spin,
            clients: 1,
            depth: 1,
            pace: Pace::Closed,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(1),
            rounds: 3,
            sizes: SIZES.to_vec(),
            keys: None,
        }
    }
}

/// The measured table of one target.
#[derive(Clone, Debug, Serialize)]
pub struct Basic {
    /// The target's name.
    pub target: String,
    /// The transport to the target.
    pub transport: String,
    /// Whether the clients spun or slept.
    pub wait: Wait,
    /// Number of clients.
    pub clients: usize,
    /// Operations that each client kept in flight, in a closed load.
    pub depth: usize,
    /// Whether clients sent operations after answers or at given times.
    pub pace: Pace,
    /// The lines: reads, then writes, by size.
    pub rows: Vec<Cell>,
}

/// One line of the table, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Read or write.
    pub kind: OpKind,
    /// Bytes of the object.
    pub bytes: usize,
    /// Averages over periods of 100 ms, in ns: the median of the rounds' means, the best period,
    /// and the worst period.
    pub periods: PeriodAverages,
    /// Quantiles in ns.
    pub latency: Summary,
    /// Operations per second, median of the rounds.
    pub ops_per_second: f64,
    /// Bytes of values per second, median of the rounds.
    pub bytes_per_second: f64,
    /// Operations that failed.
    pub failures: u64,
    /// The published figures for this line, if any.
    pub published: Option<Published>,
}

/// Measures the table of each target. For every kind and size the targets alternate, `rounds`
/// times, so that changes of the machine affect all targets. Calls `progress` with a description of
/// each measurement before it begins.
///
/// # Errors
/// When a target's connection breaks, or the target's memory is too small for the objects of a
/// size.
pub fn measure(
    targets: &mut [Box<dyn LoadTarget>],
    settings: &Settings,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Basic>> {
    let mut tables: Vec<Basic> = targets
        .iter()
        .map(|target| Basic {
            target: target.name().to_owned(),
            transport: target.transport().to_owned(),
            wait: settings.wait,
            clients: settings.clients,
            depth: settings.depth,
            pace: settings.pace,
            rows: Vec::new(),
        })
        .collect();
    let mut held = 0;
    for kind in [OpKind::Read, OpKind::Write] {
        for &bytes in &settings.sizes {
            progress(&format!("{} {}", figure::object_size(bytes), kind.word()));
            let keys =
                settings.keys.unwrap_or((WORKING_SET / bytes.max(1)).clamp(1, MAX_KEYS) as u64);
            // Objects of earlier sizes that this size does not overwrite would take memory in
            // addition, so they are overwritten with small values.
            for target in targets.iter_mut().filter(|_| keys < held) {
                target.set_active(true);
                preload_range(target.as_mut(), &Workload::writes(held, 0), keys..held)?;
                target.set_active(false);
            }
            held = keys;
            for (table, series) in
                tables.iter_mut().zip(measure_cell(targets, settings, (kind, bytes), keys)?)
            {
                table.rows.push(Cell::new(kind, bytes, &series));
            }
        }
    }
    Ok(tables)
}

fn measure_cell(
    targets: &mut [Box<dyn LoadTarget>],
    settings: &Settings,
    (kind, bytes): (OpKind, usize),
    keys: u64,
) -> Result<Vec<Series>> {
    let workload = match kind {
        OpKind::Read => Workload::reads(keys, bytes),
        OpKind::Write => Workload::writes(keys, bytes),
    };
    let mut entries = Vec::with_capacity(targets.len());
    for target in targets {
        target.set_active(true);
        preload(target.as_mut(), &workload)?;
        target.set_active(false);
        let plan = LoadPlan {
            clients: settings.clients,
            depth: if settings.pace == Pace::Closed { settings.depth } else { OPEN_DEPTH },
            pace: settings.pace,
            warm_up: settings.warm_up,
            duration: settings.duration,
            ..LoadPlan::one_client(workload.clone(), settings.wait)
        };
        entries.push(Entry { label: target.name().to_owned(), target: target.as_mut(), plan });
    }
    interleave(&mut entries, settings.rounds)
}

impl OpKind {
    /// Returns `read` or `write`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Cell {
    fn new(kind: OpKind, bytes: usize, series: &Series) -> Self {
        let rounds = series.rounds.iter().map(|round| round.period_averages());
        let periods = PeriodAverages {
            avg: series.median(|round| round.period_averages().avg),
            min: rounds.clone().map(|averages| averages.min).fold(f64::INFINITY, f64::min),
            max: rounds.map(|averages| averages.max).fold(0.0, f64::max),
        };
        Self {
            kind,
            bytes,
            periods,
            latency: series.latencies().summary(),
            ops_per_second: series.ops_per_second(),
            bytes_per_second: series.median(|round| round.bytes_per_second()),
            failures: series.failures(),
            published: PUBLISHED.into_iter().find(|line| line.kind == kind && line.bytes == bytes),
        }
    }
}

impl Basic {
    /// Renders the table's cells.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&[
            "operation",
            "avg",
            "min",
            "max",
            "p50",
            "p99",
            "p99.9",
            "bandwidth",
            "ops",
            "errors",
            "Atom avg",
            "min",
            "max",
            "bandwidth",
            "Cut avg",
            "Xeon+IB avg",
            "bandwidth",
        ]);
        let us = |value: f64| figure::time(value * 1000.0);
        let mib = |value: f64| figure::bandwidth(value * figure::MIB);
        for cell in &self.rows {
            let mut cells = vec![
                format!("{} {}", figure::object_size(cell.bytes), cell.kind.word()),
                figure::time(cell.periods.avg),
                figure::time(cell.periods.min),
                figure::time(cell.periods.max),
                figure::time(cell.latency.p50 as f64),
                figure::time(cell.latency.p99 as f64),
                figure::time(cell.latency.p999 as f64),
                figure::bandwidth(cell.bytes_per_second),
                figure::rate(cell.ops_per_second),
                cell.failures.to_string(),
            ];
            match &cell.published {
                Some(line) => cells.extend([
                    us(line.atom_avg),
                    us(line.atom_min),
                    us(line.atom_max),
                    mib(line.atom_bandwidth),
                    us(line.cut_avg),
                    us(line.xeon_avg),
                    mib(line.xeon_bandwidth),
                ]),
                None => cells.extend(std::iter::repeat_n("-".to_owned(), 7)),
            }
            table.row(cells);
        }
        table
    }

    /// Renders the table with a title and a line about the published figures.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        let waiting = self.wait.word();
        let Self { target, transport, clients, .. } = self;
        let plural = if *clients == 1 { "" } else { "s" };
        let pace = match self.pace {
            Pace::Closed if self.depth > 1 => format!(", {} in flight", self.depth),
            Pace::Closed => String::new(),
            Pace::Open { rate, .. } => format!(", {} offered", figure::rate(rate)),
        };
        let written = write!(
            text,
            "{target} over {transport}, {clients} {waiting} client{plural}{pace}, 30 B keys; avg, \
             min, max of 100 ms periods\n\n{}\n\
             Atom, Cut, Xeon+IB: [MMS], other machines and a real network; its MB/s are MiB/s.\n",
            self.table()
        );
        written.expect("a string takes every write");
        text
    }
}
