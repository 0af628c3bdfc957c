//! Renders distributions as tables, text and reports.

use super::causes::{Cause, Exclusion};
use super::{Distributions, PathResult};
use sprat_measure::jitter;
use sprat_measure::report::Report;
use sprat_measure::table::Table;
use sprat_units::figure;

/// The reported quantiles. Beyond the last one, a million samples leave ten.
pub const QUANTILES: [(&str, f64); 8] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.5", 0.995),
    ("p99.9", 0.999),
    ("p99.95", 0.9995),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
];

/// Number of samples beyond a quantile that is needed to report the quantile.
const MIN_BEYOND: f64 = 5.0;

/// Limit on the causes that one line names.
const CAUSES: usize = 3;

impl Distributions {
    /// Returns a title such as `100 B reads, 1000000 over each path, one at a time, both ends
    /// spinning`.
    #[must_use]
    pub fn title(&self) -> String {
        let samples = self.paths.first().map_or(0, |path| path.samples.latencies.count());
        let ends = if self.paths.iter().all(|path| path.samples.server_is_timed) {
            "both ends"
        } else {
            "the client"
        };
        let label = if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) };
        let size = figure::object_size(self.bytes);
        format!(
            "{label}{size} {}s, {samples} over each path, one at a time, {ends} spinning",
            self.op
        )
    }

    /// Renders the quantiles of each path three times: of all operations, without operations hit by
    /// preemption or steal, and also without operations hit by interrupts.
    #[must_use]
    pub fn quantiles(&self) -> Table {
        let mut table = quantile_table("path", &["p99.9 / p50", "set apart"]);
        for path in &self.paths {
            for exclusion in Exclusion::ALL {
                let name = match exclusion {
                    Exclusion::Nothing => path.name.clone(),
                    Exclusion::Core => "  preemption, steal set apart".to_owned(),
                    Exclusion::Interrupts => "  interrupts set apart too".to_owned(),
                };
                let latencies = path.samples.without(exclusion);
                let ratio =
                    latencies.quantile(0.999) as f64 / latencies.quantile(0.5).max(1) as f64;
                let share = exclusion
                    .hit_by()
                    .map_or_else(String::new, |_| percent(path.samples.share(exclusion)));
                let last = vec![format!("{}x", figure::digits(ratio)), share];
                table.row([quantile_cells(name, &latencies), last].concat());
            }
        }
        table
    }

    /// Renders a line for each step of each path.
    #[must_use]
    pub fn cliffs(&self) -> Table {
        let mut table = Table::new(&[
            "cliff",
            "at",
            "share",
            "beyond",
            "machine alone",
            "verdict",
            "of",
            "examined",
        ]);
        for path in &self.paths {
            for found in &path.cliffs {
                table.row(vec![
                    path.name.clone(),
                    figure::time(found.cliff.at_ns as f64),
                    percent(found.cliff.share),
                    percent(found.beyond),
                    percent(found.machine_alone),
                    found.verdict.word().to_owned(),
                    format!("{:.0} %", found.verdict_share * 100.0),
                    found.examined.to_string(),
                ]);
            }
        }
        table
    }

    /// Returns notes on the causes, and on what could not be observed.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for path in &self.paths {
            let PathResult { name, samples, cliffs } = path;
            for found in cliffs {
                let at = figure::time(found.cliff.at_ns as f64);
                notes.push(format!("{name} at {at}: {}", causes(&found.causes, path)));
            }
            let all = samples.causes_beyond(0);
            let counts: Vec<String> =
                all.iter().map(|(cause, count)| format!("{} {count}", cause.words())).collect();
            let counts =
                if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
            let none = if cliffs.is_empty() { "no cliff; " } else { "" };
            notes.push(format!("{name}: {none}{} examined in all{counts}", samples.examined.len()));
            if !samples.server_is_timed {
                notes.push(format!(
                    "{name}: the server does not tell how its node fared (start it with --timed), \
                     so nothing is laid at its door"
                ));
            }
            if !samples.interrupts_known {
                notes.push(format!(
                    "{name}: interrupts are not told: /proc/interrupts cannot be read, or takes \
                     too long to be"
                ));
            }
        }
        notes
    }

    /// Renders everything as text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.title(), self.quantiles());
        if self.paths.iter().any(|path| !path.cliffs.is_empty()) {
            text += &format!("{}\n", self.cliffs());
        }
        self.notes().iter().for_each(|note| text += &format!("{note}\n"));
        let title = "the machine without the store, by the jitter meter: client's core, server's";
        text += &format!("\n{title}\n\n{}", jitter::table(&self.jitter));
        if let Some(beside) = &self.beside {
            text += &format!(
                "\nbeside the operations\n\n{}",
                jitter::table(std::slice::from_ref(beside))
            );
        }
        text
    }

    /// Adds everything to a report, with pictures.
    pub fn report(&self, report: &mut Report) {
        report.table(&self.title(), &self.quantiles());
        report.figure("The share of operations that took longer", &super::picture::ccdf(&[self]));
        report.figure(
            "The share of operations that took as long at most",
            &super::picture::cdf(&[self]),
        );
        report.table("Cliffs: steps in the tail, and what they come from", &self.cliffs());
        self.notes().iter().for_each(|note| report.note(note));
        report.table(
            "The machine without the store, by the jitter meter",
            &jitter::table(&self.jitter),
        );
        if let Some(beside) = &self.beside {
            report.table("Beside the operations", &jitter::table(std::slice::from_ref(beside)));
        }
    }
}

