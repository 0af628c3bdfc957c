//! Rules as text, in topologies and in `sprat lab ctl`.

use super::{Action, ActionError, CompileError, Compiler, Rule};
use serde::{Deserialize, Serialize};

/// A rule of a filter as text, not yet checked against the ports of a box.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleWords {
    /// The expression that packets must match, in pcap's language.
    #[serde(rename = "match")]
    pub expression: String,
    /// The rule matches only packets that arrive at this port. With `None`, at any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `count`, `drop`, `mirror:PORT` or `rewrite:FIELD=VALUE,...`.
    pub action: String,
}

/// A rule that is valid in its box. Its expression is not compiled yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RulePlan {
    /// The expression that packets must match, in pcap's language.
    pub expression: String,
    /// Index of a port: the rule matches only packets that arrive there. With `None`, at any port.
    pub from: Option<usize>,
    /// What the box does with packets that match.
    pub action: Action,
}

/// Why a rule is invalid in its box.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// There is no such port.
    #[error("no such port; the ports are {0}")]
    From(String),
    /// The action is invalid.
    #[error("{0}")]
    Action(#[from] ActionError),
    /// The action is a mirror and the box has pairs of ports, where no third port can get a copy.
    #[error("a pair of ports cannot mirror: it needs a switch (forward = \"switch\")")]
    Mirror,
}

impl RuleError {
    /// Returns the key of the rule that is at fault.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::From(_) => "from",
            Self::Action(_) | Self::Mirror => "action",
        }
    }
}

impl RuleWords {
    /// Checks the rule for a box with these ports. `switch` says whether the box is a switch.
    ///
    /// # Errors
    /// No port has the name in `from`, the action is invalid for these ports, or the action is a
    /// mirror although the box is not a switch.
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

    /// Returns a rule as text, for a box with these ports.
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
    /// [`CompileError`] as from [`Compiler::compile`].
    pub fn compile(&self, compiler: &Compiler) -> Result<Rule, CompileError> {
        let Self { expression, from, action } = self;
        let program = compiler.compile(expression)?;
        Ok(Rule { expression: expression.clone(), from: *from, program, action: action.clone() })
    }
}
