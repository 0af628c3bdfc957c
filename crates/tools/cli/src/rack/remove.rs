//! `rack remove`: instances leave the ring, and what they have goes to others first.

use crate::output::{print_json, print_line};
use crate::rack::add::{begun, interrupted, only, settle};
use crate::rack::rolling::{all, well};
use crate::rack::up::{Rack, RackPlace, show_task};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use sprat_plan::Plan;
use sprat_provision::ansible::playbook;
use sprat_provision::{Alive, Members, Node, State, survey};
use sprat_rack::{Host, Instance, hosts};
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack remove rack.toml c0-n4-i1                its rows go to the others, then it stops
  sprat rack remove rack.toml c0-n4                   all instances of a server
  sprat rack remove rack.toml c0-n4 --gone            its server is dead: the others make its rows anew from replicas
  sprat rack remove rack.toml c0-n4 --check

Who stays must be well, and enough for all replicas. What it had is kept on its server (HOME/kept-TIME), unless
--purge. It is not on the ring any more, whatever the description says: `up` leaves it alone, `add` with its name has
it come back. Safe to run again after an interruption: the same command goes on.")]
pub(crate) struct RackRemoveArgs {
    #[command(flatten)]
    place: RackPlace,

    /// The instance, or the server.
    name: String,

    /// It does not run and never will again: nothing is asked of it.
    #[arg(long)]
    gone: bool,

    /// Remove its data, once its rows are with others.
    #[arg(long)]
    purge: bool,

    /// Tell whether it may leave, and change nothing.
    #[arg(long)]
    check: bool,

    /// Print JSON: who left.
    #[arg(long)]
    json: bool,
}

/// How often others are asked whether somebody has left.
const LOOK: Duration = Duration::from_secs(1);

/// Instances that must stay for one to leave in order: Cassandra keeps tables of its own in three, and does not let go of them.
const OWN_REPLICAS: usize = 3;

pub(crate) fn remove(args: &RackRemoveArgs) -> Result<ExitCode> {
    let mut rack = Rack::new(&args.place)?;
    let _mine = rack.folder.lock()?;
    let mut members = begun(&rack)?;
    let all_hosts = hosts(&rack.plan);
    let belongs = |name: &str| {
        name == args.name || name.strip_prefix(args.name.as_str()).is_some_and(|rest| rest.starts_with("-i"))
    };
    let leaving = only(&all_hosts, |name| belongs(name));
    if leaving.is_empty() {
        let left: Vec<&String> = members.away.iter().filter(|name| belongs(name)).collect();
        match left.is_empty() {
            true => {
                bail!("{}: no server or instance on the ring is called that; `sprat rack status` names them", args.name)
            }
            false => return finish(args, &[], &format!("{} has left the ring already", args.name)),
        }
    }
    let stay = only(&all_hosts, |name| !belongs(name));
    for state in [State::Leaving, State::Joining] {
        if let Some(other) = members.in_state(state).find(|name| !belongs(name)) {
            let (what, goes_on) = if state == State::Leaving { ("leaving", "remove") } else { ("joining", "add") };
            bail!("{other} is {what}: `sprat rack {goes_on}` of it goes on with that; one after the other");
        }
    }
    well(&rack, &stay).context("nothing was done: who stays must be well (`sprat rack up` starts who does not run)")?;
    for (host, instance) in all(&leaving) {
        may_leave(
            &rack,
            &stay,
            host,
            instance,
            members.instances.get(&instance.name).map(|known| known.state),
            args.gone,
        )?;
    }
    let rest = enough(&rack, &members, &stay, &leaving, args.gone)?;
    let names: Vec<String> = all(&leaving).map(|(_, instance)| instance.name.clone()).collect();
    if args.check {
        return finish(args, &names, &format!("{} would leave the ring", names.join(", ")));
    }
    rack.folder.rewrite(&rack.plan)?;
    let signals = signals()?;
    let bar = ProgressBar::new_spinner();
    for (host, instance) in all(&leaving) {
        bar.set_prefix(instance.name.clone());
        if !leave(&rack, &mut members, &stay, (host, instance), args.gone, &signals, &bar)? {
            return interrupted(&bar, &format!("{} is leaving", instance.name));
        }
        let reached = !matches!(alive(&rack, host, instance), Alive::Unreachable { .. });
        if reached {
            let vars = format!("instance={} purge={}", instance.name, args.purge);
            playbook(
                &rack.folder,
                &rack.reach,
                "remove.yml",
                &["--limit", &host.name, "--extra-vars", &vars],
                &mut |line| show_task(&bar, line),
            )
            .with_context(|| format!("{} has left the ring; run it again to go on", instance.name))?;
        }
        members.instances.remove(&instance.name);
        members.unclean.remove(&instance.name);
        members.away.insert(instance.name.clone());
        members.write(&rack.folder)?;
        if !args.json {
            let data = match (reached, args.purge) {
                (false, _) => {
                    "its server cannot be reached: should it come back, remove what is there before it starts"
                }
                (true, true) => "its data is removed",
                (true, false) => "its data is kept beside it",
            };
            bar.suspend(|| print_line(&format!("{} has left the ring; {data}", instance.name)))?;
        }
    }
    rack.plan = Plan::new(members.adapt(rack.plan.spec.clone()))?;
    rack.folder.rewrite(&rack.plan)?;
    settle(&rack, &bar)?;
    bar.finish_and_clear();
    finish(args, &names, &format!("{} left, {rest} stay", names.len()))
}