/// Compares several results. Each path of each result has a line.
#[must_use]
pub fn compared(all: &[Distributions]) -> Table {
    let mut table = quantile_table(
        "label, path",
        &["operation", "p99.9 set apart", "cliffs: at, share, verdict"],
    );
    for one in all {
        for path in &one.paths {
            let cliffs = path.cliffs.iter().map(|found| {
                let at = figure::time(found.cliff.at_ns as f64);
                format!("{at} {} {}", percent(found.cliff.share), found.verdict.word())
            });
            let cliffs: Vec<String> = cliffs.collect();
            let without = quantile(&path.samples.without(Exclusion::Core), 0.999);
            let operation = format!("{} {}", figure::object_size(one.bytes), one.op);
            let label = if one.label.is_empty() { "-" } else { &one.label };
            let cells = quantile_cells(format!("{label}, {}", path.name), &path.samples.latencies);
            table.row([cells, vec![operation, without, cliffs.join("; ")]].concat());
        }
    }
    table
}

fn quantile_table(first: &str, last: &[&str]) -> Table {
    let names: Vec<&str> = QUANTILES.iter().map(|(name, _)| *name).collect();
    Table::new(&[&[first], &names[..], &["max"], last].concat())
}

fn quantile_cells(name: String, latencies: &sprat_measure::hist::Latencies) -> Vec<String> {
    let quantiles = QUANTILES.iter().map(|&(_, share)| quantile(latencies, share));
    let max = figure::time(latencies.summary().max as f64);
    std::iter::once(name).chain(quantiles).chain([max]).collect()
}

/// Renders a quantile, or `-` if there are too few samples beyond it.
fn quantile(latencies: &sprat_measure::hist::Latencies, share: f64) -> String {
    if (1.0 - share) * (latencies.count() as f64) < MIN_BEYOND {
        return "-".to_owned();
    }
    figure::time(latencies.quantile(share) as f64)
}

fn percent(share: f64) -> String {
    // A share of a few millionths needs more than three digits after the point.
    if share > 0.0 && share < 1e-4 {
        return format!("{:.5} %", share * 100.0);
    }
    format!("{} %", figure::digits(share * 100.0))
}

fn causes(causes: &[(Cause, f64)], path: &PathResult) -> String {
    let named = causes.iter().take(CAUSES).map(|&(cause, share)| {
        let chance = path.samples.chance.of(cause);
        let chance = chance
            .map_or_else(String::new, |chance| format!(" (by chance {:.0} %)", chance * 100.0));
        format!("{} {:.0} %{chance}", cause.words(), share * 100.0)
    });
    let named = named.collect::<Vec<_>>().join(", ");
    if named.is_empty() { "none of it was examined".to_owned() } else { named }
}
