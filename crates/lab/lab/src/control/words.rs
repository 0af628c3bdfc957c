//! Requests and answers, and their encoding.

use crate::config::LineWords;
use crate::filter::{Counters, RuleWords};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the protocol. A box and a client of different versions refuse each other.
pub const VERSION: u64 = 1;

/// Limit on the bytes that a client may send without a line end. The request with the longest list
/// of lost segments fits. If a client exceeds the limit, the box answers with an error and
/// disconnects the client. The box checks this after each read, so a request that is longer by less
/// than a read (4 KiB) can pass.
pub const MAX_REQUEST_BYTES: usize = 128 << 10;

/// Limit on the length of an answer, including the end of its line, in bytes. The report of a box
/// with the most ports and flows takes two thirds of this.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// A request to a box.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Returns the counters, as a [`Report`](crate::engine::Report).
    Report {},
    /// Returns how the box is built, and the settings of its lines, as a [`BoxState`].
    Settings {},
    /// Changes the settings of lines. The answer is a [`SetReply`].
    Set {
        /// The port whose line is changed. With `None`, every line is changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<String>,
        /// The settings to change. All other settings stay.
        line: Box<LineWords>,
    },
    /// Returns the rules of the box's filter, as a [`RuleList`].
    Rules {},
    /// Adds a rule. The answer is a [`RuleList`].
    AddRule {
        /// The rule.
        rule: RuleWords,
        /// The index, from 0, at which the rule is inserted. With `None`, the rule goes to the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<usize>,
    },
    /// Removes a rule. The answer is a [`RuleList`].
    RemoveRule {
        /// The rule's index, from 0.
        number: usize,
    },
    /// Replaces all rules. Rules that are also in the old list keep their counters. The answer is a
    /// [`RuleList`].
    ReplaceRules {
        /// The rules, in order.
        rules: Vec<RuleWords>,
    },
    /// Stops the box and the process that runs it. The box answers first, and closes the connection
    /// when it ends.
    Stop {},
}

/// How a box is built.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BoxState {
    /// The box's name.
    pub name: String,
    /// The number of the process that runs the box.
    pub process: u32,
    /// How the ports are joined: `cross` or `switch`.
    pub forward: String,
    /// Packet memory of all workers of the box, in bytes.
    pub memory: u64,
    /// The ports of the box, in order.
    pub ports: Vec<PortState>,
}

/// A port and its line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PortState {
    /// The port's name.
    pub port: String,
    /// All settings of the line to the port.
    pub line: LineWords,
}

/// The result of a change.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SetReply {
    /// The lines that were changed, with their new settings.
    pub lines: Vec<PortState>,
    /// Unwanted effects that the change may have, such as too little packet memory.
    pub warnings: Vec<String>,
}

/// The rules of a filter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleList {
    /// The current rules, in order.
    pub rules: Vec<RuleState>,
    /// Rules that the request removed, with their counters.
    pub removed: Vec<RuleState>,
}

/// A rule with its counters.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RuleState {
    /// The rule.
    pub rule: RuleWords,
    /// Counters of the packets that matched the rule.
    pub seen: Counters,
}

/// Why a line is not a request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The line is not a JSON object.
    #[error("a request is one JSON object on a line: {0}")]
    Json(serde_json::Error),
    /// The version is missing, or differs from [`VERSION`].
    #[error(
        "the request has version {0}, this box has version {VERSION}: use the same sprat for both"
    )]
    Version(Value),
    /// There is no such request, or its fields are wrong.
    #[error("{0}")]
    Words(serde_json::Error),
}

impl Request {
    /// Parses a line, with or without the line end.
    ///
    /// # Errors
    /// [`RequestError`] if the line is not a JSON object, its version is missing or differs, the
    /// request is unknown, or a field is unknown, missing or invalid.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let mut words: Map<String, Value> =
            serde_json::from_slice(line).map_err(RequestError::Json)?;
        let version = words.remove("version").unwrap_or(Value::Null);
        if version != VERSION {
            return Err(RequestError::Version(version));
        }
        serde_json::from_value(Value::Object(words)).map_err(RequestError::Words)
    }

    /// Encodes the request as a line, including the line end.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut words = serde_json::to_value(self).expect("words and numbers have a form in JSON");
        words["version"] = VERSION.into();
        encode_line(&words)
    }
}

/// Encodes an answer as a line, including the line end.
pub(super) fn encode_answer<T: Serialize>(outcome: Result<&T, &str>) -> Vec<u8> {
    let words = match outcome {
        Ok(answer) => serde_json::to_value(answer)
            .map(|answer| serde_json::json!({ "version": VERSION, "answer": answer })),
        Err(error) => Ok(serde_json::json!({ "version": VERSION, "error": error })),
    };
    encode_line(&words.expect("a reply has a form in JSON"))
}

/// Decodes an answer: the result, or the reason why the request was refused. Returns `None` if the
/// line is not an answer of this version.
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
