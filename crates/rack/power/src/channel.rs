//! What a board or a controller tells of several parts: which of them count is for whoever knows
//! the board to say.

use crate::{Trouble, Watts};

/// A sensor among others.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// What it tells.
    pub watts: Watts,
}

/// The sum of those that were chosen; where nobody chose, of the only one. `none` is what to say
/// where there is none.
///
/// # Errors
/// There is none, or several to choose from: whether one is part of another cannot be known here.
pub fn sum(channels: &[Channel], chosen: &[String], none: &str) -> Result<Watts, Trouble> {
    let several = || Trouble::Several {
        key: "channels",
        all: channels.iter().map(|channel| channel.name.clone()).collect(),
    };
    match (channels, chosen) {
        ([], _) => Err(Trouble::Absent(none.to_owned())),
        ([one], []) => Ok(one.watts),
        (_, []) => Err(several()),
        _ => {
            let found = |name: &String| channels.iter().find(|channel| channel.name == *name);
            chosen
                .iter()
                .map(|name| found(name).map(|channel| channel.watts).ok_or_else(several))
                .sum()
        }
    }
}
