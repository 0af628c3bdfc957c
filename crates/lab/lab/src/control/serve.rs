//! Handles the requests that a box receives.

use super::words::{
    BoxState, MAX_ANSWER_BYTES, PortState, Request, RuleList, RuleState, SetReply, encode_answer,
};
use crate::config::{LineWords, WordError};
use crate::engine::{CountedRule, EngineError, EngineHandle, Forwarding, MemoryShortage};
use crate::filter::{CompileError, Compiler, MAX_RULES, Rule, RuleError, RuleWords};
use crate::line::LineSettings;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Handles the requests that a box receives, one after the other.
#[derive(Debug)]
pub(super) struct RequestHandler {
    name: String,
    handle: EngineHandle,
    stop: Arc<AtomicBool>,
    /// libpcap's compiler, loaded when the first rule is added.
    compiler: Option<Compiler>,
}

/// Why a box refuses a request.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Word(#[from] WordError),
    #[error("{}: {error}", error.key())]
    Rule {
        #[from]
        error: RuleError,
    },
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error("no rule {0}: there are {1}, numbered from 0")]
    NoRule(usize, usize),
    #[error("nothing to change was named, such as delay=50ms or rate=1Gb/s")]
    Nothing,
}

impl RequestHandler {
    pub(super) fn new(name: &str, handle: EngineHandle, stop: Arc<AtomicBool>) -> Self {
        Self { name: name.to_owned(), handle, stop, compiler: None }
    }

    /// Returns the answer to a request, as a line. Returns `None` if a worker of the box has ended
    /// or does not reply; this thread runs a little longer than the workers do. The caller then
    /// closes the connection, so that the client sees that the box is gone.
    pub(super) fn answer(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let outcome = match Request::parse(line) {
            Err(error) => return Some(refuse(&error.to_string())),
            Ok(Request::Report {}) => line_of(self.handle.report().map_err(Refusal::from)),
            Ok(Request::Settings {}) => line_of(Ok(self.state())),
            Ok(Request::Set { port, line }) => line_of(self.set(port.as_deref(), &line)),
            Ok(Request::Rules {}) => line_of(self.rules(Vec::new())),
            Ok(Request::AddRule { rule, at }) => line_of(self.add_rule(&rule, at)),
            Ok(Request::RemoveRule { number }) => line_of(self.remove_rule(number)),
            Ok(Request::ReplaceRules { rules }) => line_of(self.replace_rules(&rules)),
            Ok(Request::Stop {}) => {
                self.stop.store(true, Ordering::Relaxed);
                line_of(Ok(serde_json::json!({})))
            }
        };
        match outcome {
            Ok(answer) if answer.len() <= MAX_ANSWER_BYTES => Some(answer),
            Ok(answer) => Some(refuse(&format!(
                "an answer of {} bytes; {MAX_ANSWER_BYTES} are the limit",
                answer.len()
            ))),
            Err(Refusal::Engine(EngineError::Stopped)) => None,
            Err(error) => Some(refuse(&error.to_string())),
        }
    }

    fn state(&self) -> BoxState {
        let forward = match self.handle.forwarding() {
            Forwarding::Cross => "cross",
            Forwarding::Switch(_) => "switch",
        };
        let ports = self
            .handle
            .ports()
            .iter()
            .cloned()
            .zip(self.handle.settings())
            .map(port_state)
            .collect();
        let (name, memory) = (self.name.clone(), self.handle.memory());
        BoxState { name, process: std::process::id(), forward: forward.to_owned(), memory, ports }
    }

    fn set(&self, port: Option<&str>, words: &LineWords) -> Result<SetReply, Refusal> {
        if words.given().next().is_none() {
            return Err(Refusal::Nothing);
        }
        let changed =
            self.handle.change(port, |settings| Ok::<_, Refusal>(words.apply(settings)?))?;
        let warnings = changed.shortages.iter().map(warning).collect();
        Ok(SetReply { lines: changed.lines.into_iter().map(port_state).collect(), warnings })
    }
}

impl RequestHandler {
    fn rules(&self, removed: Vec<CountedRule>) -> Result<RuleList, Refusal> {
        let ports: Vec<_> = self.handle.ports().iter().map(String::as_str).collect();
        let state =
            |(rule, seen): CountedRule| RuleState { rule: RuleWords::of(&rule, &ports), seen };
        let rules = self.handle.rules()?.into_iter().map(state).collect();
        Ok(RuleList { rules, removed: removed.into_iter().map(state).collect() })
    }

    fn add_rule(&mut self, words: &RuleWords, at: Option<usize>) -> Result<RuleList, Refusal> {
        let rule = Arc::new(self.compiled(words)?);
        self.change_rules(|rules| {
            let at = at.unwrap_or(rules.len());
            if at > rules.len() {
                return Err(Refusal::NoRule(at, rules.len()));
            }
            rules.insert(at, rule);
            Ok(())
        })
    }

    fn remove_rule(&self, number: usize) -> Result<RuleList, Refusal> {
        self.change_rules(|rules| {
            if number >= rules.len() {
                return Err(Refusal::NoRule(number, rules.len()));
            }
            rules.remove(number);
            Ok(())
        })
    }

    fn replace_rules(&mut self, words: &[RuleWords]) -> Result<RuleList, Refusal> {
        if words.len() > MAX_RULES {
            return Err(EngineError::Rules(words.len()).into());
        }
        let next = words
            .iter()
            .map(|words| self.compiled(words).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        self.change_rules(|rules| {
            let mut before = std::mem::take(rules);
            for rule in next {
                let same = before.iter().position(|known| *known == rule);
                rules.push(same.map_or(rule, |at| before.remove(at)));
            }
            Ok(())
        })
    }

    fn change_rules(
        &self,
        change: impl FnOnce(&mut Vec<Arc<Rule>>) -> Result<(), Refusal>,
    ) -> Result<RuleList, Refusal> {
        let removed = self.handle.change_rules(change)?;
        self.rules(removed)
    }

    fn compiled(&mut self, words: &RuleWords) -> Result<Rule, Refusal> {
        let ports: Vec<_> = self.handle.ports().iter().map(String::as_str).collect();
        let plan = words.plan(&ports, self.handle.forwarding() != Forwarding::Cross)?;
        if self.compiler.is_none() {
            self.compiler = Some(Compiler::load()?);
        }
        Ok(plan.compile(self.compiler.as_ref().expect("loaded above"))?)
    }
}

fn port_state((port, settings): (String, LineSettings)) -> PortState {
    PortState { port, line: LineWords::of(&settings) }
}

fn warning(shortage: &MemoryShortage) -> String {
    format!(
        "packet memory to {} is {} MB, and these lines can fill {} MB: packets that find none are \
         dropped and counted; to have more, start the box with --memory",
        shortage.to.join(", "),
        shortage.made / 1_000_000,
        shortage.wanted.div_ceil(1_000_000),
    )
}

fn line_of<T: Serialize>(outcome: Result<T, Refusal>) -> Result<Vec<u8>, Refusal> {
    outcome.map(|result| encode_answer(Ok(&result)))
}

fn refuse(why: &str) -> Vec<u8> {
    encode_answer::<()>(Err(why))
}
