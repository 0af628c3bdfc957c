//! What a box does with a request.

use super::words::{BoxState, MAX_ANSWER_BYTES, PortState, Request, Set, answer};
use crate::config::{LineWords, WordError};
use crate::engine::{EngineError, Forwarding, Handle, Short};
use crate::line::Settings;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A box that answers.
#[derive(Debug)]
pub(super) struct Served {
    name: String,
    handle: Handle,
    stop: Arc<AtomicBool>,
}

/// Why a box refuses.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Word(#[from] WordError),
    #[error("nothing to change was named: {}", "such as delay=50ms or rate=1Gb/s")]
    Nothing,
}

impl Served {
    pub(super) fn new(name: &str, handle: Handle, stop: Arc<AtomicBool>) -> Self {
        Self { name: name.to_owned(), handle, stop }
    }

    /// The line that answers this one.
    pub(super) fn answer(&mut self, line: &[u8]) -> Vec<u8> {
        let answer = match Request::parse(line) {
            Err(error) => refuse(&error.to_string()),
            Ok(Request::Report {}) => told(self.handle.report()),
            Ok(Request::Settings {}) => told(Ok::<_, Refusal>(self.state())),
            Ok(Request::Set { port, line }) => told(self.set(port.as_deref(), &line)),
            Ok(Request::Stop {}) => {
                self.stop.store(true, Ordering::Relaxed);
                told(Ok::<_, Refusal>(serde_json::json!({})))
            }
        };
        match answer.len() {
            0..=MAX_ANSWER_BYTES => answer,
            bytes => refuse(&format!("an answer of {bytes} bytes; {MAX_ANSWER_BYTES} are the limit")),
        }
    }

    fn state(&self) -> BoxState {
        let forward = match self.handle.forwarding() {
            Forwarding::Cross => "cross",
            Forwarding::Switch(_) => "switch",
        };
        let ports = self.handle.ports().iter().cloned().zip(self.handle.settings()).map(port_state).collect();
        let (name, memory) = (self.name.clone(), self.handle.memory());
        BoxState { name, process: std::process::id(), forward: forward.to_owned(), memory, ports }
    }

    fn set(&self, port: Option<&str>, words: &LineWords) -> Result<Set, Refusal> {
        if words.given().next().is_none() {
            return Err(Refusal::Nothing);
        }
        let changed = self.handle.change(port, |settings| Ok::<_, Refusal>(words.apply(settings)?))?;
        let warnings = changed.short.iter().map(warning).collect();
        Ok(Set { lines: changed.lines.into_iter().map(port_state).collect(), warnings })
    }
}

fn port_state((port, settings): (String, Settings)) -> PortState {
    PortState { port, line: LineWords::of(&settings) }
}

fn warning(short: &Short) -> String {
    format!(
        "packet memory to {} is {} MB, and these lines can fill {} MB: packets that find none are dropped and counted; to have \
         more, start the box with --memory",
        short.to.join(", "),
        short.made / 1_000_000,
        short.wanted.div_ceil(1_000_000),
    )
}

fn told<T: Serialize, E: std::fmt::Display>(outcome: Result<T, E>) -> Vec<u8> {
    match &outcome {
        Ok(told) => answer(Ok(told)),
        Err(error) => refuse(&error.to_string()),
    }
}

fn refuse(why: &str) -> Vec<u8> {
    answer::<()>(Err(why))
}
