//! Asking a box.

use super::ControlError;
use super::words::{BoxState, MAX_ANSWER_BYTES, Request, RuleList, Set, parse_answer};
use crate::config::LineWords;
use crate::engine::Report;
use crate::filter::RuleWords;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an answer may take, and the end of a box that was stopped: it may have captures to
/// write.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a box. [`Place::connect`](super::Place::connect) makes one.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    name: String,
}

impl Client {
    pub(super) fn over(stream: UnixStream, name: &str) -> Result<Self, ControlError> {
        let timed = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        timed.map_err(ControlError::system("a timeout of a socket"))?;
        Ok(Self { stream: BufReader::new(stream), name: name.to_owned() })
    }

    /// The box's whole name: `BOX`, or `LAB.BOX`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What became of all packets so far.
    ///
    /// # Errors
    /// The box refuses, or has gone.
    pub fn report(&mut self) -> Result<Report, ControlError> {
        self.ask(&Request::Report {})
    }

    /// What the box is, and what its lines do.
    ///
    /// # Errors
    /// The box refuses, or has gone.
    pub fn settings(&mut self) -> Result<BoxState, ControlError> {
        self.ask(&Request::Settings {})
    }

    /// Changes what the line to a port does, or with none what every line does: what `line` names,
    /// all of it or after an error nothing.
    ///
    /// # Errors
    /// The box refuses, or has gone.
    pub fn set(&mut self, port: Option<&str>, line: &LineWords) -> Result<Set, ControlError> {
        self.ask(&Request::Set { port: port.map(str::to_owned), line: Box::new(line.clone()) })
    }

    /// The rules of the box's filter.
    ///
    /// # Errors
    /// The box refuses, or has gone.
    pub fn rules(&mut self) -> Result<RuleList, ControlError> {
        self.ask(&Request::Rules {})
    }

    /// Adds a rule, before that of number `at` (from 0) or behind all.
    ///
    /// # Errors
    /// The rule means nothing, in libpcap's words where they are its; the box refuses, or has gone.
    pub fn add_rule(
        &mut self,
        rule: RuleWords,
        at: Option<usize>,
    ) -> Result<RuleList, ControlError> {
        self.ask(&Request::AddRule { rule, at })
    }

    /// Removes the rule of this number, from 0.
    ///
    /// # Errors
    /// The box refuses, or has gone.
    pub fn remove_rule(&mut self, number: usize) -> Result<RuleList, ControlError> {
        self.ask(&Request::RemoveRule { number })
    }

    /// Has the box have these rules and no others. Those that it had already go on counting.
    ///
    /// # Errors
    /// A rule means nothing; the box refuses, or has gone.
    pub fn replace_rules(&mut self, rules: Vec<RuleWords>) -> Result<RuleList, ControlError> {
        self.ask(&Request::ReplaceRules { rules })
    }

    /// Ends the box and whatever runs it, and waits for that.
    ///
    /// # Errors
    /// The box refuses, or does not end in half a minute.
    pub fn stop(mut self) -> Result<(), ControlError> {
        self.ask::<serde_json::Value>(&Request::Stop {})?;
        match io::copy(&mut self.stream, &mut io::sink()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Asks anything.
    ///
    /// # Errors
    /// The box refuses, or has gone.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
        self.stream.get_mut().write_all(&request.line()).map_err(|error| self.lost(error))?;
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(MAX_ANSWER_BYTES as u64);
        bounded.read_until(b'\n', &mut line).map_err(|error| self.lost(error))?;
        if line.last() != Some(&b'\n') {
            return Err(self.lost(io::ErrorKind::UnexpectedEof.into()));
        }
        match parse_answer(&line) {
            Some(answer) => answer.map_err(ControlError::Refused),
            None => Err(ControlError::Answer(self.name.clone())),
        }
    }

    fn lost(&self, error: io::Error) -> ControlError {
        ControlError::Lost { name: self.name.clone(), error }
    }
}
