//! Models switches and the links between them as a graph, and computes routes, load, bisection and
//! the effect of failures on this graph.
//!
//! Chassis have the lowest numbers: switches `0..stations` have servers, the others have none. Each
//! direction of a link has a number of its own: see [`Fabric::directed`].

mod bisection;
mod failure;
mod routes;
mod traffic;

pub use bisection::bisection;
pub use failure::{Failure, Failures, failures};
pub use routes::{Routing, deadlock};
pub use traffic::{Traffic, traffic};

use std::collections::VecDeque;

/// Limit on the switches of a fabric.
pub const MAX_SWITCHES: usize = 1 << 17;

/// Limit on the links of a fabric.
pub const MAX_LINKS: usize = 1 << 21;

/// Limit on the switches of a fabric whose failures, bisection and deadlocks are examined. For a
/// larger fabric these results are `None`.
pub const MAX_EXAMINED: usize = 1_024;

/// Limit on the switches and links that an examination of the whole fabric may visit, which bounds
/// it to some seconds.
pub const MAX_STEPS: usize = 1_000_000_000;

/// The distance to a switch that cannot be reached.
pub const UNREACHED: u32 = u32::MAX;

/// A link: one or several parallel cables between two neighbouring switches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// The switch at the first end.
    pub a: usize,
    /// The switch at the second end.
    pub b: usize,
    /// Number of parallel cables.
    pub count: usize,
    /// The class of the link among the fabric's links, such as its dimension or stage.
    pub class: usize,
    /// Whether all links of this class go around a ring in the same sense, from `a` to `b`. If so,
    /// the two directions of the class are counted apart.
    pub oriented: bool,
}

impl Link {
    /// Creates a link of `count` cables between `a` and `b`. It is not oriented.
    #[must_use]
    pub fn new(a: usize, b: usize, count: usize, class: usize) -> Self {
        assert!(a != b && count > 0, "a link has two ends and a cable");
        Self { a, b, count, class, oriented: false }
    }
}

/// A neighbour of a switch, and the link to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Neighbour {
    /// The neighbouring switch.
    pub switch: usize,
    /// The number of the link to the neighbour.
    pub link: usize,
    /// The number of that link's direction to the neighbour.
    pub directed: usize,
}

/// A network of switches and links. No link joins a switch to itself.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// Number of switches with servers; they have the lowest numbers.
    pub stations: usize,
    /// Number of all switches.
    pub switches: usize,
    /// The links between switches.
    pub links: Vec<Link>,
    /// Whether the fabric looks the same from each switch. The links of each class, and in oriented
    /// classes both directions, are distinguished. If it is true, one switch stands for all
    /// switches.
    pub symmetric: bool,
    /// For each switch, the index in `all` at which its neighbours begin. The last entry is the
    /// length of `all`.
    begin: Vec<usize>,
    all: Vec<Neighbour>,
}

impl Fabric {
    /// Builds a fabric from its links.
    ///
    /// # Panics If a link names a switch that does not exist, a limit is exceeded, no switch or
    /// more than all switches have servers, or a symmetric fabric has switches without servers.
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

    /// Returns a switch's neighbours.
    #[must_use]
    pub fn neighbours(&self, switch: usize) -> &[Neighbour] {
        &self.all[self.begin[switch]..self.begin[switch + 1]]
    }

    /// Counts the cables that end at a switch.
    #[must_use]
    pub fn cables(&self, switch: usize) -> usize {
        self.neighbours(switch).iter().map(|neighbour| self.links[neighbour.link].count).sum()
    }

    /// Returns the two switches between which a directed link leads: from the first to the second.
    #[must_use]
    pub fn directed(&self, directed: usize) -> (usize, usize) {
        let link = &self.links[directed / 2];
        if directed.is_multiple_of(2) { (link.a, link.b) } else { (link.b, link.a) }
    }

    /// Returns a switch's name: `c` and its number for a chassis, `s` and a number for a switch
    /// without servers.
    #[must_use]
    pub fn name(&self, switch: usize) -> String {
        match switch.checked_sub(self.stations) {
            None => format!("c{switch}"),
            Some(without) => format!("s{without}"),
        }
    }

    /// Returns the distance of each switch from `from` in links, or [`UNREACHED`].
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

    /// Returns a switch that the first switch cannot reach, if there is one.
    #[must_use]
    pub fn first_unreachable(&self) -> Option<usize> {
        self.hops(0).iter().position(|hops| *hops == UNREACHED)
    }

    /// Returns the number of switches from which the fabric must be examined: one if it is
    /// symmetric, otherwise all that have servers.
    #[must_use]
    pub fn viewpoints(&self) -> usize {
        if self.symmetric { 1 } else { self.stations }
    }
}
