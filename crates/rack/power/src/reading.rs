//! A sensor's reading.

use crate::Watts;

/// A sensor's reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// The present power.
    Watts(Watts),
    /// The energy since the sensor was first read, or since it failed with
    /// [`Cause::Restarted`](crate::Cause::Restarted).
    Joules(f64),
}
