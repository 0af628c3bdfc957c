//! Reports as HTML pages.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use super::svg::{Axis, Line, Tick, chart};
use crate::goals::{self, Goal, Row};
use crate::load::{Measured, PERIOD_NS, Results};
use crate::machine::Machine;
use crate::table::Table;
use sprat_units::figure;
use sprat_units::html::escape;

const STYLE: &str = include_str!("style.css");

/// Number of nines at which the percentile axis ends: 99.9999 %. Points beyond it are omitted.
const MAX_NINES: u32 = 6;

/// The histogram omits latencies beyond this quantile, which would compress the rest of it. The
/// percentile curve shows them.
const HISTOGRAM_UP_TO: f64 = 0.995;

/// A report in HTML, built section by section.
#[derive(Clone, Debug)]
pub struct Report {
    title: String,
    body: String,
}

impl Report {
    /// Creates an empty report about figures that were measured on `machine`.
    #[must_use]
    pub fn new(title: &str, machine: &Machine) -> Self {
        let body =
            format!("<h1>{}</h1>\n<pre>{}</pre>\n", escape(title), escape(&machine.to_string()));
        Self { title: title.to_owned(), body }
    }

    /// Adds the table of goals.
    pub fn goals(&mut self, rows: &[Row]) {
        self.push(format_args!("<h2>Goals: {}</h2>\n", escape(&goals::verdict(rows))));
        let class = |index: usize| match rows.get(index) {
            Some(Row { goal: Goal::Shown, .. }) | None => "",
            Some(Row { met: true, .. }) => "met",
            Some(_) => "missed",
        };
        self.push_table(&goals::table(rows), class);
    }

    /// Adds a table under a heading.
    pub fn table(&mut self, title: &str, table: &Table) {
        self.push(format_args!("<h2>{}</h2>\n", escape(title)));
        self.push_table(table, |_| "");
    }

    /// Adds a drawing, as [`chart`] renders it, under its own heading.
    pub fn figure(&mut self, title: &str, svg: &str) {
        self.push(format_args!("<h3>{}</h3>\n{svg}\n", escape(title)));
    }

    /// Adds a paragraph.
    pub fn note(&mut self, text: &str) {
        self.push(format_args!("<p>{}</p>\n", escape(text)));
    }

    /// Adds a scenario: its table, its latencies as a percentile curve and a histogram, and its
    /// throughput over time.
    pub fn results(&mut self, results: &Results) {
        self.table(&results.title, &results.table());
        if results.series.iter().all(|series| series.latencies().count() == 0) {
            return self.note("Nothing ended in the time that counted.");
        }
        self.push(format_args!("<h3>Latency by percentile</h3>\n{}\n", percentiles(results)));
        self.push(format_args!("<h3>Latency histogram</h3>\n{}\n", histogram(results)));
        self.push(format_args!(
            "<h3>Operations a second, 100 ms periods, all rounds</h3>\n{}\n",
            throughput(results)
        ));
    }

    /// Renders the whole page, a single self-contained file.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let body = &self.body;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }

    /// Writes the page to `path`. Creates the folder of `path` if it is missing.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        super::write_file(path, &self.html())
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("a string takes every write");
    }

    fn push_table(&mut self, table: &Table, class: impl Fn(usize) -> &'static str) {
        let cells = |row: &[String], tag: &str| -> String {
            row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
        };
        self.push(format_args!(
            "<div class=\"wide\"><table>\n<tr>{}</tr>\n",
            cells(table.head(), "th")
        ));
        for (index, row) in table.rows().iter().enumerate() {
            self.push(format_args!("<tr class=\"{}\">{}</tr>\n", class(index), cells(row, "td")));
        }
        self.push(format_args!("</table></div>\n"));
    }
}

fn percentiles(results: &Results) -> String {
    let mut lines = Vec::new();
    let (mut least, mut most, mut nines) = (f64::INFINITY, 0.0_f64, 1.0_f64);
    for series in &results.series {
        let curve = series.latencies().curve();
        let points = curve.iter().map(|point| (-(1.0 - point.quantile).log10(), point.ns as f64));
        let points: Vec<_> =
            points.filter(|&(x, ns)| x <= f64::from(MAX_NINES) && ns > 0.0).collect();
        for &(x, ns) in &points {
            (least, most, nines) = (least.min(ns), most.max(ns), nines.max(x));
        }
        let points = points.into_iter().map(|(x, ns)| (x, ns.log10())).collect();
        lines.push(Line { name: series.label.clone(), points, filled: false });
    }
    let labels = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    let mut ticks: Vec<Tick> = labels
        .iter()
        .zip(0_u32..)
        .map(|(label, nine)| Tick { at: f64::from(nine), label: (*label).to_owned() })
        .filter(|tick| tick.at <= nines)
        .collect();
    ticks.push(Tick { at: 2_f64.log10(), label: "50 %".to_owned() });
    let x = Axis { title: "percentile".to_owned(), from: 0.0, to: nines, ticks };
    chart(&x, &Axis::decades("latency", least, most, figure::short_time), &lines)
}

fn histogram(results: &Results) -> String {
    let mut lines = Vec::new();
    let (mut least, mut most, mut tallest) = (f64::INFINITY, 0.0_f64, 0.0_f64);
    for series in &results.series {
        let latencies = series.latencies();
        let (count, limit) =
            (latencies.count().max(1) as f64, latencies.quantile(HISTOGRAM_UP_TO) as f64);
        let mut points = Vec::new();
        let mut edge = f64::NAN;
        for bar in latencies.bars().iter().filter(|bar| bar.from_ns <= limit) {
            let share = bar.count as f64 / count * 100.0;
            if (bar.from_ns / edge - 1.0).abs() > 1e-6 {
                // There is a gap before this bar. The first bar has no gap: there `edge` is not a
                // number.
                points.push((edge.log10(), 0.0));
            }
            points.push((bar.from_ns.log10(), share));
            edge = bar.to_ns;
            (least, most, tallest) =
                (least.min(bar.from_ns), most.max(bar.to_ns), tallest.max(share));
        }
        points.push((edge.log10(), 0.0));
        points.retain(|point| point.0.is_finite());
        lines.push(Line { name: series.label.clone(), points, filled: true });
    }
    let y = Axis::linear("share of operations", tallest, |share| {
        figure::short(&format!("{} %", figure::digits(share)))
    });
    chart(&Axis::decades("latency", least, most, figure::short_time), &y, &lines)
}

fn throughput(results: &Results) -> String {
    let period = PERIOD_NS as f64 / 1e9;
    let mut lines = Vec::new();
    let (mut end, mut most) = (0.0_f64, 0.0_f64);
    for series in &results.series {
        let whole =
            |round: &Measured| round.periods.iter().map(|period| period.ops).collect::<Vec<_>>();
        let rates = series.rounds.iter().flat_map(whole).map(|ops| ops as f64 / period);
        let points: Vec<_> =
            rates.enumerate().map(|(index, rate)| (index as f64 * period, rate)).collect();
        for &(x, rate) in &points {
            (end, most) = (end.max(x), most.max(rate));
        }
        lines.push(Line { name: series.label.clone(), points, filled: false });
    }
    let x = Axis::linear("time of the system's own turns", end, |seconds| {
        figure::short(&format!("{} s", figure::digits(seconds)))
    });
    chart(
        &x,
        &Axis::linear("operations a second", most, |rate| figure::short(&figure::rate(rate))),
        &lines,
    )
}
