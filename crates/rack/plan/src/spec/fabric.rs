//! `[fabric]` of a description.

use crate::topology::Topology;
use serde::Deserialize;

/// `[fabric]`: how chassis are connected.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricSpec {
    /// Which chassis are neighbours.
    pub topology: Topology,
    /// Number of cables between two neighbours.
    pub links: usize,
    /// Whether each uplink is split into `chassis.split` links.
    pub split: bool,
    /// Which of the shortest routes frames take.
    pub routes: Routes,
}

impl Default for FabricSpec {
    fn default() -> Self {
        Self { topology: Topology::Single, links: 1, split: false, routes: Routes::Ecmp }
    }
}

/// Which of the shortest routes between two chassis frames take.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Routes {
    /// All shortest routes, in equal parts: equal-cost multipath.
    Ecmp,
    /// One shortest route: dimension by dimension in a torus, hypercube or mesh; in other
    /// topologies, over the first link that leads nearer to the destination.
    Ordered,
}
