//! One download, on a thread of its own.

use super::protocol::{Code, FileName, Id, Report};
use sprat_flow::RecentRate;
use sprat_flow::copy::{Error, Event, Fetch, Outcome};
use sprat_flow::file::DestinationError;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Interval between two reports of progress.
const REPORT_TIME: Duration = Duration::from_millis(500);

/// Runs a download and reports its progress to the browser.
pub(super) struct DownloadReporter<'a> {
    id: &'a Id,
    name: &'a FileName,
    reports: &'a SyncSender<Report>,
    recent: RecentRate,
    last_report: Option<Instant>,
    verified: bool,
}

impl<'a> DownloadReporter<'a> {
    /// Makes the reporter of a download that will have this name.
    pub(super) fn new(id: &'a Id, name: &'a FileName, reports: &'a SyncSender<Report>) -> Self {
        Self {
            id,
            name,
            reports,
            recent: RecentRate::default(),
            last_report: None,
            verified: false,
        }
    }

    /// Runs the download, and returns its final report, which the caller sends; `None` if it was
    /// cancelled.
    pub(super) fn run(mut self, copy: &Fetch) -> Option<Report> {
        match copy.run(&mut |event| self.event(event)) {
            Ok(outcome) => Some(self.done(&outcome)),
            Err(Error::Cancelled) => None,
            Err(error) => {
                let (code, why) = classify(error);
                Some(Report::Failed { id: self.id.clone(), code, why: why.into() })
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let note = match event {
            Event::Opened { length, verified, resumed, .. } => {
                (self.recent, self.verified) = (RecentRate::default(), *verified);
                let (id, name) = (self.id.clone(), self.name.clone());
                // If the browser has gone, the report is lost, and the host is about to end.
                let report = Report::Opened {
                    id,
                    name,
                    bytes: *length,
                    verified: *verified,
                    resumed: *resumed,
                };
                let _ = self.reports.send(report);
                return;
            }
            Event::Progress(progress) => {
                let bytes_per_second = self.recent.per_second(progress.received);
                if self.last_report.is_none_or(|last_report| last_report.elapsed() >= REPORT_TIME) {
                    self.last_report = Some(Instant::now());
                    let rtt_us = u64::try_from(progress.rtt.as_micros()).unwrap_or(u64::MAX);
                    let (id, done, bytes) = (self.id.clone(), progress.done, progress.length);
                    // If the queue is full, the next report will do.
                    let _ = self.reports.try_send(Report::Progress {
                        id,
                        done,
                        bytes,
                        bytes_per_second,
                        rtt_us,
                    });
                }
                return;
            }
            Event::Wrong { offset, bytes, .. } => {
                format!("{bytes} B at {offset} arrived wrong: fetched again")
            }
            Event::Retry { why, pause } => {
                format!("{why}; tries again in {:.1} s", pause.as_secs_f64())
            }
            Event::StartsOver { why } => format!("begins anew: {why}"),
            Event::Checking { .. } => "reads and verifies what is here".to_owned(),
            Event::Failed { name, why } => format!("{name}: {why}"),
            Event::HostDropped { source, why } => format!("goes on without {source}: {why}"),
            Event::Note(text) => text.clone(),
        };
        let _ = self.reports.try_send(Report::Note { id: self.id.clone(), text: note.into() });
    }

    fn done(self, outcome: &Outcome) -> Report {
        Report::Done {
            id: self.id.clone(),
            name: self.name.clone(),
            bytes: outcome.length,
            blake3: outcome
                .blake3
                .map(|value| value.iter().map(|byte| format!("{byte:02x}")).collect()),
            verified: self.verified && outcome.verified,
            unchanged: outcome.unchanged,
        }
    }
}

/// Says why a download failed, without advice about a command line that was never used.
pub(super) fn classify(error: Error) -> (Code, String) {
    match error {
        Error::Usage(why) => (Code::Usage, why),
        Error::NotFound { status, .. } => {
            (Code::NotFound, format!("the server has no such file ({status})"))
        }
        Error::Denied { status, .. } => {
            (Code::Denied, format!("the server does not give it to us ({status})"))
        }
        Error::Refused { .. } => (Code::Protocol, error.to_string()),
        Error::Unreachable { why, .. } => (Code::Unreachable, why),
        Error::Untrusted { why, .. } => (Code::Untrusted, why),
        Error::Protocol { why, .. } => (Code::Protocol, why),
        Error::Changed { why, .. } => {
            (Code::Changed, format!("it changes while it is fetched: {why}"))
        }
        Error::Corrupt { why, .. } => (Code::Corrupt, why),
        Error::Destination(
            DestinationError::Exists(path) | DestinationError::Other { path, .. },
        ) => {
            (Code::Exists, format!("there is another file now at {}; move it away", path.display()))
        }
        Error::Destination(_) | Error::Sink(_) | Error::File { .. } => {
            (Code::Unwritable, error.to_string())
        }
        Error::Cancelled => (Code::Unreachable, "stopped".to_owned()),
    }
}
