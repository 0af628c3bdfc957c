//! Loads several targets in one run, by turns, so that slow changes of the machine affect all
//! targets equally.

use crate::table::Table;
use anyhow::{Context, Result};
use serde::Serialize;
use sprat_units::figure;
use std::fmt;

use super::measured::Measured;
use super::run::{LoadPlan, run};
use crate::hist::Latencies;
use crate::target::LoadTarget;

/// A target with its load.
pub struct Entry<'a> {
    /// The target under load.
    pub target: &'a mut dyn LoadTarget,
    /// The load.
    pub plan: LoadPlan,
    /// The entry's name in tables, such as `redis, sleeping`.
    pub label: String,
}

/// The rounds of one entry.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The entry's name in tables.
    pub label: String,
    /// The results of the rounds, in order. There is at least one.
    pub rounds: Vec<Measured>,
}

impl Series {
    /// Returns the median over the rounds of the value that `figure` computes from a round.
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

    /// Returns the median over the rounds of a latency quantile, in ns.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> f64 {
        self.median(|round| round.latencies.quantile(quantile) as f64)
    }

    /// Returns the median over the rounds of operations per second.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        self.median(Measured::ops_per_second)
    }

    /// Returns the latencies of all rounds together.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        let mut all = Latencies::new();
        self.rounds.iter().for_each(|round| all.merge(&round.latencies));
        all
    }

    /// Returns the number of failed operations in all rounds.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.rounds.iter().map(Measured::failures).sum()
    }
}

/// Runs every entry once per round. Every other round has the reverse order.
///
/// # Panics
/// If `rounds` is 0.
///
/// # Errors
/// If a run fails for a reason that [`run`] lists. The error's context is the label of the entry.
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

/// The results of a scenario: a series for each system and each way to load the system.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Results {
    /// The scenario's title.
    pub title: String,
    /// The results, in the order of the systems.
    pub series: Vec<Series>,
}

impl Results {
    /// Returns the series called `label`, or `None` if no system has that label.
    #[must_use]
    pub fn get(&self, label: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.label == label)
    }

    /// Renders the series as a table of medians over rounds.
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
