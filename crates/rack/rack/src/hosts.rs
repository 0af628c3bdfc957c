//! Who is on a rack: its servers, and their instances.

use crate::instance::{Instance, JMX_PORT, JMX_STEP};
use crate::service::{self, Service};
use crate::settings::Settings;
use sprat_plan::Plan;
use sprat_plan::spec::RackAssignment;
use sprat_plan::store::Services;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its address, with the length of its network's prefix.
    pub address: (IpAddr, u8),
    /// By whom others are reached.
    pub gateway: IpAddr,
    /// Cassandra's instances on it.
    pub instances: Vec<Instance>,
    /// What of etcd and Sprat is on it.
    pub services: Vec<Service>,
}

/// All servers of a plan, in the order of their names' numbers; once there is a ring, those that
/// have somebody on it, or run etcd or Sprat.
#[must_use]
pub fn hosts(plan: &Plan) -> Vec<Host> {
    let layout = plan.layout();
    let servers = plan.spec.chassis.servers;
    // Of each server that has any, who is on the ring, by its place; and with which tokens.
    let mut on_ring = BTreeMap::<usize, Vec<(usize, Vec<i64>)>>::new();
    if let Some((ring, asked)) = plan.ring.as_ref().zip(plan.spec.cassandra.as_ref()) {
        let mut tokens = vec![Vec::new(); ring.instances.len()];
        ring.tokens.iter().for_each(|token| tokens[token.instance].push(token.at));
        for (number, tokens) in plan.on_ring.iter().zip(tokens) {
            on_ring
                .entry(number / asked.instances)
                .or_default()
                .push((number % asked.instances, tokens));
        }
    }
    let first = |(server, has): (&usize, &Vec<(usize, Vec<i64>)>)| {
        layout.instance(server / servers, server % servers, has[0].0).v4.0.into()
    };
    let seeds = plan.spec.cassandra.as_ref().map_or(0, |asked| asked.seeds);
    let seeds: Vec<IpAddr> = on_ring.iter().take(seeds).map(first).collect();
    let host = |number: usize| {
        let (chassis, slot) = (number / servers, number % servers);
        let server = layout.server(chassis, slot);
        let instances = plan.spec.cassandra.as_ref().map_or_else(Vec::new, |asked| {
            let settings = Settings::of(&plan.spec, asked);
            let instance = |(place, tokens): &(usize, Vec<i64>)| {
                let place = *place;
                let on = layout.instance(chassis, slot, place);
                let rack = match asked.racks {
                    RackAssignment::Host => server.name.clone(),
                    RackAssignment::Chassis => plan.fabric.name(chassis),
                    RackAssignment::One => "rack1".to_owned(),
                };
                let member = plan.spec.members.as_ref().and_then(|all| all.get(&on.name));
                // Its own filesystem, where each has one.
                let mount =
                    plan.spec.storage.as_ref().and_then(|storage| storage.mounts.get(place));
                let base = Path::new(mount.unwrap_or(&plan.spec.provision.base));
                Instance {
                    cluster: plan.spec.name.clone(),
                    datacenter: asked.datacenter.clone(),
                    rack,
                    address: on.v4.0.into(),
                    seeds: seeds.clone(),
                    tokens: tokens.clone(),
                    jmx_port: JMX_PORT + JMX_STEP * u16::try_from(place).unwrap_or(u16::MAX),
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
        let services = service::of(plan, &layout, number);
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
