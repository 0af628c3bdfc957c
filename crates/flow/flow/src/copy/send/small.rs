//! Sends small files. Many files are sent on a connection before the first response arrives, so
//! that not each file costs a round trip.

use super::ask::Condition;
use super::lane::MAX_ANSWER;
use super::talk::{Connection, check_accepted, request};
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

/// Limit on the length of a file that is sent in a single request, in bytes.
pub(super) const SMALL: u64 = 4 << 20;

/// A further file is sent only while fewer files than this, with fewer bytes than
/// [`MAX_IN_FLIGHT_BYTES`], wait for a response. The responses then fit in the connection's
/// buffers, so that the two ends never wait for each other to read.
const MAX_IN_FLIGHT: usize = 64;
const MAX_IN_FLIGHT_BYTES: u64 = 8 << 20;

/// A file to be sent.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) entry: Entry,
    pub(super) to: Address,
    pub(super) condition: Condition,
}

/// The result of sending a file.
pub(super) enum FileResult {
    /// The server stored the file, perhaps with a note.
    Done(Option<String>),
    /// The server did not store the file.
    Failed(Error),
    /// The file must be sent again by itself, with the retries of a single file.
    Alone,
}

/// The work of one connection.
pub(super) struct Worker<'a> {
    pub(super) root: &'a Path,
    pub(super) preserve: bool,
    pub(super) xattrs: bool,
    pub(super) tasks: &'a Mutex<VecDeque<Task>>,
    pub(super) is_stopped: &'a (dyn Fn() -> bool + Sync),
    pub(super) end: &'a (dyn Fn(Task, FileResult) + Sync),
}

impl Worker<'_> {
    /// Sends files until none is left. An error ends the whole transfer.
    pub(super) fn run(&self, connection: &mut Connection<'_>) -> Result<(), Error> {
        let mut in_flight = VecDeque::new();
        loop {
            let result = self.some(connection, &mut in_flight);
            let over = lock(self.tasks).is_empty();
            // Files without a response may have been stored or not.
            in_flight.drain(..).for_each(|task| (self.end)(task, FileResult::Alone));
            match result {
                Ok(()) if (self.is_stopped)() => return Err(Error::Cancelled),
                Ok(()) => return Ok(()),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(_) if (self.is_stopped)() => return Err(Error::Cancelled),
                // The next file, sent alone with retries, shows whether the server is still
                // reachable.
                Err(_) if over => return Ok(()),
                Err(_) => {
                    connection.close();
                    let next = lock(self.tasks).pop_front();
                    if let Some(task) = next {
                        (self.end)(task, FileResult::Alone);
                    }
                }
            }
        }
    }

    fn some(
        &self,
        connection: &mut Connection<'_>,
        in_flight: &mut VecDeque<Task>,
    ) -> Result<(), Trouble> {
        loop {
            let bytes: u64 = in_flight.iter().map(|task| task.entry.version.size).sum();
            let next = if in_flight.len() < MAX_IN_FLIGHT
                && bytes < MAX_IN_FLIGHT_BYTES
                && !(self.is_stopped)()
            {
                lock(self.tasks).pop_front()
            } else {
                None
            };
            match next {
                Some(task) => self.send(connection, task, in_flight)?,
                None if in_flight.is_empty() => return Ok(()),
                None => self.read_reply(connection, in_flight)?,
            }
        }
    }

    fn send(
        &self,
        connection: &mut Connection<'_>,
        task: Task,
        in_flight: &mut VecDeque<Task>,
    ) -> Result<(), Trouble> {
        let Some((body, xattrs)) = self.body(&task) else {
            // The file was removed or has changed. The attempt to send it alone reports which.
            (self.end)(task, FileResult::Alone);
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
        in_flight.push_back(task);
        connection.open(&to)?;
        let parts: &[&[u8]] = &[head.as_bytes(), &body];
        let (all, mut done) = (head.len() + body.len(), 0);
        loop {
            done = connection.send_parts(&to, parts, done)?;
            if done == all {
                return Ok(());
            }
            let was_last = in_flight.len() == 1;
            self.read_reply(connection, in_flight)?;
            if was_last {
                return Err(Trouble::Transient(
                    "it answered before it received everything".to_owned(),
                    None,
                ));
            }
        }
    }

    /// Returns the verified form of a file, and its extended attributes if they are to be sent.
    /// `None` if the file has changed or cannot be read.
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

    /// Reads the response to the file that was sent first.
    fn read_reply(
        &self,
        connection: &mut Connection<'_>,
        in_flight: &mut VecDeque<Task>,
    ) -> Result<(), Trouble> {
        let Some(to) = in_flight.front().map(|task| task.to.clone()) else { return Ok(()) };
        let reply = connection.answer(&to, MAX_ANSWER)?;
        let closes = reply.head.close;
        let Some(task) = in_flight.pop_front() else { return Ok(()) };
        match check_accepted(&to, reply) {
            Ok(reply) => (self.end)(task, FileResult::Done(reply.head.note)),
            Err(Trouble::Fatal(Error::Refused { status: 422, .. })) => {
                (self.end)(task, FileResult::Alone)
            }
            Err(Trouble::Fatal(error @ Error::Refused { .. })) if !ends_all(&error) => {
                (self.end)(task, FileResult::Failed(error))
            }
            Err(Trouble::Fatal(error)) => return Err(error.into()),
            Err(_) => (self.end)(task, FileResult::Alone),
        }
        if closes {
            Err(Trouble::Transient("the server ended the connection".to_owned(), None))
        } else {
            Ok(())
        }
    }
}

/// Returns whether the error would recur for every other file.
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
