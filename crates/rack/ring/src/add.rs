//! Adds instances to a ring.

use crate::deployment::{instances, names_instance, only};
use crate::health::{check_well, wait_until_well};
use crate::{Deployment, Ended, Error, Event, Watcher};
use serde::Serialize;
use sprat_plan::Plan;
use sprat_provision::{Members, ProcessState, RingState, survey};
use sprat_rack::{Host, hosts};
use std::net::IpAddr;
use std::path::Path;

/// Interval between checks whether an instance that joins still runs, in seconds.
const GLANCE_SECONDS: u32 = 10;

/// An instance that joins, or has joined.
#[derive(Debug, Serialize)]
pub struct JoinedInstance {
    /// The instance's name.
    pub name: String,
    /// The instance's address.
    pub address: IpAddr,
    /// The instance's tokens, which lie between the tokens of the other instances.
    pub tokens: Vec<i64>,
    /// The instance's part of all rows, each counted once: 0 to 1.
    pub share: f64,
}

/// The result of [`add`]: the instances that joined or would join, and the older instances that
/// removed the rows that had moved to the new ones.
#[derive(Debug, Serialize)]
pub struct Added {
    /// Instances that joined or, with `check`, would join.
    pub joined: Vec<JoinedInstance>,
    /// Instances that removed rows that had moved to others.
    pub cleaned: Vec<String>,
}

/// Adds instances of the description to the ring, one after the other. `names` are servers or
/// instances; they may have left the ring before. If `names` is empty, all instances that were
/// never on the ring are added.
///
/// Each instance streams its rows from the others, and all instances on the ring must be well
/// before the next one begins ([`wait_until_well`](crate::wait_until_well)). Then the other
/// instances remove the rows that moved to the new ones (`nodetool cleanup`), one at a time.
/// `deployment.plan` becomes the plan with the new instances; with `check`, nothing else is
/// changed.
///
/// # Errors
/// No ring exists yet; an instance is leaving or not well; a name is unknown; the plan with the new
/// instances cannot be built; a file cannot be written; an instance does not join; rows cannot be
/// cleaned up; the watcher cannot show an event; or Ansible fails. The steps that were done remain
/// in effect, and the same call, repeated, does the rest.
pub fn add(
    deployment: &mut Deployment,
    names: &[String],
    jars: &Path,
    check: bool,
    watcher: &mut dyn Watcher,
) -> Result<Ended<Added>, Error> {
    deployment.check_none_leaves()?;
    let mut members = deployment.begun()?;
    let names = chosen(&members, deployment, names)?;
    deployment.plan = members.joined_by(&deployment.plan.spec, &names)?;
    let joining: Vec<String> = members.in_state(RingState::Joining).cloned().collect();
    let joined = joined_instances(&deployment.plan, &joining);
    if check || (joining.is_empty() && members.unclean.is_empty()) {
        return Ok(Ended::Done(Added { joined, cleaned: Vec::new() }));
    }
    if !joining.is_empty() {
        let there = only(&hosts(&deployment.plan), |name| !joining.contains(name));
        check_well(deployment, &there).map_err(Error::during(
            "nothing was changed: all instances must be well before another joins (`sprat rack up` \
             starts those that do not run)",
        ))?;
    }
    let all_hosts = deployment.folder.write(&deployment.plan, jars)?;
    members.write(&deployment.folder)?; // before any instance begins with these tokens
    if let Some(local) = &deployment.local {
        local.grow(&deployment.plan, &all_hosts)?;
    }
    for (at, name) in joining.iter().enumerate() {
        watcher
            .event(Event::Instance { name, at: at + 1, of: joining.len() })
            .map_err(Error::Watcher)?;
        if !join(deployment, &all_hosts, name, watcher)? {
            return Ok(Ended::Stopped(format!(", {at} of {} have joined", joining.len())));
        }
        let later = &joining[at + 1..];
        wait_until_well(deployment, &only(&all_hosts, |other| !later.contains(other)), watcher)
            .map_err(Error::during(format!("{name} has joined, but not all instances are well")))?;
        members.unclean.extend(members.in_state(RingState::Here).cloned().collect::<Vec<_>>());
        if let Some(known) = members.instances.get_mut(name) {
            known.state = RingState::Here;
            known.begun = true;
        }
        members.write(&deployment.folder)?;
        if let Some(one) = joined.iter().find(|one| one.name == *name) {
            watcher.event(Event::Joined(one)).map_err(Error::Watcher)?;
        }
    }
    deployment.settle(watcher)?;
    Ok(match clean_up(deployment, &mut members, &all_hosts, watcher)? {
        Ended::Done(cleaned) => Ended::Done(Added { joined, cleaned }),
        Ended::Stopped(how_far) => Ended::Stopped(how_far),
    })
}

