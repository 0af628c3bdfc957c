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
    /// Memory of the server.
    pub memory: Bytes,
    /// Memory bandwidth.
    pub memory_rate: Option<ByteRate>,
    /// Capacity of each disk, one entry for each.
    #[serde(default)]
    pub disks: Vec<Bytes>,
    /// Bandwidth of each disk.
    pub disk_rate: Option<ByteRate>,
    /// Number of ports to the switch.
    #[serde(default = "one")]
    pub ports: usize,
    /// Rate of each port.
    pub port_rate: BitRate,
    /// The most power that the server draws.
    pub power: Option<Watts>,
    /// Weight of the server.
    pub weight: Option<Kilograms>,
}

/// `[chassis]`: a switch and its servers, in one box or in a rack.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chassis {
    /// Number of servers in the chassis.
    pub servers: usize,
    /// Height in rack units, including the servers.
    #[serde(default = "one")]
    pub height: usize,
    /// Number of the switch's ports to other chassis.
    #[serde(default)]
    pub uplinks: usize,
    /// Rate of each uplink.
    #[serde(default)]
    pub uplink_rate: BitRate,
    /// Number of links into which an uplink can be split.
    #[serde(default = "one")]
    pub split: usize,
    /// Whether servers are connected to the switch without cables.
    #[serde(default)]
    pub backplane: bool,
    /// The switch.
    #[serde(default)]
    pub switch: Switch,
    /// The most power that the chassis draws without its servers. A switch without servers draws
    /// the same.
    #[serde(default)]
    pub power: Watts,
    /// Weight of the chassis without its servers. A switch without servers weighs the same.
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
    /// Size of the buffer of each port.
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
    /// Once the switch has received the complete frame.
    StoreAndForward,
    /// Once the switch has received the frame's header.
    CutThrough,
}

pub(super) fn one() -> usize {
    1
}