/// How many instances stay, if that is enough.
fn enough(rack: &Rack, members: &Members, stay: &[Host], leaving: &[Host], gone: bool) -> Result<usize> {
    let (rest, replicas) = (all(stay).count(), rack.plan.spec.cassandra.as_ref().map_or(1, |asked| asked.replication));
    // One that never came has nothing that would have to go anywhere.
    let on_ring = |name: &String| members.instances.get(name).is_none_or(|known| known.state != State::Joining);
    if !all(leaving).any(|(_, instance)| on_ring(&instance.name)) {
        return Ok(rest);
    }
    if rest < replicas {
        bail!("{rest} instances would stay, and rows have {replicas} replicas: add one before (`sprat rack add`)");
    }
    if rest < OWN_REPLICAS && !gone {
        bail!(
            "{rest} instances would stay, and Cassandra keeps tables of its own in {OWN_REPLICAS}, which it does not let go of: add one before \
             (`sprat rack add`)"
        );
    }
    let mut without = members.clone();
    all(leaving).for_each(|(_, instance)| drop(without.instances.remove(&instance.name)));
    Plan::new(without.adapt(rack.plan.spec.clone())).context("who would stay is no plan")?;
    Ok(rest)
}

/// An instance as others see it.
fn seen(rack: &Rack, stay: &[Host], instance: &Instance) -> Result<Option<Node>> {
    let address = instance.address.to_string();
    Ok(rack.look(stay, |_| true)?.1.into_iter().find(|node| node.address == address))
}

/// Whether it runs, by its own host.
fn alive(rack: &Rack, host: &Host, instance: &Instance) -> Alive {
    let alone = only(std::slice::from_ref(host), |name| *name == instance.name);
    let seen = survey(&rack.reach, &rack.plan.spec.provision.user, &alone);
    seen.into_iter().next().map_or(Alive::Stopped, |seen| seen.alive)
}

/// See that an instance is as it must be for the way in which it is to leave.
fn may_leave(
    rack: &Rack,
    stay: &[Host],
    host: &Host,
    instance: &Instance,
    state: Option<State>,
    gone: bool,
) -> Result<()> {
    let (name, alive) = (&instance.name, alive(rack, host, instance));
    match (&alive, gone, state) {
        (Alive::Running { .. }, true, Some(State::Here)) => {
            bail!("{name} runs: leave away --gone, and its rows go to the others in order")
        }
        (Alive::Running { .. }, ..) | (_, true, _) => {}
        // One that was stopped on its way is started again, and one that never came is just forgotten.
        (Alive::Stopped | Alive::Absent, _, Some(State::Leaving | State::Joining)) => {}
        (Alive::Unreachable { why }, ..) => bail!("{name}: {why}; if its server never comes back: --gone"),
        _ => bail!("{name} does not run: `sprat rack up` starts it; if it never will again: --gone"),
    }
    if gone && let Some(node) = seen(rack, stay, instance)?.filter(|node| node.state.starts_with('U')) {
        bail!("the others see {name} up ({}), although it does not run: they notice within some seconds", node.state);
    }
    Ok(())
}

/// Has an instance leave the ring, and waits until it has; false: interrupted.
fn leave(
    rack: &Rack,
    members: &mut Members,
    stay: &[Host],
    (host, instance): (&Host, &Instance),
    gone: bool,
    signals: &Receiver<()>,
    bar: &ProgressBar,
) -> Result<bool> {
    let name = &instance.name;
    let program = instance.home.join("instance").display().to_string();
    let nodetool = instance.home.join("nodetool").display().to_string();
    let known = members.instances.get_mut(name).context("it is on the ring")?;
    if known.state == State::Joining {
        // It has no rows yet that nobody else has; who does not come any more is forgotten by the others.
        if !matches!(alive(rack, host, instance), Alive::Unreachable { .. }) {
            rack.ask(host, &format!("test ! -e {program} || {program} stop"))?;
        }
        return Ok(true);
    }
    known.state = State::Leaving;
    members.write(&rack.folder)?;
    bar.set_message("its rows go to the others");
    while let Some(node) = seen(rack, stay, instance)? {
        bar.tick();
        if signals.try_recv().is_ok() {
            return Ok(false);
        }
        let (by, command) = match (gone, node.state.as_str()) {
            (true, _) => {
                let (by, other) = all(stay).next().context("somebody stays")?;
                (by, format!("{}/nodetool removenode {} 1>&2", other.home.display(), node.id))
            }
            (false, "UN") => (host, format!("{nodetool} decommission 1>&2")),
            // It is on its way.
            (false, "UL") => {
                pause();
                continue;
            }
            (false, _) => (host, format!("{program} start && {program} wait")),
        };
        let Err(error) = rack.ask(by, &command) else {
            pause();
            continue;
        };
        if signals.try_recv().is_ok() {
            return Ok(false);
        }
        let (now, why) = (seen(rack, stay, instance)?, format!("{error:#}"));
        match now {
            Some(node) if gone && !why.contains("already") => {
                bail!("{name} is {} to the others, and stays: {why}", node.state)
            }
            // Refused: it is as it was.
            Some(node) if !gone && node.state == "UN" => {
                if let Some(known) = members.instances.get_mut(name) {
                    known.state = State::Here;
                }
                members.write(&rack.folder)?;
                bail!("{name} stays on the ring: {why}");
            }
            Some(node) if !gone && node.state.starts_with('D') => {
                bail!("{name} is down: {why}; run it again to go on, or with --gone")
            }
            _ => pause(),
        }
    }
    Ok(true)
}

fn pause() {
    #[expect(clippy::disallowed_methods, reason = "a command waits by sleeping")]
    std::thread::sleep(LOOK);
}

fn finish(args: &RackRemoveArgs, names: &[String], line: &str) -> Result<ExitCode> {
    match args.json {
        true => print_json(&json!({ "check": args.check, "left": names }))?,
        false => print_line(line)?,
    }
    Ok(ExitCode::SUCCESS)
}
