//! `rack rolling`.

use crate::exit::INCOMPLETE;
use crate::output::print_line;
use crate::rack::up::{Rack, RackPlace, show_task};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use sprat_provision::ansible::playbook;
use sprat_provision::{Alive, schemas, survey};
use sprat_rack::{Host, Instance};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack rolling config rack.toml --jars lib      bring changed settings to who has others, one at a time
  sprat rack rolling upgrade rack.toml --jars new     the same with other jars, and their files written anew
  sprat rack rolling restart rack.toml --jars lib
  sprat rack rolling config rack.toml --jars lib --check

Each instance in turn: all others must be up and agree on the schema; it writes down what it has in memory, stops, is given its
files, starts, and the others must see it before the next one. Ctrl-C ends it after the present one. Safe to
run again: `config` and `upgrade` pass over who has its files already. Jars of several versions lie beside each
other on servers: the way back is `upgrade` with the old ones, as long as Cassandra reads what the new one wrote.")]
pub(crate) struct RackRollingArgs {
    /// What to do.
    what: RollingArg,

    #[command(flatten)]
    place: RackPlace,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,

    /// Only these: names of servers or instances, with commas between.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    limit: Vec<String>,

    /// Tell what would change, and change nothing.
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum RollingArg {
    /// Stop each and start it.
    Restart,
    /// Start those anew whose settings are others than before.
    Config,
    /// Start those anew whose jars are others than before, and have all write their tables in the new form.
    Upgrade,
}

/// How long all may take to see that an instance is up again, and to agree on the schema; and how often they are asked.
const PATIENCE: Duration = Duration::from_secs(180);

const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn rolling(args: &RackRollingArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    let _mine = rack.folder.lock()?;
    rack.nobody_leaves()?;
    let hosts = rack.folder.write(&rack.plan, &std::path::absolute(&args.jars)?)?;
    let chosen = chosen(&hosts, &args.limit)?;
    let signals = signals()?;
    let bar = ProgressBar::new_spinner();
    if !args.check {
        well(&rack, &hosts)
            .context("nothing was done: all must be well before one stops (`sprat rack up` starts who does not run)")?;
    }
    let mut done = 0;
    for (at, (host, instance)) in chosen.iter().enumerate() {
        if signals.try_recv().is_ok() {
            bar.finish_and_clear();
            eprintln!("sprat: stopped after {at} of {}; run it again to go on", chosen.len());
            return Ok(ExitCode::from(INCOMPLETE));
        }
        bar.set_prefix(format!("{}/{} {}", at + 1, chosen.len(), instance.name));
        let forced = args.what == RollingArg::Restart;
        let began_anew = step(&rack, host, instance, forced, args.check, &bar)?;
        if began_anew && !args.check {
            wait(&rack, &hosts, &bar).with_context(|| {
                format!("{} of {} are done; {} began anew and is not well", at, chosen.len(), instance.name)
            })?;
        }
        done += usize::from(began_anew);
        let became = match (began_anew, args.check) {
            (true, false) => "began anew",
            (true, true) => "would begin anew",
            (false, _) => "is as it should be",
        };
        bar.suspend(|| print_line(&format!("{} {became}", instance.name)))?;
    }
    if args.what == RollingArg::Upgrade && !args.check {
        for (host, instance) in &chosen {
            bar.set_message(format!("{} writes its tables anew", instance.name));
            rack.ask(host, &format!("{}/nodetool upgradesstables", instance.home.display()))?;
        }
    }
    bar.finish_and_clear();
    print_line(&format!("{done} of {} {}", chosen.len(), if args.check { "would begin anew" } else { "began anew" }))?;
    Ok(ExitCode::SUCCESS)
}

/// Brings an instance its files, and starts it anew if they are others than before, or if `forced`. Whether it did.
pub(super) fn step(
    rack: &Rack,
    host: &Host,
    instance: &Instance,
    forced: bool,
    check: bool,
    bar: &ProgressBar,
) -> Result<bool> {
    let vars = format!("instance={} forced={forced}", instance.name);
    let mut more = vec!["--limit", &host.name, "--extra-vars", &vars];
    if check {
        more.extend(["--check", "--diff"]);
    }
    let mut line = |line: &str| {
        show_task(bar, line);
        if check && line.starts_with(['+', '-', '@']) {
            bar.suspend(|| _ = print_line(line));
        }
    };
    let recaps = playbook(&rack.folder, &rack.reach, "rolling.yml", &more, &mut line)?;
    Ok(recaps.iter().any(|recap| recap.changed > 0))
}

/// Instances by names of servers or their own, in the plan's order; all of them without names.
fn chosen<'a>(hosts: &'a [Host], names: &[String]) -> Result<Vec<(&'a Host, &'a Instance)>> {
    let is = |name: &String, (host, instance): (&Host, &Instance)| host.name == *name || instance.name == *name;
    for name in names {
        if !all(hosts).any(|one| is(name, one)) {
            bail!("--limit {name}: no server or instance is called that; `sprat rack status` names them");
        }
    }
    Ok(all(hosts).filter(|one| names.is_empty() || names.iter().any(|name| is(name, *one))).collect())
}

pub(super) fn all(hosts: &[Host]) -> impl Iterator<Item = (&Host, &Instance)> {
    hosts.iter().flat_map(|host| host.instances.iter().map(move |instance| (host, instance)))
}

/// Waits until all are well.
pub(super) fn wait(rack: &Rack, hosts: &[Host], bar: &ProgressBar) -> Result<()> {
    let begun = Instant::now();
    bar.set_message("waiting until all others see it");
    loop {
        match well(rack, hosts) {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(error.context(format!("waited for {} s", PATIENCE.as_secs())));
            }
            Err(_) => bar.tick(),
        }
        #[expect(clippy::disallowed_methods, reason = "a command waits by sleeping")]
        std::thread::sleep(LOOK);
    }
}

/// All instances run, are up and normal, and agree on the schema.
pub(super) fn well(rack: &Rack, hosts: &[Host]) -> Result<()> {
    let seen = survey(&rack.reach, &rack.plan.spec.provision.user, hosts);
    for one in &seen {
        match &one.alive {
            Alive::Running { .. } => {}
            Alive::Stopped => bail!("{} does not run", one.instance),
            Alive::Absent => bail!("{} was never brought there", one.instance),
            Alive::Unreachable { why } => bail!("{}: {why}", one.instance),
        }
    }
    let (by, nodes) = rack.look(hosts, |_| true)?;
    for instance in hosts.iter().flat_map(|host| &host.instances) {
        let address = instance.address.to_string();
        let state = nodes.iter().find(|node| node.address == address).map_or("unknown", |node| node.state.as_str());
        if state != "UN" {
            bail!("{} is {state} to {by}, not UN: up and normal", instance.name);
        }
    }
    let Some((host, instance)) = all(hosts).next() else { return Ok(()) };
    let ours = |(_, who): &(String, Vec<String>)| {
        who.iter().any(|address| all(hosts).any(|(_, instance)| instance.address.to_string() == *address))
    };
    let mut versions = schemas(&rack.ask(host, &format!("{}/nodetool describecluster", instance.home.display()))?);
    versions.retain(ours);
    if versions.len() > 1 {
        let told: Vec<_> = versions.iter().map(|(version, who)| format!("{version}: {}", who.join(", "))).collect();
        bail!("instances do not agree on the schema: {}", told.join("; "));
    }
    Ok(())
}
