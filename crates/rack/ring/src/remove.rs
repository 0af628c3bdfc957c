//! Removes instances from a ring.

use crate::deployment::{instances, names_instance, only};
use crate::health::{check_well, node_of, pause};
use crate::{Deployment, Ended, Error, Event, LeftData, Watcher};
use sprat_plan::Plan;
use sprat_provision::{Members, Node, ProcessState, RingState, survey};
use sprat_rack::{Host, Instance, hosts};

/// Number of instances that must stay for an instance to leave in order. Cassandra keeps three
/// replicas of its own tables, and refuses to let an instance leave if fewer than three would stay.
const OWN_REPLICAS: usize = 3;

/// The instances to remove, and how to remove them.
#[derive(Clone, Copy, Debug)]
pub struct Removal<'a> {
    /// An instance, or a server with all of its instances.
    pub name: &'a str,
    /// Whether the server is dead. If so, the other instances restore its rows from replicas. If
    /// the server answers nevertheless, its data are then removed or kept as `purge` says.
    pub gone: bool,
    /// Whether to remove the instance's data after its rows have moved to others. If not, the data
    /// are kept next to the instance's folder.
    pub purge: bool,
    /// Whether to only check that the instance may leave, and change nothing.
    pub check: bool,
}

/// The result of [`remove`].
#[derive(Debug)]
pub struct Removed {
    /// Names of the instances that left, or would leave. Empty if all of them had left before.
    pub left: Vec<String>,
    /// Number of instances that stay on the ring.
    pub stay: usize,
}

/// A removal in progress.
struct Step<'a> {
    deployment: &'a Deployment,
    /// The hosts with the instances that stay.
    stay: &'a [Host],
    host: &'a Host,
    instance: &'a Instance,
    gone: bool,
}

