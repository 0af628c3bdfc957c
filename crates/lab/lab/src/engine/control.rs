//! Commands from other threads to a worker, with an eventfd that ends the worker's sleep.

use super::report::WorkerReport;
use crate::filter::Rules;
use crate::line::LineSettings;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

/// Limit on the commands that wait for a worker's next loop iteration. A thread that sends one more
/// waits.
const WAITING: usize = 64;

/// Time limit for a reply. A loop iteration takes about a millisecond, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command to a worker.
#[derive(Debug)]
pub(super) enum Command {
    /// Changes the settings of a line.
    Set(usize, Box<LineSettings>),
    /// Replaces the filter's rules, and sends the old ones back.
    Rules(Box<Rules>, Sender<Box<Rules>>),
    /// Sends the worker's counters.
    Report(Sender<WorkerReport>),
    /// Sends the worker's counters, if they are wanted, and ends the worker.
    Stop(Option<Sender<WorkerReport>>),
}

/// The sender's end: sends commands to a worker and waits for replies.
#[derive(Debug)]
pub(super) struct Remote {
    commands: SyncSender<Command>,
    event: Arc<OwnedFd>,
}

impl Remote {
    /// Changes a line's settings. `None` if the worker has ended.
    pub(super) fn set(&self, line: usize, settings: LineSettings) -> Option<()> {
        self.send(Command::Set(line, Box::new(settings)))
    }

    /// Returns the worker's counters. `None` if the worker has ended, or does not reply within
    /// [`PATIENCE`].
    pub(super) fn report(&self) -> Option<WorkerReport> {
        let (sender, answer) = channel();
        self.send(Command::Report(sender))?;
        answer.recv_timeout(PATIENCE).ok()
    }

    /// Replaces the worker's rules and returns the old ones. `None` if the worker has ended, or
    /// does not reply within [`PATIENCE`].
    pub(super) fn rules(&self, rules: Rules) -> Option<Rules> {
        let (sender, answer) = channel();
        self.send(Command::Rules(Box::new(rules), sender))?;
        answer.recv_timeout(PATIENCE).ok().map(|old| *old)
    }

    pub(super) fn stop(&self) {
        let _ = self.send(Command::Stop(None)); // it may have ended already
    }

    /// Stops the worker and returns its last counters. `None` if the worker has ended already, or
    /// does not reply within [`PATIENCE`].
    pub(super) fn last_report(&self) -> Option<WorkerReport> {
        let (sender, answer) = channel();
        self.send(Command::Stop(Some(sender)))?;
        answer.recv_timeout(PATIENCE).ok()
    }

    fn send(&self, command: Command) -> Option<()> {
        self.commands.send(command).ok()?;
        // A write fails only if the counter is full. A full counter also wakes the worker.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
        Some(())
    }
}

/// The worker's end: receives commands.
#[derive(Debug)]
pub(super) struct Inbox {
    commands: Receiver<Command>,
    event: Arc<OwnedFd>,
}

impl Inbox {
    /// Returns the next command, or `None` if no command waits. Returns `Stop` when all senders are
    /// gone.
    pub(super) fn next(&self) -> Option<Command> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::Stop(None)),
        }
    }

    /// Returns the eventfd, which is readable if a command was sent since the last
    /// [`clear_event`](Self::clear_event).
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Resets the eventfd.
    pub(super) fn clear_event(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.event, &mut count); // nothing to read is fine
    }
}

pub(super) fn inbox() -> std::io::Result<(Remote, Inbox)> {
    let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let (sender, receiver) = sync_channel(WAITING);
    Ok((Remote { commands: sender, event: event.clone() }, Inbox { commands: receiver, event }))
}
