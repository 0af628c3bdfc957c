//! What boxes do over time: rates, queues, losses and round trips of each line and of the flows on
//! it.
//!
//! A [`Recorder`] makes a [`Sample`] of each report; a [`History`] keeps them, in bounded room. On
//! disk a series is a JSON value on each line: [`About`] first, then samples.

mod history;
mod recorder;

use crate::line::{Discipline, Settings};
use serde::{Deserialize, Serialize};

pub use history::{History, MAX_SAMPLES};
pub use recorder::{Recorder, line_name};

/// Version of the format on disk. Others are refused.
pub const VERSION: u32 = 1;

/// Most flows of a line that a sample tells one by one: those that carried most. The others are in
/// the line's own figures.
pub const MAX_SAMPLE_FLOWS: usize = 32;

/// Most lines that a sample has: those of sixty-four boxes of sixteen ports.
pub const MAX_SAMPLE_LINES: usize = 1_024;

/// Longest name of a line or a flow, and text about them, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// Longest line of a file, in bytes.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// What a series is of.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct About {
    /// [`VERSION`].
    pub sprat_lab_series: u32,
    /// What was made, in a line.
    pub title: String,
    /// The lines, as they were set at the start.
    pub lines: Vec<LineAbout>,
}

/// What a line is set to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LineAbout {
    /// Its name, as in the samples.
    pub line: String,
    /// What it does, in words.
    pub settings: String,
    /// Bytes on the wire that may wait; none: nothing has to.
    pub buffer: Option<u64>,
}

/// What happened from one moment to another.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Sample {
    /// Since the box began, in seconds.
    pub from: f64,
    /// The same; later.
    pub to: f64,
    /// Each line.
    pub lines: Vec<LineSample>,
}

/// What happened on a line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LineSample {
    /// Its name.
    pub line: String,
    /// Of all of it.
    #[serde(flatten)]
    pub all: Figures,
    /// Of those flows that carried most, they first.
    pub flows: Vec<FlowSample>,
}

/// What happened to a flow on a line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FlowSample {
    /// Its name.
    pub flow: String,
    /// Of this flow.
    #[serde(flatten)]
    pub figures: Figures,
    /// Round trip, smoothed, in milliseconds, where it is known.
    pub rtt_ms: Option<f64>,
}

/// Figures of a line, or of a flow.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Figures {
    /// What left, in bits of Ethernet frames a second.
    pub bits_per_second: f64,
    /// Bytes on the wire that waited at the end, or the most of samples that were joined.
    pub queue: u64,
    /// Segments that were dropped.
    pub drops: u64,
}

/// Why something is no series.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SeriesError {
    /// It is of another version, or of something else.
    #[error(
        "its first line says version {0}; this program reads version {VERSION}: record it again, or read it with its own"
    )]
    Version(u32),
    /// A time or a figure that cannot be.
    #[error("{0} is {1}: want a number that is finite and not negative")]
    Number(&'static str, f64),
    /// A sample that ends before it begins, or begins before the last one ended.
    #[error("a sample from {0} s to {1} s: want times that go on")]
    Times(f64, f64),
    /// Too much of something.
    #[error("{0}: more than {1}")]
    Long(&'static str, usize),
}

impl About {
    /// What a program writes.
    #[must_use]
    pub fn new(title: String, lines: Vec<LineAbout>) -> Self {
        Self { sprat_lab_series: VERSION, title, lines }
    }

    /// Looks at what was read.
    ///
    /// # Errors
    /// See [`SeriesError`].
    pub fn check(&self) -> Result<(), SeriesError> {
        if self.sprat_lab_series != VERSION {
            return Err(SeriesError::Version(self.sprat_lab_series));
        }
        at_most("lines", self.lines.len(), MAX_SAMPLE_LINES)?;
        let texts =
            self.lines.iter().flat_map(|line| [&line.line, &line.settings]).chain([&self.title]);
        texts
            .into_iter()
            .try_for_each(|text| at_most("bytes of a name", text.len(), MAX_NAME_BYTES))
    }
}

impl LineAbout {
    /// Of the line called `line`.
    #[must_use]
    pub fn new(line: String, settings: &Settings) -> Self {
        Self {
            line,
            settings: words(settings),
            buffer: settings.limited().then_some(settings.buffer),
        }
    }
}

impl Sample {
    /// Looks at what was read. `after` is when the sample before it ended.
    ///
    /// # Errors
    /// See [`SeriesError`].
    pub fn check(&self, after: f64) -> Result<(), SeriesError> {
        for (what, number) in [("from", self.from), ("to", self.to)] {
            plain(what, number)?;
        }
        if self.to <= self.from || self.from < after {
            return Err(SeriesError::Times(self.from, self.to));
        }
        at_most("lines", self.lines.len(), MAX_SAMPLE_LINES)?;
        for line in &self.lines {
            at_most("flows", line.flows.len(), MAX_SAMPLE_FLOWS)?;
            at_most("bytes of a name", line.line.len(), MAX_NAME_BYTES)?;
            plain("bits_per_second", line.all.bits_per_second)?;
            for flow in &line.flows {
                at_most("bytes of a name", flow.flow.len(), MAX_NAME_BYTES)?;
                plain("bits_per_second", flow.figures.bits_per_second)?;
                plain("rtt_ms", flow.rtt_ms.unwrap_or(0.0))?;
            }
        }
        Ok(())
    }

    /// How long it took, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to - self.from
    }
}

fn plain(what: &'static str, number: f64) -> Result<(), SeriesError> {
    match number.is_finite() && number >= 0.0 {
        true => Ok(()),
        false => Err(SeriesError::Number(what, number)),
    }
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), SeriesError> {
    if count > most { Err(SeriesError::Long(what, most)) } else { Ok(()) }
}

/// What a line does, in a few words: what is as in a cable is not told.
fn words(settings: &Settings) -> String {
    let ms = |time: std::time::Duration| format!("{} ms", time.as_secs_f64() * 1e3);
    let mut told = Vec::new();
    if !settings.delay.is_zero() {
        told.push(format!("delay {}", ms(settings.delay)));
    }
    if let Some(rate) = settings.rate {
        told.push(format!("rate {} Mb/s", megas(rate.bits_per_second())));
    }
    if settings.limited() {
        told.push(format!("buffer {} MB", megas(settings.buffer)));
        let queue = if settings.queue == Discipline::Harmonize { "harmonize" } else { "drop-tail" };
        told.push(queue.to_owned());
    }
    if !settings.jitter.is_zero() {
        told.push(format!("jitter {}", ms(settings.jitter)));
    }
    for (name, set) in [
        ("loss", settings.loss != crate::line::Loss::None),
        ("reorder", settings.reorder.is_some()),
        ("duplicate", settings.duplicate != crate::chance::Probability::NEVER),
        ("corrupt", settings.corrupt != crate::chance::Probability::NEVER),
    ] {
        if set {
            told.push(name.to_owned());
        }
    }
    if told.is_empty() { "a cable".to_owned() } else { told.join(", ") }
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn megas(count: u64) -> f64 {
    count as f64 / 1e6
}
