//! Restores an instance that lost its data.

use crate::deployment::instances;
use crate::health::{node_of, pause};
use crate::{Deployment, Error, Event, Watcher};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it may take until the other instances see that an instance is down.
const DOWN_TIMEOUT: Duration = Duration::from_secs(120);

/// Stops the instance `name`, moves its data aside, and starts it empty with its old tokens. The
/// instance then streams its rows from the others.
///
/// # Errors
/// There is no instance `name`; an instance is leaving the ring; a file cannot be written; the
/// instance cannot be stopped; no other instance answers; the others still see the instance as up
/// after two minutes; the watcher cannot show an event; or Ansible fails.
pub fn replace(
    deployment: &Deployment,
    name: &str,
    jars: &Path,
    watcher: &mut dyn Watcher,
) -> Result<(), Error> {
    deployment.check_none_leaves()?;
    let hosts = deployment.folder.write(&deployment.plan, jars)?;
    let Some((host, instance)) = instances(&hosts).find(|(_, instance)| instance.name == name)
    else {
        return Err(Error::Refused(format!(
            "no instance {name:?}: `sprat rack status` lists them"
        )));
    };
    deployment.folder.replacing(instance)?;
    // The other instances must see the instance as down, so it must not run. On a new server there
    // is no instance to stop.
    let program = format!("{}/instance", instance.home.display());
    deployment.run_command(host, &format!("test ! -e {program} || {program} stop"))?;
    let begun = Instant::now();
    watcher
        .event(Event::Doing("waiting until the others see that it is down"))
        .map_err(Error::Watcher)?;
    let is_seen_up = || {
        let (_, nodes) = deployment.look(&hosts, |other| other.name != instance.name)?;
        Ok::<_, Error>(node_of(&nodes, instance).is_some_and(|node| node.state.starts_with('U')))
    };
    while is_seen_up()? {
        if begun.elapsed() > DOWN_TIMEOUT {
            let seconds = DOWN_TIMEOUT.as_secs();
            return Err(Error::Refused(format!(
                "the others still see {name} up after {seconds} s"
            )));
        }
        pause(watcher)?;
    }
    let vars = format!("instance={name}");
    deployment.play(
        "replace.yml",
        &["--limit", &host.name, "--extra-vars", &vars],
        false,
        watcher,
    )?;
    Ok(())
}
