//! Examines what single failures of links and switches do to a fabric.

use super::{Fabric, Link, MAX_EXAMINED, MAX_STEPS, traffic};
use crate::spec::Routes;

/// A part that fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// All cables of a link, by its number in [`Fabric::links`].
    Link(usize),
    /// A switch together with its servers.
    Switch(usize),
}

/// The worst effect of a single failed link, or of a single failed switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// The failure that has this effect, or one of several.
    pub worst: Failure,
    /// Number of chassis that are cut off from the largest part that stays connected. A chassis
    /// that failed itself does not count.
    pub cut_off: usize,
    /// The largest distance, in links, between two chassis that can still reach each other.
    pub diameter: usize,
    /// Flows in the fullest cable when each chassis sends one flow to each other chassis, divided
    /// by the flows in the fullest cable without a failure.
    pub load: f64,
}

/// Examines each single failure of a link, then of a switch, and returns the worst of each kind.
/// Both are `None` if the fabric is too large to examine. One kind is `None` if the fabric has no
/// link, or only one switch.
#[must_use]
pub fn failures(fabric: &Fabric, routes: Routes) -> [Option<Failures>; 2] {
    let whole = traffic(fabric, routes).all_to_all;
    // In a symmetric fabric one link stands for all links of its class, and one switch stands for
    // all switches.
    let (links, switches): (Vec<usize>, usize) = if fabric.symmetric {
        let mut seen = Vec::new();
        let first = |number: &usize| {
            let class = fabric.links[*number].class;
            let new = !seen.contains(&class);
            if new {
                seen.push(class);
            }
            new
        };
        ((0..fabric.links.len()).filter(first).collect(), 1)
    } else {
        ((0..fabric.links.len()).collect(), fabric.switches)
    };
    let step = fabric.stations.saturating_mul(fabric.switches + 2 * fabric.links.len());
    if fabric.switches > MAX_EXAMINED || (links.len() + switches).saturating_mul(step) > MAX_STEPS {
        return [None, None];
    }
    let links = links.into_iter().map(Failure::Link);
    let switches = (0..switches).map(Failure::Switch).filter(|_| fabric.switches > 1);
    let worst = |failures: &mut dyn Iterator<Item = Failure>| {
        let found = failures.map(|failure| examine(fabric, routes, failure, whole));
        found.reduce(|worst, one| if key(&one) > key(&worst) { one } else { worst })
    };
    [worst(&mut links.into_iter()), worst(&mut switches.into_iter())]
}

impl Fabric {
    /// Returns the fabric without one link or one switch. Switches keep their numbers.
    #[must_use]
    pub fn without(&self, failure: Failure) -> Self {
        let stays = |(number, link): (usize, &Link)| match failure {
            Failure::Link(gone) => (number != gone).then_some(*link),
            Failure::Switch(gone) => (link.a != gone && link.b != gone).then_some(*link),
        };
        let links = self.links.iter().enumerate().filter_map(stays).collect();
        Self::new(self.stations, self.switches, links, false)
    }
}

/// Orders failures by severity: by the chassis cut off, then by diameter, then by load in parts per
/// million.
fn key(failure: &Failures) -> (usize, usize, u64) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a ratio of flows, not below zero"
    )]
    let load = (failure.load * 1e6) as u64;
    (failure.cut_off, failure.diameter, load)
}

fn examine(fabric: &Fabric, routes: Routes, failure: Failure, whole: f64) -> Failures {
    let left = fabric.without(failure);
    let stays = |station: &usize| failure != Failure::Switch(*station);
    // The largest connected part counts as the fabric that is left. Chassis in other parts are cut
    // off from it.
    let mut unseen: Vec<usize> = (0..fabric.stations).filter(stays).collect();
    let (all, mut largest) = (unseen.len(), 0);
    while let Some(&first) = unseen.first() {
        let hops = left.hops(first);
        let before = unseen.len();
        unseen.retain(|station| hops[*station] == super::UNREACHED);
        largest = largest.max(before - unseen.len());
    }
    let found = traffic(&left, routes);
    let load = if whole > 0.0 { found.all_to_all / whole } else { 1.0 };
    Failures { worst: failure, cut_off: all - largest, diameter: found.diameter(), load }
}
