//! The client of a box's control socket.

use super::ControlError;
use super::words::{BoxState, MAX_ANSWER_BYTES, Request, RuleList, SetReply, parse_answer};
use crate::config::LineWords;
use crate::engine::Report;
use crate::filter::RuleWords;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Limit on each wait for bytes of an answer, or for the socket to take bytes of a request. The end
/// of a stopped box has the same limit: the box may have captures to write.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a box, made by [`ControlDir::connect`](super::ControlDir::connect). Each call
/// sends one request and waits for the answer, for up to 30 seconds without a byte.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    name: String,
}

impl Client {
    pub(super) fn new(stream: UnixStream, name: &str) -> Result<Self, ControlError> {
        let timed = stream
            .set_read_timeout(Some(TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)));
        timed.map_err(ControlError::system("a timeout of a socket"))?;
        Ok(Self { stream: BufReader::new(stream), name: name.to_owned() })
    }

    /// Returns the box's full name: `BOX` or `LAB.BOX`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters so far.
    ///
    /// # Errors
    /// As for [`request`](Self::request).
    pub fn report(&mut self) -> Result<Report, ControlError> {
        self.request(&Request::Report {})
    }

    /// Returns how the box is built, and the settings of its lines.
    ///
    /// # Errors
    /// As for [`request`](Self::request).
    pub fn settings(&mut self) -> Result<BoxState, ControlError> {
        self.request(&Request::Settings {})
    }

    /// Changes the settings that `line` contains: of the line to `port`, or of every line with
    /// `None`. If the box rejects the request, nothing has changed.
    ///
    /// # Errors
    /// As for [`request`](Self::request). The box rejects an unknown port or an invalid setting.
    pub fn set(&mut self, port: Option<&str>, line: &LineWords) -> Result<SetReply, ControlError> {
        self.request(&Request::Set { port: port.map(str::to_owned), line: Box::new(line.clone()) })
    }

    /// Returns the rules of the box's filter.
    ///
    /// # Errors
    /// As for [`request`](Self::request).
    pub fn rules(&mut self) -> Result<RuleList, ControlError> {
        self.request(&Request::Rules {})
    }

    /// Adds a rule at index `at` (from 0), or at the end.
    ///
    /// # Errors
    /// As for [`request`](Self::request). The box rejects an invalid rule. If the expression is at
    /// fault, the error contains libpcap's message.
    pub fn add_rule(
        &mut self,
        rule: RuleWords,
        at: Option<usize>,
    ) -> Result<RuleList, ControlError> {
        self.request(&Request::AddRule { rule, at })
    }

    /// Removes the rule at this index, counted from 0.
    ///
    /// # Errors
    /// As for [`request`](Self::request). The box rejects an index that no rule has.
    pub fn remove_rule(&mut self, number: usize) -> Result<RuleList, ControlError> {
        self.request(&Request::RemoveRule { number })
    }

    /// Replaces all rules. Rules that the box already has keep their counters.
    ///
    /// # Errors
    /// As for [`request`](Self::request). The box rejects the list if one of the rules is invalid.
    pub fn replace_rules(&mut self, rules: Vec<RuleWords>) -> Result<RuleList, ControlError> {
        self.request(&Request::ReplaceRules { rules })
    }

    /// Stops the box and the process that runs it, and waits until the process has ended.
    ///
    /// # Errors
    /// As for [`request`](Self::request), or the process does not end within 30 seconds.
    pub fn stop(mut self) -> Result<(), ControlError> {
        self.request::<serde_json::Value>(&Request::Stop {})?;
        match io::copy(&mut self.stream, &mut io::sink()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Sends a request and returns the answer.
    ///
    /// # Errors
    /// - [`ControlError::Refused`] if the box rejects the request.
    /// - [`ControlError::Answer`] if the box's answer cannot be parsed.
    /// - [`ControlError::Lost`] if the connection fails or the box has ended.
    pub fn request<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
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
