//! A checked plan: everything that follows from a description.

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

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was asked for.
    pub spec: Spec,
    /// Its chassis, and what joins them.
    pub fabric: Fabric,
    /// Its ring, if Cassandra is to be on it.
    pub ring: Option<Ring>,
    /// Who is on the ring, in its order: each by its number among all instances of the plan,
    /// counted server by server.
    pub on_ring: Vec<usize>,
    /// Who runs etcd and Sprat.
    pub services: Services,
    /// What it comes to.
    pub summary: Summary,
}

/// What a plan comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub capacity: Capacity,
    /// How its chassis reach each other.
    pub network: Network,
    /// Cassandra on it.
    pub cassandra: Option<cassandra::Summary>,
    /// What others say of it.
    pub claims: Vec<Claim>,
}

/// How chassis reach each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Network {
    /// Which are neighbours.
    pub topology: &'static str,
    /// Cables between switches.
    pub cables: usize,
    /// What each carries.
    pub link_rate: BitRate,
    /// Most links between two chassis.
    pub diameter: usize,
    /// Links between two chassis on average.
    pub mean_hops: f64,
    /// Of all pairs of chassis how many are 0, 1, 2 links apart.
    pub hops: Vec<u64>,
    /// What a chassis's servers can send, against what its cables to others carry: of the chassis
    /// with the fewest cables. An uplink without a cable carries nothing.
    pub oversubscription: Option<f64>,
    /// What crosses the smallest cut found between halves, one way; none where the fabric is too
    /// large to look.
    pub bisection: Option<BitRate>,
    /// What each server can send when all send to all, all links being full only where they must.
    pub all_to_all: BitRate,
    /// What each of all other servers can send to one.
    pub incast: BitRate,
    /// Most of these that come over one cable.
    pub incast_flows: f64,
    /// A cable on which frames can wait for themselves if the network is lossless; none: they
    /// cannot.
    pub deadlock: Option<String>,
    /// Whether that was looked at: fabrics that are too large are not.
    pub examined: bool,
    /// The worst that happens when all cables between two neighbours fail; none where there are
    /// none, or too many to look.
    pub link_failure: Option<Told>,
    /// The worst that happens when a switch fails.
    pub switch_failure: Option<Told>,
}

/// What a failure does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Told {
    /// What fails.
    pub what: String,
    /// Chassis that the others do not reach.
    pub cut_off: usize,
    /// Most links between two chassis that are left.
    pub diameter: usize,
    /// What the fullest cable carries when all send to all, against before.
    pub load: f64,
}

/// A plan that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The description means nothing.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Chassis cannot be joined so.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Ports or addresses are too few.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Cassandra would lose data.
    #[error(transparent)]
    Cassandra(#[from] CassandraError),
    /// Sprat cannot be on it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A claim means nothing.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// There is too much to look at.
    #[error(
        "topology {topology}: {chassis} chassis are too many to look at the fabric from each of them; mesh, torus and hypercube look the \
         same from all, and may be larger"
    )]
    Large {
        /// Which are neighbours.
        topology: &'static str,
        /// How many.
        chassis: usize,
    },
}

impl Plan {
    /// From a description.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::new(Spec::from_toml(text)?)
    }

    /// From a description that was read.
    ///
    /// # Errors
    /// The first thing that cannot be.
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
        let made = spec
            .cassandra
            .as_ref()
            .map(|asked| cassandra::ring(&spec, asked, &layout, &fabric))
            .transpose()?;
        let (ring, on_ring, cassandra) = match made {
            Some(made) => (Some(made.ring), made.numbers, Some(made.summary)),
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

    /// Where everything is.
    ///
    /// # Panics
    /// Never: the plan was laid out when it was made.
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
    // A cable that carries so many flows between chassis carries servers x servers times as many
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
        link_failure: link.map(|failure| told(fabric, &failure)),
        switch_failure: switch.map(|failure| told(fabric, &failure)),
    }
}

fn told(fabric: &Fabric, failure: &Failures) -> Told {
    let what = match failure.worst {
        Failure::Link(link) => {
            let link = fabric.links[link];
            format!("{} to {}", fabric.name(link.a), fabric.name(link.b))
        }
        Failure::Switch(switch) => fabric.name(switch),
    };
    Told { what, cut_off: failure.cut_off, diameter: failure.diameter, load: failure.load }
}
