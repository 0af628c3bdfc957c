//! What was promised, and whether it was kept. A list of rows goes to `target/bench/NAME.json` by
//! [`write_json`](crate::report::write_json).

use std::fmt;

use serde::{Serialize, Serializer};

use crate::table::Table;
use sprat_units::figure;

/// A bound on a figure, or on its ratio to the peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// ours / peer at most this.
    RatioAtMost(f64),
    /// ours / peer at least this.
    RatioAtLeast(f64),
    /// Our figure at most this, in the row's unit.
    AtMost(f64),
    /// Our figure at least this, in the row's unit.
    AtLeast(f64),
    /// ours / peer at most this far from 1.
    RatioWithin(f64),
    /// Shown for comparison only.
    Shown,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |bound: f64| {
            if bound != 0.0 && bound.abs() < 1e-3 {
                format!("{bound:e}")
            } else {
                bound.to_string()
            }
        };
        match *self {
            Self::RatioAtMost(bound) => write!(f, "ratio <= {}", plain(bound)),
            Self::RatioAtLeast(bound) => write!(f, "ratio >= {}", plain(bound)),
            Self::AtMost(bound) => write!(f, "<= {}", plain(bound)),
            Self::AtLeast(bound) => write!(f, ">= {}", plain(bound)),
            Self::RatioWithin(share) => write!(f, "ratio within {} %", share * 100.0),
            Self::Shown => write!(f, "none"),
        }
    }
}

impl Serialize for Goal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One promise and the figures it is judged by.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured, and against whom: `100 B read p50, fast+udp spinning vs redis tcp`.
    pub name: String,
    /// Our figure, `null` when it was not measured.
    pub ours: Option<f64>,
    /// The peer's, in the same run, `null` when the goal is absolute.
    pub peer: Option<f64>,
    /// The unit of both.
    pub unit: String,
    /// ours / peer.
    pub ratio: Option<f64>,
    /// The promise.
    pub goal: Goal,
    /// Whether it was kept. A figure that is missing or not a number keeps nothing.
    pub met: bool,
    /// The machine's load average over the last minute when it was measured, if noted.
    pub load: Option<f64>,
    /// Why our figure could not be told on this machine; only of rows that lack it for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl Row {
    /// Judges `ours` against `peer` by `goal`.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        ours: Option<f64>,
        peer: Option<f64>,
        unit: &str,
        goal: Goal,
    ) -> Self {
        let ratio =
            ours.zip(peer).map(|(ours, peer)| ours / peer).filter(|ratio| ratio.is_finite());
        let met = match goal {
            Goal::RatioAtMost(bound) => ratio.is_some_and(|ratio| ratio <= bound),
            Goal::RatioAtLeast(bound) => ratio.is_some_and(|ratio| ratio >= bound),
            Goal::AtMost(bound) => ours.is_some_and(|ours| ours <= bound),
            Goal::AtLeast(bound) => ours.is_some_and(|ours| ours >= bound),
            Goal::RatioWithin(share) => ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= share),
            Goal::Shown => true,
        };
        Self {
            name: name.into(),
            ours,
            peer,
            unit: unit.to_owned(),
            ratio,
            goal,
            met,
            load: None,
            missing: None,
        }
    }
}

/// Rows as a table, the ratio first; those that fell short are marked.
#[must_use]
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["what", "ratio", "ours", "peer", "unit", "goal", ""]);
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure::digits);
    for row in rows {
        let verdict = match (row.goal, row.met) {
            (Goal::Shown, _) => "",
            (_, true) => "met",
            (_, false) => "MISSED",
        };
        table.row(vec![
            row.name.clone(),
            row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{}x", figure::digits(ratio))),
            figure(row.ours),
            figure(row.peer),
            row.unit.clone(),
            row.goal.to_string(),
            verdict.to_owned(),
        ]);
    }
    table
}

/// `12 of 14 goals met`; rows shown for comparison only are not counted.
#[must_use]
pub fn verdict(rows: &[Row]) -> String {
    let judged = rows.iter().filter(|row| row.goal != Goal::Shown);
    let met = judged.clone().filter(|row| row.met).count();
    format!("{met} of {} goals met", judged.count())
}
