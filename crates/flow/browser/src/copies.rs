//! One download, on a thread of its own.

use super::protocol::{FailureCode, FileName, Id, Report};
use sprat_flow::RecentRate;
use sprat_flow::copy::{Error, Event, Fetch, Outcome};
use sprat_flow::file::DestinationError;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Shortest interval between two reports of progress.
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
    /// Creates the reporter of a download whose file will be called `name`.
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

    /// Runs the download, and returns its final report for the caller to send. `None` if the
    /// download was cancelled.
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
                // If the browser has closed its end, the report is lost, and the host is about to
                // end.
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
                    // If the queue is full, this report is dropped, and a later one shows the
                    // progress.
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
                format!("{bytes} bytes at offset {offset} arrived corrupt; transferring them again")
            }
            Event::Retry { why, pause } => {
                format!("{why}; retrying in {:.1} s", pause.as_secs_f64())
            }
            Event::StartsOver { why } => format!("starting over: {why}"),
            Event::Checking { .. } => "verifying data of an earlier attempt".to_owned(),
            Event::Failed { name, why } => format!("{name}: {why}"),
            Event::HostDropped { source, why } => format!("continuing without {source}: {why}"),
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

/// Returns why a download failed, without the advice about command lines that `Display` gives.
pub(super) fn classify(error: Error) -> (FailureCode, String) {
    match error {
        Error::Usage(why) => (FailureCode::Usage, why),
        Error::NotFound { status, .. } => {
            (FailureCode::NotFound, format!("the server has no such file ({status})"))
        }
        Error::Denied { status, .. } => {
            (FailureCode::Denied, format!("the server denies access ({status})"))
        }
        Error::Refused { .. } => (FailureCode::Protocol, error.to_string()),
        Error::Unreachable { why, .. } => (FailureCode::Unreachable, why),
        Error::Untrusted { why, .. } => (FailureCode::Untrusted, why),
        Error::Protocol { why, .. } => (FailureCode::Protocol, why),
        Error::Changed { why, .. } => {
            (FailureCode::Changed, format!("the file keeps changing during the transfer: {why}"))
        }
        Error::Corrupt { why, .. } => (FailureCode::Corrupt, why),
        Error::Destination(
            DestinationError::Exists(path) | DestinationError::Other { path, .. },
        ) => (
            FailureCode::Exists,
            format!("another file exists at {}; move it away", path.display()),
        ),
        Error::Destination(_) | Error::Sink(_) | Error::File { .. } => {
            (FailureCode::Unwritable, error.to_string())
        }
        Error::Cancelled => (FailureCode::Unreachable, "stopped".to_owned()),
    }
}
