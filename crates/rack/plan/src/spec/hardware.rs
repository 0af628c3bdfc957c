//! `[server]` and `[chassis]` of a description.

use crate::quantity::{BitRate, ByteRate, Bytes, Hertz, Kilograms, Seconds, Watts};
use serde::Deserialize;

/// `[server]`: the hardware of each server.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    /// Number of cores.
    pub cores: usize,
    /// Clock frequency of a core.
    pub clock: Option<Hertz>,
    /// Operations per cycle of a core.
    pub ops_per_cycle: Option<f64>,
    /// Floating-point operations per cycle of a core.
    pub flops_per_cycle: Option<f64>,
    /// Memory.
    pub memory: Bytes,
    /// Memory bandwidth.
    pub memory_rate: Option<ByteRate>,
    /// Capacity of each disk.
    #[serde(default)]
    pub disks: Vec<Bytes>,
    /// Bandwidth of each disk.
    pub disk_rate: Option<ByteRate>,
    /// Ports to the switch.
    #[serde(default = "one")]
    pub ports: usize,
    /// Rate of each port.
    pub port_rate: BitRate,
    /// The power that the server draws at most.
    pub power: Option<Watts>,
    /// Weight.
    pub weight: Option<Kilograms>,
}

/// `[chassis]`: a switch and its servers, in one box or in a rack.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chassis {
    /// Number of servers.
    pub servers: usize,
    /// Height in rack units, servers included.
    #[serde(default = "one")]
    pub height: usize,
    /// The switch's ports to other chassis.
    #[serde(default)]
    pub uplinks: usize,
    /// Rate of each uplink.
    #[serde(default)]
    pub uplink_rate: BitRate,
    /// Links that an uplink can be split into.
    #[serde(default = "one")]
    pub split: usize,
    /// Whether servers are connected to the switch without cables.
    #[serde(default)]
    pub backplane: bool,
    /// The switch.
    #[serde(default)]
    pub switch: Switch,
    /// The power that the chassis draws at most, without its servers. A switch without servers
    /// draws as much.
    #[serde(default)]
    pub power: Watts,
    /// Weight without its servers. A switch without servers weighs as much.
    #[serde(default)]
    pub weight: Kilograms,
}

/// How a switch forwards frames.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Switch {
    /// When the switch begins to send a frame.
    pub forwarding: Forwarding,
    /// Switching latency: from the last header bit that the switch needs to the first bit out.
    pub delay: Seconds,
    /// Buffer of each port.
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
    /// When the switch has received the complete frame.
    StoreAndForward,
    /// When the switch has received the frame's header.
    CutThrough,
}

pub(super) fn one() -> usize {
    1
}
