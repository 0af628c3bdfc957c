//! Fetches small files. Many files are requested on a connection before the first response arrives,
//! so that not each file costs a round trip.

use super::listing::Entry;
use crate::copy::answer::{Answer, FileRequest, Form, judge};
use crate::copy::client::{Client, request};
use crate::copy::error::{Error, Trouble, fault};
use crate::file::{Attributes, Destination, SinkError};
use crate::group::{self, GROUP_BYTES};
use sprat_http::client::{Body, Wire};
use sprat_http::{Address, Cancel};
use std::io::Write as _;
use std::ops::ControlFlow;

/// Limit on the length of a small file, in bytes. A small file is fetched so quickly that it needs
/// no journal.
pub(super) const SMALL: u64 = 4 << 20;

/// Limit on the number of files in a batch. They are requested before the first response is read.
pub(super) const BATCH_FILES: usize = 128;

/// Limit on the bytes of a batch's requests. The requests fit in the connection's buffers, so that
/// the two ends never wait for each other to read. A batch of one file may exceed the limit.
pub(super) const BATCH_REQUESTS: usize = 64 << 10;

/// An upper bound of a request's length in bytes, not counting its target, host and credentials.
const REQUEST: usize = 400;

/// Limit on the bytes of a batch's files. A batch of one file may exceed the limit.
pub(super) const BATCH_BYTES: u64 = 8 << 20;

/// A file to be copied.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) entry: Entry,
    pub(super) address: Address,
    pub(super) destination: Destination,
}

impl Task {
    /// Returns an upper bound of the length of the file's request, in bytes.
    pub(super) fn request_bytes(&self) -> usize {
        let (address, credentials) = (&self.address, self.address.authorization());
        REQUEST
            + address.target(false).len()
            + address.authority().len()
            + credentials.map_or(0, str::len)
    }
}

/// The connection and memory of one worker.
pub(super) struct Worker<'a> {
    pub(super) client: &'a Client,
    pub(super) cancel: &'a Cancel,
    pub(super) force: bool,
    pub(super) preserve: bool,
    pub(super) xattrs: bool,
    /// Whether to request the verified form.
    pub(super) verify: bool,
    kept: Option<Wire>,
    buffer: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        client: &'a Client,
        cancel: &'a Cancel,
        options: &crate::copy::Options,
    ) -> Self {
        let (force, preserve, verify) = (options.force, options.preserve, options.verify);
        let buffer = vec![0; usize::try_from(GROUP_BYTES).expect("a group is in memory")];
        Self { client, cancel, force, preserve, xattrs: options.xattrs, verify, kept: None, buffer }
    }

    /// Copies files in order. Calls `done` after each file, with whether the file was verified. On
    /// failure, returns how many files are done, and the failure of the next file.
    pub(super) fn batch(
        &mut self,
        tasks: &[Task],
        done: &mut dyn FnMut(&Task, bool),
    ) -> Result<(), (usize, Trouble)> {
        let mut count = 0;
        // The server may have closed the idle connection. In that case try once more on a new one.
        for reused in [self.kept.is_some(), false] {
            match self.all(&tasks[count..], &mut count, done) {
                Ok(()) => return Ok(()),
                Err(Trouble::Transient(..)) if reused => {}
                Err(trouble) => return Err((count, trouble)),
            }
        }
        unreachable!("the second round returns")
    }

    fn all(
        &mut self,
        tasks: &[Task],
        count: &mut usize,
        done: &mut dyn FnMut(&Task, bool),
    ) -> Result<(), Trouble> {
        let Some(first) = tasks.first() else { return Ok(()) };
        let mut wire = match self.kept.take() {
            Some(wire) => wire,
            None => self.client.connect(&first.address, self.cancel)?,
        };
        let file_request: Vec<_> = tasks.iter().map(|task| self.file_request(task)).collect();
        let requests: String = tasks
            .iter()
            .zip(&file_request)
            .map(|(task, file_request)| request(&task.address, file_request))
            .collect();
        wire.send(requests.as_bytes()).map_err(|error| fault(&first.address.to_string(), error))?;
        for (task, file_request) in tasks.iter().zip(&file_request) {
            let (verified, goes_on) = self.one(&mut wire, task, file_request)?;
            *count += 1;
            done(task, verified);
            if goes_on.is_break() {
                return Err(Trouble::Transient("the server ended the connection".to_owned(), None));
            }
        }
        self.kept = Some(wire);
        Ok(())
    }

    fn file_request(&self, task: &Task) -> FileRequest {
        let insists = task.address.wants_verified().then_some(Form::Verified);
        let form = insists.or((!self.verify).then_some(Form::Plain));
        FileRequest {
            length: Some(task.entry.bytes),
            validator: task.entry.tag.clone(),
            form,
            xattrs: self.xattrs,
            ..FileRequest::default()
        }
    }

    /// Receives a file and gives it its name. Returns whether the file was verified, and whether
    /// the connection can be used further.
    fn one(
        &mut self,
        wire: &mut Wire,
        task: &Task,
        file_request: &FileRequest,
    ) -> Result<(bool, ControlFlow<()>), Trouble> {
        let trouble = |error| fault(&task.address.to_string(), error);
        let head = wire.head().map_err(trouble)?;
        let start = match judge(&head, file_request) {
            Answer::Bytes(start) => start,
            // The attempt to fetch the file alone handles any other answer.
            _ => {
                return Err(Trouble::Transient(
                    format!("the server answers {}", head.status),
                    None,
                ));
            }
        };
        let Some(length) = start.length else {
            return Err(Trouble::Transient(
                "the server does not state its length".to_owned(),
                None,
            ));
        };
        let at = |source| Error::from(SinkError::at(task.destination.part(), length, source));
        let mut file = task.destination.create().map_err(at)?;
        let mut body = Body::new(wire, start.framing);
        for index in 0..group::count(length) {
            let range = group::range(length, index);
            let content = &mut self.buffer
                [..usize::try_from(range.end - range.start).expect("a group is in memory")];
            let mut stated = [0; 32];
            if start.verified {
                body.fill_both(content, &mut stated).map_err(trouble)?;
                if group::value(length, index, content) != stated {
                    return Err(Trouble::Transient("it arrived corrupt".to_owned(), None));
                }
            } else if body.fill(content).map_err(trouble)? < content.len() {
                return Err(Trouble::Transient(
                    "the connection ended in the middle".to_owned(),
                    None,
                ));
            }
            file.write_all(content).map_err(at)?;
        }
        if !body.is_over() && body.fill(&mut [0]).map_err(trouble)? > 0 {
            return Err(Trouble::Transient("it has become longer".to_owned(), None));
        }
        let goes_on = if body.is_over() && !head.close {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        };
        let modified = task.entry.attributes.modified.or_else(|| head.changed());
        let mode = task.entry.attributes.mode.filter(|_| self.preserve);
        let xattrs = head.xattrs.filter(|_| self.xattrs).unwrap_or_default();
        Attributes { mode, modified, xattrs }.apply_to(&file).map_err(at)?;
        file.sync_data().map_err(at)?;
        task.destination.rename(self.force).map_err(Error::from)?;
        Ok((start.verified, goes_on))
    }
}
