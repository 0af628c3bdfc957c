//! How the chassis are joined.

use crate::topology::Topology;
use serde::Deserialize;

/// How chassis are joined.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fabric {
    /// Which are neighbours.
    pub topology: Topology,
    /// Links between two neighbours.
    pub links: usize,
    /// Whether uplinks are split into as many links as they can be.
    pub split: bool,
    /// Which of the shortest ways are taken.
    pub routes: Routes,
}

impl Default for Fabric {
    fn default() -> Self {
        Self { topology: Topology::Single, links: 1, split: false, routes: Routes::Ecmp }
    }
}

/// Which of the shortest ways between two chassis are taken.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Routes {
    /// All of them, in equal parts: equal-cost multipath.
    Ecmp,
    /// One: dimension by dimension where there are such, the first link elsewhere.
    Ordered,
}
