//! Switches and the links between them, as a graph, and what follows from it.
//!
//! Chassis come first among the switches: `0..stations` have servers, the others have none. A link
//! has two directions, each with a number of its own: [`Fabric::directed`].

mod bisection;
mod failure;
mod routes;
mod traffic;

pub use bisection::bisection;
pub use failure::{Failure, Failures, failures};
pub use routes::{Routing, deadlock};
pub use traffic::{Traffic, traffic};

use std::collections::VecDeque;

/// Most switches.
pub const MAX_SWITCHES: usize = 1 << 17;

/// Most pairs of neighbours.
pub const MAX_LINKS: usize = 1 << 21;

/// Most switches of a fabric whose links are looked at from each of them: more are only where all
/// see the same.
pub const MAX_EXAMINED: usize = 1_024;

/// Most steps from switch to switch that looking at a fabric may take: seconds.
pub const MAX_STEPS: usize = 1_000_000_000;

/// What is further than any switch.
pub const UNREACHED: u32 = u32::MAX;

/// Neighbours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// The switch at one end.
    pub a: usize,
    /// The switch at the other.
    pub b: usize,
    /// Cables between them.
    pub count: usize,
    /// Of which kind it is: its dimension, its stage.
    pub class: usize,
    /// Whether from `a` to `b` is the same direction in all links of the class: along a ring.
    pub oriented: bool,
}

impl Link {
    /// Neighbours, `count` cables apart.
    #[must_use]
    pub fn new(a: usize, b: usize, count: usize, class: usize) -> Self {
        assert!(a != b && count > 0, "a link has two ends and a cable");
        Self { a, b, count, class, oriented: false }
    }
}

/// A neighbour, seen from a switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Neighbour {
    /// The switch there.
    pub switch: usize,
    /// The link that leads there.
    pub link: usize,
    /// The direction of the link that leads there.
    pub directed: usize,
}

/// Switches and links.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// Switches with servers: the first ones.
    pub stations: usize,
    /// All switches.
    pub switches: usize,
    /// The links between them.
    pub links: Vec<Link>,
    /// Whether the fabric looks the same from each switch, each class of links apart, and each
    /// direction of those that have one.
    pub symmetric: bool,
    /// Where each switch's neighbours begin in `all`, and where the last one's end.
    begin: Vec<usize>,
    all: Vec<Neighbour>,
}

impl Fabric {
    /// Switches, joined by links.
    ///
    /// # Panics
    /// If a link leads to none of them, or there are more of something than there may be.
    #[must_use]
    pub fn new(stations: usize, switches: usize, links: Vec<Link>, symmetric: bool) -> Self {
        assert!(
            (1..=switches).contains(&stations)
                && switches <= MAX_SWITCHES
                && links.len() <= MAX_LINKS
        );
        assert!(
            !symmetric || stations == switches,
            "one with servers and one without do not see the same"
        );
        let mut begin = vec![0; switches + 1];
        for link in &links {
            begin[link.a + 1] += 1;
            begin[link.b + 1] += 1;
        }
        (0..switches).for_each(|switch| begin[switch + 1] += begin[switch]);
        let mut at = begin.clone();
        let mut all = vec![Neighbour { switch: 0, link: 0, directed: 0 }; 2 * links.len()];
        for (number, link) in links.iter().enumerate() {
            for (from, to, directed) in
                [(link.a, link.b, 2 * number), (link.b, link.a, 2 * number + 1)]
            {
                all[at[from]] = Neighbour { switch: to, link: number, directed };
                at[from] += 1;
            }
        }
        Self { stations, switches, links, symmetric, begin, all }
    }

    /// A switch's neighbours.
    #[must_use]
    pub fn neighbours(&self, switch: usize) -> &[Neighbour] {
        &self.all[self.begin[switch]..self.begin[switch + 1]]
    }

    /// Cables that end at a switch.
    #[must_use]
    pub fn cables(&self, switch: usize) -> usize {
        self.neighbours(switch).iter().map(|neighbour| self.links[neighbour.link].count).sum()
    }

    /// From where to where a directed link leads.
    #[must_use]
    pub fn directed(&self, directed: usize) -> (usize, usize) {
        let link = &self.links[directed / 2];
        if directed.is_multiple_of(2) { (link.a, link.b) } else { (link.b, link.a) }
    }

    /// A switch's name: `c` with the number of a chassis, `s` with that of a switch without
    /// servers.
    #[must_use]
    pub fn name(&self, switch: usize) -> String {
        match switch.checked_sub(self.stations) {
            None => format!("c{switch}"),
            Some(without) => format!("s{without}"),
        }
    }

    /// How many links each switch is from one of them, [`UNREACHED`] where nothing leads.
    #[must_use]
    pub fn hops(&self, from: usize) -> Vec<u32> {
        let mut hops = vec![UNREACHED; self.switches];
        hops[from] = 0;
        let mut queue = VecDeque::from([from]);
        while let Some(switch) = queue.pop_front() {
            for neighbour in self.neighbours(switch) {
                if hops[neighbour.switch] == UNREACHED {
                    hops[neighbour.switch] = hops[switch] + 1;
                    queue.push_back(neighbour.switch);
                }
            }
        }
        hops
    }

    /// A switch to which nothing leads from the first.
    #[must_use]
    pub fn apart(&self) -> Option<usize> {
        self.hops(0).iter().position(|hops| *hops == UNREACHED)
    }

    /// From where the fabric must be looked at to know it from everywhere.
    #[must_use]
    pub fn viewpoints(&self) -> usize {
        if self.symmetric { 1 } else { self.stations }
    }
}
