//! Restarting instances one after the other.

use crate::deployment::instances;
use crate::health::{check_well, wait_until_well};
use crate::{Deployment, Ended, Error, Event, Watcher};
use sprat_rack::{Host, Instance};
use std::path::Path;

/// What a rolling restart is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rolling {
    /// Restart each instance as it is.
    Restart,
    /// Restart those whose settings have changed.
    Config,
    /// Restart those whose jars have changed, then have all write their tables in the new format.
    Upgrade,
}

/// What a rolling restart did, or would do.
#[derive(Clone, Copy, Debug)]
pub struct RollingReport {
    /// The instances that restarted, or would.
    pub restarted: usize,
    /// The instances that were looked at.
    pub of: usize,
}

/// Restarts instances one after the other. Each drains its memory to disk, stops, gets its files,
/// and starts; the next follows when all see it as up and normal. `limit` names servers or
/// instances; empty: all. With `check` nothing is changed.
///
/// # Errors
/// An instance is down or leaving, a name is unknown, Ansible fails, or an instance is not well
/// after its restart: then the others stay as they are.
pub fn rolling(
    deployment: &Deployment,
    what: Rolling,
    jars: &Path,
    limit: &[String],
    check: bool,
    watcher: &mut dyn Watcher,
) -> Result<Ended<RollingReport>, Error> {
    deployment.check_none_leaves()?;
    let hosts = deployment.folder.write(&deployment.plan, jars)?;
    let chosen = chosen(&hosts, limit)?;
    let of = chosen.len();
    if !check {
        check_well(deployment, &hosts).map_err(Error::during(
            "nothing was done: all must be well before one stops (`sprat rack up` starts who does not run)",
        ))?;
    }
    let mut count = 0;
    for (at, (host, instance)) in chosen.iter().enumerate() {
        if watcher.is_stopped() {
            return Ok(Ended::Stopped(format!(" after {at} of {of}")));
        }
        watcher
            .event(Event::Turn { name: &instance.name, at: at + 1, of })
            .map_err(Error::Watcher)?;
        let forced = what == Rolling::Restart;
        let restarted = update_instance(deployment, host, instance, forced, check, watcher)?;
        if restarted && !check {
            let doing =
                format!("{at} of {of} are done; {} began anew and is not well", instance.name);
            wait_until_well(deployment, &hosts, watcher).map_err(Error::during(doing))?;
        }
        count += usize::from(restarted);
        watcher
            .event(Event::Restarted { name: &instance.name, restarted })
            .map_err(Error::Watcher)?;
    }
    if what == Rolling::Upgrade && !check {
        for (host, instance) in &chosen {
            let doing = format!("{} writes its tables anew", instance.name);
            watcher.event(Event::Doing(&doing)).map_err(Error::Watcher)?;
            deployment
                .ask(host, &format!("{}/nodetool upgradesstables", instance.home.display()))?;
        }
    }
    Ok(Ended::Done(RollingReport { restarted: count, of }))
}

/// Brings an instance its files, and restarts it if they have changed, or if `forced`. Returns
/// whether it restarted. Does not wait until it is well.
///
/// # Errors
/// Ansible fails.
pub fn update_instance(
    deployment: &Deployment,
    host: &Host,
    instance: &Instance,
    forced: bool,
    check: bool,
    watcher: &mut dyn Watcher,
) -> Result<bool, Error> {
    let vars = format!("instance={} forced={forced}", instance.name);
    let mut more = vec!["--limit", &host.name, "--extra-vars", &vars];
    if check {
        more.extend(["--check", "--diff"]);
    }
    let recaps = deployment.play("rolling.yml", &more, check, watcher)?;
    Ok(recaps.iter().any(|recap| recap.changed > 0))
}

/// The instances that `names` means, in the plan's order; all of them without names.
fn chosen<'a>(hosts: &'a [Host], names: &[String]) -> Result<Vec<(&'a Host, &'a Instance)>, Error> {
    let is = |name: &String, (host, instance): (&Host, &Instance)| {
        host.name == *name || instance.name == *name
    };
    if let Some(name) = names.iter().find(|name| !instances(hosts).any(|one| is(name, one))) {
        let unknown = "no server or instance is called that; `sprat rack status` names them";
        return Err(Error::Refused(format!("--limit {name}: {unknown}")));
    }
    Ok(instances(hosts)
        .filter(|one| names.is_empty() || names.iter().any(|name| is(name, *one)))
        .collect())
}
