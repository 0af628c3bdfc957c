//! Computes the distances between chassis, and the load of links when all chassis send to all
//! others, or all send to one.

use super::{Fabric, Routing, UNREACHED};
use crate::spec::Routes;

/// Distances and loads between chassis. A flow goes from one chassis to another. If each chassis
/// has s servers, one flow stands for s x s flows between servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Number of ordered pairs of different chassis by distance: `hops[2]` counts those that are
    /// two links apart.
    pub hops: Vec<u64>,
    /// Number of ordered pairs of chassis that cannot reach each other.
    pub unreachable_pairs: u64,
    /// Flows in the fullest cable when each chassis sends one flow to each other chassis.
    pub all_to_all: f64,
    /// Flows in the fullest cable when all chassis send to one chassis. The receiver is the chassis
    /// for which this number is highest.
    pub incast: f64,
}

impl Traffic {
    /// Returns the largest number of links between two chassis.
    #[must_use]
    pub fn diameter(&self) -> usize {
        self.hops.iter().rposition(|pairs| *pairs > 0).unwrap_or(0)
    }

    /// Returns the mean number of links between two chassis.
    #[must_use]
    pub fn mean_hops(&self) -> f64 {
        let pairs: u64 = self.hops.iter().sum();
        let links: u64 =
            self.hops.iter().enumerate().map(|(hops, pairs)| hops as u64 * pairs).sum();
        if pairs == 0 { 0.0 } else { links as f64 / pairs as f64 }
    }
}

/// Computes distances and loads between all chassis.
#[must_use]
pub fn traffic(fabric: &Fabric, routes: Routes) -> Traffic {
    let seen = fabric.viewpoints();
    let repeated = (fabric.stations / seen) as u64; // each viewpoint stands for this many chassis
    let mut found = Traffic { hops: vec![0], unreachable_pairs: 0, all_to_all: 0.0, incast: 0.0 };
    let mut carried = vec![0.0; 2 * fabric.links.len()];
    for to in 0..seen {
        let routing = Routing::new(fabric, to, routes);
        for from in (0..fabric.stations).filter(|from| *from != to) {
            match routing.hops[from] {
                UNREACHED => found.unreachable_pairs += repeated,
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

/// Returns the load of each directed link when each chassis sends one flow to the chassis to which
/// `routing` leads.
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

/// Returns the load of the fullest cable of a symmetric fabric. It computes this from the flows to
/// one chassis: the flows to all chassis are spread evenly over the links of each class and
/// direction.
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
