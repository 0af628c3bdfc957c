//! A whole lab in one small file: hosts, their connections, and the boxes between them.
//!
//! ```toml
//! name = "pair"
//!
//! [host.left]
//! run = "ping -c 3 $RIGHT_V4"
//!
//! [host.right]
//! mtu = 9000                          # bytes
//! routes = [{ to = "192.0.2.0/24", via = "10.64.0.1" }]
//! sysctls = { "ipv4.tcp_congestion_control" = "cubic" }
//! at.wan = { interface = "wan0", addresses = ["10.64.0.9/24"] }    # at the box `wan`
//!
//! [box.wan]
//! ports = ["left", "right"]           # hosts, other boxes, or packet:INTERFACE of this machine
//! forward = "cross"                   # or "switch"
//! line = { delay = "100ms" }          # every line; see `sprat lab run --help`
//! to.right = { rate = "2Gb/s", buffer = "64MB" }     # more for one port
//!
//! capture = { file = "wan.pcapng" }   # all that arrives; also snap, memory, file-size, files
//!
//! [[box.wan.filters]]                 # in order
//! match = "tcp port 80"               # pcap's language
//! from = "left"
//! action = "drop"                     # or count, mirror:PORT, rewrite:FIELD=VALUE,...
//!
//! [[cable]]                           # without a box between
//! ends = ["left", "right"]
//! ```
//!
//! Hosts without addresses get addresses. A network is a set of connected boxes, or a cable. Each
//! network takes the next /24 of `v4` (10.64.0.0/16) and the next /64 of `v6`
//! (fd53:7072:6174::/48). The networks of boxes come first, in the order of the boxes' names, then
//! the cables. Within a network, hosts are numbered from 1 in the order of their names. Addresses
//! that are in the file are skipped. A host's interfaces are called eth0, eth1 and so on: first
//! those to boxes, in the order of the boxes' names, then those of cables. If two boxes are each
//! other's ports, a cable joins them. Its ends are in a namespace of their own, LAB-boxes.

mod addresses;
mod layout;
mod raise;
mod ready;
mod words;

pub use layout::{BoxPlan, CapturePlan, LabPlan, MAX_BOXES, PortPlan, TopologyError};
pub use raise::{BoxResult, LabResult, RunningLab, StartError};
pub use ready::{READY, Ready, ready};
pub use words::{
    AtWords, BoxWords, CableWords, CaptureWords, HostWords, MAX_TOPOLOGY_BYTES, RouteWords,
    Topology,
};
