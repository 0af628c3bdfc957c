//! The output of a copy: a progress bar and a summary for people, JSON lines for programs.

use crate::output::print_json;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sprat_flow::RecentRate;
use sprat_flow::copy::{Event, Outcome, Progress, SpreadOutcome, TreeOutcome};
use sprat_flow::escape_controls;
use sprat_objects::SentObject;
use sprat_units::figure;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval between two progress events as JSON.
const JSON_INTERVAL: Duration = Duration::from_millis(500);

/// Shows the progress and the outcome of copies that run one after another.
pub(super) struct Show {
    json: bool,
    quiet: bool,
    bar: ProgressBar,
    recent: RecentRate,
    last_printed: Instant,
    /// Whether printing failed. A copy continues without a reader of its output.
    broken: bool,
}

impl Show {
    pub(super) fn new(json: bool, quiet: bool) -> Self {
        let bar = if quiet || json { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let (recent, last_printed) = (RecentRate::default(), Instant::now());
        Self { json, quiet, bar, recent, last_printed, broken: false }
    }

    pub(super) fn event(&mut self, event: &Event) {
        if self.json {
            self.print(event);
            return;
        }
        match event {
            Event::Opened { length, resumed, streams, verified, written, .. } => {
                self.begin(*length, *resumed);
                let form = if *verified { "verified" } else { "not verified" };
                let streams =
                    if *streams == 1 { String::new() } else { format!(", {streams} streams") };
                self.bar.set_prefix(format!("{form}{streams}"));
                if *resumed > 0 {
                    self.say(&format!("resuming: {} are already there", size(*resumed)));
                }
                let _ = written; // only the JSON has it: people do not need it
            }
            Event::Progress(progress) => self.progress(progress),
            Event::Wrong { offset, bytes, times } => {
                self.say(&format!(
                    "{bytes} bytes at offset {offset} arrived corrupt (attempt {times}); \
                     transferring them again"
                ));
            }
            Event::Retry { why, pause } => {
                self.say(&format!("{why}; retrying in {:.1} s", pause.as_secs_f64()))
            }
            Event::StartsOver { why } => self.say(&format!("starting over: {why}")),
            Event::Checking { bytes } => {
                self.say(&format!("verifying {} of an earlier attempt", size(*bytes)))
            }
            Event::Failed { name, why } => self.say(&format!("{name}: {why}")),
            Event::HostDropped { source, why } => {
                self.say(&format!("continuing without {source}: {why}"))
            }
            Event::Note(text) => self.say(text),
        }
    }

    /// Reports that a file is done.
    pub(super) fn done(&mut self, outcome: &Outcome) -> Result<()> {
        self.clear();
        let seconds = outcome.time.as_secs_f64();
        let blake3 = outcome.blake3.map(hex);
        if self.json {
            let sources = outcome.sources.iter();
            let sources: Vec<_> = sources
                .map(|served| json!({ "source": served.source, "bytes": served.bytes }))
                .collect();
            return print_json(&json!({
                "event": "done", "target": outcome.target.display().to_string(),
                "bytes": outcome.length, "blake3": blake3,
                "verified": outcome.verified, "unchanged": outcome.unchanged,
                "received": outcome.progress.received,
                "retries": outcome.progress.retries, "wrong_groups": outcome.progress.wrong,
                "seconds": seconds,
                "sources": sources,
            }));
        }
        if self.quiet {
            return Ok(());
        }
        let target = shown(&outcome.target);
        if outcome.unchanged {
            let sum = if outcome.verified { ", and the given hash" } else { "" };
            eprintln!(
                "{target}: exists already, with the source's size and modification time{sum}"
            );
            return Ok(());
        }
        let mut text = format!("{target}: {} in {seconds:.1} s", size(outcome.length));
        if outcome.progress.received > 0 {
            text += &format!(", {}", rate(outcome.progress.received, seconds));
        }
        if !outcome.verified {
            text += "; not verified";
        }
        eprintln!("{text}\nblake3 {}", blake3.unwrap_or_default());
        if let [_, _, ..] = &outcome.sources[..] {
            outcome.sources.iter().for_each(|served| {
                eprintln!("{} from {}", size(served.bytes), escape_controls(&served.source))
            });
        }
        Ok(())
    }

    /// Reports that a file was sent to an object store.
    pub(super) fn sent(&mut self, sent: &SentObject) -> Result<()> {
        self.clear();
        let (seconds, blake3, target) =
            (sent.time.as_secs_f64(), hex(sent.blake3), sent.target.to_string());
        if self.json {
            return print_json(&json!({
                "event": "done", "target": target, "bytes": sent.length, "blake3": blake3,
                "seconds": seconds,
            }));
        }
        if !self.quiet {
            let (size, rate) = (size(sent.length), rate(sent.length, seconds));
            eprintln!(
                "{}: {size} in {seconds:.1} s, {rate}\nblake3 {blake3}",
                escape_controls(&target)
            );
        }
        Ok(())
    }

    /// Reports that a folder is done.
    pub(super) fn tree_done(&mut self, outcome: &TreeOutcome) -> Result<()> {
        self.clear();
        let seconds = outcome.time.as_secs_f64();
        if self.json {
            return print_json(&json!({
                "event": "done", "target": outcome.target.display().to_string(),
                "files": outcome.files,
                "unchanged": outcome.unchanged, "directories": outcome.directories,
                "bytes": outcome.bytes,
                "failed": outcome.failed, "left_out": outcome.left_out,
                "verified": outcome.verified, "seconds": seconds,
            }));
        }
        for why in &outcome.left_out {
            eprintln!("left out: {}", escape_controls(why));
        }
        if !self.quiet {
            eprintln!(
                "{}: {} files, {} in {seconds:.1} s, {}; {} existed already, {} failed",
                shown(&outcome.target),
                outcome.files,
                size(outcome.bytes),
                rate(outcome.bytes, seconds),
                outcome.unchanged,
                outcome.failed,
            );
        }
        Ok(())
    }

    /// Reports that a spread file or folder is done, with the bytes of each host. `word` precedes a
    /// host's name: `at` or `from`.
    pub(super) fn set_done(&mut self, outcome: &SpreadOutcome, word: &str) -> Result<()> {
        let (tree, blake3) = (&outcome.tree, outcome.blake3.map(hex));
        if self.json {
            self.clear();
            let hosts = outcome.hosts.iter();
            let hosts: Vec<_> = hosts
                .map(|served| json!({ "source": served.source, "bytes": served.bytes }))
                .collect();
            return print_json(&json!({
                "event": "done", "target": tree.target.display().to_string(), "files": tree.files,
                "unchanged": tree.unchanged,
                "directories": tree.directories, "bytes": tree.bytes, "failed": tree.failed,
                "left_out": tree.left_out,
                "verified": tree.verified, "seconds": tree.time.as_secs_f64(), "blake3": blake3,
                "sources": hosts,
            }));
        }
        self.tree_done(tree)?;
        if !self.quiet {
            blake3.iter().for_each(|blake3| eprintln!("blake3 {blake3}"));
            outcome.hosts.iter().for_each(|served| {
                eprintln!("{} {word} {}", size(served.bytes), escape_controls(&served.source))
            });
        }
        Ok(())
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn begin(&mut self, length: Option<u64>, here: u64) {
        self.recent = RecentRate::default();
        let template = match length {
            Some(_) => "{bar:32} {bytes}/{total_bytes}  {msg}  {prefix}",
            None => "{spinner} {bytes}  {msg}  {prefix}",
        };
        self.bar.set_style(ProgressStyle::with_template(template).expect("a constant template"));
        match length {
            Some(length) => self.bar.set_length(length),
            None => self.bar.unset_length(),
        }
        self.bar.reset();
        self.bar.set_position(here);
    }

    fn progress(&mut self, progress: &Progress) {
        self.bar.set_position(progress.done);
        if let Some(length) = progress.length {
            self.bar.set_length(length);
        }
        let per_second = self.recent.per_second(progress.received);
        let mut text = rate(per_second, 1.0);
        if !progress.rtt.is_zero() {
            text += &format!("  RTT {:.1} ms", progress.rtt.as_secs_f64() * 1e3);
        }
        if let Some(left) = progress
            .length
            .and_then(|length| length.saturating_sub(progress.done).checked_div(per_second))
        {
            text += &format!("  {} left", indicatif::HumanDuration(Duration::from_secs(left)));
        }
        if progress.retries > 0 {
            text += &format!("  {} retries", progress.retries);
        }
        if progress.wrong > 0 {
            text += &format!("  {} corrupt", progress.wrong);
        }
        self.bar.set_message(text);
    }

    /// Prints a line above the bar.
    fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("sprat: {}", escape_controls(text)));
    }

