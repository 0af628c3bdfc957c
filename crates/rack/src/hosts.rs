//! Who is on a rack: its servers, and their instances.

use crate::instance::{Instance, JMX_PORT, JMX_STEP};
use crate::settings::Settings;
use sprat_plan::Plan;
use sprat_plan::spec::Racks;
use std::net::IpAddr;
use std::path::Path;

/// Instances that others ask who is there: on as many different servers, where there are.
const SEEDS: usize = 3;

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
}

/// All servers of a plan, in the order of their names' numbers.
#[must_use]
pub fn hosts(plan: &Plan) -> Vec<Host> {
    let layout = plan.layout();
    let servers = plan.spec.chassis.servers;
    let seeds: Vec<IpAddr> = match plan.spec.cassandra {
        Some(_) => (0..plan.summary.capacity.servers.min(SEEDS))
            .map(|number| layout.instance(number / servers, number % servers, 0).v4.0.into())
            .collect(),
        None => Vec::new(),
    };
    let mut tokens = vec![Vec::new(); plan.ring.as_ref().map_or(0, |ring| ring.instances.len())];
    if let Some(ring) = &plan.ring {
        ring.tokens.iter().for_each(|token| tokens[token.instance].push(token.at));
    }
    let host = |number: usize| {
        let (chassis, slot) = (number / servers, number % servers);
        let server = layout.server(chassis, slot);
        let instances = plan.spec.cassandra.as_ref().map_or_else(Vec::new, |asked| {
            let settings = Settings::of(&plan.spec, asked);
            let instance = |place: usize| {
                let on = layout.instance(chassis, slot, place);
                let rack = match asked.racks {
                    Racks::Host => server.name.clone(),
                    Racks::Chassis => plan.fabric.name(chassis),
                    Racks::One => "rack1".to_owned(),
                };
                let base = Path::new(&plan.spec.provision.base);
                Instance {
                    cluster: plan.spec.name.clone(),
                    datacenter: asked.datacenter.clone(),
                    rack,
                    address: on.v4.0.into(),
                    seeds: seeds.clone(),
                    tokens: tokens[number * asked.instances + place].clone(),
                    jmx_port: JMX_PORT + JMX_STEP * u16::try_from(place).unwrap_or(u16::MAX),
                    home: base.join("cassandra").join(&on.name),
                    library: Path::new(&plan.spec.provision.library).to_owned(),
                    settings: settings.clone(),
                    replaces: None,
                    name: on.name,
                }
            };
            (0..asked.instances).map(instance).collect()
        });
        Host { name: server.name, address: (server.v4.0.into(), server.v4.1), gateway: server.gateway, instances }
    };
    (0..plan.summary.capacity.servers).map(host).collect()
}
