//! How a box passes packets on: which ports each of its lanes reads and writes.

use std::time::Duration;

/// Most ports of a box.
pub const MAX_PORTS: usize = 16;

/// How a box passes packets on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forwarding {
    /// Pairs of ports: each two that follow each other are each other's far end.
    Cross,
    /// A learning switch that forgets after this time.
    Switch(Duration),
}

impl Forwarding {
    /// Whether so many ports can be joined so.
    #[must_use]
    pub fn joins(self, ports: usize) -> bool {
        (2..=MAX_PORTS).contains(&ports) && (self != Self::Cross || ports.is_multiple_of(2))
    }
}

/// The ports that a lane reads, and those that it writes, by their numbers.
pub(super) struct Ways {
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
}

/// The lanes of a box whose ports are devices or not. The line to a port is with the lane that
/// reads the other of its pair.
pub(super) fn ways(forwarding: Forwarding, devices: &[bool]) -> Vec<Ways> {
    let all: Vec<_> = (0..devices.len()).collect();
    let both = |ports: &[usize]| Ways {
        inputs: ports.to_vec(),
        outputs: ports.iter().rev().copied().collect(),
    };
    match forwarding {
        Forwarding::Switch(_) => vec![Ways { inputs: all.clone(), outputs: all }],
        Forwarding::Cross => all
            .chunks(2)
            .flat_map(|pair| match pair.iter().any(|&port| devices[port]) {
                true => vec![both(pair)],
                false => {
                    let [one, other] = [pair[0], pair[1]];
                    [(one, other), (other, one)]
                        .map(|(from, to)| Ways { inputs: vec![from], outputs: vec![to] })
                        .into()
                }
            })
            .collect(),
    }
}
