//! Restarts instances one after the other.

use crate::deployment::instances;
use crate::health::{check_well, wait_until_well};
use crate::{Deployment, Ended, Error, Event, Watcher};
use sprat_rack::{Host, Instance};
use std::path::Path;

/// The purpose of a rolling restart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rolling {
    /// Restart each instance without changing its files.
    Restart,
    /// Restart the instances whose settings have changed.
    Config,
    /// Restart the instances whose jars have changed, then let all selected instances rewrite their
    /// tables in the new format.
    Upgrade,
}

/// The result of [`rolling`].
#[derive(Clone, Copy, Debug)]
pub struct RollingReport {
    /// Number of instances that restarted, or would restart.
    pub restarted: usize,
    /// Number of instances that `limit` selected.
    pub of: usize,
}

/// Restarts instances for the purpose `kind`, one after the other. Each flushes its memory to disk,
/// stops, gets its files, and starts. The next instance follows when all instances are well
/// ([`wait_until_well`]). `limit` names servers or instances; if it is empty, all instances are
/// selected. With `check`, nothing on the servers is changed, but the rack's folder is written.
///
/// # Errors
/// An instance is leaving or, unless `check`, not well; a name is unknown; a file cannot be
/// written; Ansible or `nodetool upgradesstables` fails; the watcher cannot show an event; or an
/// instance is not well after its restart. The remaining instances are not restarted.
pub fn rolling(
    deployment: &Deployment,
    kind: Rolling,
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
            "nothing was changed: all instances must be well before one stops (`sprat rack up` \
             starts those that do not run)",
        ))?;
    }
    let mut count = 0;
    for (at, (host, instance)) in chosen.iter().enumerate() {
        if watcher.is_stopped() {
            return Ok(Ended::Stopped(format!(" after {at} of {of}")));
        }
        watcher
            .event(Event::Instance { name: &instance.name, at: at + 1, of })
            .map_err(Error::Watcher)?;
        let forced = kind == Rolling::Restart;
        let restarted = update_instance(deployment, host, instance, forced, check, watcher)?;
        if restarted && !check {
            let doing =
                format!("{at} of {of} are done; {} restarted and is not well", instance.name);
            wait_until_well(deployment, &hosts, watcher).map_err(Error::during(doing))?;
        }
        count += usize::from(restarted);
        watcher
            .event(Event::Restarted { name: &instance.name, restarted })
            .map_err(Error::Watcher)?;
    }
    if kind == Rolling::Upgrade && !check {
        for (host, instance) in &chosen {
            let doing = format!("{} rewrites its tables", instance.name);
            watcher.event(Event::Doing(&doing)).map_err(Error::Watcher)?;
            deployment.run_command(
                host,
                &format!("{}/nodetool upgradesstables", instance.home.display()),
            )?;
        }
    }
    Ok(Ended::Done(RollingReport { restarted: count, of }))
}

/// Installs an instance's files, and restarts the instance if the files have changed or if
/// `forced`. Returns whether it restarted. With `check`, changes nothing, and returns whether it
/// would restart. Does not wait until the instance is well.
///
/// # Errors
/// Ansible is missing or fails, or the watcher cannot show an event.
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

/// Returns the instances that `names` means, in the plan's order; without names, all instances.
fn chosen<'a>(hosts: &'a [Host], names: &[String]) -> Result<Vec<(&'a Host, &'a Instance)>, Error> {
    let is = |name: &String, (host, instance): (&Host, &Instance)| {
        host.name == *name || instance.name == *name
    };
    if let Some(name) = names.iter().find(|name| !instances(hosts).any(|one| is(name, one))) {
        let unknown = "no such server or instance; `sprat rack status` lists them";
        return Err(Error::Refused(format!("--limit {name}: {unknown}")));
    }
    Ok(instances(hosts)
        .filter(|one| names.is_empty() || names.iter().any(|name| is(name, *one)))
        .collect())
}
