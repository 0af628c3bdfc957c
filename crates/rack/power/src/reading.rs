//! What a sensor tells.

use crate::Watts;

/// What a sensor tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// What is taken now.
    Watts(Watts),
    /// What was used since the sensor was first read, or since it failed with
    /// [`Trouble::Restarted`](crate::Trouble::Restarted).
    Joules(f64),
}
