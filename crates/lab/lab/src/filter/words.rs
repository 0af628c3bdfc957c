//! Rules as text, in topologies and in `sprat lab ctl`.

use super::{Action, ActionError, CompileError, Compiler, Rule};
use serde::{Deserialize, Serialize};

/// A rule of a filter, as parsed and not yet checked against the box.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleWords {
    /// The expression that packets must match, in pcap's language.
    #[serde(rename = "match")]
    pub expression: String,
    /// Match only packets that arrive at this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `count`, `drop`, `mirror:PORT` or `rewrite:FIELD=VALUE,...`.
    pub action: String,
}

/// A rule that is valid in its box, but whose expression is not compiled yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RulePlan {
    /// The expression that packets must match, in pcap's language.
    pub expression: String,
    /// Match only packets that arrive at this port.
    pub from: Option<usize>,
    /// What happens to packets that match.
    pub action: Action,
}

/// Why a text is not a rule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// There is no such port.
    #[error("no such port; the ports are {0}")]
    From(String),
    /// The action is invalid.
    #[error("{0}")]
    Action(#[from] ActionError),
    /// A mirror in a box of pairs, where no port can get a copy.
    #[error("a pair of ports cannot mirror: it needs a switch (forward = \"switch\")")]
    Mirror,
}

impl RuleError {
    /// Returns the key that the error is about.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::From(_) => "from",
            Self::Action(_) | Self::Mirror => "action",
        }
    }
}

impl RuleWords {
    /// Parses the rule for a box with these ports, which is a switch or a box of pairs.
    ///
    /// # Errors
    /// There is no port of the name in `from`, the action is not valid for these ports, or it is a
    /// mirror in a box that is not a switch.
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

    /// Returns the text of a rule of a box with these ports.
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
    /// Compiles the rule's expression.
    ///
    /// # Errors
    /// libpcap does not understand the expression; the error says why.
    pub fn compile(&self, compiler: &Compiler) -> Result<Rule, CompileError> {
        let Self { expression, from, action } = self;
        let program = compiler.compile(expression)?;
        Ok(Rule { expression: expression.clone(), from: *from, program, action: action.clone() })
    }
}
