//! Shows the progress of a change of the ring on the terminal, and stops it at Ctrl-C.

use crate::output::write_line;
use crate::rack::add::joined_line;
use crate::signals::signals;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use sprat_ring::{Event, LeftData, Watcher};
use std::io;
use std::sync::mpsc::Receiver;

/// The output in addition to the progress display.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Output {
    /// Nothing: the command prints only its result, at its end.
    Nothing,
    /// A line for each instance that is done.
    Instances,
    /// A line for each instance, which says whether it would be restarted, and the differences of
    /// its files.
    Differences,
    /// Everything that Ansible prints.
    Ansible,
}

/// Shows the progress of a change of the ring on the terminal.
pub(super) struct Terminal {
    bar: ProgressBar,
    output: Output,
    signals: Option<Receiver<()>>,
    stopped: bool,
}

impl Terminal {
    /// Makes a display of a change that Ctrl-C or SIGTERM stops before its next step.
    pub(super) fn stoppable(output: Output) -> Result<Self> {
        Ok(Self { signals: Some(signals()?), ..Self::new(output) })
    }

    /// Makes a display of a change that does not handle signals.
    pub(super) fn new(output: Output) -> Self {
        let bar = match output {
            Output::Ansible => ProgressBar::hidden(),
            _ => spinner().with_finish(ProgressFinish::AndClear),
        };
        Self::on(bar, output)
    }

    /// Makes a display on a bar that the caller also uses for other work.
    pub(super) fn on(bar: ProgressBar, output: Output) -> Self {
        Self { bar, output, signals: None, stopped: false }
    }

    /// Removes the progress display; call it before printing the outcome.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, line: &str) -> io::Result<()> {
        self.bar.suspend(|| write_line(line))
    }
}

/// Makes a spinner whose prefix is the current instance and whose message is the current step.
pub(super) fn spinner() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {prefix} {wide_msg}").expect("a constant template");
    ProgressBar::new_spinner().with_style(style)
}

impl Watcher for Terminal {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let instances = matches!(self.output, Output::Instances | Output::Differences);
        let would = self.output == Output::Differences;
        match event {
            Event::Instance { name, at, of } => self.bar.set_prefix(format!("{at}/{of} {name}")),
            Event::Doing(what) => {
                self.bar.set_message(what.to_owned());
                self.bar.tick();
            }
            Event::Waiting => self.bar.tick(),
            Event::Checked(line) => match self.output {
                Output::Ansible => return self.line(line),
                Output::Differences if line.starts_with(['+', '-', '@']) => return self.line(line),
                _ => {}
            },
            Event::NotOnRing(name) => {
                self.bar.suspend(|| {
                    eprintln!("sprat: {name} is not on the ring: run `sprat rack add` to add it")
                });
            }
            Event::Restarted { name, restarted } => {
                let became = match (restarted, would) {
                    (true, false) => "restarted",
                    (true, true) => "would be restarted",
                    (false, _) => "is up to date",
                };
                return self.line(&format!("{name} {became}"));
            }
            Event::Joined(newcomer) if instances => {
                return self.line(&joined_line(newcomer, "joined"));
            }
            Event::Left { name, data } if instances => {
                let data = match data {
                    LeftData::Kept => "its data is kept on its server",
                    LeftData::Removed => "its data is deleted",
                    LeftData::Unreachable => {
                        "its server cannot be reached: if it returns, delete its data there \
                         before it starts"
                    }
                };
                return self.line(&format!("{name} has left the ring; {data}"));
            }
            Event::Joined(_) | Event::Left { .. } => {}
        }
        Ok(())
    }

    fn is_stopped(&mut self) -> bool {
        self.stopped |= self.signals.as_ref().is_some_and(|signals| signals.try_recv().is_ok());
        self.stopped
    }
}
