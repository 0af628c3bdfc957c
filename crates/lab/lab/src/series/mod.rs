//! What boxes do over time: rates, queues, losses and round trips of each line and of its flows.
//!
//! A [`Recorder`] turns each report into a [`Sample`], and a [`History`] keeps samples in bounded
//! memory. In a file, a series is one JSON value per line: first [`About`], then the samples.

mod history;
mod recorder;

use crate::line::{Discipline, LineSettings};
use serde::{Deserialize, Serialize};

pub use history::{History, MAX_SAMPLES};
pub use recorder::{Recorder, line_name};

/// Version of the file format. A file of another version is invalid.
pub const VERSION: u32 = 1;

/// Limit on the flows of a line in a sample: those with the highest rates are kept. The line's own
/// figures include all flows.
pub const MAX_SAMPLE_FLOWS: usize = 32;

/// Limit on the lines in a sample: those of 64 boxes with 16 ports. A sample with more lines is
/// invalid.
pub const MAX_SAMPLE_LINES: usize = 1_024;

/// Limit on the length of the name of a line or a flow, or of a text about one, in bytes. A longer
/// text is invalid.
pub const MAX_NAME_BYTES: usize = 512;

/// Limit on the length of a line of a file, in bytes. The line with its end must be shorter.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// What a series is about: the first line of its file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct About {
    /// The version of the format: [`VERSION`].
    pub sprat_lab_series: u32,
    /// What was measured, in one line.
    pub title: String,
    /// The lines, with their settings at the start.
    pub lines: Vec<LineAbout>,
}

/// A line's name, settings and buffer at the start of a series.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LineAbout {
    /// The line's name, as in the samples.
    pub line: String,
    /// The line's settings, as text.
    pub settings: String,
    /// Bytes on the wire that may wait. `None` if packets never wait.
    pub buffer: Option<u64>,
}

/// The figures of all lines over one interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Sample {
    /// Start of the interval, in seconds since the box started.
    pub from: f64,
    /// End of the interval, in seconds since the box started.
    pub to: f64,
    /// The figures of each line.
    pub lines: Vec<LineSample>,
}

/// The figures of a line, and of its flows, over one interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LineSample {
    /// The line's name.
    pub line: String,
    /// The figures of the whole line.
    #[serde(flatten)]
    pub all: Figures,
    /// The flows with the highest rates, in descending order.
    pub flows: Vec<FlowSample>,
}

/// The figures of a flow on a line over one interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FlowSample {
    /// The flow's name.
    pub flow: String,
    /// The figures of this flow.
    #[serde(flatten)]
    pub figures: Figures,
    /// Moving average of the round-trip time in milliseconds; `None` if it is unknown.
    pub rtt_ms: Option<f64>,
}

/// Figures of a line or a flow.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Figures {
    /// Rate of the Ethernet frames that left, in bits per second.
    pub bits_per_second: f64,
    /// Bytes on the wire that waited at the end of the interval. In a joined sample, the largest of
    /// these.
    pub queue: u64,
    /// Number of segments that were dropped.
    pub drops: u64,
}

/// Why a series is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SeriesError {
    /// The file has another version, or is no series.
    #[error(
        "its first line says version {0}; this program reads version {VERSION}: record it again, \
         or read it with its own"
    )]
    Version(u32),
    /// A time or a figure is impossible.
    #[error("{0} is {1}: want a number that is finite and not negative")]
    Number(&'static str, f64),
    /// A sample does not end after it begins, or begins before the previous one ended.
    #[error("a sample from {0} s to {1} s: want times that increase")]
    Times(f64, f64),
    /// There are too many lines or flows, or a text is too long.
    #[error("{0}: more than {1}")]
    Long(&'static str, usize),
}

impl About {
    /// Makes the first line of a series, of the current version.
    #[must_use]
    pub fn new(title: String, lines: Vec<LineAbout>) -> Self {
        Self { sprat_lab_series: VERSION, title, lines }
    }

    /// Checks a line that was read from a file.
    ///
    /// # Errors
    /// [`SeriesError::Version`] for any version except [`VERSION`]; [`SeriesError::Long`] for more
    /// than [`MAX_SAMPLE_LINES`] lines, or a name or text of more than [`MAX_NAME_BYTES`].
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
    /// Describes the settings of the line with the name `line`.
    #[must_use]
    pub fn new(line: String, settings: &LineSettings) -> Self {
        Self {
            line,
            settings: words(settings),
            buffer: settings.limited().then_some(settings.buffer),
        }
    }
}

impl Sample {
    /// Checks a sample that was read from a file. `after` is the time at which the previous sample
    /// ended.
    ///
    /// # Errors
    /// - [`SeriesError::Number`] if a time or figure is negative or not finite.
    /// - [`SeriesError::Times`] if the sample does not end after it begins, or begins before
    ///   `after`.
    /// - [`SeriesError::Long`] if the sample has too many lines or flows, or a name is too long.
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

    /// Returns the sample's length in seconds.
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

/// Describes in a few words what a line does. Leaves out settings in which the line equals a cable.
fn words(settings: &LineSettings) -> String {
    let ms = |time: std::time::Duration| format!("{} ms", time.as_secs_f64() * 1e3);
    let mut parts = Vec::new();
    if !settings.delay.is_zero() {
        parts.push(format!("delay {}", ms(settings.delay)));
    }
    if let Some(rate) = settings.rate {
        parts.push(format!("rate {} Mb/s", megas(rate.bits_per_second())));
    }
    if settings.limited() {
        parts.push(format!("buffer {} MB", megas(settings.buffer)));
        let queue = if settings.queue == Discipline::Harmonize { "harmonize" } else { "drop-tail" };
        parts.push(queue.to_owned());
    }
    if !settings.jitter.is_zero() {
        parts.push(format!("jitter {}", ms(settings.jitter)));
    }
    for (name, set) in [
        ("loss", settings.loss != crate::line::Loss::None),
        ("reorder", settings.reorder.is_some()),
        ("duplicate", settings.duplicate != crate::chance::Probability::NEVER),
        ("corrupt", settings.corrupt != crate::chance::Probability::NEVER),
    ] {
        if set {
            parts.push(name.to_owned());
        }
    }
    if parts.is_empty() { "a cable".to_owned() } else { parts.join(", ") }
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn megas(count: u64) -> f64 {
    count as f64 / 1e6
}
