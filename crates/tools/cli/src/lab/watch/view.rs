//! What is known of a box that is watched: its last sample, the rates before that, and what the
//! reader wants to see.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sprat_lab::engine::Report;
use sprat_lab::series::{FlowSample, Recorder, Sample, line_name};
use std::collections::{HashMap, VecDeque};

/// Rates of a line that are kept for its curve.
const RATES: usize = 300;

/// By what flows are in order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Sort {
    #[default]
    Rate,
    Queue,
    Drops,
    RoundTrip,
}

/// See the module.
pub(super) struct View {
    name: String,
    /// Bytes that may wait on the line to each port.
    buffers: HashMap<String, u64>,
    recorder: Recorder,
    sample: Option<Sample>,
    report: Option<Report>,
    /// Bits a second that came over each port, in the order of the report.
    came: Vec<f64>,
    /// Of the line to each port.
    rates: HashMap<String, VecDeque<u64>>,
    selected: usize,
    sort: Sort,
    paused: bool,
    lost: Option<String>,
}

impl View {
    /// Of a box of which nothing is known yet but how many bytes may wait on the line to each port.
    pub(super) fn new(name: String, buffers: HashMap<String, u64>) -> Self {
        Self {
            name,
            buffers,
            recorder: Recorder::new(),
            sample: None,
            report: None,
            came: Vec::new(),
            rates: HashMap::new(),
            selected: 0,
            sort: Sort::default(),
            paused: false,
            lost: None,
        }
    }

    /// Takes what has become of all packets. The first is where counting begins.
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
            let came = report.inputs.iter().map(|input| {
                let before = before.inputs.iter().find(|before| before.port == input.port);
                let before = before.map_or(0, |before| before.arrived.bytes);
                bits(input.arrived.bytes.saturating_sub(before)) / sample.seconds()
            });
            if !self.paused {
                self.came = came.collect();
                self.sample = Some(sample);
            }
        }
        self.report = Some(report);
        self.selected = self.selected.min(self.lines().saturating_sub(1));
    }

    /// The box does not answer any more.
    pub(super) fn lost(&mut self, why: &str) {
        self.lost = Some(why.to_owned());
    }

    /// Does what a key is for; whether it is to leave.
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

    /// Bits a second that came over a port.
    pub(super) fn came(&self, port: &str) -> Option<f64> {
        let at = self.report.as_ref()?.inputs.iter().position(|input| input.port == port)?;
        self.came.get(at).copied()
    }

    /// Bytes that may wait on the line to a port.
    pub(super) fn buffer(&self, port: &str) -> Option<u64> {
        self.buffers.get(port).copied()
    }

    /// Rates of the line to a port in bits a second, the latest first.
    pub(super) fn rates(&self, port: &str) -> Vec<u64> {
        self.rates
            .get(&line_name("", port))
            .map_or_else(Vec::new, |rates| rates.iter().copied().collect())
    }

    /// The flows of the line to a port, in the order that is wanted.
    pub(super) fn flows(&self, port: &str) -> Vec<&FlowSample> {
        let name = line_name("", port);
        let line =
            self.sample.iter().flat_map(|sample| &sample.lines).find(|line| line.line == name);
        let mut flows: Vec<_> = line.map_or(&[][..], |line| &line.flows).iter().collect();
        match self.sort {
            Sort::Rate => {} // as samples have them
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
