//! `rack add`: instances that the description has and the ring lacks come to it, one after the other.

use crate::exit::INCOMPLETE;
use crate::output::{print_json, print_line};
use crate::rack::rolling::{all, wait, well};
use crate::rack::up::{Rack, RackPlace, show_task};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use sprat_plan::Plan;
use sprat_plan::quantity::digits;
use sprat_provision::ansible::playbook;
use sprat_provision::{Alive, Members, State, survey};
use sprat_rack::{Host, Instance, hosts};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack add rack.toml --jars lib                 all that the description has and the ring lacks
  sprat rack add rack.toml c0-n4 --jars lib           this server's instances, also if they have left before
  sprat rack add rack.toml --jars lib --check         who would come, with which share of rows

Say in the description what there is now: more servers of a chassis, more chassis. Who is on the ring keeps its
tokens; those of newcomers are fitted in between. Each in turn is brought to its server, fetches its rows from the others, and
must be seen by all before the next one; then the others remove what is theirs no more (nodetool cleanup), one at a
time. All must be well before, as for `rolling`. Ctrl-C ends it between two steps: the same command goes on, and
what fetches its rows meanwhile goes on by itself.")]
pub(crate) struct RackAddArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Servers or instances; without any, all that were never there.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,

    /// Tell who would come, and change nothing.
    #[arg(long)]
    check: bool,

    /// Print JSON: who came, and who was cleaned up.
    #[arg(long)]
    json: bool,
}

/// How long an instance is waited for before it is asked whether it still runs, seconds.
const GLANCE: u32 = 10;

/// Who comes, or came.
#[derive(Debug, Serialize)]
struct Newcomer {
    name: String,
    address: IpAddr,
    tokens: Vec<i64>,
    /// Of all rows, each counted once.
    share: f64,
}

pub(crate) fn add(args: &RackAddArgs) -> Result<ExitCode> {
    let mut rack = Rack::new(&args.place)?;
    let _mine = rack.folder.lock()?;
    rack.nobody_leaves()?;
    let mut members = begun(&rack)?;
    let names = chosen(&members, &rack, &args.names)?;
    rack.plan = members.joined_by(&rack.plan.spec, &names)?;
    let coming: Vec<String> = members.in_state(State::Joining).cloned().collect();
    let newcomers = told(&rack.plan, &coming);
    let there = only(&hosts(&rack.plan), |name| !coming.contains(name));
    if coming.is_empty() && members.unclean.is_empty() {
        return finish(args, &newcomers, &[], &["all that the description has are on the ring, or have left it"]);
    }
    if args.check {
        let lines: Vec<String> = newcomers.iter().map(|one| line(one, "would join")).collect();
        return finish(args, &newcomers, &[], &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if !coming.is_empty() {
        well(&rack, &there).context(
            "nothing was done: all must be well before anybody joins (`sprat rack up` starts who does not run)",
        )?;
    }
    let all_hosts = rack.folder.write(&rack.plan, &std::path::absolute(&args.jars)?)?;
    members.write(&rack.folder)?; // before anybody has begun with these tokens
    if let Some(local) = &rack.local {
        local.grow(&rack.plan, &all_hosts)?;
    }
    let signals = signals()?;
    let bar = ProgressBar::new_spinner();
    let mut newly = coming.clone();
    for (at, name) in coming.iter().enumerate() {
        bar.set_prefix(name.clone());
        if !join(&rack, &all_hosts, name, &signals, &bar)? {
            return interrupted(&bar, &format!("{at} of {} have joined", coming.len()));
        }
        newly.retain(|other| other != name);
        wait(&rack, &only(&all_hosts, |other| !newly.iter().any(|one| one == other)), &bar)
            .with_context(|| format!("{name} has joined, and not all is well"))?;
        members.unclean.extend(members.in_state(State::Here).cloned().collect::<Vec<_>>());
        if let Some(known) = members.instances.get_mut(name) {
            known.state = State::Here;
            known.begun = true;
        }
        members.write(&rack.folder)?;
        if !args.json {
            let came = newcomers.iter().find(|one| one.name == *name).map(|one| line(one, "joined"));
            bar.suspend(|| came.map_or(Ok(()), |came| print_line(&came)))?;
        }
    }
    settle(&rack, &bar)?;
    let mut cleaned = Vec::new();
    for (host, instance) in all(&all_hosts) {
        if !members.unclean.contains(&instance.name) {
            continue;
        }
        if signals.try_recv().is_ok() {
            return interrupted(&bar, &format!("{} still have rows that went to others", members.unclean.len()));
        }
        bar.set_message(format!("{} removes what is its own no more", instance.name));
        bar.tick();
        let cleanup = rack.ask(host, &format!("{}/nodetool cleanup 1>&2", instance.home.display()));
        if cleanup.is_err() && signals.try_recv().is_ok() {
            return interrupted(&bar, &format!("{} still have rows that went to others", members.unclean.len()));
        }
        cleanup.with_context(|| format!("{} could not be cleaned up; run it again to go on", instance.name))?;
        members.unclean.remove(&instance.name);
        members.write(&rack.folder)?;
        cleaned.push(instance.name.clone());
    }
    members.unclean.clear(); // what is left there has left the ring
    members.write(&rack.folder)?;
    bar.finish_and_clear();
    finish(args, &newcomers, &cleaned, &[&format!("{} joined, {} cleaned up", newcomers.len(), cleaned.len())])
}

/// Who is on the ring.
pub(super) fn begun(rack: &Rack) -> Result<Members> {
    if rack.plan.spec.cassandra.is_none() {
        bail!("the description has no [cassandra], and so no ring");
    }
    rack.members.clone().context("nobody is on a ring of this rack yet: `sprat rack up` begins one")
}

/// Some of the hosts' instances, and hosts that have any of them.
pub(super) fn only(hosts: &[Host], belongs: impl Fn(&String) -> bool) -> Vec<Host> {
    let part = |host: &Host| {
        let instances: Vec<Instance> = host.instances.iter().filter(|one| belongs(&one.name)).cloned().collect();
        (!instances.is_empty()).then(|| Host { instances, ..host.clone() })
    };
    hosts.iter().filter_map(part).collect()
}

/// All is as the plan has it now, on those who were there before too: names, and what else follows from who is there.
pub(super) fn settle(rack: &Rack, bar: &ProgressBar) -> Result<()> {
    playbook(&rack.folder, &rack.reach, "site.yml", &[], &mut |line| show_task(bar, line))
        .map(drop)
        .context("the ring is as it should be; the rest is not, `sprat rack up` goes on with that")
}

pub(super) fn interrupted(bar: &ProgressBar, what: &str) -> Result<ExitCode> {
    bar.finish_and_clear();
    eprintln!("sprat: stopped, {what}; run it again to go on");
    Ok(ExitCode::from(INCOMPLETE))
}

/// Whom names mean, of those that are not on the ring; without names all that were never there.
fn chosen(members: &Members, rack: &Rack, names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(members.newcomers(&rack.plan.spec)?);
    }
    let anybody = Members { away: Default::default(), ..members.clone() }.newcomers(&rack.plan.spec)?;
    let mut found = Vec::new();
    for name in names {
        let is =
            |one: &&String| *one == name || one.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with("-i"));
        let before = found.len();
        found.extend(anybody.iter().filter(is).cloned());
        if found.len() == before && !members.instances.keys().any(|one| is(&one)) {
            bail!(
                "{name}: no server or instance of the description is called that; `sprat rack plan --write` names them"
            );
        }
    }
    Ok(found)
}

