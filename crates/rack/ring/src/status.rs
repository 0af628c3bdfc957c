//! What runs on a rack.

use crate::deployment::instances;
use crate::health::node_of;
use crate::{Deployment, Error};
use serde::Serialize;
use sprat_provision::{Alive, Node, Seen, survey, survey_services};
use sprat_rack::hosts;
use std::net::IpAddr;

/// All that runs on a rack, or should.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// The instance that gave `node` of the others; none: no instance runs.
    pub seen_by: Option<String>,
    /// Cassandra's instances, in the plan's order.
    pub instances: Vec<InstanceStatus>,
    /// Servers of etcd and of the store.
    pub services: Vec<ServiceStatus>,
}

/// An instance, as its host and as another instance sees it.
#[derive(Debug, Serialize)]
pub struct InstanceStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its process, by its host.
    #[serde(flatten)]
    pub alive: Alive,
    /// Its state on the ring, by another instance.
    pub node: Option<Node>,
}

/// A server of etcd or of the store, as its host sees it.
#[derive(Debug, Serialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Its address.
    pub address: IpAddr,
    /// Its process.
    #[serde(flatten)]
    pub alive: Alive,
}

impl Status {
    /// Whether all instances are up and normal, and all services run.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let runs = |alive: &Alive| matches!(alive, Alive::Running { .. });
        let well = |one: &InstanceStatus| {
            runs(&one.alive) && one.node.as_ref().is_some_and(|node| node.state == "UN")
        };
        self.instances.iter().all(well) && self.services.iter().all(|one| runs(&one.alive))
    }
}

impl Deployment {
    /// Asks all hosts what runs on them, and one instance how it sees the others. An instance that
    /// has just died is still up to the others for some seconds.
    ///
    /// # Errors
    /// Instances run, and none answers.
    pub fn status(&self) -> Result<Status, Error> {
        let (hosts, user) = (hosts(&self.plan), &self.plan.spec.provision.user);
        let alive = survey(&self.reach, user, &hosts);
        let runs = |name: &str| alive.iter().any(|seen| seen.instance == name && is_running(seen));
        let (seen_by, nodes) = match alive.iter().any(is_running) {
            true => self
                .look(&hosts, |instance| runs(&instance.name))
                .map(|(by, nodes)| (Some(by), nodes))?,
            false => (None, Vec::new()),
        };
        let of_instance =
            |((_, instance), seen): ((_, &sprat_rack::Instance), &Seen)| InstanceStatus {
                name: instance.name.clone(),
                address: instance.address.to_string(),
                alive: seen.alive.clone(),
                node: node_of(&nodes, instance).cloned(),
            };
        let instances = instances(&hosts).zip(&alive).map(of_instance).collect();
        let of_service = |(service, seen): (&sprat_rack::Service, Seen)| ServiceStatus {
            name: service.name.clone(),
            kind: service.kind,
            address: service.address,
            alive: seen.alive,
        };
        let services = hosts.iter().flat_map(|host| &host.services);
        let services =
            services.zip(survey_services(&self.reach, user, &hosts)).map(of_service).collect();
        Ok(Status { seen_by, instances, services })
    }
}

fn is_running(seen: &Seen) -> bool {
    matches!(seen.alive, Alive::Running { .. })
}
