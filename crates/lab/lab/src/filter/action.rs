//! The actions of rules, and their form as text.

use super::{Change, MAX_FILTER_PORTS, ParseChangeError};

/// Limit on the changes of one rule. A rule with more is rejected.
pub const MAX_CHANGES: usize = 8;

/// What a rule does with packets that match.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Only counts the packet. Every other action also counts it.
    Count,
    /// Drops the packet. Later rules do not see it.
    Drop,
    /// Sends a copy of the packet to the port with this index.
    Mirror(usize),
    /// Changes fields of the packet; at most [`MAX_CHANGES`]. Later rules see the changed packet.
    Rewrite(Vec<Change>),
}

/// Why a text is not an action.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ActionError {
    /// There is no such action.
    #[error("{0:?} is not an action; want count, drop, mirror:PORT or rewrite:FIELD=VALUE,...")]
    Unknown(String),
    /// There is no such port.
    #[error("mirror:{0}: no such port; the ports are {1}")]
    Port(String, String),
    /// A change is invalid.
    #[error("rewrite: {0}")]
    Change(#[from] ParseChangeError),
    /// Too many changes.
    #[error("rewrite: {0} changes; {MAX_CHANGES} are the limit of a rule")]
    Changes(usize),
}

impl Action {
    /// Parses an action. `ports` are the names of the box's ports. Only the first
    /// [`MAX_FILTER_PORTS`] of them can get copies.
    ///
    /// # Errors
    /// [`ActionError`] if the action is unknown, there is no such port for a mirror, a change is
    /// invalid, or there are more than [`MAX_CHANGES`].
    pub fn parse(text: &str, ports: &[&str]) -> Result<Self, ActionError> {
        match text.split_once(':') {
            None if text == "count" => Ok(Self::Count),
            None if text == "drop" => Ok(Self::Drop),
            Some(("mirror", name)) => {
                let port = ports.iter().take(MAX_FILTER_PORTS).position(|port| *port == name);
                port.map(Self::Mirror)
                    .ok_or_else(|| ActionError::Port(name.to_owned(), ports.join(", ")))
            }
            Some(("rewrite", changes)) => {
                let changes: Vec<Change> =
                    changes.split(',').map(str::parse).collect::<Result<_, _>>()?;
                match changes.len() {
                    count if count > MAX_CHANGES => Err(ActionError::Changes(count)),
                    _ => Ok(Self::Rewrite(changes)),
                }
            }
            _ => Err(ActionError::Unknown(text.to_owned())),
        }
    }
}
