//! Requests and answers, and how they are written.

use crate::config::LineWords;
use crate::filter::{Counters, RuleWords};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of what is said. A box and a client of different versions refuse each other by number.
pub const VERSION: u64 = 1;

/// Longest request with the end of its line, in bytes: a list of lost segments with the most
/// numbers fits.
pub const MAX_REQUEST_BYTES: usize = 128 << 10;

/// Longest answer with the end of its line, in bytes: a report of the most ports, each with the
/// most flows, is two thirds of that.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What a box may be asked.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What became of all packets so far; the answer is a [`Report`](crate::engine::Report).
    Report {},
    /// What the box is, and what its lines do; the answer is a [`BoxState`].
    Settings {},
    /// Change what lines do; the answer is a [`Set`].
    Set {
        /// The line to this port; none: every line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<String>,
        /// What changes. Everything else stays.
        line: Box<LineWords>,
    },
    /// The rules of its filter; the answer is a [`RuleList`].
    Rules {},
    /// Add a rule; the answer is a [`RuleList`].
    AddRule {
        /// The rule.
        rule: RuleWords,
        /// Before that of this number, from 0; none: behind all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<usize>,
    },
    /// Remove a rule; the answer is a [`RuleList`].
    RemoveRule {
        /// Its number, from 0.
        number: usize,
    },
    /// Have these rules and no others; those that were there before stay as they are, and go on
    /// counting. The answer is a [`RuleList`].
    ReplaceRules {
        /// The rules, in order.
        rules: Vec<RuleWords>,
    },
    /// End the box, and whatever runs it. The answer comes before that, and the connection ends
    /// with the box.
    Stop {},
}

/// A box.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BoxState {
    /// Its name.
    pub name: String,
    /// The process that runs it.
    pub process: u32,
    /// How its ports are joined: `cross` or `switch`.
    pub forward: String,
    /// Packet memory of all its lanes, in bytes.
    pub memory: u64,
    /// Its ports, in order.
    pub ports: Vec<PortState>,
}

/// A port.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PortState {
    /// Its name.
    pub port: String,
    /// What the line to it does, every setting.
    pub line: LineWords,
}

/// What came of a change.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Set {
    /// The lines that were changed, with what they do now.
    pub lines: Vec<PortState>,
    /// What may follow that is not wanted.
    pub warnings: Vec<String>,
}

/// The rules of a filter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleList {
    /// Those that there are, in order.
    pub rules: Vec<RuleState>,
    /// Those that are no more, with what they had seen.
    pub removed: Vec<RuleState>,
}

/// A rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleState {
    /// What it is.
    pub rule: RuleWords,
    /// What it has seen.
    pub seen: Counters,
}

/// A line that is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Not a JSON object.
    #[error("a request is one JSON object on a line: {0}")]
    Json(serde_json::Error),
    /// Another version, or none.
    #[error("version {0} is asked for, and this box speaks {VERSION}: use the same sprat for both")]
    Version(Value),
    /// Nothing that a box can be asked.
    #[error("{0}")]
    Words(serde_json::Error),
}

impl Request {
    /// From a line, with or without its end.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let mut words: Map<String, Value> =
            serde_json::from_slice(line).map_err(RequestError::Json)?;
        let version = words.remove("version").unwrap_or(Value::Null);
        if version != VERSION {
            return Err(RequestError::Version(version));
        }
        serde_json::from_value(Value::Object(words)).map_err(RequestError::Words)
    }

    /// As a line, with its end.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut words = serde_json::to_value(self).expect("words and numbers have a form in JSON");
        words["version"] = VERSION.into();
        ended(&words)
    }
}

/// An answer as a line.
pub(super) fn answer<T: Serialize>(outcome: Result<&T, &str>) -> Vec<u8> {
    let words = match outcome {
        Ok(answer) => serde_json::to_value(answer)
            .map(|answer| serde_json::json!({ "version": VERSION, "answer": answer })),
        Err(error) => Ok(serde_json::json!({ "version": VERSION, "error": error })),
    };
    ended(&words.expect("what is told has a form in JSON"))
}

/// What an answer says: what was asked for, or why it is refused. None: it is no answer that we
/// understand.
pub(super) fn parse_answer<T: DeserializeOwned>(line: &[u8]) -> Option<Result<T, String>> {
    let mut words: Map<String, Value> = serde_json::from_slice(line).ok()?;
    if words.get("version")? != VERSION {
        return None;
    }
    match (words.remove("answer"), words.remove("error")) {
        (Some(answer), None) => serde_json::from_value(answer).ok().map(Ok),
        (None, Some(Value::String(error))) => Some(Err(error)),
        _ => None,
    }
}

fn ended(words: &Value) -> Vec<u8> {
    let mut line = words.to_string().into_bytes();
    line.push(b'\n');
    line
}
