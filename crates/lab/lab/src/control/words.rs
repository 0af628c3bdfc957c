//! Requests and answers, and their encoding.

use crate::config::LineWords;
use crate::filter::{Counters, RuleWords};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the protocol. A box and a client of different versions refuse each other.
pub const VERSION: u64 = 1;

/// Limit on the length of a request with the end of its line, in bytes: the longest list of lost
/// segments fits. A client that sends more without a line end is disconnected.
pub const MAX_REQUEST_BYTES: usize = 128 << 10;

/// Limit on the length of an answer with the end of its line, in bytes. A report of as many ports
/// and flows as there can be takes two thirds of it.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// A request to a box.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Returns the counters, as a [`Report`](crate::engine::Report).
    Report {},
    /// Returns how the box is built and the settings of its lines, as a [`BoxState`].
    Settings {},
    /// Changes the settings of lines. The answer is a [`SetReply`].
    Set {
        /// Only the line to this port; `None`: every line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<String>,
        /// The settings to change. All others stay.
        line: Box<LineWords>,
    },
    /// Returns the rules of the box's filter, as a [`RuleList`].
    Rules {},
    /// Adds a rule. The answer is a [`RuleList`].
    AddRule {
        /// The rule.
        rule: RuleWords,
        /// The index at which it is inserted, from 0; `None`: at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<usize>,
    },
    /// Removes a rule. The answer is a [`RuleList`].
    RemoveRule {
        /// The rule's index, from 0.
        number: usize,
    },
    /// Replaces all rules. Rules that are in the old list too keep their counters. The answer is a
    /// [`RuleList`].
    ReplaceRules {
        /// The rules, in order.
        rules: Vec<RuleWords>,
    },
    /// Stops the box and the process that runs it. The answer comes first; the connection ends with
    /// the box.
    Stop {},
}

/// How a box is built.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BoxState {
    /// The box's name.
    pub name: String,
    /// The process that runs it.
    pub process: u32,
    /// How its ports are joined: `cross` or `switch`.
    pub forward: String,
    /// Packet memory of all its workers, in bytes.
    pub memory: u64,
    /// Its ports, in order.
    pub ports: Vec<PortState>,
}

/// A port and its line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PortState {
    /// The port's name.
    pub port: String,
    /// All settings of the line to it.
    pub line: LineWords,
}

/// The result of a change.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SetReply {
    /// The lines that were changed, with their new settings.
    pub lines: Vec<PortState>,
    /// Unwanted effects that the change may have.
    pub warnings: Vec<String>,
}

/// The rules of a filter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleList {
    /// The current rules, in order.
    pub rules: Vec<RuleState>,
    /// Rules that were removed, with their counters.
    pub removed: Vec<RuleState>,
}

/// A rule with its counters.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleState {
    /// The rule.
    pub rule: RuleWords,
    /// The packets to which the rule applied.
    pub seen: Counters,
}

/// Why a line is not a request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The line is not a JSON object.
    #[error("a request is one JSON object on a line: {0}")]
    Json(serde_json::Error),
    /// The version is missing, or another one.
    #[error(
        "the request has version {0}, this box has version {VERSION}: use the same sprat for both"
    )]
    Version(Value),
    /// There is no such request, or it has other fields.
    #[error("{0}")]
    Words(serde_json::Error),
}

impl Request {
    /// Parses a line, with or without its end.
    ///
    /// # Errors
    /// [`RequestError`] if the line is not a JSON object, has another version or none, or is not a
    /// known request with its fields.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let mut words: Map<String, Value> =
            serde_json::from_slice(line).map_err(RequestError::Json)?;
        let version = words.remove("version").unwrap_or(Value::Null);
        if version != VERSION {
            return Err(RequestError::Version(version));
        }
        serde_json::from_value(Value::Object(words)).map_err(RequestError::Words)
    }

    /// Encodes the request as a line, with its end.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut words = serde_json::to_value(self).expect("words and numbers have a form in JSON");
        words["version"] = VERSION.into();
        encode_line(&words)
    }
}

/// Encodes an answer as a line.
pub(super) fn encode_answer<T: Serialize>(outcome: Result<&T, &str>) -> Vec<u8> {
    let words = match outcome {
        Ok(answer) => serde_json::to_value(answer)
            .map(|answer| serde_json::json!({ "version": VERSION, "answer": answer })),
        Err(error) => Ok(serde_json::json!({ "version": VERSION, "error": error })),
    };
    encode_line(&words.expect("a reply has a form in JSON"))
}

/// Decodes an answer: the result, or why the request was refused. `None` if it is not an answer of
/// this version.
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

fn encode_line(words: &Value) -> Vec<u8> {
    let mut line = words.to_string().into_bytes();
    line.push(b'\n');
    line
}
