//! Draws the screen of `lab watch`.

use crate::lab::watch::view::{Sort, View};
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};
use ratatui::{Frame, Terminal};
use sprat_lab::engine::LineReport;
use sprat_units::figure::{bit_rate, decimal_bytes, digits, time};

/// Rows of the rate curve.
const CURVE: u16 = 5;

/// Draws the whole screen.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let count = view.report().map_or(0, |report| report.lines.len());
    let lines = u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2);
    let areas = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(lines),
        Constraint::Length(CURVE + 2),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [head, table, curve, flows, keys] = areas.areas(frame.area());
    frame.render_widget(
        Paragraph::new(title(view)).style(Style::new().add_modifier(Modifier::BOLD)),
        head,
    );
    draw_lines(view, frame, table);
    draw_curve(view, frame, curve);
    draw_flows(view, frame, flows);
    let help = "q quit   arrows, Tab select a line   s sort   p pause";
    frame.render_widget(Paragraph::new(help).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

/// Renders the screen as text for a given width and height, without the line that explains the
/// keys.
pub(super) fn text(view: &View, (width, height): (u16, u16)) -> anyhow::Result<Vec<String>> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| draw(view, frame))?;
    let buffer = terminal.backend().buffer();
    let row =
        |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let mut rows: Vec<_> = (0..height).map(row).collect();
    rows.pop(); // there are no keys to press
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    Ok(rows)
}

fn title(view: &View) -> String {
    let seconds = view.report().map_or(0.0, |report| report.seconds);
    let mut title = format!("box {}   {seconds:.1} s", view.name());
    if view.is_paused() {
        title.push_str("   PAUSED");
    }
    if let Some(why) = view.why_lost() {
        title.push_str(&format!("   LOST: {why}; reconnecting"));
    }
    title
}

fn draw_lines(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let Some(report) = view.report() else { return };
    let head = [
        "PORT", "IN", "OUT", "QUEUE", "FULL", "DROPS/s", "LOSS", "BUFFER", "MEMORY", "REFUSED",
        "LATE", "MAX LATE",
    ];
    let rows = report.lines.iter().enumerate().map(|(at, line)| {
        let row = Row::new(line_cells(view, line));
        if at == view.selected() {
            row.style(Style::new().add_modifier(Modifier::REVERSED))
        } else {
            row
        }
    });
    let widths = [14, 10, 10, 9, 6, 8, 8, 8, 8, 8, 8, 8].map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(header(&head)), area);
}

fn line_cells(view: &View, line: &LineReport) -> Vec<Cell<'static>> {
    let LineReport { to, counters, lateness, lost_by_device } = line;
    let drops = counters.drops;
    let sampled = view.sample().and_then(|sample| {
        let seconds = sample.seconds();
        let name = sprat_lab::series::line_name("", to);
        Some((sample.lines.iter().find(|line| line.line == name)?.all, seconds))
    });
    let (out, lost) = sampled.map_or((String::new(), String::new()), |(all, seconds)| {
        (bit_rate(all.bits_per_second), digits(float(all.drops) / seconds))
    });
    let share = view.buffer(to).filter(|buffer| *buffer > 0).map_or(String::new(), |buffer| {
        format!("{:.0} %", float(counters.queue) / float(buffer) * 100.0)
    });
    let mean = lateness.mean().as_secs_f64() * 1e9;
    [
        to.clone(),
        view.arrival_rate(to).map_or(String::new(), bit_rate),
        out,
        decimal_bytes(float(counters.queue)),
        share,
        lost,
        drops.loss.to_string(),
        drops.buffer.to_string(),
        drops.memory.to_string(),
        (drops.refused + drops.too_big + lost_by_device).to_string(),
        time(mean),
        time(float(lateness.max_ns)),
    ]
    .map(Cell::from)
    .to_vec()
}

fn draw_curve(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let Some(line) = view.report().and_then(|report| report.lines.get(view.selected())) else {
        return;
    };
    let [name, curve] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(CURVE)]).areas(area);
    let rates = view.rates(&line.to);
    let shown = usize::from(curve.width).min(rates.len());
    let most = rates[..shown].iter().copied().max().unwrap_or(0);
    let title = format!("to {}, up to {}", line.to, bit_rate(float(most)));
    frame.render_widget(
        Paragraph::new(title).style(Style::new().add_modifier(Modifier::BOLD)),
        name,
    );
    let mut data: Vec<_> = rates[..shown].to_vec();
    data.reverse();
    frame.render_widget(Sparkline::default().data(&data).max(most.max(1)), curve);
}

fn draw_flows(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let Some(line) = view.report().and_then(|report| report.lines.get(view.selected())) else {
        return;
    };
    let mark =
        |name: &str, sort| if view.sort() == sort { format!("{name}*") } else { name.to_owned() };
    let head = [
        "FLOW".to_owned(),
        mark("RATE", Sort::Rate),
        mark("QUEUE", Sort::Queue),
        mark("DROPS", Sort::Drops),
        mark("ROUND TRIP", Sort::RoundTrip),
    ];
    let rows = view.flows(&line.to).into_iter().map(|flow| {
        let figures = flow.figures;
        Row::new([
            flow.flow.clone(),
            bit_rate(figures.bits_per_second),
            decimal_bytes(float(figures.queue)),
            figures.drops.to_string(),
            flow.rtt_ms.map_or("-".to_owned(), |ms| time(ms * 1e6)),
        ])
    });
    let widths = [
        Constraint::Min(40),
        Constraint::Length(11),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(12),
    ];
    frame.render_widget(Table::new(rows, widths).header(header(&head)), area);
}

