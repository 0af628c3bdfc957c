//! The ladder to a server that runs: its driver, a call, an object.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sprat_client::{Client, Options};
use sprat_net::Scale;

use crate::single::{Objects, Single};
use crate::table::Table;
use crate::units;

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
    pub samples: usize,
    /// Round trips, ns: the shortest, the median, those that 1 % and 0.1 % are longer than.
    pub min: f64,
    /// See `min`.
    pub p50: f64,
    /// See `min`.
    pub p99: f64,
    /// See `min`.
    pub p999: f64,
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
    let [mut pings, mut echoes, mut reads] = [const { Vec::new() }; 3];
    let mut number = 0;
    while start.elapsed() < duration || reads.is_empty() {
        for _ in 0..TURN {
            number += 1;
            let Some(ticks) = single.ping(number)? else { break };
            pings.push(ticks);
        }
        for _ in 0..TURN {
            echoes.push(single.echo(&objects.value)?);
        }
        for _ in 0..TURN {
            number += 1;
            reads.push(single.operate(&objects, number as usize, false)?.total);
        }
    }
    let rungs = [
        ("driver ping, answered by the far driver", pings),
        ("echo, answered by the far node before its store", echoes),
        ("read", reads),
    ];
    let rungs = rungs.into_iter().filter(|(_, samples)| !samples.is_empty());
    let rungs = rungs.map(|(what, samples)| Rung::of(what, samples, &scale)).collect();
    Ok(Ladder { transport: single.transport().to_owned(), bytes, rungs })
}

impl Rung {
    fn of(what: &'static str, mut samples: Vec<u64>, scale: &Scale) -> Self {
        samples.sort_unstable();
        let beyond = |share: usize| scale.nanos(samples[samples.len() - 1 - samples.len() / share]);
        let (min, p50, p99, p999) = (scale.nanos(samples[0]), beyond(2), beyond(100), beyond(1000));
        Self { what, samples: samples.len(), min, p50, p99, p999 }
    }
}

impl Ladder {
    /// As a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["over", "round trip", "min", "p50", "p99", "p99.9", "samples"]);
        for rung in &self.rungs {
            let times = [rung.min, rung.p50, rung.p99, rung.p999].map(units::time);
            table.row(
                [vec![self.transport.clone(), rung.what.to_owned()], times.to_vec(), vec![rung.samples.to_string()]]
                    .concat(),
            );
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let scale = Scale::measure();
        let rung = Rung::of("test", (1..=10_000).rev().collect(), &scale);
        let of = |ticks: u64| scale.nanos(ticks);
        assert_eq!((rung.samples, rung.min), (10_000, of(1)));
        assert_eq!((rung.p50, rung.p99, rung.p999), (of(5000), of(9900), of(9990)));
        let one = Rung::of("test", vec![7], &scale);
        assert_eq!((one.min, one.p50, one.p999), (of(7), of(7), of(7)));
    }
}
