//! How a box forwards packets: which ports each of its workers reads and writes.

use std::time::Duration;

/// Limit on the ports of a box.
pub const MAX_PORTS: usize = 16;

/// How a box forwards packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forwarding {
    /// Pairs of ports: ports 0 and 1 are joined, ports 2 and 3 are joined, and so on.
    Cross,
    /// A learning switch that forgets an address after this time.
    Switch(Duration),
}

impl Forwarding {
    /// Returns whether a box can have this many ports: 2 to [`MAX_PORTS`], and an even number for
    /// pairs.
    #[must_use]
    pub fn joins(self, ports: usize) -> bool {
        (2..=MAX_PORTS).contains(&ports) && (self != Self::Cross || ports.is_multiple_of(2))
    }
}

/// The ports that a worker reads and those that it writes, by index.
pub(super) struct WorkerPorts {
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
}

/// Returns the ports of each worker of a box; `devices` says which ports are devices that bypass
/// the kernel. A pair of ports with a device has one worker. Any other pair has two: the line to a
/// port belongs to the worker that reads the other port of the pair.
pub(super) fn worker_ports(forwarding: Forwarding, devices: &[bool]) -> Vec<WorkerPorts> {
    let all: Vec<_> = (0..devices.len()).collect();
    let both = |ports: &[usize]| WorkerPorts {
        inputs: ports.to_vec(),
        outputs: ports.iter().rev().copied().collect(),
    };
    match forwarding {
        Forwarding::Switch(_) => vec![WorkerPorts { inputs: all.clone(), outputs: all }],
        Forwarding::Cross => all
            .chunks(2)
            .flat_map(|pair| match pair.iter().any(|&port| devices[port]) {
                true => vec![both(pair)],
                false => {
                    let [one, other] = [pair[0], pair[1]];
                    [(one, other), (other, one)]
                        .map(|(from, to)| WorkerPorts { inputs: vec![from], outputs: vec![to] })
                        .into()
                }
            })
            .collect(),
    }
}