/// Removes instances from the ring, one after the other. Each streams its rows to the others, then
/// stops; if it is `gone`, the others restore its rows from replicas. `deployment.plan` becomes the
/// plan without the removed instances.
///
/// # Errors
/// Before anything is changed: no ring exists yet, the name is unknown, an instance that stays is
/// not well, too few instances would stay for all replicas, another instance is joining or leaving,
/// or the instance's state contradicts `gone`. Later: files, nodetool, Ansible or the watcher fail.
/// Repeat the call after such a later failure: it does what is left.
pub fn remove(
    deployment: &mut Deployment,
    removal: Removal<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Ended<Removed>, Error> {
    let mut members = deployment.begun()?;
    let all_hosts = hosts(&deployment.plan);
    let leaving = only(&all_hosts, |name| names_instance(removal.name, name));
    let stay = only(&all_hosts, |name| !names_instance(removal.name, name));
    if leaving.is_empty() {
        if members.away.iter().any(|name| names_instance(removal.name, name)) {
            return Ok(Ended::Done(Removed { left: Vec::new(), stay: instances(&stay).count() }));
        }
        let unknown = "the ring has no such server or instance; `sprat rack status` lists them";
        return Err(Error::Refused(format!("{}: {unknown}", removal.name)));
    }
    check_no_other_change(&members, removal.name)?;
    check_well(deployment, &stay).map_err(Error::during(
        "nothing was changed: the instances that stay must be well (`sprat rack up` starts those \
         that do not run)",
    ))?;
    for (host, instance) in instances(&leaving) {
        let step = Step { deployment, stay: &stay, host, instance, gone: removal.gone };
        step.check_may_leave(members.instances.get(&instance.name).map(|known| known.state))?;
    }
    check_enough_stay(deployment, &members, &stay, &leaving, removal.gone)?;
    let left: Vec<String> =
        instances(&leaving).map(|(_, instance)| instance.name.clone()).collect();
    let removed = Removed { left, stay: instances(&stay).count() };
    if removal.check {
        return Ok(Ended::Done(removed));
    }
    deployment.folder.rewrite(&deployment.plan)?;
    for (at, (host, instance)) in instances(&leaving).enumerate() {
        let event = Event::Instance { name: &instance.name, at: at + 1, of: removed.left.len() };
        watcher.event(event).map_err(Error::Watcher)?;
        let step = Step { deployment, stay: &stay, host, instance, gone: removal.gone };
        if !step.leave(&mut members, watcher)? {
            return Ok(Ended::Stopped(format!(", {} is leaving", instance.name)));
        }
        let data = match (step.process(), removal.purge) {
            (ProcessState::Unreachable { .. }, _) => LeftData::Unreachable,
            (_, true) => LeftData::Removed,
            (_, false) => LeftData::Kept,
        };
        if data != LeftData::Unreachable {
            let vars = format!("instance={} purge={}", instance.name, removal.purge);
            let more = ["--limit", &host.name, "--extra-vars", &vars];
            deployment.play("remove.yml", &more, false, watcher).map_err(Error::during(
                format!(
                    "{} has left the ring, but is not cleaned up; run the command again to \
                     continue",
                    instance.name
                ),
            ))?;
        }
        members.instances.remove(&instance.name);
        members.unclean.remove(&instance.name);
        members.away.insert(instance.name.clone());
        members.write(&deployment.folder)?;
        watcher.event(Event::Left { name: &instance.name, data }).map_err(Error::Watcher)?;
    }
    deployment.plan = Plan::new(members.adapt(deployment.plan.spec.clone()))?;
    deployment.folder.rewrite(&deployment.plan)?;
    deployment.settle(watcher)?;
    Ok(Ended::Done(removed))
}

/// Checks that no instances are joining or leaving except those that `name` means.
fn check_no_other_change(members: &Members, name: &str) -> Result<(), Error> {
    for (state, what, command) in
        [(RingState::Leaving, "leaving", "remove"), (RingState::Joining, "joining", "add")]
    {
        if let Some(other) = members.in_state(state).find(|other| !names_instance(name, other)) {
            let rule = format!("continue with `sprat rack {command}` of it first");
            return Err(Error::Refused(format!("{other} is {what}: {rule}")));
        }
    }
    Ok(())
}

/// Checks that enough instances stay for all replicas of each row and, unless `gone`, of
/// Cassandra's own tables, and that they make a valid plan.
fn check_enough_stay(
    deployment: &Deployment,
    members: &Members,
    stay: &[Host],
    leaving: &[Host],
    gone: bool,
) -> Result<(), Error> {
    let spec = &deployment.plan.spec;
    let (rest, replicas) = (
        instances(stay).count(),
        spec.cassandra.as_ref().map_or(1, |cassandra| cassandra.replication),
    );
    // An instance that never joined has no rows that would have to move to others.
    let on_ring = |name: &String| {
        members.instances.get(name).is_none_or(|known| known.state != RingState::Joining)
    };
    if !instances(leaving).any(|(_, instance)| on_ring(&instance.name)) {
        return Ok(());
    }
    if rest < replicas {
        return Err(Error::Refused(format!(
            "{rest} instances would stay, and rows have {replicas} replicas: add an instance first \
             (`sprat rack add`)"
        )));
    }
    if rest < OWN_REPLICAS && !gone {
        return Err(Error::Refused(format!(
            "{rest} instances would stay, and Cassandra keeps {OWN_REPLICAS} replicas of its own \
             tables: add an instance first (`sprat rack add`)"
        )));
    }
    let mut without = members.clone();
    instances(leaving).for_each(|(_, instance)| drop(without.instances.remove(&instance.name)));
    Plan::new(without.adapt(spec.clone()))
        .map_err(Error::during("the instances that would stay make no valid plan"))?;
    Ok(())
}

impl Step<'_> {
    /// Returns the state of the instance as one of the instances that stay sees it. `None` if that
    /// instance does not know it.
    fn view_of_others(&self) -> Result<Option<Node>, Error> {
        let (_, nodes) = self.deployment.look(self.stay, |_| true)?;
        Ok(node_of(&nodes, self.instance).cloned())
    }

    /// Returns the state of the instance's process, as its own host reports it.
    fn process(&self) -> ProcessState {
        let alone = only(std::slice::from_ref(self.host), |name| *name == self.instance.name);
        let seen =
            survey(&self.deployment.access, &self.deployment.plan.spec.provision.user, &alone);
        seen.into_iter().next().map_or(ProcessState::Stopped, |seen| seen.alive)
    }

    /// Checks that the instance's state allows this kind of removal.
    fn check_may_leave(&self, state: Option<RingState>) -> Result<(), Error> {
        let (name, alive) = (&self.instance.name, self.process());
        let refused = match (&alive, self.gone, state) {
            (ProcessState::Running { .. }, true, Some(RingState::Here)) => {
                format!("{name} runs: leave out --gone, and it hands its rows to the others")
            }
            (ProcessState::Running { .. }, ..) | (_, true, _) => String::new(),
            // An instance that stopped while it was leaving is started again. An instance that
            // never joined is only removed from the list.
            (
                ProcessState::Stopped | ProcessState::Absent,
                _,
                Some(RingState::Leaving | RingState::Joining),
            ) => String::new(),
            (ProcessState::Unreachable { why }, ..) => {
                format!("{name}: {why}; if its server is lost for good, give --gone")
            }
            _ => format!(
                "{name} does not run: `sprat rack up` starts it; if it is lost for good, give \
                 --gone"
            ),
        };
        if !refused.is_empty() {
            return Err(Error::Refused(refused));
        }
        if self.gone
            && let Some(node) = self.view_of_others()?.filter(|node| node.state.starts_with('U'))
        {
            let state = &node.state;
            return Err(Error::Refused(format!(
                "the others see {name} up ({state}), although it does not run: they notice within \
                 seconds; try again"
            )));
        }
        Ok(())
    }

    /// Lets the instance leave the ring, and waits until it has left. Returns false if the watcher
    /// stopped the wait.
    fn leave(&self, members: &mut Members, watcher: &mut dyn Watcher) -> Result<bool, Error> {
        let (name, folder) = (&self.instance.name, &self.deployment.folder);
        let program = self.instance.home.join("instance").display().to_string();
        let set_state = |members: &mut Members, state: RingState| {
            members
                .instances
                .get_mut(name)
                .expect("the plan has the instances of the ring")
                .state = state;
            members.write(folder)
        };
        if members.instances[name].state == RingState::Joining {
            // The other instances still have all of this instance's rows, and they forget an
            // instance that has not joined.
            if !matches!(self.process(), ProcessState::Unreachable { .. }) {
                self.deployment
                    .run_command(self.host, &format!("test ! -e {program} || {program} stop"))?;
            }
            return Ok(true);
        }
        set_state(members, RingState::Leaving)?;
        watcher.event(Event::Doing("moving its rows to the others")).map_err(Error::Watcher)?;
        while let Some(node) = self.view_of_others()? {
            if watcher.is_stopped() {
                return Ok(false);
            }
            let (host, command) = match (self.gone, node.state.as_str()) {
                (true, _) => {
                    let (host, other) =
                        instances(self.stay).next().expect("enough stay for all replicas");
                    (host, format!("{}/nodetool removenode {} 1>&2", other.home.display(), node.id))
                }
                (false, "UN") => {
                    let nodetool = self.instance.home.join("nodetool");
                    (self.host, format!("{} decommission 1>&2", nodetool.display()))
                }
                // The instance is leaving already.
                (false, "UL") => {
                    pause(watcher)?;
                    continue;
                }
                (false, _) => (self.host, format!("{program} start && {program} wait")),
            };
            let Err(error) = self.deployment.run_command(host, &command) else {
                pause(watcher)?;
                continue;
            };
            if watcher.is_stopped() {
                return Ok(false);
            }
            let why = error.to_string();
            match self.view_of_others()? {
                Some(node) if self.gone && !why.contains("already") => {
                    return Err(Error::Refused(format!(
                        "{name} stays on the ring, where the others see it as {}: {why}",
                        node.state
                    )));
                }
                // Cassandra refused, so nothing has changed.
                Some(node) if !self.gone && node.state == "UN" => {
                    set_state(members, RingState::Here)?;
                    return Err(Error::Refused(format!("{name} stays on the ring: {why}")));
                }
                Some(node) if !self.gone && node.state.starts_with('D') => {
                    let remedy = "run the command again to continue, or with --gone";
                    return Err(Error::Refused(format!("{name} is down: {why}; {remedy}")));
                }
                _ => pause(watcher)?,
            }
        }
        Ok(true)
    }
}
