//! Chooses the neighbours through which switches reach a chassis, and detects whether frames can
//! wait for each other in a cycle.

use super::{Fabric, Neighbour, UNREACHED};
use crate::spec::Routes;

/// The shortest routes to one chassis: for each switch, the neighbours that are one link nearer to
/// it. Routes to one chassis cannot form a cycle.
#[derive(Clone, Debug)]
pub struct Routing {
    /// The chassis that the routes lead to.
    pub to: usize,
    /// The distance of each switch from the chassis, in links.
    pub hops: Vec<u32>,
    routes: Routes,
}

impl Routing {
    /// Computes the shortest routes to a chassis.
    #[must_use]
    pub fn new(fabric: &Fabric, to: usize, routes: Routes) -> Self {
        Self { to, hops: fabric.hops(to), routes }
    }

    /// Returns the neighbours through which `switch` sends frames to the chassis. There are none at
    /// the chassis itself, nor at a switch that cannot reach it.
    pub fn next<'a>(
        &'a self,
        fabric: &'a Fabric,
        switch: usize,
    ) -> impl Iterator<Item = Neighbour> + 'a {
        let here = self.hops[switch];
        let nearer =
            move |neighbour: &&Neighbour| here != UNREACHED && self.hops[neighbour.switch] < here;
        let all = fabric.neighbours(switch).iter().filter(nearer).copied();
        // The order by class and direction, not by number, is the same at each switch of a
        // symmetric fabric.
        let order = |neighbour: &Neighbour| {
            (fabric.links[neighbour.link].class, neighbour.directed % 2, neighbour.link)
        };
        let first = match self.routes {
            Routes::Ecmp => None,
            Routes::Ordered => Some(all.clone().min_by_key(order)),
        };
        let every = first.is_none().then_some(all);
        every.into_iter().flatten().chain(first.flatten())
    }
}

/// Returns a directed link that can wait for itself through other links, in a lossless network,
/// where frames wait for buffers and are not dropped. `None` means that no deadlock can occur.
#[must_use]
pub fn deadlock(fabric: &Fabric, routes: Routes) -> Option<usize> {
    let directions = 2 * fabric.links.len();
    let mut waits = vec![Vec::<usize>::new(); directions];
    let mut tidy = vec![0; directions]; // length of each list when duplicates were last removed
    for to in 0..fabric.stations {
        let routing = Routing::new(fabric, to, routes);
        for from in 0..fabric.switches {
            for over in routing.next(fabric, from) {
                let list = &mut waits[over.directed];
                list.extend(routing.next(fabric, over.switch).map(|next| next.directed));
                if list.len() > 2 * tidy[over.directed] + 64 {
                    list.sort_unstable();
                    list.dedup();
                    tidy[over.directed] = list.len();
                }
            }
        }
    }
    for list in &mut waits {
        list.sort_unstable();
        list.dedup();
    }
    // Removes links that wait for nothing, until there are no more: those that remain wait in a
    // cycle.
    let mut awaited_by = vec![Vec::new(); directions];
    let mut open: Vec<usize> = waits.iter().map(Vec::len).collect();
    for (waiting, list) in waits.iter().enumerate() {
        list.iter().for_each(|awaited| awaited_by[*awaited].push(waiting));
    }
    let mut free: Vec<usize> = (0..directions).filter(|one| open[*one] == 0).collect();
    while let Some(one) = free.pop() {
        for &waiting in &awaited_by[one] {
            open[waiting] -= 1;
            if open[waiting] == 0 {
                free.push(waiting);
            }
        }
    }
    open.iter().position(|waits| *waits > 0)
}
