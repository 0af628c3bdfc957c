//! The state of `lab watch`: the box's last sample, its earlier rates, and what the user selected.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sprat_lab::engine::Report;
use sprat_lab::series::{FlowSample, Recorder, Sample, line_name};
use std::collections::{HashMap, VecDeque};

/// Limit on the rates of each line that are kept for its curve. The oldest are dropped.
const RATES: usize = 300;

/// The figure by which flows are sorted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Sort {
    #[default]
    Rate,
    Queue,
    Drops,
    RoundTrip,
}

/// The state of the screen: [`take`](Self::take) adds reports of the box, [`key`](Self::key)
/// handles the user's keys, and the getters return what is to be drawn.
pub(super) struct View {
    name: String,
    /// Buffer size in bytes of the line to each port.
    buffers: HashMap<String, u64>,
    recorder: Recorder,
    sample: Option<Sample>,
    report: Option<Report>,
    /// Bits per second that arrived at each port, in the order of the report.
    arrival_rates: Vec<f64>,
    /// Bits per second on the line to each port, the latest first.
    rates: HashMap<String, VecDeque<u64>>,
    selected: usize,
    sort: Sort,
    paused: bool,
    lost: Option<String>,
}

impl View {
    /// Makes a view without samples. `buffers` has the buffer size in bytes of the line to each
    /// port.
    pub(super) fn new(name: String, buffers: HashMap<String, u64>) -> Self {
        Self {
            name,
            buffers,
            recorder: Recorder::new(),
            sample: None,
            report: None,
            arrival_rates: Vec::new(),
            rates: HashMap::new(),
            selected: 0,
            sort: Sort::default(),
            paused: false,
            lost: None,
        }
    }

    /// Takes a report of the box's counters, and computes a sample from its difference to the
    /// previous report. The first report yields no sample.
    pub(super) fn take(&mut self, report: Report) {
        let before = self.report.take();
        let reports = [(String::new(), report)];
        let sample = self.recorder.sample(reports[0].1.seconds, &reports);
        let [(_, report)] = reports;
        self.lost = None;
        if let (Some(before), Some(sample)) = (before, sample) {
            for line in &sample.lines {
                let rates = self.rates.entry(line.line.clone()).or_default();
                rates.truncate(RATES - 1);
                rates.push_front(whole(line.all.bits_per_second));
            }
            let arrival_rates = report.inputs.iter().map(|input| {
                let before = before.inputs.iter().find(|before| before.port == input.port);
                let before = before.map_or(0, |before| before.arrived.bytes);
                bits(input.arrived.bytes.saturating_sub(before)) / sample.seconds()
            });
            if !self.paused {
                self.arrival_rates = arrival_rates.collect();
                self.sample = Some(sample);
            }
        }
        self.report = Some(report);
        self.selected = self.selected.min(self.lines().saturating_sub(1));
    }

    /// Records why the box no longer answers.
    pub(super) fn lost(&mut self, why: &str) {
        self.lost = Some(why.to_owned());
    }

    /// Handles a key; returns whether the user wants to leave.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let lines = self.lines().max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Down | KeyCode::Right | KeyCode::Tab => {
                self.selected = (self.selected + 1) % lines
            }
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab => {
                self.selected = (self.selected + lines - 1) % lines
            }
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Rate => Sort::Queue,
                    Sort::Queue => Sort::Drops,
                    Sort::Drops => Sort::RoundTrip,
                    Sort::RoundTrip => Sort::Rate,
                }
            }
            _ => {}
        }
        false
    }

    fn lines(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.lines.len())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    pub(super) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    pub(super) fn sort(&self) -> Sort {
        self.sort
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn why_lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Returns the bits per second that arrived at a port.
    pub(super) fn arrival_rate(&self, port: &str) -> Option<f64> {
        let at = self.report.as_ref()?.inputs.iter().position(|input| input.port == port)?;
        self.arrival_rates.get(at).copied()
    }

    /// Returns the buffer size in bytes of the line to a port.
    pub(super) fn buffer(&self, port: &str) -> Option<u64> {
        self.buffers.get(port).copied()
    }

    /// Returns the rates of the line to a port in bits per second, the latest first.
    pub(super) fn rates(&self, port: &str) -> Vec<u64> {
        self.rates
            .get(&line_name("", port))
            .map_or_else(Vec::new, |rates| rates.iter().copied().collect())
    }

    /// Returns the flows of the line to a port, in the selected order.
    pub(super) fn flows(&self, port: &str) -> Vec<&FlowSample> {
        let name = line_name("", port);
        let line =
            self.sample.iter().flat_map(|sample| &sample.lines).find(|line| line.line == name);
        let mut flows: Vec<_> = line.map_or(&[][..], |line| &line.flows).iter().collect();
        match self.sort {
            Sort::Rate => {} // samples are sorted by rate
            Sort::Queue => flows.sort_by_key(|flow| std::cmp::Reverse(flow.figures.queue)),
            Sort::Drops => flows.sort_by_key(|flow| std::cmp::Reverse(flow.figures.drops)),
            Sort::RoundTrip => {
                flows.sort_by(|a, b| b.rtt_ms.unwrap_or(-1.0).total_cmp(&a.rtt_ms.unwrap_or(-1.0)));
            }
        }
        flows
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate, of which three digits are shown")]
fn bits(bytes: u64) -> f64 {
    bytes as f64 * 8.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a height in a curve; rates are not negative"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}
