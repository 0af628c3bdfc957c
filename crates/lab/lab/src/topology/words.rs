//! A topology as written in TOML.

use super::TopologyError;
use crate::config::{LineWords, Word};
use crate::filter::RuleWords;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Limit on the length of a topology, in bytes. A longer topology is invalid.
pub const MAX_TOPOLOGY_BYTES: usize = 1 << 20;

/// A topology as written in TOML. The documentation of [the module](super) has an example.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Topology {
    /// The name of the topology, and of the lab that is made from it.
    pub name: String,
    /// The purpose of the topology, in one line.
    #[serde(default)]
    pub about: String,
    /// The range of IPv4 addresses for hosts that have none. Default: 10.64.0.0/16.
    pub v4: Option<Ipv4Net>,
    /// The range of IPv6 addresses for hosts that have none. Default: fd53:7072:6174::/48.
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
    /// A command that runs in the host, by `sh -c`.
    pub run: Option<String>,
    /// The MTU of the host's interfaces, in bytes. Default: 1,500.
    pub mtu: Option<u32>,
    /// Whether the host forwards packets between its networks.
    #[serde(default)]
    pub forward: bool,
    /// Settings of the host's interfaces, by the box or host at the other end.
    #[serde(default)]
    pub at: BTreeMap<String, AtWords>,
    /// The host's routes to other networks.
    #[serde(default)]
    pub routes: Vec<RouteWords>,
    /// Kernel settings, by their names without `net.`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, Word>,
}

/// Settings of a host's interface.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AtWords {
    /// The interface's name. With `None`, a name is chosen.
    pub interface: Option<String>,
    /// The interface's addresses, with prefix lengths. With `None`, one of each family is chosen.
    pub addresses: Option<Vec<IpNet>>,
    /// The interface's MTU, in bytes. With `None`, that of the host.
    pub mtu: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteWords {
    /// The destination. `0.0.0.0/0` or `::/0` stand for all destinations.
    pub to: IpNet,
    /// The gateway.
    pub via: IpAddr,
}

/// A box.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BoxWords {
    /// The box's ports: hosts, other boxes, or ports of the machine, written as a
    /// [`PortSpec`](crate::config::PortSpec).
    pub ports: Vec<String>,
    /// `cross` or `switch`. Default: `cross` for two ports or if there are pairs, otherwise
    /// `switch`.
    pub forward: Option<Word>,
    /// The pairs of ports. If there are only two ports, they are a pair by default.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// Time after which a switch forgets an address that has sent no frame. Default: 300 s.
    pub ageing: Option<Word>,
    /// Packet memory of each worker, in bytes, up to 16 GiB. Default: as much as its lines need.
    pub memory: Option<Word>,
    /// Settings of every line.
    #[serde(default)]
    pub line: LineWords,
    /// Additional settings of the line to a port, by the port's name.
    #[serde(default)]
    pub to: BTreeMap<String, LineWords>,
    /// Filter rules, in order.
    #[serde(default)]
    pub filters: Vec<RuleWords>,
    /// The capture of the packets that arrive at the box, if there is one.
    pub capture: Option<CaptureWords>,
}

/// A capture of all packets that arrive at a box.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaptureWords {
    /// The path of the file.
    pub file: String,
    /// Bytes that are kept of each packet. Default: all.
    pub snap: Option<u32>,
    /// Memory between packets and files, in bytes. Default: 64 MiB.
    pub memory: Option<Word>,
    /// Limit on the size of a file, in bytes, if the capture is a ring of files.
    pub file_size: Option<Word>,
    /// Number of files that the ring keeps; needs `file-size`. Default: 10,000.
    pub files: Option<u32>,
}

/// A cable.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CableWords {
    /// The names of the two hosts.
    pub ends: [String; 2],
}

impl Topology {
    /// Parses TOML.
    ///
    /// # Errors
    /// The text is too long, is not TOML, or has unknown keys. The error names the line.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        if text.len() > MAX_TOPOLOGY_BYTES {
            let what = format!("{} bytes; {MAX_TOPOLOGY_BYTES} are the limit", text.len());
            return Err(TopologyError::Invalid { place: "the file".to_owned(), what });
        }
        Ok(toml::from_str(text)?)
    }
}
