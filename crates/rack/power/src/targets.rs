//! The servers and chassis to measure: those of a rack, or this machine.

use crate::sensor::{PATIENCE, Sensor};
use serde::Serialize;
use sprat_plan::Plan;
use sprat_plan::power::Sensor as Described;
use std::path::PathBuf;
use std::time::Duration;

/// Whether a target is a server or a chassis.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A server.
    Server,
    /// Everything in a chassis.
    Chassis,
}

/// A server or chassis to measure.
#[derive(Debug)]
pub struct Target {
    /// Name of the server or chassis.
    pub name: String,
    /// Whether the target is a server or a chassis.
    pub of: TargetKind,
    /// Number of the server's chassis, or of the chassis itself.
    pub chassis: usize,
    /// Number of instances on the server or chassis.
    pub instances: usize,
    /// The sensors of the server or chassis. Sensors of the same kind as the first are added up.
    /// Others are reported for comparison.
    pub sensors: Vec<Sensor>,
}

/// Returns all servers of a plan, and the chassis if they have sensors.
#[must_use]
pub fn of_rack(plan: &Plan) -> Vec<Target> {
    let (layout, power) = (plan.layout(), &plan.spec.power);
    let patience = power.timeout.map_or(PATIENCE, |time| Duration::from_secs_f64(time.0));
    let (servers, all) = (plan.spec.chassis.servers, plan.summary.capacity.servers);
    let each = plan.spec.cassandra.as_ref().map_or(0, |cassandra| cassandra.instances);
    let user = &plan.spec.provision.user;
    let server = |number: usize| {
        let (chassis, slot) = (number / servers, number % servers);
        let host = layout.server(chassis, slot);
        let names = [
            ("name", host.name.clone()),
            ("address", host.v4.0.to_string()),
            ("chassis", chassis.to_string()),
            ("slot", host.slot.to_string()),
            ("user", user.clone()),
        ];
        let ssh = format!("{user}@{}", host.v4.0);
        let sensors = power
            .sensors
            .iter()
            .map(|described| Sensor::new(&filled(described, &names), Some(&ssh), patience));
        Target {
            name: host.name,
            of: TargetKind::Server,
            chassis,
            instances: each,
            sensors: sensors.collect(),
        }
    };
    let chassis = |number: usize| {
        let name = plan.fabric.name(number);
        let names = [("name", name.clone()), ("chassis", number.to_string())];
        let sensors = power
            .chassis
            .iter()
            .map(|described| Sensor::new(&filled(described, &names), None, patience));
        Target {
            name,
            of: TargetKind::Chassis,
            chassis: number,
            instances: each * servers,
            sensors: sensors.collect(),
        }
    };
    let measured = if power.chassis.is_empty() { 0 } else { all / servers };
    (0..all).map(server).chain((0..measured).map(chassis)).collect()
}

/// Returns this machine as a target, with sysfs at `root`; `channels` are the board's channels that
/// count.
#[must_use]
pub fn this_machine(root: PathBuf, channels: &[String], instances: usize) -> Target {
    let sensors = Sensor::this_machine(root, channels, PATIENCE);
    Target { name: "here".to_owned(), of: TargetKind::Server, chassis: 0, instances, sensors }
}

/// Fills in the placeholders of a sensor.
fn filled(described: &Described, names: &[(&str, String)]) -> Described {
    described.map(&|text| {
        names.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    })
}
