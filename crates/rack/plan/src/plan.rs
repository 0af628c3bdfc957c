//! Turns a description into a checked plan.

use crate::capacity::Capacity;
use crate::cassandra::{self, CassandraError};
use crate::claims::{self, Claim, ClaimError};
use crate::fabric::{
    Fabric, Failure, Failures, MAX_EXAMINED, MAX_STEPS, bisection, deadlock, failures, traffic,
};
use crate::layout::{Layout, LayoutError, link_rate};
use crate::quantity::BitRate;
use crate::ring::Ring;
use crate::spec::{Spec, SpecError};
use crate::store::{Services, StoreError, services};
use crate::topology::TopologyError;
use serde::Serialize;

/// A checked plan: a description together with everything that follows from it. [`Plan::from_toml`]
/// makes a plan, which never changes afterwards. The fields give the graph of switches, Cassandra's
/// ring, and the servers that run etcd and Sprat. [`Plan::layout`] computes names, addresses and
/// cables. [`Plan::summary`](Self::summary) has the numbers that `sprat rack plan` prints.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The description.
    pub spec: Spec,
    /// Chassis, switches and links.
    pub fabric: Fabric,
    /// Cassandra's ring, if the description has `[cassandra]`.
    pub ring: Option<Ring>,
    /// The instances on the ring, in the ring's order: for each, its number among all instances of
    /// the plan, which are counted server by server.
    pub on_ring: Vec<usize>,
    /// Which servers run etcd and Sprat.
    pub services: Services,
    /// The plan in numbers.
    pub summary: Summary,
}

/// The plan in numbers, as `sprat rack plan --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// The rack's name.
    pub name: String,
    /// The sums over the rack's hardware.
    pub capacity: Capacity,
    /// Distances and rates between chassis.
    pub network: Network,
    /// Cassandra's ring in numbers. `None` if the description has no `[cassandra]`.
    pub cassandra: Option<cassandra::CassandraSummary>,
    /// Claims of others, and whether they hold.
    pub claims: Vec<Claim>,
}

/// Distances and rates between chassis. The rates assume that flows use all links as evenly as
/// routes allow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Network {
    /// The kind of topology.
    pub topology: &'static str,
    /// Number of cables between switches.
    pub cables: usize,
    /// Rate of each of these cables.
    pub link_rate: BitRate,
    /// The largest distance between two chassis, in links.
    pub diameter: usize,
    /// Mean number of links between two chassis.
    pub mean_hops: f64,
    /// For each distance of 0, 1, 2 ... links, the number of ordered pairs of chassis at that
    /// distance.
    pub hops: Vec<u64>,
    /// The rate at which the servers of a chassis can send, divided by the rate of the chassis's
    /// cables to other chassis, for the chassis with the fewest cables. An uplink without a cable
    /// adds nothing. `None` if a chassis has no such cable.
    pub oversubscription: Option<f64>,
    /// Rate across the smallest cut found between two halves of the chassis, in one direction.
    /// `None` if there is only one chassis, or if the fabric is too large to examine.
    pub bisection: Option<BitRate>,
    /// Rate at which each server can send when each server sends to all others.
    pub all_to_all: BitRate,
    /// Rate of each sender when all servers except one send to that one server.
    pub incast: BitRate,
    /// The number of incast flows on the fullest cable.
    pub incast_flows: f64,
    /// A cable on which frames can deadlock if the network is lossless. `None` if there is none, or
    /// if the fabric is too large to examine.
    pub deadlock: Option<String>,
    /// Whether deadlocks and the bisection were examined. False if the fabric is too large.
    pub examined: bool,
    /// The worst effect of losing all cables between two neighbours. `None` if there are no links,
    /// or if the fabric is too large to examine.
    pub link_failure: Option<FailureEffect>,
    /// The worst effect of losing a switch. `None` if there is only one switch, or if the fabric is
    /// too large to examine.
    pub switch_failure: Option<FailureEffect>,
}

/// What a failure does to a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailureEffect {
    /// The part that fails.
    #[serde(rename = "what")]
    pub part: String,
    /// Number of chassis cut off from the rest of the network.
    pub cut_off: usize,
    /// The largest distance, in links, between two chassis that can still reach each other.
    pub diameter: usize,
    /// Load of the fullest cable when all send to all, relative to the network without failure.
    pub load: f64,
}

/// Why a description gives no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A value in the description is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The topology cannot be built.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There are too few ports or addresses.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Cassandra cannot be planned, or would lose data.
    #[error(transparent)]
    Cassandra(#[from] CassandraError),
    /// Sprat's servers or etcd cannot be placed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A claim cannot be parsed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The fabric is too large to compute its paths.
    #[error(
        "topology {topology}: {chassis} chassis are too many to compute paths from each of them; \
         mesh, torus and hypercube look the same from every chassis, and may be larger"
    )]
    Large {
        /// The kind of topology.
        topology: &'static str,
        /// Number of chassis.
        chassis: usize,
    },
}

