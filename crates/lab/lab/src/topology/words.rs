//! A topology as it is written.

use super::TopologyError;
use crate::config::{LineWords, Word};
use crate::filter::RuleWords;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Limit on the length of a topology, in bytes. A longer one is invalid.
pub const MAX_TOPOLOGY_BYTES: usize = 1 << 20;

/// A topology as it is written; the module's documentation has an example.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Topology {
    /// The topology's name, and the lab's.
    pub name: String,
    /// The purpose of the topology, in one line.
    #[serde(default)]
    pub about: String,
    /// The range of IPv4 addresses for hosts that have none.
    pub v4: Option<Ipv4Net>,
    /// The range of IPv6 addresses for hosts that have none.
    pub v6: Option<Ipv6Net>,
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: BTreeMap<String, HostWords>,
    /// The boxes.
    #[serde(default, rename = "box")]
    pub boxes: BTreeMap<String, BoxWords>,
    /// Cables between hosts without a box.
    #[serde(default, rename = "cable")]
    pub cables: Vec<CableWords>,
}

/// A host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostWords {
    /// A command that runs in it, by `sh -c`.
    pub run: Option<String>,
    /// The MTU of the host's interfaces, in bytes; by default 1,500.
    pub mtu: Option<u32>,
    /// Whether the host forwards packets between networks.
    #[serde(default)]
    pub forward: bool,
    /// Its interfaces, by the box or host at the other end, if they have settings.
    #[serde(default)]
    pub at: BTreeMap<String, AtWords>,
    /// Its routes to other networks.
    #[serde(default)]
    pub routes: Vec<RouteWords>,
    /// Kernel settings, by their names without `net.`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, Word>,
}

/// An interface.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AtWords {
    /// Its name.
    pub interface: Option<String>,
    /// Its addresses, with prefix lengths; `None`: one of each family is chosen.
    pub addresses: Option<Vec<IpNet>>,
    /// The interface's MTU, in bytes; `None`: that of the host.
    pub mtu: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteWords {
    /// The destination; `0.0.0.0/0` or `::/0` for everywhere.
    pub to: IpNet,
    /// The gateway.
    pub via: IpAddr,
}

/// A box.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BoxWords {
    /// Its ports: hosts, boxes, or ports of the machine as in
    /// [`PortSpec`](crate::config::PortSpec).
    pub ports: Vec<String>,
    /// `cross` (the default for two ports, or with pairs) or `switch`.
    pub forward: Option<Word>,
    /// The pairs of ports, if there are more than two and no switch.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// Time after its last frame at which a switch forgets an address.
    pub ageing: Option<Word>,
    /// Packet memory of each worker, in bytes.
    pub memory: Option<Word>,
    /// Settings of every line.
    #[serde(default)]
    pub line: LineWords,
    /// More settings of the line to a port, by port.
    #[serde(default)]
    pub to: BTreeMap<String, LineWords>,
    /// Filter rules, in order.
    #[serde(default)]
    pub filters: Vec<RuleWords>,
    /// What is captured.
    pub capture: Option<CaptureWords>,
}

/// A capture of all packets that arrive.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaptureWords {
    /// The file.
    pub file: String,
    /// Bytes kept of each packet.
    pub snap: Option<u32>,
    /// Memory between packets and files, in bytes.
    pub memory: Option<Word>,
    /// Size of a file, in bytes, if the capture is a ring of files.
    pub file_size: Option<Word>,
    /// Number of files that are kept.
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
    /// Parses TOML.
    ///
    /// # Errors
    /// It is too long, is not TOML, or has unknown keys; the error names the line.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        if text.len() > MAX_TOPOLOGY_BYTES {
            let what = format!("{} bytes; {MAX_TOPOLOGY_BYTES} are the limit", text.len());
            return Err(TopologyError::Invalid { place: "the file".to_owned(), what });
        }
        Ok(toml::from_str(text)?)
    }
}
