//! Lists the hosts of a planned rack, with the instances and services on each.

use crate::instance::{Instance, JMX_PORT, JMX_STEP};
use crate::service::{self, Service};
use crate::settings::Settings;
use sprat_plan::Plan;
use sprat_plan::spec::RackAssignment;
use sprat_plan::store::Services;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// A server of a planned rack, with everything that is installed on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The server's name.
    pub name: String,
    /// The server's address, and the prefix length of its network.
    pub address: (IpAddr, u8),
    /// The address of the switch, which is the route to other chassis.
    pub gateway: IpAddr,
    /// Cassandra's instances on the server.
    pub instances: Vec<Instance>,
    /// Services of etcd and Sprat on the server.
    pub services: Vec<Service>,
}

/// Returns the servers of a plan by number. Once a ring exists, servers that have neither an
/// instance on the ring nor a service are omitted.
#[must_use]
pub fn hosts(plan: &Plan) -> Vec<Host> {
    let layout = plan.layout();
    let servers = plan.spec.chassis.servers;
    // For each server with instances on the ring: the instances' numbers on the server, and their
    // tokens.
    let mut on_ring = BTreeMap::<usize, Vec<(usize, Vec<i64>)>>::new();
    if let Some((ring, cassandra)) = plan.ring.as_ref().zip(plan.spec.cassandra.as_ref()) {
        let mut tokens = vec![Vec::new(); ring.instances.len()];
        ring.tokens.iter().for_each(|token| tokens[token.instance].push(token.at));
        for (number, tokens) in plan.on_ring.iter().zip(tokens) {
            on_ring
                .entry(number / cassandra.instances)
                .or_default()
                .push((number % cassandra.instances, tokens));
        }
    }
    let first = |(server, has): (&usize, &Vec<(usize, Vec<i64>)>)| {
        layout.instance(server / servers, server % servers, has[0].0).v4.0.into()
    };
    let seeds = plan.spec.cassandra.as_ref().map_or(0, |cassandra| cassandra.seeds);
    let seeds: Vec<IpAddr> = on_ring.iter().take(seeds).map(first).collect();
    let host = |number: usize| {
        let (chassis, slot) = (number / servers, number % servers);
        let server = layout.server(chassis, slot);
        let instances = plan.spec.cassandra.as_ref().map_or_else(Vec::new, |cassandra| {
            let settings = Settings::of(&plan.spec, cassandra);
            let instance = |(number_on_server, tokens): &(usize, Vec<i64>)| {
                let number_on_server = *number_on_server;
                let on = layout.instance(chassis, slot, number_on_server);
                let rack = match cassandra.racks {
                    RackAssignment::Host => server.name.clone(),
                    RackAssignment::Chassis => plan.fabric.name(chassis),
                    RackAssignment::One => "rack1".to_owned(),
                };
                let member = plan.spec.members.as_ref().and_then(|all| all.get(&on.name));
                // An instance can have a filesystem of its own.
                let mount = plan
                    .spec
                    .storage
                    .as_ref()
                    .and_then(|storage| storage.mounts.get(number_on_server));
                let base = Path::new(mount.unwrap_or(&plan.spec.provision.base));
                Instance {
                    cluster: plan.spec.name.clone(),
                    datacenter: cassandra.datacenter.clone(),
                    rack,
                    address: on.v4.0.into(),
                    seeds: seeds.clone(),
                    tokens: tokens.clone(),
                    jmx_port: JMX_PORT
                        + JMX_STEP * u16::try_from(number_on_server).unwrap_or(u16::MAX),
                    home: base.join("cassandra").join(&on.name),
                    library: Path::new(&plan.spec.provision.library).to_owned(),
                    settings: settings.clone(),
                    joined: member.is_some_and(|one| one.joined),
                    begun: member.is_some_and(|one| one.begun),
                    replaces: None,
                    name: on.name,
                }
            };
            on_ring.get(&number).into_iter().flatten().map(instance).collect()
        });
        let services = service::services_on(plan, &layout, number);
        Host {
            name: server.name,
            address: (server.v4.0.into(), server.v4.1),
            gateway: server.gateway,
            instances,
            services,
        }
    };
    let serves = |number: &usize| {
        let Services { etcd, coordinators, stores } = &plan.services;
        [etcd, coordinators, stores].iter().any(|all| all.contains(number))
    };
    let belongs = |number: &usize| {
        plan.spec.members.is_none() || on_ring.contains_key(number) || serves(number)
    };
    (0..plan.summary.capacity.servers).filter(belongs).map(host).collect()
}
