//! Reports of tuning: as a table, as text and as an HTML page.

use sprat_measure::machine::Machine;
use sprat_measure::report::Report as Page;
use sprat_measure::report::svg::{Axis, Line, chart};
use sprat_measure::table::Table;
use sprat_tune::{Journal, Measured, Overlay, TrialState};

/// Renders a table of all settings that were tried, and their outcomes.
pub(super) fn tried(journal: &Journal) -> Table {
    let mut table = Table::new(&["tried", "p99 before, ms", "after, ms", ""]);
    for entry in &journal.entries {
        let p99 = |measured: Option<Measured>| {
            measured.map_or("-".to_owned(), |measured| format!("{:.2}", measured.p99))
        };
        let state = match &entry.state {
            TrialState::Trying => "half-way",
            TrialState::Kept => "kept",
            TrialState::Undone => "undone",
            TrialState::Failed(_) => "failed",
        };
        let cells = [
            format!("{}: {} -> {}", entry.class.name(), entry.present, entry.proposed),
            p99(entry.before),
            p99(entry.after),
            state.to_owned(),
        ];
        table.row(cells.to_vec());
    }
    table
}

/// Renders latencies, failures, and the lines for the rack's description.
pub(super) fn text(journal: &Journal) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, measured) in [("before", journal.before), ("after", journal.after)] {
        if let Some(all) = measured {
            lines.push(format!(
                "{name}: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, at most {:.0} ms, at {:.0} \
                 operations a second; rate missed in {} of {} s",
                all.p50, all.p99, all.p999, all.max, all.rate, all.missed, all.seconds
            ));
        }
    }
    if let (Some(before), Some(after)) = (journal.before, journal.after) {
        lines.push(format!(
            "p99 is {:.2} times better",
            before.p99 / after.p99.max(f64::MIN_POSITIVE)
        ));
    }
    for entry in &journal.entries {
        if let TrialState::Failed(why) = &entry.state {
            lines.push(format!(
                "{}: {} could not be tried: {why}",
                entry.class.name(),
                entry.proposed
            ));
        }
    }
    let overlays =
        journal.standing().flat_map(|entry| &entry.changes).filter_map(|change| match change {
            sprat_tune::Change::Instances(overlay) => Some(overlay),
            _ => None,
        });
    if let Some(overlay) = overlays.last().filter(|overlay| **overlay != Overlay::default()) {
        lines.push("for the rack's description, below [cassandra]:".to_owned());
        lines.extend(overlay.lines().into_iter().map(|line| format!("  {line}")));
    }
    lines
}

/// Renders an HTML page: the changes, their reasons, and the latency over the measurements.
pub(super) fn page(name: &str, journal: &Journal) -> Page {
    let mut page = Page::new(&format!("sprat rack tune: {name}"), &Machine::describe());
    for line in text(journal) {
        page.note(&line);
    }
    page.table("What was tried", &tried(journal));
    let mut why = Table::new(&["what stands", "why"]);
    for entry in journal.standing() {
        why.row(vec![entry.proposed.clone(), entry.why.clone()]);
    }
    page.table("Why", &why);
    let steps: Vec<Measured> = journal.entries.iter().filter_map(|entry| entry.after).collect();
    let all: Vec<Measured> = journal.before.into_iter().chain(steps).chain(journal.after).collect();
    if all.len() > 1 {
        let most = all.iter().map(|measured| measured.p999).fold(1.0, f64::max);
        let x = Axis::linear(
            "measurement: before, each that was tried, after",
            (all.len() - 1) as f64,
            |at| format!("{at:.0}"),
        );
        let y = Axis::decades("response, ms", 0.1, most, |at| format!("{at}"));
        let line = |name: &str, take: &dyn Fn(&Measured) -> f64| Line {
            name: name.to_owned(),
            points: all
                .iter()
                .enumerate()
                .map(|(at, one)| (at as f64, take(one).max(0.1).log10()))
                .collect(),
            filled: false,
        };
        let lines = [
            line("p50", &|one| one.p50),
            line("p99", &|one| one.p99),
            line("p99.9", &|one| one.p999),
        ];
        page.figure("Response time by what was tried", &chart(&x, &y, &lines));
    }
    page
}
