//! The way from whoever watches to a lane: commands, and an event that ends its sleep.

use super::report::LaneReport;
use crate::filter::Rules;
use crate::line::Settings;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

/// Commands that may wait for a lane's next turn; whoever sends more waits with them.
const WAITING: usize = 64;

/// How long a lane may take to answer. A turn takes a millisecond; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a lane may be told.
#[derive(Debug)]
pub(super) enum Command {
    /// Change what a line does.
    Set(usize, Box<Settings>),
    /// Have other rules from now on, and give back the old.
    Rules(Box<Rules>, Sender<Box<Rules>>),
    /// Tell what became of everything.
    Report(Sender<LaneReport>),
    /// Tell the same, and end: nothing comes after what is told.
    Stop(Option<Sender<LaneReport>>),
}

/// The near end.
#[derive(Debug)]
pub(super) struct Remote {
    commands: SyncSender<Command>,
    event: Arc<OwnedFd>,
}

impl Remote {
    /// None when the lane has ended.
    pub(super) fn set(&self, line: usize, settings: Settings) -> Option<()> {
        self.send(Command::Set(line, Box::new(settings)))
    }

    /// None when the lane has ended.
    pub(super) fn report(&self) -> Option<LaneReport> {
        let (sender, answer) = channel();
        self.send(Command::Report(sender))?;
        answer.recv_timeout(PATIENCE).ok()
    }

    /// The rules that it had; none when the lane has ended.
    pub(super) fn rules(&self, rules: Rules) -> Option<Rules> {
        let (sender, answer) = channel();
        self.send(Command::Rules(Box::new(rules), sender))?;
        answer.recv_timeout(PATIENCE).ok().map(|old| *old)
    }

    pub(super) fn stop(&self) {
        let _ = self.send(Command::Stop(None)); // it may have ended already
    }

    /// Stops it; what became of everything until then. None when it has ended before.
    pub(super) fn last_report(&self) -> Option<LaneReport> {
        let (sender, answer) = channel();
        self.send(Command::Stop(Some(sender)))?;
        answer.recv_timeout(PATIENCE).ok()
    }

    fn send(&self, command: Command) -> Option<()> {
        self.commands.send(command).ok()?;
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes()); // full means that it is awake
        Some(())
    }
}

/// The far end.
#[derive(Debug)]
pub(super) struct Inbox {
    commands: Receiver<Command>,
    event: Arc<OwnedFd>,
}

impl Inbox {
    /// What has been sent; to stop, when nobody can send any more.
    pub(super) fn next(&self) -> Option<Command> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::Stop(None)),
        }
    }

    /// Readable when something was sent since this was last called.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes note of the event.
    pub(super) fn noted(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.event, &mut count); // nothing to read is fine
    }
}

pub(super) fn inbox() -> std::io::Result<(Remote, Inbox)> {
    let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let (sender, receiver) = sync_channel(WAITING);
    Ok((Remote { commands: sender, event: event.clone() }, Inbox { commands: receiver, event }))
}
