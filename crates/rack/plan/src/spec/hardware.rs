//! Servers, and the chassis with a switch that they are in.

use crate::quantity::{BitRate, ByteRate, Bytes, Hertz, Kilograms, Seconds, Watts};
use serde::Deserialize;

/// A server.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    /// Cores of its processors.
    pub cores: usize,
    /// Their clock.
    pub clock: Option<Hertz>,
    /// Operations that a core ends in a cycle.
    pub ops_per_cycle: Option<f64>,
    /// Of these, those with floating point.
    pub flops_per_cycle: Option<f64>,
    /// Its memory.
    pub memory: Bytes,
    /// What its memory gives.
    pub memory_rate: Option<ByteRate>,
    /// Its disks.
    #[serde(default)]
    pub disks: Vec<Bytes>,
    /// What each of its disks gives.
    pub disk_rate: Option<ByteRate>,
    /// Its ports to the switch.
    #[serde(default = "one")]
    pub ports: usize,
    /// What each of them gives.
    pub port_rate: BitRate,
    /// What it takes at most.
    pub power: Option<Watts>,
    /// What it weighs.
    pub weight: Option<Kilograms>,
}

/// Servers around a switch: in one box, or in a rack.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chassis {
    /// Its servers.
    pub servers: usize,
    /// Rack units that it takes, servers included.
    #[serde(default = "one")]
    pub height: usize,
    /// The switch's ports to other chassis.
    #[serde(default)]
    pub uplinks: usize,
    /// What each of them gives.
    #[serde(default)]
    pub uplink_rate: BitRate,
    /// Into how many links an uplink can be split.
    #[serde(default = "one")]
    pub split: usize,
    /// Whether servers reach the switch without cables.
    #[serde(default)]
    pub backplane: bool,
    /// How the switch passes frames on.
    #[serde(default)]
    pub switch: Switch,
    /// What it takes at most besides its servers. A switch without servers takes as much.
    #[serde(default)]
    pub power: Watts,
    /// What it weighs besides its servers. A switch without servers weighs as much.
    #[serde(default)]
    pub weight: Kilograms,
}

/// A switch.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Switch {
    /// Whether frames leave it before they are in.
    pub forwarding: Forwarding,
    /// What it takes from a frame's first bit that it needs to its first bit out.
    pub delay: Seconds,
    /// What it holds of frames that wait, for each port.
    pub buffer: Bytes,
}

impl Default for Switch {
    fn default() -> Self {
        Self { forwarding: Forwarding::StoreAndForward, delay: Seconds(1e-6), buffer: Bytes(1e6) }
    }
}

/// When a switch begins to send a frame.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// When all of it is in.
    StoreAndForward,
    /// When its head is in.
    CutThrough,
}

pub(super) fn one() -> usize {
    1
}
