//! The ladder to a server that runs: its driver, a call, an object.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sprat_client::{Client, Options};
use sprat_net::Scale;

use crate::single::{Objects, Single};
use sprat_measure::hist::{Latencies, Summary};
use sprat_measure::table::Table;
use sprat_units::figure;

/// Objects that are read: few, so that what is measured is the way to them.
const KEYS: usize = 1000;

/// Samples of one rung in its turn.
const TURN: u32 = 64;

/// One rung.
#[derive(Clone, Debug, Serialize)]
pub struct Rung {
    /// What went there and back.
    pub what: &'static str,
    /// How often.
    pub samples: u64,
    /// Round trips, ns, exact to three digits: the shortest, the median, those that 1 % and 0.1 %
    /// are longer than.
    pub min: u64,
    /// See `min`.
    pub p50: u64,
    /// See `min`.
    pub p99: u64,
    /// See `min`.
    pub p999: u64,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Ladder {
    /// The transport: `fast+udp`.
    pub transport: String,
    /// Bytes of what was echoed and read.
    pub bytes: usize,
    /// From the wire up.
    pub rungs: Vec<Rung>,
}

/// Who stands at the ladder's foot.
pub struct Climber(Single);

impl Climber {
    /// Connects. The table of the benchmarks is made, and left.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub fn connect(options: &Options) -> Result<Self> {
        Ok(Self(Single::new(Client::connect(options)?)?))
    }
}

/// Climbs for about that long, all rungs in turns. `bytes`: of the objects.
///
/// # Errors
/// When the cluster does not answer as it should.
pub fn climb(climber: Climber, bytes: usize, duration: Duration) -> Result<Ladder> {
    let Climber(mut single) = climber;
    let objects = Objects::new(bytes, KEYS);
    single.fill(&objects)?;
    let (scale, start) = (Scale::measure(), Instant::now());
    let [mut pings, mut echoes, mut reads] = [(); 3].map(|()| Latencies::new());
    let mut number = 0;
    while start.elapsed() < duration || reads.count() == 0 {
        for _ in 0..TURN {
            number += 1;
            let Some(ticks) = single.ping(number)? else { break };
            pings.record_ticks(scale, ticks);
        }
        for _ in 0..TURN {
            echoes.record_ticks(scale, single.echo(&objects.value)?);
        }
        for _ in 0..TURN {
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
    /// As a table.
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
