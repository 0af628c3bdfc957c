//! A topology as it was written.

use super::TopologyError;
use crate::config::{LineWords, Word};
use crate::filter::RuleWords;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Longest topology, in bytes.
pub const MAX_TOPOLOGY_BYTES: usize = 1 << 20;

/// A topology; see the page of its module for an example.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Topology {
    /// Its name, and that of the lab made of it.
    pub name: String,
    /// What it is for, in a line.
    #[serde(default)]
    pub about: String,
    /// Where IPv4 addresses are taken from.
    pub v4: Option<Ipv4Net>,
    /// Where IPv6 addresses are taken from.
    pub v6: Option<Ipv6Net>,
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: BTreeMap<String, HostWords>,
    /// The boxes.
    #[serde(default, rename = "box")]
    pub boxes: BTreeMap<String, BoxWords>,
    /// What is connected without a box between.
    #[serde(default, rename = "cable")]
    pub cables: Vec<CableWords>,
}

/// A host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostWords {
    /// What a shell is to run in it.
    pub run: Option<String>,
    /// Longest packet of its interfaces, in bytes; 1,500 unless told.
    pub mtu: Option<u32>,
    /// Whether it passes packets on from one network to another.
    #[serde(default)]
    pub forward: bool,
    /// Its interfaces, by the box or host at the other end, where something about them is told.
    #[serde(default)]
    pub at: BTreeMap<String, AtWords>,
    /// Its ways to other networks.
    #[serde(default)]
    pub routes: Vec<RouteWords>,
    /// Settings of its kernel, by their names behind `net.`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, Word>,
}

/// An interface.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AtWords {
    /// Its name.
    pub interface: Option<String>,
    /// Its addresses, with the prefix of their network; none: it is given one of each family.
    pub addresses: Option<Vec<IpNet>>,
    /// Longest packet, in bytes.
    pub mtu: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteWords {
    /// Where to; `0.0.0.0/0` or `::/0` for everywhere.
    pub to: IpNet,
    /// Over whom.
    pub via: IpAddr,
}

/// A box.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BoxWords {
    /// Its ports: hosts, boxes, or ports of the machine as in
    /// [`PortSpec`](crate::config::PortSpec).
    pub ports: Vec<String>,
    /// `cross` (for two ports, or where there are pairs) or `switch`.
    pub forward: Option<Word>,
    /// Which ports are each other's far end, where there are more than two and no switch.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// After how long a switch forgets an address.
    pub ageing: Option<Word>,
    /// Packet memory of each lane, in bytes.
    pub memory: Option<Word>,
    /// What every line does.
    #[serde(default)]
    pub line: LineWords,
    /// What the line to a port does besides, by the port.
    #[serde(default)]
    pub to: BTreeMap<String, LineWords>,
    /// Rules, in order.
    #[serde(default)]
    pub filters: Vec<RuleWords>,
    /// What is written down.
    pub capture: Option<CaptureWords>,
}

/// A capture of all that comes in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaptureWords {
    /// The file.
    pub file: String,
    /// Bytes kept of a packet.
    pub snap: Option<u32>,
    /// Memory between packets and files, in bytes.
    pub memory: Option<Word>,
    /// Bytes of a file, of which there are then several.
    pub file_size: Option<Word>,
    /// How many of them are kept.
    pub files: Option<u32>,
}

/// A cable.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CableWords {
    /// The two hosts.
    pub ends: [String; 2],
}

impl Topology {
    /// From TOML.
    ///
    /// # Errors
    /// It is too long, is not TOML, or has what no topology has: said with the line.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        if text.len() > MAX_TOPOLOGY_BYTES {
            let what = format!("{} bytes; {MAX_TOPOLOGY_BYTES} are the limit", text.len());
            return Err(TopologyError::Place { place: "the file".to_owned(), what });
        }
        Ok(toml::from_str(text)?)
    }
}