fn header<T: AsRef<str>>(names: &[T]) -> Row<'static> {
    let cells = names.iter().map(|name| Cell::from(name.as_ref().to_owned()));
    Row::new(cells.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::DIM))
}

#[expect(clippy::cast_precision_loss, reason = "a figure of which three digits are shown")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use super::*;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use serde_json::{Value, json};

    /// Returns the report of a box with two ports that has run for `seconds`.
    fn report(seconds: f64) -> Value {
        let count = |each: f64| each * seconds;
        let flow = |port: u16, share: f64, drops: f64, whole: Value| {
            json!({
                "flow": format!("tcp 10.0.0.1:{port} > 10.0.0.2:5201"),
                "arrived": { "segments": count(90.0) as u64, "bytes": count(share) as u64 },
                "left": { "segments": count(80.0) as u64, "bytes": count(share) as u64 },
                "drops": { "loss": 0, "buffer": count(drops) as u64, "memory": 0, "refused": 0 },
                "queue": 100 * u64::from(port), "queue_max": 9_000_000, "passage_ns": 1,
                "round_trips": {
                    "samples": 3, "last_ns": 1, "min_ns": 1, "smoothed_ns": 1, "whole_ns": whole
                },
            })
        };
        let none = flow(0, 0.0, 0.0, Value::Null);
        let line = |to: &str, flows: Vec<Value>, bytes: f64| {
            json!({
                "to": to,
                "arrived": { "segments": 7, "bytes": 7 },
                "left": { "segments": 7, "bytes": count(bytes) as u64 },
                "drops": { "loss": 3, "buffer": count(13.0) as u64, "memory": 2, "refused": 1 },
                "duplicated": 0, "corrupted": 0, "reordered": 0, "on_line": 5, "queue": 1_000_000,
                "queue_max": 2_000_000, "flows": flows, "other_flows": none, "flows_forgotten": 0,
                "lateness": {
                    "packets": 10, "sum_ns": 35_000, "max_ns": 812_000, "late_packets": 0,
                    "late_segments": 0
                },
                "lost_by_device": 0,
            })
        };
        let flows = vec![
            flow(40_000, 2e6, 3.0, json!(200_500_000)),
            flow(40_001, 5e6, 10.0, json!(230_100_000)),
            flow(40_002, 1e6, 0.0, Value::Null),
        ];
        let input = |port: &str, bytes: f64| {
            json!({
                "port": port, "packets": 5,
                "arrived": { "segments": 5, "bytes": count(bytes) as u64 },
                "malformed": 0, "exhausted": 0, "dropped_by_kernel": 0
            })
        };
        json!({
            "seconds": seconds, "inputs": [input("left", 8.5e6), input("right", 3e5)],
            "lines": [line("right", flows, 8e6), line("left", vec![], 3e5)],
            "switch": null, "filters": [], "memory_cells": 100, "memory_least_free": 90,
            "behind": [],
        })
    }

    fn view() -> View {
        let mut view = View::new("merge.wan".into(), [("right".to_owned(), 4_000_000)].into());
        for seconds in [10.0, 11.0, 12.0] {
            view.take(serde_json::from_value(report(seconds)).expect("a report"));
        }
        view
    }

    fn key(view: &mut View, code: KeyCode) -> bool {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn shown(view: &View) -> String {
        text(view, (120, 24)).expect("a screen").join("\n")
    }

    #[test]
    fn it_looks_as_it_did() {
        let screen = shown(&view()) + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/lab-watch-screen.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &screen).expect("written");
        }
        let golden = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            screen == golden,
            "{path} is another; UPDATE_GOLDEN=1 writes it anew, if this is right:\n{screen}"
        );
    }

    #[test]
    fn keys_act_as_described() {
        let mut view = view();
        let first = |view: &View| {
            let screen = shown(view);
            let row = screen.lines().find(|row| row.starts_with("tcp ")).map(str::to_owned);
            row.unwrap_or_default()
        };
        assert!(first(&view).contains(":40001 "), "by rate");
        assert!(!key(&mut view, KeyCode::Char('s')));
        assert!(
            first(&view).contains(":40002 ") && shown(&view).contains("QUEUE*"),
            "by what waits"
        );
        key(&mut view, KeyCode::Char('s'));
        assert!(first(&view).contains(":40001 ") && shown(&view).contains("DROPS*"));
        key(&mut view, KeyCode::Char('s'));
        assert!(first(&view).contains(":40001 ") && shown(&view).contains("ROUND TRIP*"));
        key(&mut view, KeyCode::Tab);
        assert!(shown(&view).contains("to left, up to 2.40 Mb/s") && first(&view).is_empty());
        key(&mut view, KeyCode::Up);
        assert!(shown(&view).contains("to right, up to 64.0 Mb/s"));
        key(&mut view, KeyCode::Char('p'));
        let paused = first(&view);
        let mut other = report(20.0);
        other["lines"][0]["flows"] = json!([]);
        view.take(serde_json::from_value(other).expect("a report"));
        assert!(first(&view) == paused && shown(&view).contains("PAUSED"));
        assert!(key(&mut view, KeyCode::Char('q')) && key(&mut view, KeyCode::Esc));
        assert!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn an_ended_box_is_reported() {
        let mut view = view();
        view.lost("box merge.wan: the connection ended");
        assert!(shown(&view).contains("LOST: box merge.wan: the connection ended; reconnecting"));
        view.take(serde_json::from_value(report(13.0)).expect("a report"));
        assert!(!shown(&view).contains("LOST"));
    }

    #[test]
    fn no_screen_is_too_small() {
        for size in [(1, 1), (3, 2), (20, 5), (500, 3), (120, 60)] {
            assert!(text(&view(), size).is_ok());
        }
    }
}
