//! Reports what runs on a rack.

use crate::deployment::instances;
use crate::health::node_of;
use crate::{Deployment, Error};
use serde::Serialize;
use sprat_provision::{InstanceProcess, Node, ProcessState, survey, survey_services};
use sprat_rack::hosts;
use std::net::IpAddr;

/// The state of all instances and services of a rack.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// The instance that reported the [`node`](InstanceStatus::node) of each instance. `None` if no
    /// instance runs.
    pub seen_by: Option<String>,
    /// Cassandra's instances, in the plan's order.
    pub instances: Vec<InstanceStatus>,
    /// Services of etcd and of the store.
    pub services: Vec<ServiceStatus>,
}

/// An instance, as its host and another instance report it.
#[derive(Debug, Serialize)]
pub struct InstanceStatus {
    /// The instance's name.
    pub name: String,
    /// The instance's address.
    pub address: String,
    /// The instance's process, as its host reports it.
    #[serde(flatten)]
    pub alive: ProcessState,
    /// The instance's state on the ring, as another instance reports it. `None` if the other
    /// instance does not know this one, or if no instance runs.
    pub node: Option<Node>,
}

/// A service of etcd or of the store, as its host reports it.
#[derive(Debug, Serialize)]
pub struct ServiceStatus {
    /// The service's name.
    pub name: String,
    /// The service's kind, such as `etcd`.
    pub kind: &'static str,
    /// The service's address.
    pub address: IpAddr,
    /// The service's process.
    #[serde(flatten)]
    pub alive: ProcessState,
}

impl Status {
    /// Returns whether all instances are up and normal, and all services run.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let runs = |alive: &ProcessState| matches!(alive, ProcessState::Running { .. });
        let well = |one: &InstanceStatus| {
            runs(&one.alive) && one.node.as_ref().is_some_and(|node| node.state == "UN")
        };
        self.instances.iter().all(well) && self.services.iter().all(|one| runs(&one.alive))
    }
}

impl Deployment {
    /// Asks all hosts for the processes of their instances and services, and one instance for its
    /// view of the ring. This view still shows an instance that has just died as up for some
    /// seconds.
    ///
    /// # Errors
    /// [`Error::Refused`] if instances run, but none of them answers.
    pub fn status(&self) -> Result<Status, Error> {
        let (hosts, user) = (hosts(&self.plan), &self.plan.spec.provision.user);
        let alive = survey(&self.access, user, &hosts);
        let runs = |name: &str| alive.iter().any(|seen| seen.instance == name && is_running(seen));
        let (seen_by, nodes) = match alive.iter().any(is_running) {
            true => self
                .look(&hosts, |instance| runs(&instance.name))
                .map(|(by, nodes)| (Some(by), nodes))?,
            false => (None, Vec::new()),
        };
        let of_instance =
            |((_, instance), seen): ((_, &sprat_rack::Instance), &InstanceProcess)| {
                InstanceStatus {
                    name: instance.name.clone(),
                    address: instance.address.to_string(),
                    alive: seen.alive.clone(),
                    node: node_of(&nodes, instance).cloned(),
                }
            };
        let instances = instances(&hosts).zip(&alive).map(of_instance).collect();
        let of_service = |(service, seen): (&sprat_rack::Service, InstanceProcess)| ServiceStatus {
            name: service.name.clone(),
            kind: service.kind,
            address: service.address,
            alive: seen.alive,
        };
        let services = hosts.iter().flat_map(|host| &host.services);
        let services =
            services.zip(survey_services(&self.access, user, &hosts)).map(of_service).collect();
        Ok(Status { seen_by, instances, services })
    }
}

fn is_running(seen: &InstanceProcess) -> bool {
    matches!(seen.alive, ProcessState::Running { .. })
}
