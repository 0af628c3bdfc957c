//! Checks whether all instances of a ring are up and normal.

use crate::deployment::instances;
use crate::{Deployment, Error, Event, Watcher};
use sprat_provision::{Node, ProcessState, schemas, survey};
use sprat_rack::{Host, Instance};
use std::time::{Duration, Instant};

/// How long it may take until all instances are well again.
const WELL_TIMEOUT: Duration = Duration::from_secs(180);

/// Interval between two checks of the ring.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until all instances on `hosts` run, are up and normal in the view of the first one that
/// answers, and agree on the schema.
///
/// # Errors
/// An instance is not well after three minutes, or the watcher cannot show an event. The error
/// names the instance and its state.
pub fn wait_until_well(
    deployment: &Deployment,
    hosts: &[Host],
    watcher: &mut dyn Watcher,
) -> Result<(), Error> {
    let begun = Instant::now();
    watcher.event(Event::Doing("waiting until all others see it")).map_err(Error::Watcher)?;
    while let Err(error) = check_well(deployment, hosts) {
        if begun.elapsed() > WELL_TIMEOUT {
            return Err(Error::during(format!("waited for {} s", WELL_TIMEOUT.as_secs()))(error));
        }
        pause(watcher)?;
    }
    Ok(())
}

/// Checks that all instances on `hosts` run, are up and normal in the view of the first one that
/// answers, and agree on the schema.
pub(crate) fn check_well(deployment: &Deployment, hosts: &[Host]) -> Result<(), Error> {
    for one in &survey(&deployment.access, &deployment.plan.spec.provision.user, hosts) {
        let what = match &one.alive {
            ProcessState::Running { .. } => continue,
            ProcessState::Stopped => " does not run",
            ProcessState::Absent => " was never installed there",
            ProcessState::Unreachable { why } => &format!(": {why}"),
        };
        return Err(Error::Refused(format!("{}{what}", one.instance)));
    }
    let (by, nodes) = deployment.look(hosts, |_| true)?;
    for (_, instance) in instances(hosts) {
        let state = node_of(&nodes, instance).map_or("unknown", |node| node.state.as_str());
        if state != "UN" {
            return Err(Error::Refused(format!(
                "{} is {state} to {by}, not UN: up and normal",
                instance.name
            )));
        }
    }
    let Some((host, instance)) = instances(hosts).next() else { return Ok(()) };
    let described = deployment
        .run_command(host, &format!("{}/nodetool describecluster", instance.home.display()))?;
    let ours = |address: &String| {
        instances(hosts).any(|(_, instance)| instance.address.to_string() == *address)
    };
    let mut versions = schemas(&described);
    versions.retain(|(_, by)| by.iter().any(ours));
    if versions.len() > 1 {
        let each: Vec<_> =
            versions.iter().map(|(version, by)| format!("{version}: {}", by.join(", "))).collect();
        return Err(Error::Refused(format!(
            "instances do not agree on the schema: {}",
            each.join("; ")
        )));
    }
    Ok(())
}

/// Returns the entry of an instance in another instance's view of the ring. `None` if the other
/// instance does not know it.
pub(crate) fn node_of<'a>(nodes: &'a [Node], instance: &Instance) -> Option<&'a Node> {
    let address = instance.address.to_string();
    nodes.iter().find(|node| node.address == address)
}

/// Reports to the watcher that the change is waiting, and waits for [`LOOK_INTERVAL`].
pub(crate) fn pause(watcher: &mut dyn Watcher) -> Result<(), Error> {
    watcher.event(Event::Waiting).map_err(Error::Watcher)?;
    #[expect(clippy::disallowed_methods, reason = "a change waits by sleeping")]
    std::thread::sleep(LOOK_INTERVAL);
    Ok(())
}
