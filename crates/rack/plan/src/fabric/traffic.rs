//! How far chassis are from each other, and what links carry when all send to all, and when all
//! send to one.

use super::{Fabric, Routing, UNREACHED};
use crate::spec::Routes;

/// What there is between chassis. Flows are those between chassis: where each has s servers, s x s
/// times as many between servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Pairs of different chassis by the links between them: `hops[2]` are two apart. Both ways
    /// are counted.
    pub hops: Vec<u64>,
    /// Pairs of chassis between which nothing leads.
    pub apart: u64,
    /// Flows in the fullest cable when each chassis sends to each other.
    pub all_to_all: f64,
    /// Flows in the fullest cable when each chassis sends to the one that is worst off.
    pub incast: f64,
}

impl Traffic {
    /// Most links between two chassis.
    #[must_use]
    pub fn diameter(&self) -> usize {
        self.hops.iter().rposition(|pairs| *pairs > 0).unwrap_or(0)
    }

    /// Links between two chassis on average.
    #[must_use]
    pub fn mean_hops(&self) -> f64 {
        let pairs: u64 = self.hops.iter().sum();
        let links: u64 =
            self.hops.iter().enumerate().map(|(hops, pairs)| hops as u64 * pairs).sum();
        if pairs == 0 { 0.0 } else { links as f64 / pairs as f64 }
    }
}

/// What there is between all chassis.
#[must_use]
pub fn traffic(fabric: &Fabric, routes: Routes) -> Traffic {
    let seen = fabric.viewpoints();
    let repeated = (fabric.stations / seen) as u64; // each view stands for so many
    let mut found = Traffic { hops: vec![0], apart: 0, all_to_all: 0.0, incast: 0.0 };
    let mut carried = vec![0.0; 2 * fabric.links.len()];
    for to in 0..seen {
        let routing = Routing::new(fabric, to, routes);
        for from in (0..fabric.stations).filter(|from| *from != to) {
            match routing.hops[from] {
                UNREACHED => found.apart += repeated,
                hops => {
                    let hops = hops as usize;
                    found.hops.resize(found.hops.len().max(hops + 1), 0);
                    found.hops[hops] += repeated;
                }
            }
        }
        let flows = flows(fabric, &routing);
        let fullest =
            flows.iter().enumerate().map(|(directed, flows)| per_cable(fabric, directed, *flows));
        found.incast = fullest.fold(found.incast, f64::max);
        carried.iter_mut().zip(&flows).for_each(|(sum, flows)| *sum += flows);
    }
    if fabric.symmetric {
        found.all_to_all = by_class(fabric, &carried);
    } else {
        let fullest =
            carried.iter().enumerate().map(|(directed, flows)| per_cable(fabric, directed, *flows));
        found.all_to_all = fullest.fold(0.0, f64::max);
    }
    found
}

fn per_cable(fabric: &Fabric, directed: usize, flows: f64) -> f64 {
    flows / fabric.links[directed / 2].count as f64
}

/// What each directed link carries when each chassis sends one flow to one of them.
fn flows(fabric: &Fabric, routing: &Routing) -> Vec<f64> {
    let reached = |switch: &usize| routing.hops[*switch] != UNREACHED;
    let mut far_to_near: Vec<usize> = (0..fabric.switches).filter(reached).collect();
    far_to_near.sort_unstable_by_key(|switch| std::cmp::Reverse(routing.hops[*switch]));
    let mut passing = vec![0.0; fabric.switches];
    passing[..fabric.stations].fill(1.0);
    let mut flows = vec![0.0; 2 * fabric.links.len()];
    for switch in far_to_near.into_iter().filter(|switch| *switch != routing.to) {
        let ways =
            routing.next(fabric, switch).map(|way| fabric.links[way.link].count).sum::<usize>()
                as f64;
        for way in routing.next(fabric, switch) {
            let part = passing[switch] * fabric.links[way.link].count as f64 / ways;
            flows[way.directed] += part;
            passing[way.switch] += part;
        }
    }
    flows
}

/// Where all switches see the same, the flows to all of them are those to one, dealt out evenly to
/// the links of each class and direction.
fn by_class(fabric: &Fabric, to_one: &[f64]) -> f64 {
    let kind = |directed: usize| {
        let link = &fabric.links[directed / 2];
        2 * link.class + if link.oriented { directed % 2 } else { 0 }
    };
    let kinds = (0..to_one.len()).map(|directed| kind(directed) + 1).max().unwrap_or(0);
    let (mut flows, mut cables) = (vec![0.0; kinds], vec![0_usize; kinds]);
    for (directed, flow) in to_one.iter().enumerate() {
        flows[kind(directed)] += flow;
    }
    for neighbour in fabric.neighbours(0) {
        cables[kind(neighbour.directed)] += fabric.links[neighbour.link].count;
    }
    flows
        .iter()
        .zip(&cables)
        .map(|(flows, cables)| flows / (*cables).max(1) as f64)
        .fold(0.0, f64::max)
}
