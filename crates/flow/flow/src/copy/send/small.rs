//! Small files: many on a connection before the first answer, so that a round trip is not the price
//! of a file.

use super::ask::Condition;
use super::lane::MAX_ANSWER;
use super::talk::{Line, request, taken};
use super::walk::Entry;
use crate::copy::error::{Error, Trouble};
use crate::file::{open_regular, xattrs_of};
use crate::group::{self, VERIFIED};
use crate::share::Version;
use sprat_host::lock;
use sprat_http::{Address, MODE, MTIME, XATTRS};
use std::collections::VecDeque;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;

/// Longest file that is sent so, bytes.
pub(super) const SMALL: u64 = 4 << 20;

/// Most files that were sent and not answered yet, and most bytes of them: their answers find room
/// in the buffers of a connection, so that neither end waits for the other to read.
const MAX_HELD: usize = 64;
const MAX_HELD_BYTES: u64 = 8 << 20;

/// A file that is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) entry: Entry,
    pub(super) to: Address,
    pub(super) condition: Condition,
}

/// What becomes of files.
pub(super) enum End {
    /// It is there; perhaps with a note of the server's.
    Done(Option<String>),
    /// It is not, and why.
    Failed(Error),
    /// It is tried alone, with all that one file is given.
    Alone,
}

/// A connection's work.
pub(super) struct Worker<'a> {
    pub(super) root: &'a Path,
    pub(super) preserve: bool,
    pub(super) xattrs: bool,
    pub(super) tasks: &'a Mutex<VecDeque<Task>>,
    pub(super) is_stopped: &'a (dyn Fn() -> bool + Sync),
    pub(super) end: &'a (dyn Fn(Task, End) + Sync),
}

impl Worker<'_> {
    /// Sends files until there are none. What ends all of it is given back.
    pub(super) fn run(&self, line: &mut Line<'_>) -> Result<(), Error> {
        let mut held = VecDeque::new();
        loop {
            let result = self.some(line, &mut held);
            let over = lock(self.tasks).is_empty();
            // What was sent, and not heard of, may be there or not.
            held.drain(..).for_each(|task| (self.end)(task, End::Alone));
            match result {
                Ok(()) if (self.is_stopped)() => return Err(Error::Cancelled),
                Ok(()) => return Ok(()),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(_) if (self.is_stopped)() => return Err(Error::Cancelled),
                // The next one finds out whether anybody is there, with patience.
                Err(_) if over => return Ok(()),
                Err(_) => {
                    line.close();
                    let next = lock(self.tasks).pop_front();
                    if let Some(task) = next {
                        (self.end)(task, End::Alone);
                    }
                }
            }
        }
    }

    fn some(&self, line: &mut Line<'_>, held: &mut VecDeque<Task>) -> Result<(), Trouble> {
        loop {
            let bytes: u64 = held.iter().map(|task| task.entry.version.size).sum();
            let next = if held.len() < MAX_HELD && bytes < MAX_HELD_BYTES && !(self.is_stopped)() {
                lock(self.tasks).pop_front()
            } else {
                None
            };
            match next {
                Some(task) => self.send(line, task, held)?,
                None if held.is_empty() => return Ok(()),
                None => self.hear(line, held)?,
            }
        }
    }

    fn send(
        &self,
        line: &mut Line<'_>,
        task: Task,
        held: &mut VecDeque<Task>,
    ) -> Result<(), Trouble> {
        let Some((body, xattrs)) = self.body(&task) else {
            // Gone, or another by now: alone it is seen what.
            (self.end)(task, End::Alone);
            return Ok(());
        };
        let version = task.entry.version;
        let (length, modified) = (body.len().to_string(), version.modified.to_string());
        let (mode, condition) = (format!("{:04o}", version.mode & 0o777), task.condition.clone());
        let mut fields = vec![
            ("Content-Type", VERIFIED),
            ("Content-Length", &length[..]),
            (MTIME, &modified),
            condition.field(),
        ];
        if self.preserve {
            fields.push((MODE, &mode));
        }
        if !xattrs.is_empty() {
            fields.push((XATTRS, &xattrs));
        }
        let head = request("PUT", &task.to, &fields);
        let to = task.to.clone();
        held.push_back(task);
        line.open(&to)?;
        let parts: &[&[u8]] = &[head.as_bytes(), &body];
        let (all, mut done) = (head.len() + body.len(), 0);
        loop {
            done = line.pass(&to, parts, done)?;
            if done == all {
                return Ok(());
            }
            let was_last = held.len() == 1;
            self.hear(line, held)?;
            if was_last {
                return Err(Trouble::Passing(
                    "it answered before it had everything".to_owned(),
                    None,
                ));
            }
        }
    }

    /// The verified form of a file that is as it was, and its extended attributes where they go
    /// along.
    fn body(&self, task: &Task) -> Option<(Vec<u8>, String)> {
        let Entry { path, version } = &task.entry;
        let (mut file, _) = open_regular(&self.root.join(path)).ok()?;
        let mut content = Vec::new();
        std::io::Read::by_ref(&mut file).take(SMALL + 1).read_to_end(&mut content).ok()?;
        let same =
            content.len() as u64 == version.size && Version::of(&file.metadata().ok()?) == *version;
        if !same {
            return None;
        }
        let mut body = Vec::with_capacity(content.len() + 256);
        for index in 0..group::count(version.size) {
            let bytes = group::range(version.size, index);
            let at = |offset: u64| usize::try_from(offset).expect("a small file");
            let bytes = &content[at(bytes.start)..at(bytes.end)];
            body.extend(bytes);
            body.extend(group::value(version.size, index, bytes));
        }
        let xattrs = if self.xattrs { xattrs_of(&file).ok()?.field() } else { String::new() };
        Some((body, xattrs))
    }

    /// Hears what became of the file that was sent first.
    fn hear(&self, line: &mut Line<'_>, held: &mut VecDeque<Task>) -> Result<(), Trouble> {
        let Some(to) = held.front().map(|task| task.to.clone()) else { return Ok(()) };
        let reply = line.answer(&to, MAX_ANSWER)?;
        let closes = reply.head.close;
        let Some(task) = held.pop_front() else { return Ok(()) };
        match taken(&to, reply) {
            Ok(reply) => (self.end)(task, End::Done(reply.head.note)),
            Err(Trouble::Fatal(Error::Refused { status: 422, .. })) => (self.end)(task, End::Alone),
            Err(Trouble::Fatal(error @ Error::Refused { .. })) if !ends_all(&error) => {
                (self.end)(task, End::Failed(error))
            }
            Err(Trouble::Fatal(error)) => return Err(error.into()),
            Err(_) => (self.end)(task, End::Alone),
        }
        if closes {
            Err(Trouble::Passing("the server ended the connection".to_owned(), None))
        } else {
            Ok(())
        }
    }
}

/// Whether no other file would fare better.
pub(super) fn ends_all(error: &Error) -> bool {
    match error {
        Error::Refused { status, .. } => matches!(status, 405 | 507),
        other => matches!(
            other,
            Error::Cancelled
                | Error::Denied { .. }
                | Error::Untrusted { .. }
                | Error::Unreachable { .. }
        ),
    }
}