/// Runs `nodetool cleanup` on each instance that still has rows that moved to others. Returns the
/// names of these instances.
fn clean_up(
    deployment: &Deployment,
    members: &mut Members,
    hosts: &[Host],
    watcher: &mut dyn Watcher,
) -> Result<Ended<Vec<String>>, Error> {
    let mut cleaned = Vec::new();
    for (host, instance) in instances(hosts) {
        if !members.unclean.contains(&instance.name) {
            continue;
        }
        let stopped = || {
            Ok(Ended::Stopped(format!(
                ", {} still have rows that moved to others",
                members.unclean.len()
            )))
        };
        if watcher.is_stopped() {
            return stopped();
        }
        let doing = format!("{} removes rows that moved to others", instance.name);
        watcher.event(Event::Doing(&doing)).map_err(Error::Watcher)?;
        let cleanup = deployment
            .run_command(host, &format!("{}/nodetool cleanup 1>&2", instance.home.display()));
        if cleanup.is_err() && watcher.is_stopped() {
            return stopped();
        }
        let doing =
            format!("{} could not be cleaned up; run the command again to continue", instance.name);
        cleanup.map_err(Error::during(doing))?;
        members.unclean.remove(&instance.name);
        members.write(&deployment.folder)?;
        cleaned.push(instance.name.clone());
    }
    members.unclean.clear(); // instances still in the list have left the ring
    members.write(&deployment.folder)?;
    Ok(Ended::Done(cleaned))
}

/// Returns the instances that `names` means and that are not on the ring. Without names, returns
/// all that were never on the ring.
fn chosen(
    members: &Members,
    deployment: &Deployment,
    names: &[String],
) -> Result<Vec<String>, Error> {
    if names.is_empty() {
        return Ok(members.newcomers(&deployment.plan.spec)?);
    }
    let absent =
        Members { away: Default::default(), ..members.clone() }.newcomers(&deployment.plan.spec)?;
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        found.extend(absent.iter().filter(|one| names_instance(name, one)).cloned());
        if found.len() == before && !members.instances.keys().any(|one| names_instance(name, one)) {
            let unknown = "the description has no such server or instance; `sprat rack plan \
                           --write` lists them";
            return Err(Error::Refused(format!("{name}: {unknown}")));
        }
    }
    Ok(found)
}

/// Returns the instances with these names, and what the plan assigns to them.
fn joined_instances(plan: &Plan, names: &[String]) -> Vec<JoinedInstance> {
    let mut shares = Vec::new();
    if let Some(ring) = &plan.ring {
        shares.resize(ring.instances.len(), 0.0);
        (0..ring.tokens.len())
            .for_each(|token| shares[ring.tokens[token].instance] += ring.share(token));
    }
    let hosts = hosts(plan);
    let joined = |((_, instance), share): ((&Host, &sprat_rack::Instance), f64)| JoinedInstance {
        name: instance.name.clone(),
        address: instance.address,
        tokens: instance.tokens.clone(),
        share,
    };
    instances(&hosts).zip(shares).map(joined).filter(|one| names.contains(&one.name)).collect()
}

/// Installs an instance on its server, starts it, and waits until it has streamed its rows. Returns
/// false if the watcher stopped the wait.
fn join(
    deployment: &Deployment,
    hosts: &[Host],
    name: &str,
    watcher: &mut dyn Watcher,
) -> Result<bool, Error> {
    let (host, instance) = instances(hosts)
        .find(|(_, one)| one.name == name)
        .expect("a newcomer's plan has the newcomer");
    let limit = format!("{},{}", hosts[0].name, host.name); // clocks are compared with the first
    let vars = format!("instance={name} host={}", host.name);
    deployment.play("add.yml", &["--limit", &limit, "--extra-vars", &vars], false, watcher)?;
    watcher.event(Event::Doing("fetches its rows from the others")).map_err(Error::Watcher)?;
    loop {
        watcher.event(Event::Waiting).map_err(Error::Watcher)?;
        let wait = format!("PATIENCE={GLANCE_SECONDS} {}/instance wait", instance.home.display());
        let answer = deployment.run_command(host, &wait);
        if watcher.is_stopped() {
            return Ok(false);
        }
        let Err(error) = answer else { return Ok(true) };
        let alone = only(std::slice::from_ref(host), |one| one == name);
        let seen = survey(&deployment.access, &deployment.plan.spec.provision.user, &alone);
        if !matches!(seen.first().map(|seen| &seen.alive), Some(ProcessState::Running { .. })) {
            return Err(Error::during(format!(
                "{name} has not joined; run the command again to continue"
            ))(error));
        }
    }
}
