//! Channels: several power readings of one board or controller. Which of them to add up depends on
//! the board, so the user chooses.

use crate::{Cause, Watts};

/// One of several power readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The channel's name, as `channels` in the description chooses it.
    pub name: String,
    /// The channel's power.
    pub watts: Watts,
}

/// Adds up the channels that `chosen` names. If `chosen` is empty, the board must have a single
/// channel. `none` is the error message for a board without channels.
///
/// # Errors
/// - [`Cause::Absent`] if there is no channel.
/// - [`Cause::Several`] if `chosen` names a channel that does not exist, or if `chosen` is empty
///   and there are several channels: one of them could be a part of another.
pub fn sum(channels: &[Channel], chosen: &[String], none: &str) -> Result<Watts, Cause> {
    let several = || Cause::Several {
        key: "channels",
        all: channels.iter().map(|channel| channel.name.clone()).collect(),
    };
    match (channels, chosen) {
        ([], _) => Err(Cause::Absent(none.to_owned())),
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
