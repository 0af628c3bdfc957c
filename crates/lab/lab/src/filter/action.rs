//! What happens to a packet that matches, in words and in fact.

use super::{Change, MAX_FILTER_PORTS, ParseChangeError};

/// Most fields that one rule changes.
pub const MAX_CHANGES: usize = 8;

/// What happens to a packet that matches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// It is counted, as with all the others.
    Count,
    /// It is dropped, and later rules do not see it.
    Drop,
    /// Another of it goes to this port besides.
    Mirror(usize),
    /// Fields of it change, which later rules see; up to [`MAX_CHANGES`].
    Rewrite(Vec<Change>),
}

/// An action in words that means nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ActionError {
    /// No such action.
    #[error("{0:?} is no action; want count, drop, mirror:PORT or rewrite:FIELD=VALUE,...")]
    Unknown(String),
    /// No such port.
    #[error("mirror:{0}: no such port; the ports are {1}")]
    Port(String, String),
    /// No such change.
    #[error("rewrite: {0}")]
    Change(#[from] ParseChangeError),
    /// Too many changes.
    #[error("rewrite: {0} changes; {MAX_CHANGES} are the limit of a rule")]
    Changes(usize),
}

impl Action {
    /// From words; ports are named as in `ports`, of which the first [`MAX_FILTER_PORTS`] can be
    /// mirrored to.
    ///
    /// # Errors
    /// They mean nothing.
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
