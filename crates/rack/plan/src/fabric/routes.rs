//! Which neighbours lead to a chassis, and whether frames can wait for each other in a circle.

use super::{Fabric, Neighbour, UNREACHED};
use crate::spec::Routes;

/// The ways to one chassis: of each switch the neighbours that are one link nearer. They cannot
/// lead in a circle.
#[derive(Clone, Debug)]
pub struct Routing {
    /// Where they lead.
    pub to: usize,
    /// How many links each switch is from there.
    pub hops: Vec<u32>,
    routes: Routes,
}

impl Routing {
    /// The shortest ways to a chassis.
    #[must_use]
    pub fn new(fabric: &Fabric, to: usize, routes: Routes) -> Self {
        Self { to, hops: fabric.hops(to), routes }
    }

    /// Over which neighbours a switch sends what is to go there; none at its end, and where nothing
    /// leads.
    pub fn next<'a>(
        &'a self,
        fabric: &'a Fabric,
        switch: usize,
    ) -> impl Iterator<Item = Neighbour> + 'a {
        let here = self.hops[switch];
        let nearer =
            move |neighbour: &&Neighbour| here != UNREACHED && self.hops[neighbour.switch] < here;
        let all = fabric.neighbours(switch).iter().filter(nearer).copied();
        // By dimension and direction, not by name: so the order is the same from each switch of a
        // symmetric fabric.
        let order = |neighbour: &Neighbour| {
            (fabric.links[neighbour.link].class, neighbour.directed % 2, neighbour.link)
        };
        let first = match self.routes {
            Routes::Ecmp => None,
            Routes::Ordered => Some(all.clone().min_by_key(order)),
        };
        // Either all of them, or the first in order.
        let every = first.is_none().then_some(all);
        every.into_iter().flatten().chain(first.flatten())
    }
}

/// A link that waits for itself, by way of others, if frames wait for buffers instead of being
/// dropped (lossless Ethernet): its number as a direction. None: they cannot.
#[must_use]
pub fn deadlock(fabric: &Fabric, routes: Routes) -> Option<usize> {
    let directions = 2 * fabric.links.len();
    let mut waits = vec![Vec::<usize>::new(); directions];
    let mut tidy = vec![0; directions]; // how many there were when repetitions were last taken out
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
    // Take away what waits for nothing that is left, until nothing changes: what remains waits in a
    // circle.
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
