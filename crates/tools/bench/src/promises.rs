//! Runs benchmarks in chapters, and judges their results against goals.
//!
//! Each chapter starts the systems that it compares, measures them alternately, and adds rows with
//! goals to the [`Findings`]. If a figure with a goal could not be measured, its row misses the
//! goal. Rows without a goal give additional figures, or state why this machine cannot measure
//! them.

use std::path::PathBuf;

use anyhow::Result;
use sprat_client::Mode;
use sprat_net::PerfEvent;

use crate::cables::Cables;
use crate::ours::{Sprat, Transport};
use crate::scenarios::Lab;
use sprat_measure::goals::{Goal, Row};
use sprat_measure::load::Results;
use sprat_measure::load::Series;
use sprat_measure::machine::load_average;
use sprat_measure::report::Report;
use sprat_measure::table::Table;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The `sprat` binary.
    pub program: PathBuf,
    /// Cores, rounds and times. The setup's `data` must be on a real disk.
    pub lab: Lab,
    /// Objects in the memory and restart chapters.
    pub objects: u64,
    /// Whether to run the longer and larger variant of chapters that have one.
    pub full: bool,
    /// If given, only chapters whose name contains this run.
    pub only: Option<String>,
    /// Events that a breakdown counts in addition to the time.
    pub count: Vec<PerfEvent>,
    /// Cables for the paths that need them, or the reason why there are none, as a clause.
    pub cables: Result<Cables, String>,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Findings {
    /// The rows with goals and figures, in order.
    pub rows: Vec<Row>,
    pages: Vec<Page>,
}

#[derive(Debug)]
enum Page {
    Results(Results),
    Table(String, Table),
    Figure(String, String),
    Note(String),
}

/// A part of a run: its name, which [`Settings::only`] selects, and its function.
pub type Chapter = (&'static str, fn(&Settings, &mut Findings) -> Result<()>);

/// Runs the chapters one after another. Calls `progress` with the name of each chapter before the
/// chapter begins, and with its rows, tables and notes after it has ended. A chapter that fails
/// becomes a row that misses its goal, and the next chapter runs.
pub fn run(chapters: &[Chapter], settings: &Settings, progress: &mut dyn FnMut(&str)) -> Findings {
    let mut findings = Findings::default();
    for &(name, chapter) in chapters {
        if settings.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        progress(&format!("{name} (load average {:.1})", load_average()));
        let (first, first_page) = (findings.rows.len(), findings.pages.len());
        if let Err(error) = chapter(settings, &mut findings) {
            findings.rows.push(Row::new(
                format!("{name}: {error:#}"),
                None,
                None,
                "-",
                Goal::AtLeast(0.0),
            ));
        }
        let load = load_average();
        for row in &mut findings.rows[first..] {
            row.load = Some(load);
        }
        progress(&sprat_measure::goals::table(&findings.rows[first..]).to_string());
        for page in &findings.pages[first_page..] {
            match page {
                Page::Table(title, table) => progress(&format!("{title}\n{table}")),
                Page::Note(text) => progress(&format!("{text}\n")),
                Page::Results(_) | Page::Figure(..) => {}
            }
        }
    }
    findings
}

impl Findings {
    /// Adds everything to a report: the rows first, then results, tables, figures and notes in the
    /// order in which the chapters added them.
    pub fn report(&self, report: &mut Report) {
        report.goals(&self.rows);
        for page in &self.pages {
            match page {
                Page::Results(results) => report.results(results),
                Page::Table(title, table) => report.table(title, table),
                Page::Figure(title, svg) => report.figure(title, svg),
                Page::Note(text) => report.note(text),
            }
        }
    }

    pub(crate) fn row(
        &mut self,
        name: &str,
        ours: Option<f64>,
        peer: Option<f64>,
        unit: &str,
        goal: Goal,
    ) {
        self.rows.push(Row::new(name, ours, peer, unit, goal));
    }

    /// Adds a row, without a goal, for a figure that this machine cannot measure, with the reason.
    pub(crate) fn missing(&mut self, name: &str, unit: &str, why: &str) {
        let row = Row::new(name, None, None, unit, Goal::Shown);
        self.rows.push(Row { missing: Some(why.to_owned()), ..row });
        self.note(format!("{}.", why.trim_end_matches('.')));
    }

    pub(crate) fn results(&mut self, results: Results) {
        self.pages.push(Page::Results(results));
    }

    pub(crate) fn table(&mut self, title: &str, table: Table) {
        self.pages.push(Page::Table(title.to_owned(), table));
    }

    pub(crate) fn figure(&mut self, title: &str, svg: String) {
        self.pages.push(Page::Figure(title.to_owned(), svg));
    }

    pub(crate) fn note(&mut self, text: String) {
        // Several chapters may add the same note.
        if !self.pages.iter().any(|page| matches!(page, Page::Note(other) if *other == text)) {
            self.pages.push(Page::Note(text));
        }
    }
}

impl Settings {
    /// Returns the configuration of Sprat on `transport`; `server` is how the server waits.
    pub(crate) fn sprat(&self, transport: Transport, server: Mode) -> Sprat {
        Sprat::new(self.program.clone(), transport, server)
    }
}

/// Returns a latency quantile of a series in us: the median of its rounds. Returns `None` if an
/// operation failed or no operation completed.
pub(crate) fn us(results: &Results, label: &str, quantile: f64) -> Option<f64> {
    sound(results, label).map(|series| series.quantile(quantile) / 1000.0)
}

/// Returns the operations per second of a series: the median of its rounds. Returns `None` if an
/// operation failed or no operation completed.
pub(crate) fn rate(results: &Results, label: &str) -> Option<f64> {
    sound(results, label).map(Series::ops_per_second)
}

fn sound<'a>(results: &'a Results, label: &str) -> Option<&'a Series> {
    let is_sound = |series: &&Series| series.failures() == 0 && series.latencies().count() > 0;
    results.get(label).filter(is_sound)
}