    fn print(&mut self, event: &Event) {
        if matches!(event, Event::Progress(_)) && self.last_printed.elapsed() < JSON_INTERVAL {
            return;
        }
        self.last_printed = Instant::now();
        if !self.broken {
            let value = self.value(event);
            self.broken = print_json(&value).is_err();
        }
    }

    fn value(&mut self, event: &Event) -> Value {
        match event {
            Event::Opened { source, target, length, verified, resumed, streams, written } => {
                self.recent = RecentRate::default();
                json!({
                    "event": "opened", "source": source, "target": target.display().to_string(),
                    "bytes": length,
                    "verified": verified, "resumed": resumed, "streams": streams,
                    "written": written,
                })
            }
            Event::Progress(progress) => json!({
                "event": "progress", "done": progress.done, "bytes": progress.length,
                "received": progress.received,
                "bytes_per_second": self.recent.per_second(progress.received),
                "rtt_us": u64::try_from(progress.rtt.as_micros()).ok(),
                "retries": progress.retries, "wrong_groups": progress.wrong,
            }),
            Event::Wrong { offset, bytes, times } => {
                json!({ "event": "wrong", "offset": offset, "bytes": bytes, "times": times })
            }
            Event::Retry { why, pause } => {
                json!({ "event": "retry", "why": why, "seconds": pause.as_secs_f64() })
            }
            Event::StartsOver { why } => json!({ "event": "starts_over", "why": why }),
            Event::Checking { bytes } => json!({ "event": "checking", "bytes": bytes }),
            Event::Failed { name, why } => json!({ "event": "failed", "name": name, "why": why }),
            Event::HostDropped { source, why } => {
                json!({ "event": "without", "source": source, "why": why })
            }
            Event::Note(text) => json!({ "event": "note", "text": text }),
        }
    }
}

/// Renders a path for a terminal. A server may have chosen the name, so control characters are
/// escaped.
fn shown(path: &Path) -> String {
    escape_controls(&path.to_string_lossy()).into_owned()
}

fn size(bytes: u64) -> String {
    indicatif::DecimalBytes(bytes).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn rate(bytes: u64, seconds: f64) -> String {
    figure::bit_rate(bytes as f64 * 8.0 / seconds.max(1e-6))
}

fn hex(bytes: [u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
