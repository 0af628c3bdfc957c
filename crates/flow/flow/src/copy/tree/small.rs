//! Small files: many requests on a connection before the first answer, so that a round trip is not
//! the price of a file.

use super::listing::Entry;
use crate::copy::answer::{Answer, Asked, Form, judge};
use crate::copy::client::{Client, request};
use crate::copy::error::{Error, Trouble, fault};
use crate::file::{Attributes, Place, SinkError};
use crate::group::{self, GROUP_BYTES};
use sprat_http::client::{Body, Wire};
use sprat_http::{Address, Cancel};
use std::io::Write as _;
use std::ops::ControlFlow;

/// Longest file that counts as small, bytes: read in no time, so that nothing is kept of it after
/// an interruption.
pub(super) const SMALL: u64 = 4 << 20;

/// Most files that are asked for at a time.
pub(super) const BATCH_FILES: usize = 128;

/// Most bytes of their requests: all find room in the buffers of a connection, so that neither end
/// waits for the other to read.
pub(super) const BATCH_REQUESTS: usize = 64 << 10;

/// Bytes of a request besides its path, or more.
const REQUEST: usize = 400;

/// Most bytes of those.
pub(super) const BATCH_BYTES: u64 = 8 << 20;

/// A file to be copied.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) entry: Entry,
    pub(super) address: Address,
    pub(super) place: Place,
}

impl Task {
    /// Bytes of its request, or more.
    pub(super) fn request_bytes(&self) -> usize {
        REQUEST + self.address.path().len()
    }
}

/// One worker's connection and memory.
pub(super) struct Worker<'a> {
    pub(super) client: &'a Client,
    pub(super) cancel: &'a Cancel,
    pub(super) force: bool,
    pub(super) preserve: bool,
    pub(super) xattrs: bool,
    /// Whether the verified form is asked for, and whether nothing else will do.
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

    /// Copies files in order, telling of each whether it was verified; gives how many are done, and
    /// what met the next one.
    pub(super) fn batch(
        &mut self,
        tasks: &[Task],
        done: &mut dyn FnMut(&Task, bool),
    ) -> Result<(), (usize, Trouble)> {
        let mut count = 0;
        // A server may have closed what it kept: then once more, on a new connection.
        for reused in [self.kept.is_some(), false] {
            match self.all(&tasks[count..], &mut count, done) {
                Ok(()) => return Ok(()),
                Err(Trouble::Passing(..)) if reused => {}
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
        let asked: Vec<_> = tasks.iter().map(|task| self.asked(task)).collect();
        let requests: String =
            tasks.iter().zip(&asked).map(|(task, asked)| request(&task.address, asked)).collect();
        wire.send(requests.as_bytes()).map_err(|error| fault(&first.address.to_string(), error))?;
        for (task, asked) in tasks.iter().zip(&asked) {
            let (verified, goes_on) = self.one(&mut wire, task, asked)?;
            *count += 1;
            done(task, verified);
            if goes_on.is_break() {
                return Err(Trouble::Passing("the server ended the connection".to_owned(), None));
            }
        }
        self.kept = Some(wire);
        Ok(())
    }

    fn asked(&self, task: &Task) -> Asked {
        let insists = task.address.wants_verified().then_some(Form::Verified);
        let form = insists.or((!self.verify).then_some(Form::Plain));
        Asked {
            length: Some(task.entry.bytes),
            validator: task.entry.tag.clone(),
            form,
            xattrs: self.xattrs,
            ..Asked::default()
        }
    }

    /// Receives a file and gives it its name. Gives whether it was verified, and whether the
    /// connection goes on.
    fn one(
        &mut self,
        wire: &mut Wire,
        task: &Task,
        asked: &Asked,
    ) -> Result<(bool, ControlFlow<()>), Trouble> {
        let trouble = |error| fault(&task.address.to_string(), error);
        let head = wire.head().map_err(trouble)?;
        let start = match judge(&head, asked) {
            Answer::Bytes(start) => start,
            // Whatever it is: alone, it is seen what to do.
            _ => return Err(Trouble::Passing(format!("the server answers {}", head.status), None)),
        };
        let Some(length) = start.length else {
            return Err(Trouble::Passing(
                "the server does not say how long it is".to_owned(),
                None,
            ));
        };
        let at = |source| Error::from(SinkError::at(task.place.part(), length, source));
        let mut file = task.place.create().map_err(at)?;
        let mut body = Body::new(wire, start.framing);
        for index in 0..group::count(length) {
            let range = group::range(length, index);
            let content = &mut self.buffer
                [..usize::try_from(range.end - range.start).expect("a group is in memory")];
            let mut told = [0; 32];
            if start.verified {
                body.fill_both(content, &mut told).map_err(trouble)?;
                if group::value(length, index, content) != told {
                    return Err(Trouble::Passing("it arrived wrong".to_owned(), None));
                }
            } else if body.fill(content).map_err(trouble)? < content.len() {
                return Err(Trouble::Passing(
                    "the connection ended in the middle".to_owned(),
                    None,
                ));
            }
            file.write_all(content).map_err(at)?;
        }
        if !body.is_over() && body.fill(&mut [0]).map_err(trouble)? > 0 {
            return Err(Trouble::Passing("it is longer than it was".to_owned(), None));
        }
        let goes_on = if body.is_over() && !head.close {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        };
        let modified = task.entry.attributes.modified.or_else(|| head.changed());
        let mode = task.entry.attributes.mode.filter(|_| self.preserve);
        let xattrs = head.xattrs.filter(|_| self.xattrs).unwrap_or_default();
        Attributes { mode, modified, xattrs }.give(&file).map_err(at)?;
        file.sync_data().map_err(at)?;
        task.place.name(self.force).map_err(Error::from)?;
        Ok((start.verified, goes_on))
    }
}
