//! Several targets under the same load in one run, turn by turn, so that what drifts on the machine
//! meets all alike.

use crate::table::Table;
use anyhow::{Context, Result};
use serde::Serialize;
use sprat_units::figure;
use std::fmt;

use super::measured::Measured;
use super::run::{Plan, run};
use crate::hist::Latencies;
use crate::target::Target;

/// A target and the load it is given.
pub struct Entry<'a> {
    /// The system.
    pub target: &'a mut dyn Target,
    /// Its load.
    pub plan: Plan,
    /// What rows call it, such as `redis, sleeping`.
    pub label: String,
}

/// One entry's rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What rows call it.
    pub label: String,
    /// Its rounds, in order, one at least.
    pub rounds: Vec<Measured>,
}

impl Series {
    /// The median over the rounds of what `figure` reads from one.
    pub fn median(&self, figure: impl Fn(&Measured) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        if figures.len() % 2 == 1 {
            figures[middle]
        } else {
            (figures[middle - 1] + figures[middle]) / 2.0
        }
    }

    /// The median over the rounds of a latency quantile, ns.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> f64 {
        self.median(|round| round.latencies.quantile(quantile) as f64)
    }

    /// The median over the rounds of operations a second.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        self.median(Measured::ops_per_second)
    }

    /// The latencies of all rounds together.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        let mut all = Latencies::new();
        self.rounds.iter().for_each(|round| all.merge(&round.latencies));
        all
    }

    /// Operations of all rounds that did not do what was asked.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.rounds.iter().map(Measured::failures).sum()
    }
}

/// Runs every entry once a round, `rounds` times (at least one), in turned order every other round.
///
/// # Errors
/// As [`run`], with the entry's label.
pub fn interleave(entries: &mut [Entry<'_>], rounds: usize) -> Result<Vec<Series>> {
    assert!(rounds > 0, "at least one round");
    let mut series: Vec<Series> = entries
        .iter()
        .map(|entry| Series { label: entry.label.clone(), rounds: Vec::with_capacity(rounds) })
        .collect();
    for round in 0..rounds {
        for turn in 0..entries.len() {
            let index = if round % 2 == 0 { turn } else { entries.len() - 1 - turn };
            let Entry { target, plan, label } = &mut entries[index];
            target.set_active(true);
            let measured = run(*target, plan);
            target.set_active(false);
            series[index].rounds.push(measured.with_context(|| label.clone())?);
        }
    }
    Ok(series)
}

/// What a scenario found, one series for each system and way of loading it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Results {
    /// What was asked.
    pub title: String,
    /// The answers, in the order the systems were given.
    pub series: Vec<Series>,
}

impl Results {
    /// The series so labelled.
    #[must_use]
    pub fn get(&self, label: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.label == label)
    }

    /// The series as a table: medians of rounds.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&[
            "system",
            "transport",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "ops",
            "errors",
        ]);
        for series in &self.series {
            let quantile = |share| figure::time(series.quantile(share));
            table.row(vec![
                series.label.clone(),
                series.rounds.first().map(|round| round.transport.clone()).unwrap_or_default(),
                quantile(0.5),
                quantile(0.9),
                quantile(0.99),
                quantile(0.999),
                figure::time(series.latencies().summary().max as f64),
                figure::rate(series.median(Measured::ops_per_second)),
                series.failures().to_string(),
            ]);
        }
        table
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\n{}", self.title, self.table())
    }
}
