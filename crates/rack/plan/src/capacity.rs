//! Sums what a rack's hardware offers: cores, memory, disks, power, weight and height.

use crate::quantity::{ByteRate, Bytes, Hertz, Kilograms, Watts};
use crate::spec::Spec;
use serde::Serialize;

/// Height of a rack, in rack units.
pub const RACK_UNITS: usize = 42;

/// The sums over all servers and switches of a plan. An optional sum is `None` if the description
/// does not give the value that is summed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Capacity {
    /// Number of chassis that hold servers.
    pub chassis: usize,
    /// Number of switches without servers.
    pub switches: usize,
    /// Number of servers.
    pub servers: usize,
    /// Processor cores of all servers.
    pub cores: usize,
    /// Memory of all servers.
    pub memory: Bytes,
    /// Capacity of all disks.
    pub disks: Bytes,
    /// Operations per second of all cores.
    pub ops: Option<Hertz>,
    /// Floating-point operations per second of all cores.
    pub flops: Option<Hertz>,
    /// Memory bandwidth of all servers.
    pub memory_rate: Option<ByteRate>,
    /// Bandwidth of all disks.
    pub disk_rate: Option<ByteRate>,
    /// The most power that all servers and chassis draw together.
    pub power: Option<Watts>,
    /// Weight of servers and chassis.
    pub weight: Option<Kilograms>,
    /// Rack units that all chassis and all switches without servers take.
    pub height: usize,
    /// Number of racks needed for this height.
    pub racks: usize,
}

impl Capacity {
    /// Sums up `chassis` chassis with servers and `switches` chassis without. A switch without
    /// servers counts as an empty chassis: it has the height of a chassis, and the power and weight
    /// that a chassis has without its servers.
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