impl Plan {
    /// Parses a description and plans it.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if the text is not a valid description; otherwise the errors of
    /// [`Plan::new`].
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::new(Spec::from_toml(text)?)
    }

    /// Plans a parsed description.
    ///
    /// # Errors
    /// Returns the first error. In this order: the topology cannot be built, the fabric is too
    /// large to compute paths, ports or addresses are too few, Cassandra's ring cannot be planned
    /// or would lose data, the store's servers or etcd cannot be placed, a claim cannot be parsed.
    pub fn new(spec: Spec) -> Result<Self, PlanError> {
        let fabric = spec.fabric.topology.fabric(spec.fabric.links)?;
        if fabric.viewpoints().saturating_mul(fabric.switches + 2 * fabric.links.len()) > MAX_STEPS
        {
            return Err(PlanError::Large {
                topology: spec.fabric.topology.kind(),
                chassis: fabric.stations,
            });
        }
        let layout = Layout::new(&spec, &fabric)?;
        let built = spec
            .cassandra
            .as_ref()
            .map(|cassandra| cassandra::ring(&spec, cassandra, &layout, &fabric))
            .transpose()?;
        let (ring, on_ring, cassandra) = match built {
            Some(built) => (Some(built.ring), built.numbers, Some(built.summary)),
            None => (None, Vec::new(), None),
        };
        let in_chassis = spec.chassis.servers;
        let services = match (&spec.etcd, &spec.store) {
            (None, None) => Services::default(),
            (etcd, store) => {
                let name =
                    |number: usize| layout.server(number / in_chassis, number % in_chassis).name;
                let names: Vec<String> = (0..fabric.stations * in_chassis).map(name).collect();
                services(etcd.as_ref(), store.as_ref(), &names)?
            }
        };
        let capacity = Capacity::of(&spec, fabric.stations, fabric.switches - fabric.stations);
        let network = network(&spec, &fabric);
        let claims = claims::judge(&spec.claims, &capacity, network.diameter)?;
        let summary = Summary { name: spec.name.clone(), capacity, network, cassandra, claims };
        Ok(Self { spec, fabric, ring, on_ring, services, summary })
    }

    /// Returns the layout: names, addresses, positions and cables.
    ///
    /// # Panics
    /// Never: [`Plan::new`] has built this layout once without an error.
    #[must_use]
    pub fn layout(&self) -> Layout<'_> {
        Layout::new(&self.spec, &self.fabric).expect("it was laid out before")
    }
}

fn network(spec: &Spec, fabric: &Fabric) -> Network {
    let routes = spec.fabric.routes;
    let found = traffic(fabric, routes);
    let (servers, rate) = (spec.chassis.servers as f64, link_rate(spec));
    let port = spec.server.port_rate.0 * spec.server.ports as f64;
    let others = (fabric.stations as f64 * servers - 1.0).max(1.0);
    // If a cable carries `n` flows between chassis, it carries `n` x servers x servers flows
    // between servers.
    let per_flow =
        |flows: f64, each: f64| if flows > 0.0 { rate / (flows * each) } else { f64::INFINITY };
    let all_to_all = port.min(per_flow(found.all_to_all, servers * servers) * others);
    let examined = fabric.switches <= MAX_EXAMINED;
    let [link, switch] = failures(fabric, routes);
    let fewest = (0..fabric.stations).map(|station| fabric.cables(station)).min();
    let uplinks = fewest.unwrap_or(0) as f64 * rate;
    let direction = |directed: usize| {
        let (from, to) = fabric.directed(directed);
        format!("{} to {}", fabric.name(from), fabric.name(to))
    };
    Network {
        topology: spec.fabric.topology.kind(),
        cables: fabric.links.iter().map(|link| link.count).sum(),
        link_rate: BitRate(rate),
        diameter: found.diameter(),
        mean_hops: found.mean_hops(),
        oversubscription: (uplinks > 0.0).then(|| servers * port / uplinks),
        bisection: (examined && fabric.stations > 1)
            .then(|| BitRate(bisection(fabric) as f64 * rate)),
        all_to_all: BitRate(all_to_all),
        incast: BitRate((port / others).min(per_flow(found.incast, servers))),
        incast_flows: found.incast * servers,
        hops: found.hops,
        deadlock: if examined { deadlock(fabric, routes).map(direction) } else { None },
        examined,
        link_failure: link.map(|failure| effect(fabric, &failure)),
        switch_failure: switch.map(|failure| effect(fabric, &failure)),
    }
}

fn effect(fabric: &Fabric, failure: &Failures) -> FailureEffect {
    let part = match failure.worst {
        Failure::Link(link) => {
            let link = fabric.links[link];
            format!("{} to {}", fabric.name(link.a), fabric.name(link.b))
        }
        Failure::Switch(switch) => fabric.name(switch),
    };
    FailureEffect { part, cut_off: failure.cut_off, diameter: failure.diameter, load: failure.load }
}
