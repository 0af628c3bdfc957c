//! What a rack holds, takes and weighs in all.

use crate::quantity::{ByteRate, Bytes, Hertz, Kilograms, Watts};
use crate::spec::Spec;
use serde::Serialize;

/// Rack units of a rack.
pub const RACK_UNITS: usize = 42;

/// Sums over all servers; none where what a server has was not told.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Capacity {
    /// Chassis with servers.
    pub chassis: usize,
    /// Switches without servers.
    pub switches: usize,
    /// Servers.
    pub servers: usize,
    /// Cores.
    pub cores: usize,
    /// Memory.
    pub memory: Bytes,
    /// Room on disks.
    pub disks: Bytes,
    /// Operations.
    pub ops: Option<Hertz>,
    /// Operations with floating point.
    pub flops: Option<Hertz>,
    /// What memory gives.
    pub memory_rate: Option<ByteRate>,
    /// What disks give.
    pub disk_rate: Option<ByteRate>,
    /// Power, at most.
    pub power: Option<Watts>,
    /// Weight.
    pub weight: Option<Kilograms>,
    /// Rack units of chassis, and of switches without servers.
    pub height: usize,
    /// Racks that they fill.
    pub racks: usize,
}

impl Capacity {
    /// Of `chassis` with servers and `switches` without. A switch without servers is a chassis
    /// whose places for servers are empty: it weighs, takes and is as high as a chassis besides
    /// its servers.
    #[must_use]
    pub fn of(spec: &Spec, chassis: usize, switches: usize) -> Self {
        let server = &spec.server;
        let servers = chassis * spec.chassis.servers;
        let many = servers as f64;
        let cores = servers * server.cores;
        let cycles = server.clock.map(|clock| clock.times(cores as f64));
        let each = |per_cycle: Option<f64>| Some(cycles?.times(per_cycle?));
        let boxes = (chassis + switches) as f64;
        let height = spec.chassis.height;
        Self {
            chassis,
            switches,
            servers,
            cores,
            memory: server.memory.times(many),
            disks: server.disks.iter().copied().sum::<Bytes>().times(many),
            ops: each(server.ops_per_cycle),
            flops: each(server.flops_per_cycle),
            memory_rate: server.memory_rate.map(|rate| rate.times(many)),
            disk_rate: server.disk_rate.map(|rate| rate.times(many * server.disks.len() as f64)),
            power: server.power.map(|power| power.times(many) + spec.chassis.power.times(boxes)),
            weight: server
                .weight
                .map(|weight| weight.times(many) + spec.chassis.weight.times(boxes)),
            height: (chassis + switches) * height,
            racks: match RACK_UNITS / height {
                0 => (chassis + switches) * height.div_ceil(RACK_UNITS),
                in_rack => (chassis + switches).div_ceil(in_rack),
            },
        }
    }
}
