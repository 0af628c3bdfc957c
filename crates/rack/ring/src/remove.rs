//! Removing instances from a ring.

use crate::deployment::{instances, means, only};
use crate::health::{check_well, node_of, pause};
use crate::{Deployment, Ended, Error, Event, LeftData, Watcher};
use sprat_plan::Plan;
use sprat_provision::{Alive, Members, Node, State, survey};
use sprat_rack::{Host, Instance, hosts};

/// Instances that must stay for one to leave in order: Cassandra keeps tables of its own in three,
/// and does not let go of them.
const OWN_REPLICAS: usize = 3;

/// What is to be removed, and how.
#[derive(Clone, Copy, Debug)]
pub struct Removal<'a> {
    /// An instance, or a server: all of its instances.
    pub name: &'a str,
    /// Its server is dead: the others make its rows from replicas, and it is asked nothing.
    pub gone: bool,
    /// Remove its data once its rows are with others, instead of keeping it beside it.
    pub purge: bool,
    /// Only check whether it may leave.
    pub check: bool,
}

/// Which instances left, or would leave.
#[derive(Debug)]
pub struct Removed {
    /// Their names; empty: all that the name means have left before.
    pub left: Vec<String>,
    /// How many stay.
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

/// Removes instances from the ring, one after the other: their rows go to the others, then they
/// stop.
///
/// `deployment.plan` becomes the plan without them.
///
/// # Errors
/// The name is unknown, an instance that stays is not well, too few would stay for all replicas,
/// another instance is joining or leaving, or the instance is not as `gone` says.
pub fn remove(
    deployment: &mut Deployment,
    removal: Removal<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Ended<Removed>, Error> {
    let mut members = deployment.begun()?;
    let all_hosts = hosts(&deployment.plan);
    let leaving = only(&all_hosts, |name| means(removal.name, name));
    let stay = only(&all_hosts, |name| !means(removal.name, name));
    if leaving.is_empty() {
        if members.away.iter().any(|name| means(removal.name, name)) {
            return Ok(Ended::Done(Removed { left: Vec::new(), stay: instances(&stay).count() }));
        }
        let unknown =
            "no server or instance on the ring is called that; `sprat rack status` names them";
        return Err(Error::Refused(format!("{}: {unknown}", removal.name)));
    }
    check_no_other_change(&members, removal.name)?;
    check_well(deployment, &stay).map_err(Error::during(
        "nothing was done: who stays must be well (`sprat rack up` starts who does not run)",
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
        let turn = Event::Turn { name: &instance.name, at: at + 1, of: removed.left.len() };
        watcher.event(turn).map_err(Error::Watcher)?;
        let step = Step { deployment, stay: &stay, host, instance, gone: removal.gone };
        if !step.leave(&mut members, watcher)? {
            return Ok(Ended::Stopped(format!(", {} is leaving", instance.name)));
        }
        let data = match (step.alive(), removal.purge) {
            (Alive::Unreachable { .. }, _) => LeftData::Unreachable,
            (_, true) => LeftData::Removed,
            (_, false) => LeftData::Kept,
        };
        if data != LeftData::Unreachable {
            let vars = format!("instance={} purge={}", instance.name, removal.purge);
            let more = ["--limit", &host.name, "--extra-vars", &vars];
            deployment.play("remove.yml", &more, false, watcher).map_err(Error::during(
                format!("{} has left the ring; run it again to go on", instance.name),
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

/// Checks that no instance but those that `name` means is joining or leaving.
fn check_no_other_change(members: &Members, name: &str) -> Result<(), Error> {
    for (state, what, command) in
        [(State::Leaving, "leaving", "remove"), (State::Joining, "joining", "add")]
    {
        if let Some(other) = members.in_state(state).find(|other| !means(name, other)) {
            let rule =
                format!("`sprat rack {command}` of it goes on with that; one after the other");
            return Err(Error::Refused(format!("{other} is {what}: {rule}")));
        }
    }
    Ok(())
}

/// Checks that enough instances stay for all replicas.
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
    // An instance that never came has no rows that would have to go anywhere.
    let on_ring = |name: &String| {
        members.instances.get(name).is_none_or(|known| known.state != State::Joining)
    };
    if !instances(leaving).any(|(_, instance)| on_ring(&instance.name)) {
        return Ok(());
    }
    if rest < replicas {
        return Err(Error::Refused(format!(
            "{rest} instances would stay, and rows have {replicas} replicas: add one before (`sprat rack add`)"
        )));
    }
    if rest < OWN_REPLICAS && !gone {
        return Err(Error::Refused(format!(
            "{rest} instances would stay, and Cassandra keeps tables of its own in {OWN_REPLICAS}, which it does \
             not let go of: add one before (`sprat rack add`)"
        )));
    }
    let mut without = members.clone();
    instances(leaving).for_each(|(_, instance)| drop(without.instances.remove(&instance.name)));
    Plan::new(without.adapt(spec.clone())).map_err(Error::during("who would stay is no plan"))?;
    Ok(())
}

impl Step<'_> {
    /// The instance as others see it.
    fn seen(&self) -> Result<Option<Node>, Error> {
        let (_, nodes) = self.deployment.look(self.stay, |_| true)?;
        Ok(node_of(&nodes, self.instance).cloned())
    }

    /// Whether it runs, by its own host.
    fn alive(&self) -> Alive {
        let alone = only(std::slice::from_ref(self.host), |name| *name == self.instance.name);
        let seen =
            survey(&self.deployment.reach, &self.deployment.plan.spec.provision.user, &alone);
        seen.into_iter().next().map_or(Alive::Stopped, |seen| seen.alive)
    }

    /// Checks that the instance is as it must be for the way in which it is to leave.
    fn check_may_leave(&self, state: Option<State>) -> Result<(), Error> {
        let (name, alive) = (&self.instance.name, self.alive());
        let refused = match (&alive, self.gone, state) {
            (Alive::Running { .. }, true, Some(State::Here)) => {
                format!("{name} runs: leave away --gone, and its rows go to the others in order")
            }
            (Alive::Running { .. }, ..) | (_, true, _) => String::new(),
            // One that was stopped on its way is started again, and one that never came is just
            // forgotten.
            (Alive::Stopped | Alive::Absent, _, Some(State::Leaving | State::Joining)) => {
                String::new()
            }
            (Alive::Unreachable { why }, ..) => {
                format!("{name}: {why}; if its server never comes back: --gone")
            }
            _ => format!(
                "{name} does not run: `sprat rack up` starts it; if it never will again: --gone"
            ),
        };
        if !refused.is_empty() {
            return Err(Error::Refused(refused));
        }
        if self.gone
            && let Some(node) = self.seen()?.filter(|node| node.state.starts_with('U'))
        {
            let state = &node.state;
            return Err(Error::Refused(format!(
                "the others see {name} up ({state}), although it does not run: they notice within some seconds"
            )));
        }
        Ok(())
    }

    /// Has the instance leave the ring, and waits until it has. Returns false if the watcher
    /// stopped it.
    fn leave(&self, members: &mut Members, watcher: &mut dyn Watcher) -> Result<bool, Error> {
        let (name, folder) = (&self.instance.name, &self.deployment.folder);
        let program = self.instance.home.join("instance").display().to_string();
        let set_state = |members: &mut Members, state: State| {
            members
                .instances
                .get_mut(name)
                .expect("the plan has the instances of the ring")
                .state = state;
            members.write(folder)
        };
        if members.instances[name].state == State::Joining {
            // All its rows are still with others, who forget an instance that has not joined.
            if !matches!(self.alive(), Alive::Unreachable { .. }) {
                self.deployment
                    .ask(self.host, &format!("test ! -e {program} || {program} stop"))?;
            }
            return Ok(true);
        }
        set_state(members, State::Leaving)?;
        watcher.event(Event::Doing("its rows go to the others")).map_err(Error::Watcher)?;
        while let Some(node) = self.seen()? {
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
                // It is leaving already.
                (false, "UL") => {
                    pause(watcher)?;
                    continue;
                }
                (false, _) => (self.host, format!("{program} start && {program} wait")),
            };
            let Err(error) = self.deployment.ask(host, &command) else {
                pause(watcher)?;
                continue;
            };
            if watcher.is_stopped() {
                return Ok(false);
            }
            let why = error.to_string();
            match self.seen()? {
                Some(node) if self.gone && !why.contains("already") => {
                    return Err(Error::Refused(format!(
                        "{name} is {} to the others, and stays: {why}",
                        node.state
                    )));
                }
                // Cassandra refused: the instance is as it was.
                Some(node) if !self.gone && node.state == "UN" => {
                    set_state(members, State::Here)?;
                    return Err(Error::Refused(format!("{name} stays on the ring: {why}")));
                }
                Some(node) if !self.gone && node.state.starts_with('D') => {
                    let mend = "run it again to go on, or with --gone";
                    return Err(Error::Refused(format!("{name} is down: {why}; {mend}")));
                }
                _ => pause(watcher)?,
            }
        }
        Ok(true)
    }
}
