//! Whose power is measured: a rack's servers and chassis, or this machine.

use crate::sensor::{PATIENCE, Sensor};
use serde::Serialize;
use sprat_plan::Plan;
use sprat_plan::power::Sensor as Asked;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// A server.
    Server,
    /// All that is in a chassis.
    Chassis,
}

/// Whose power is measured.
#[derive(Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// What it is.
    pub of: Of,
    /// Its chassis, by number.
    pub chassis: usize,
    /// Instances on it.
    pub instances: usize,
    /// Those of the first one's kind are added up; others are told beside them.
    pub sensors: Vec<Sensor>,
}

/// All servers of a plan, and the chassis that have sensors.
#[must_use]
pub fn of(plan: &Plan) -> Vec<Target> {
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
            .map(|asked| Sensor::new(&filled(asked, &names), Some(&ssh), patience));
        Target {
            name: host.name,
            of: Of::Server,
            chassis,
            instances: each,
            sensors: sensors.collect(),
        }
    };
    let chassis = |number: usize| {
        let name = plan.fabric.name(number);
        let names = [("name", name.clone()), ("chassis", number.to_string())];
        let sensors =
            power.chassis.iter().map(|asked| Sensor::new(&filled(asked, &names), None, patience));
        Target {
            name,
            of: Of::Chassis,
            chassis: number,
            instances: each * servers,
            sensors: sensors.collect(),
        }
    };
    let measured = if power.chassis.is_empty() { 0 } else { all / servers };
    (0..all).map(server).chain((0..measured).map(chassis)).collect()
}

/// This machine, with its sysfs at a folder of choice; `channels` are those of its board that
/// count.
#[must_use]
pub fn here(root: PathBuf, channels: &[String], instances: usize) -> Target {
    let sensors = Sensor::here(root, channels, PATIENCE);
    Target { name: "here".to_owned(), of: Of::Server, chassis: 0, instances, sensors }
}

/// A sensor with all names put in.
fn filled(asked: &Asked, names: &[(&str, String)]) -> Asked {
    asked.map(&|text| {
        names.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    })
}
