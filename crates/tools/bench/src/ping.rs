//! `bench ping`: measures a ladder of three round trips to a running server: a ping of its driver,
//! an echo by the server, and a read.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sprat_client::{Client, Options};
use sprat_net::Scale;

use crate::single::{Objects, Single};
use sprat_measure::hist::{Latencies, Summary};
use sprat_measure::table::Table;
use sprat_units::figure;

/// Number of objects to read: few, so that they stay in the caches and only the path is measured.
const KEYS: usize = 1000;

/// Consecutive samples of one rung.
const BATCH: u32 = 64;

/// One rung of the ladder.
#[derive(Clone, Debug, Serialize)]
pub struct Rung {
    /// The kind of round trip.
    pub what: &'static str,
    /// Number of round trips.
    pub samples: u64,
    /// The shortest round trip in ns. Like the other times, it is exact to three digits.
    pub min: u64,
    /// The median in ns.
    pub p50: u64,
    /// The 99th percentile in ns.
    pub p99: u64,
    /// The 99.9th percentile in ns.
    pub p999: u64,
}

/// The measured ladder.
#[derive(Clone, Debug, Serialize)]
pub struct Ladder {
    /// The transport, such as `fast+udp`.
    pub transport: String,
    /// Bytes of the echoed and read values.
    pub bytes: usize,
    /// The rungs, the lowest first.
    pub rungs: Vec<Rung>,
}

/// A client that is ready to measure the ladder.
pub struct Climber(Single);

impl Climber {
    /// Connects to the cluster, and makes the benchmarks' table. The caller has to drop the table.
    ///
    /// # Errors
    /// When the cluster does not answer, or refuses to create the table.
    pub fn connect(options: &Options) -> Result<Self> {
        Ok(Self(Single::new(Client::connect(options)?)?))
    }
}

/// Measures the ladder for about `duration`, with objects of `bytes`. The rungs alternate.
///
/// # Errors
/// When the cluster gives an answer with an unexpected status or length, or no answer in five
/// seconds.
pub fn climb(climber: Climber, bytes: usize, duration: Duration) -> Result<Ladder> {
    let Climber(mut single) = climber;
    let objects = Objects::new(bytes, KEYS);
    single.fill(&objects)?;
    let (scale, start) = (Scale::measure(), Instant::now());
    let [mut pings, mut echoes, mut reads] = [(); 3].map(|()| Latencies::new());
    let mut number = 0;
    while start.elapsed() < duration || reads.count() == 0 {
        for _ in 0..BATCH {
            number += 1;
            let Some(ticks) = single.ping(number)? else { break };
            pings.record_ticks(scale, ticks);
        }
        for _ in 0..BATCH {
            echoes.record_ticks(scale, single.echo(&objects.value)?);
        }
        for _ in 0..BATCH {
            number += 1;
            reads.record_ticks(scale, single.operate(&objects, number as usize, false)?.total);
        }
    }
    let rungs = [
        ("driver ping, answered by the far driver", pings),
        ("echo, answered by the far node before its store", echoes),
        ("read", reads),
    ];
    let rungs = rungs.into_iter().filter(|(_, latencies)| latencies.count() > 0);
    let rungs = rungs.map(|(what, latencies)| Rung::of(what, &latencies)).collect();
    Ok(Ladder { transport: single.transport().to_owned(), bytes, rungs })
}

impl Rung {
    fn of(what: &'static str, latencies: &Latencies) -> Self {
        let Summary { count, min, p50, p99, p999, .. } = latencies.summary();
        Self { what, samples: count, min, p50, p99, p999 }
    }
}

impl Ladder {
    /// Renders the ladder as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table =
            Table::new(&["over", "round trip", "min", "p50", "p99", "p99.9", "samples"]);
        for rung in &self.rungs {
            let times = [rung.min, rung.p50, rung.p99, rung.p999].map(|ns| figure::time(ns as f64));
            table.row(
                [
                    vec![self.transport.clone(), rung.what.to_owned()],
                    times.to_vec(),
                    vec![rung.samples.to_string()],
                ]
                .concat(),
            );
        }
        table
    }
}
