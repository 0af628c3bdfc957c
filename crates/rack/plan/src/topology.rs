//! Builds a fabric from a named topology, or from a list of neighbours.

use crate::fabric::{Fabric, Link, MAX_LINKS, MAX_SWITCHES};
use serde::Deserialize;

/// `fabric.topology`: which chassis are neighbours. Some topologies also have switches without
/// servers, which are no chassis.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Topology {
    /// One chassis.
    #[default]
    Single,
    /// A full mesh: each chassis is joined to each other one.
    Mesh {
        /// Number of chassis.
        chassis: usize,
    },
    /// A star: one chassis in the middle, which also has servers, is joined to all others.
    Tree {
        /// Number of chassis around the one in the middle.
        leaves: usize,
    },
    /// A hypercube: each chassis has one neighbour in each dimension.
    Hypercube {
        /// Number of dimensions: with n dimensions there are 2^n chassis.
        dimensions: usize,
    },
    /// A torus: a ring in each dimension.
    Torus {
        /// Number of chassis in each dimension.
        sizes: Vec<usize>,
    },
    /// A fat tree: three stages of switches with equally many ports. The switches of the lowest
    /// stage are those of the chassis.
    FatTree {
        /// Ports of each switch, an even number. Half of a chassis's ports are its uplinks.
        ports: usize,
    },
    /// A dragonfly: groups that are full meshes. Each group is joined to each other group.
    Dragonfly {
        /// Number of groups.
        groups: usize,
        /// Number of chassis in each group.
        chassis: usize,
        /// Number of links of each chassis to other groups.
        global: usize,
    },
    /// A list of neighbours.
    Custom {
        /// Number of chassis.
        chassis: usize,
        /// Pairs of neighbours, by their numbers from 0.
        neighbours: Vec<[usize; 2]>,
    },
}

/// A topology that cannot be built.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("topology {kind}: {what}")]
pub struct TopologyError {
    kind: &'static str,
    what: String,
}

impl Topology {
    /// Returns the topology's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mesh { .. } => "mesh",
            Self::Tree { .. } => "tree",
            Self::Hypercube { .. } => "hypercube",
            Self::Torus { .. } => "torus",
            Self::FatTree { .. } => "fat-tree",
            Self::Dragonfly { .. } => "dragonfly",
            Self::Custom { .. } => "custom",
        }
    }

    /// Builds the fabric, with `links` cables between neighbours.
    ///
    /// # Errors
    /// A size is too small for its topology, the fabric would have more than [`MAX_SWITCHES`]
    /// switches or [`MAX_LINKS`] links, or some chassis cannot reach each other.
    pub fn fabric(&self, links: usize) -> Result<Fabric, TopologyError> {
        let mut build = Builder { kind: self.kind(), count: links, links: Vec::new() };
        let (stations, switches, symmetric) = match self {
            Self::Single => (1, 1, true),
            Self::Mesh { chassis } => build.mesh(*chassis)?,
            Self::Tree { leaves } => build.tree(*leaves)?,
            Self::Hypercube { dimensions } => build.hypercube(*dimensions)?,
            Self::Torus { sizes } => build.torus(sizes)?,
            Self::FatTree { ports } => build.fat_tree(*ports)?,
            Self::Dragonfly { groups, chassis, global } => {
                build.dragonfly(*groups, *chassis, *global)?
            }
            Self::Custom { chassis, neighbours } => build.custom(*chassis, neighbours)?,
        };
        let kind = build.kind;
        let fabric = Fabric::new(stations, switches, build.links, symmetric);
        match fabric.first_unreachable() {
            None => Ok(fabric),
            Some(switch) => {
                Err(TopologyError { kind, what: format!("no path leads from c0 to c{switch}") })
            }
        }
    }
}

/// Number of chassis, number of all switches, and whether the fabric is symmetric.
type Shape = (usize, usize, bool);

struct Builder {
    kind: &'static str,
    count: usize,
    links: Vec<Link>,
}

impl Builder {
    fn error(&self, what: impl Into<String>) -> TopologyError {
        TopologyError { kind: self.kind, what: what.into() }
    }

    fn limit(&self, switches: Option<usize>, links: Option<usize>) -> Result<usize, TopologyError> {
        let too_large =
            || self.error(format!("more than {MAX_SWITCHES} switches or {MAX_LINKS} neighbours"));
        if links.is_none_or(|links| links > MAX_LINKS) {
            return Err(too_large());
        }
        switches.filter(|switches| *switches <= MAX_SWITCHES).ok_or_else(too_large)
    }

    fn join(&mut self, a: usize, b: usize, class: usize) {
        self.links.push(Link::new(a, b, self.count, class));
    }

    fn mesh(&mut self, chassis: usize) -> Result<Shape, TopologyError> {
        if chassis < 2 {
            return Err(self.error("want 2 chassis or more"));
        }
        self.limit(Some(chassis), chassis.checked_mul(chassis - 1).map(|pairs| pairs / 2))?;
        for a in 0..chassis {
            for b in a + 1..chassis {
                // The class is the distance on a circle, so that each chassis has equally many
                // links of each class.
                self.join(a, b, (b - a).min(chassis - (b - a)) - 1);
            }
        }
        Ok((chassis, chassis, true))
    }