/// What is told of instances.
fn told(plan: &Plan, names: &[String]) -> Vec<Newcomer> {
    let shares = plan.ring.as_ref().map_or_else(Vec::new, |ring| {
        let mut shares = vec![0.0; ring.instances.len()];
        (0..ring.tokens.len()).for_each(|token| shares[ring.tokens[token].instance] += ring.share(token));
        shares
    });
    let hosts = hosts(plan);
    let newcomer = |(_, instance): (&Host, &Instance), share: f64| Newcomer {
        name: instance.name.clone(),
        address: instance.address,
        tokens: instance.tokens.clone(),
        share,
    };
    let all = all(&hosts).zip(shares).map(|(one, share)| newcomer(one, share));
    all.filter(|one| names.contains(&one.name)).collect()
}

fn line(one: &Newcomer, what: &str) -> String {
    format!(
        "{} {what} as {}, with {} tokens and {} % of all rows",
        one.name,
        one.address,
        one.tokens.len(),
        digits(one.share * 100.0)
    )
}

/// Brings an instance to its server, starts it, and waits until it has fetched its rows; false: interrupted.
fn join(rack: &Rack, hosts: &[Host], name: &str, signals: &Receiver<()>, bar: &ProgressBar) -> Result<bool> {
    let (host, instance) = all(hosts).find(|(_, one)| one.name == name).context("it is in the plan")?;
    let limit = format!("{},{}", hosts[0].name, host.name); // clocks are compared with the first's
    let vars = format!("instance={name} host={}", host.name);
    playbook(&rack.folder, &rack.reach, "add.yml", &["--limit", &limit, "--extra-vars", &vars], &mut |line| {
        show_task(bar, line)
    })?;
    bar.set_message("fetches its rows from the others");
    loop {
        bar.tick();
        let answer = rack.ask(host, &format!("PATIENCE={GLANCE} {}/instance wait", instance.home.display()));
        if signals.try_recv().is_ok() {
            return Ok(false);
        }
        let Err(error) = answer else { return Ok(true) };
        let alone = only(std::slice::from_ref(host), |one| one == name);
        let seen = survey(&rack.reach, &rack.plan.spec.provision.user, &alone);
        if !matches!(seen.first().map(|seen| &seen.alive), Some(Alive::Running { .. })) {
            return Err(error.context(format!("{name} has not joined; run it again to go on")));
        }
    }
}

fn finish(args: &RackAddArgs, newcomers: &[Newcomer], cleaned: &[String], lines: &[&str]) -> Result<ExitCode> {
    match args.json {
        true => print_json(&json!({ "check": args.check, "joined": newcomers, "cleaned": cleaned }))?,
        false => lines.iter().try_for_each(|line| print_line(line))?,
    }
    Ok(ExitCode::SUCCESS)
}
