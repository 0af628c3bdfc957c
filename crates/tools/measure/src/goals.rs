//! Goals, and whether measurements meet them. [`write_json`](crate::report::write_json) writes a
//! list of rows to `target/bench/NAME.json`.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::table::Table;
use sprat_units::figure;

/// A bound on a figure, or on its ratio to a peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The ratio ours / peer is at most this.
    RatioAtMost(f64),
    /// The ratio ours / peer is at least this.
    RatioAtLeast(f64),
    /// Our figure is at most this, in the row's unit.
    AtMost(f64),
    /// Our figure is at least this, in the row's unit.
    AtLeast(f64),
    /// The ratio ours / peer differs from 1 by at most this.
    RatioWithin(f64),
    /// There is no goal; the figures are shown for comparison.
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

/// A goal and the figures by which it is judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured, and against which peer: `100 B read p50, fast+udp spinning vs redis tcp`.
    pub name: String,
    /// Our figure; `None` if it was not measured.
    pub ours: Option<f64>,
    /// The peer's figure in the same run; `None` if there is none, as for an absolute goal.
    pub peer: Option<f64>,
    /// The unit of both figures.
    pub unit: String,
    /// Our figure divided by the peer's; `None` if a figure is missing or the ratio is not finite.
    pub ratio: Option<f64>,
    /// The goal.
    pub goal: Goal,
    /// Whether the goal is met. A figure that is missing or not finite meets no goal, except
    /// [`Goal::Shown`], which is always met.
    pub met: bool,
    /// The machine's load average over the last minute at the time of the measurement, if noted.
    pub load: Option<f64>,
    /// The reason why this machine cannot measure our figure, if that is so.
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
        let finite = ours.filter(|ours| ours.is_finite());
        let met = match goal {
            Goal::RatioAtMost(bound) => ratio.is_some_and(|ratio| ratio <= bound),
            Goal::RatioAtLeast(bound) => ratio.is_some_and(|ratio| ratio >= bound),
            Goal::AtMost(bound) => finite.is_some_and(|ours| ours <= bound),
            Goal::AtLeast(bound) => finite.is_some_and(|ours| ours >= bound),
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

/// Renders rows as a table. The ratio comes first among the figures; rows that miss their goal are
/// marked.
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

/// Summarises rows as `12 of 14 goals met`. Rows with [`Goal::Shown`] do not count.
#[must_use]
pub fn verdict(rows: &[Row]) -> String {
    let judged = rows.iter().filter(|row| row.goal != Goal::Shown);
    let met = judged.clone().filter(|row| row.met).count();
    format!("{met} of {} goals met", judged.count())
}