    fn tree(&mut self, leaves: usize) -> Result<Shape, TopologyError> {
        if leaves < 1 {
            return Err(self.error("want 1 leaf or more"));
        }
        let switches = self.limit(leaves.checked_add(1), Some(leaves))?;
        (1..switches).for_each(|leaf| self.join(0, leaf, 0));
        Ok((switches, switches, false))
    }

    fn hypercube(&mut self, dimensions: usize) -> Result<Shape, TopologyError> {
        if dimensions < 1 {
            return Err(self.error("want 1 dimension or more"));
        }
        let switches =
            u32::try_from(dimensions).ok().and_then(|dimensions| 1_usize.checked_shl(dimensions));
        let switches =
            self.limit(switches, switches.and_then(|switches| switches.checked_mul(dimensions)))?;
        for dimension in 0..dimensions {
            for a in (0..switches).filter(|a| a >> dimension & 1 == 0) {
                self.join(a, a | 1 << dimension, dimension);
            }
        }
        Ok((switches, switches, true))
    }

    fn torus(&mut self, sizes: &[usize]) -> Result<Shape, TopologyError> {
        if sizes.is_empty() || sizes.iter().any(|size| *size < 2) {
            return Err(self.error("want sizes = [4, 4]: 2 or more in each dimension"));
        }
        let switches = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let switches =
            self.limit(switches, switches.and_then(|switches| switches.checked_mul(sizes.len())))?;
        let mut stride = 1;
        for (dimension, &size) in sizes.iter().enumerate() {
            for a in 0..switches {
                let place = a / stride % size;
                // In a ring of two, both directions are the same link.
                if size > 2 || place == 0 {
                    let b = a - place * stride + (place + 1) % size * stride;
                    self.links.push(Link {
                        oriented: size > 2,
                        ..Link::new(a, b, self.count, dimension)
                    });
                }
            }
            stride *= size;
        }
        Ok((switches, switches, true))
    }

    fn fat_tree(&mut self, ports: usize) -> Result<Shape, TopologyError> {
        if ports < 2 || ports % 2 == 1 || ports > 512 {
            return Err(self.error("want ports = 4, or another even number up to 512"));
        }
        let half = ports / 2;
        let (edges, cores) = (ports * half, half * half);
        let switches = self.limit(Some(2 * edges + cores), Some(2 * edges * half))?;
        for pod in 0..ports {
            for (edge, above) in
                (0..half).flat_map(|edge| (0..half).map(move |above| (edge, above)))
            {
                self.join(pod * half + edge, edges + pod * half + above, 0);
            }
            for (above, core) in
                (0..half).flat_map(|above| (0..half).map(move |core| (above, core)))
            {
                self.join(edges + pod * half + above, 2 * edges + above * half + core, 1);
            }
        }
        Ok((edges, switches, false))
    }

    fn dragonfly(
        &mut self,
        groups: usize,
        chassis: usize,
        global: usize,
    ) -> Result<Shape, TopologyError> {
        let reach = chassis.checked_mul(global);
        if groups < 2 || chassis < 1 || reach.is_none_or(|reach| reach < groups - 1) {
            let what = format!(
                "want 2 groups or more, and chassis x global of a group at least {}",
                groups.max(2) - 1
            );
            return Err(self.error(what));
        }
        let locals =
            chassis.checked_mul(chassis - 1).and_then(|pairs| (pairs / 2).checked_mul(groups));
        let links = locals
            .zip(groups.checked_mul(groups - 1))
            .map(|(locals, globals)| locals + globals / 2);
        let switches = self.limit(groups.checked_mul(chassis), links)?;
        for group in 0..groups {
            for a in 0..chassis {
                (a + 1..chassis)
                    .for_each(|b| self.join(group * chassis + a, group * chassis + b, 0));
            }
            for other in group + 1..groups {
                // Assigns the group's links to other groups to its chassis, one after the other.
                let (there, back) =
                    ((other - group - 1) % chassis, (groups - 1 - (other - group)) % chassis);
                self.join(group * chassis + there, other * chassis + back, 1);
            }
        }
        Ok((switches, switches, false))
    }

    fn custom(
        &mut self,
        chassis: usize,
        neighbours: &[[usize; 2]],
    ) -> Result<Shape, TopologyError> {
        if chassis < 1 {
            return Err(self.error("want 1 chassis or more"));
        }
        self.limit(Some(chassis), Some(neighbours.len()))?;
        for &[a, b] in neighbours {
            if a == b || a >= chassis || b >= chassis {
                return Err(
                    self.error(format!("neighbours [{a}, {b}]: want two of 0 to {}", chassis - 1))
                );
            }
            self.join(a, b, 0);
        }
        Ok((chassis, chassis, false))
    }
}
