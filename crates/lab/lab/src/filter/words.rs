//! Rules in words: those of a topology, and of `sprat lab ctl`.

use super::{Action, ActionError, CompileError, Compiler, Rule};
use serde::{Deserialize, Serialize};

/// A rule as it was written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleWords {
    /// Which packets, in pcap's language.
    #[serde(rename = "match")]
    pub expression: String,
    /// Only those that come in at this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `count`, `drop`, `mirror:PORT` or `rewrite:FIELD=VALUE,...`.
    pub action: String,
}

/// A rule that means something in its box, and whose expression is not compiled yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RulePlan {
    /// Which packets, in pcap's language.
    pub expression: String,
    /// Only those that come in at this port, by its number.
    pub from: Option<usize>,
    /// What happens to them.
    pub action: Action,
}

/// Words that are no rule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// There is no such port.
    #[error("no such port; the ports are {0}")]
    From(String),
    /// The action means nothing.
    #[error("{0}")]
    Action(#[from] ActionError),
    /// Nobody is there to have a copy.
    #[error("of a pair of ports neither can have another's copy: forward = \"switch\"")]
    Mirror,
}

impl RuleError {
    /// Which of the words it is about.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::From(_) => "from",
            Self::Action(_) | Self::Mirror => "action",
        }
    }
}

impl RuleWords {
    /// What they mean in a box with these ports, which is a switch or is not.
    ///
    /// # Errors
    /// They mean nothing there.
    pub fn plan(&self, ports: &[&str], switch: bool) -> Result<RulePlan, RuleError> {
        let number = |name: &str| ports.iter().position(|port| *port == name);
        let from = match &self.from {
            Some(name) => Some(number(name).ok_or_else(|| RuleError::From(ports.join(", ")))?),
            None => None,
        };
        match Action::parse(&self.action, ports)? {
            Action::Mirror(_) if !switch => Err(RuleError::Mirror),
            action => Ok(RulePlan { expression: self.expression.clone(), from, action }),
        }
    }

    /// The words of a rule in a box with these ports.
    #[must_use]
    pub fn of(rule: &Rule, ports: &[&str]) -> Self {
        let name = |at: usize| ports.get(at).copied().unwrap_or_default();
        let action = match &rule.action {
            Action::Count => "count".to_owned(),
            Action::Drop => "drop".to_owned(),
            Action::Mirror(port) => format!("mirror:{}", name(*port)),
            Action::Rewrite(changes) => {
                format!(
                    "rewrite:{}",
                    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
                )
            }
        };
        Self {
            expression: rule.expression.clone(),
            from: rule.from.map(|from| name(from).to_owned()),
            action,
        }
    }
}

impl RulePlan {
    /// The rule.
    ///
    /// # Errors
    /// The expression means nothing to libpcap, which says why.
    pub fn compile(&self, compiler: &Compiler) -> Result<Rule, CompileError> {
        let Self { expression, from, action } = self;
        let program = compiler.compile(expression)?;
        Ok(Rule { expression: expression.clone(), from: *from, program, action: action.clone() })
    }
}
