//! `rack up`, `status` and `down`.

use crate::exit::INCOMPLETE;
use crate::output::{print_json, print_line};
use crate::rack::plan::read;
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use signal_hook::consts::SIGINT;
use sprat_measure::table::Table;
use sprat_plan::{Plan, Spec};
use sprat_provision::ansible::{Reach, playbook};
use sprat_provision::{Alive, Folder, Local, Members, Node, Seen, State, nodes, survey, survey_services};
use sprat_rack::{Host, Instance, hosts};
use sprat_tune::Overlay;
use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args, Clone, Debug)]
pub(crate) struct RackPlace {
    /// A file, or a rack that comes with the program.
    pub(super) rack: String,

    /// Hosts are made on this machine, as namespaces with an ssh server each. Needs root.
    #[arg(long, group = "here")]
    local: bool,

    /// Hosts are made on this machine, as guests with a kernel, disks and a clock each (User-Mode Linux). Needs root.
    #[arg(long, group = "here")]
    guests: bool,

    /// The folder with all of the rack: inventory, files, keys, data of hosts on this machine [default: below
    /// $XDG_STATE_HOME/sprat/racks or ~/.local/state/sprat/racks, by the rack's name].
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,

    /// The folder into which pip put Ansible with --target; else ansible-playbook is looked for on the path.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_ANSIBLE")]
    ansible: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack up rack.toml --jars lib                  on its servers, over ssh
  sprat rack up rack.toml --jars lib --check          what would change, and nothing is
  sprat rack up three.toml --local --jars lib         on this machine
  sprat rack up three.toml --guests --jars lib        there, each server with a kernel and disks of its own
  sprat rack up rack.toml --jars lib --limit c0-n3    one server

Safe to run again: what is right is left alone, what is missing is made, who does not run is started.
Servers need ssh, Python 3 and, unless Java 17 is there, Debian's packages; this machine needs Ansible
(ansible-core). Jars of Cassandra 5: deploy/cassandra/pom.xml names them, Maven fetches them.")]
pub(crate) struct RackUpArgs {
    #[command(flatten)]
    place: RackPlace,

    /// The folder with Cassandra's jars on this machine, where the description has Cassandra.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: Option<PathBuf>,

    /// Tell what would change, and change nothing.
    #[arg(long)]
    check: bool,

    /// Only these servers: names, with commas between.
    #[arg(long, value_name = "NAMES")]
    limit: Option<String>,

    /// Print JSON: what was changed, by server.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack replace rack.toml c0-n3-i1 --jars lib
  sprat rack replace three.toml c0-n2-i1 --local --jars lib

For an instance whose disks or server are new, or whose data is not to be trusted. It is stopped, what it had is
kept beside it (HOME/kept-TIME), and it fetches from the others what it should have. They must see that it is down,
which takes them some seconds; it is waited for that.")]
pub(crate) struct RackReplaceArgs {
    #[command(flatten)]
    place: RackPlace,

    /// The instance, by its name in `sprat rack status`.
    instance: String,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack status rack.toml
  sprat rack status three.toml --local --json")]
pub(crate) struct RackStatusArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack down rack.toml               instances stop, data stays
  sprat rack down three.toml --local      and the hosts are gone
  sprat rack down three.toml --local --purge")]
pub(crate) struct RackDownArgs {
    #[command(flatten)]
    place: RackPlace,

    /// With --local or --guests: remove the rack's folder too, data and all.
    #[arg(long, requires = "here")]
    purge: bool,
}

/// How long the others may take to see that an instance is down, and how often they are asked.
const DOWN_PATIENCE: Duration = Duration::from_secs(120);

const LOOK: Duration = Duration::from_secs(1);

/// A rack, and where it is.
pub(super) struct Rack {
    pub(super) plan: Plan,
    /// What is described, without what tuning found.
    pub(super) described: Spec,
    pub(super) folder: Folder,
    pub(super) local: Option<Local>,
    /// Who is on its ring; none: nobody was brought there yet.
    pub(super) members: Option<Members>,
    pub(super) reach: Reach,
}

impl Rack {
    pub(super) fn new(place: &RackPlace) -> Result<Self> {
        let mut spec = read(&place.rack)?;
        let path = match &place.state {
            Some(path) => std::path::absolute(path)?,
            None => state()?.join(&spec.name),
        };
        let folder = Folder::at(path);
        let local = match (place.local, place.guests) {
            (true, _) => Some(Local::new(&folder)),
            (_, true) => Some(Local::of_guests(&folder, images()?)),
            (false, false) => None,
        };
        let mut reach = Reach::default();
        if let Some(local) = &local {
            reach = local.reach(&spec.name);
            spec = local.adapt(spec);
        }
        reach.ansible.clone_from(&place.ansible);
        let members = Members::read(&folder)?;
        if let Some(members) = &members {
            spec = members.adapt(spec);
        }
        let plan = Plan::new(Overlay::read(folder.path())?.adapt(spec.clone())).with_context(|| place.rack.clone())?;
        if let Some(members) = &members {
            members.check(&plan)?;
        }
        Ok(Self { plan, described: spec, folder, local, members, reach })
    }

    /// Does something where the hosts are neighbours. Threads that are started there stay there.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let Some(name) = &self.reach.namespace else { return Ok(work()) };
        let path = format!("/run/netns/{name}");
        let namespace =
            File::open(&path).with_context(|| format!("{path}: `sprat rack up --local` makes the hosts"))?;
        Ok(sprat_lab::hosts::within(namespace, work)?)
    }

    /// Has Ctrl-C and SIGTERM end the play that runs, and then the command. A play left to itself would go on changing
    /// hosts.
    fn end_on_signals(&self) -> Result<()> {
        let (signals, interrupt) = (signals()?, self.reach.interrupt.clone());
        let wait = move || {
            if signals.recv().is_ok() && !interrupt.end() {
                let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
            }
        };
        std::thread::Builder::new().name("sprat-interrupt".into()).spawn(wait).context("cannot start a thread")?;
        Ok(())
    }

    /// Remembers who runs, so that none of them is started without its rows.
    fn remember_begun(&self, hosts: &[Host]) -> Result<()> {
        let Some(mut members) = Members::read(&self.folder)? else { return Ok(()) };
        if members.begun(&survey(&self.reach, &self.plan.spec.provision.user, hosts)) {
            members.write(&self.folder)?;
        }
        Ok(())
    }

    /// See that nobody leaves the ring just now: who is to leave is not to be started again.
    pub(super) fn nobody_leaves(&self) -> Result<()> {
        let leaving = self.members.as_ref().and_then(|members| members.in_state(State::Leaving).next());
        match leaving {
            Some(name) => bail!("{name} is leaving the ring: `sprat rack remove` of it goes on with that"),
            None => Ok(()),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.plan.spec.name
    }

    /// The cluster as the first instance sees it that answers, of those that may be asked; and who that is.
    pub(super) fn look(&self, hosts: &[Host], may: impl Fn(&Instance) -> bool) -> Result<(String, Vec<Node>)> {
        let mut why = None;
        for host in hosts {
            for instance in host.instances.iter().filter(|instance| may(instance)) {
                match self.ask(host, &format!("{}/nodetool status", instance.home.display())) {
                    Ok(text) => return Ok((instance.name.clone(), nodes(&text))),
                    Err(error) => _ = why.get_or_insert_with(|| format!("{}: {error}", instance.name)),
                }
            }
        }
        bail!("no instance answers: {}", why.as_deref().unwrap_or("the plan has none"))
    }

    pub(super) fn ask(&self, host: &Host, command: &str) -> Result<String> {
        Ok(self.reach.ask(&self.plan.spec.provision.user, &host.address.0.to_string(), command)?)
    }
}

fn state() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("no HOME: name a folder with --state")?.join("sprat/racks"))
}

/// Where what guests start from is kept, for all racks.
fn images() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("no HOME: set XDG_CACHE_HOME to a folder for the guests' image")?.join("sprat/guests"))
}

pub(crate) fn up(args: &RackUpArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    rack.end_on_signals()?;
    let _mine = rack.folder.lock()?;
    rack.nobody_leaves()?;
    let jars = match (&args.jars, rack.plan.ring.is_some()) {
        (Some(jars), _) => std::path::absolute(jars)?,
        (None, true) => bail!("the description has Cassandra: name the folder with its jars (--jars, SPRAT_CASSANDRA)"),
        (None, false) => PathBuf::new(),
    };
    let hosts = rack.folder.write(&rack.plan, &jars)?;
    match &rack.local {
        Some(local) if local.stands(rack.name()) => local.grow(&rack.plan, &hosts)?,
        Some(local) => local.up(&rack.plan, &hosts)?,
        None => {}
    }
    match &rack.members {
        None if args.check || rack.plan.ring.is_none() => {}
        None => Members::founding(&hosts).write(&rack.folder)?, // before anybody has begun with these tokens
        Some(members) => {
            for name in members.newcomers(&rack.plan.spec)? {
                eprintln!("sprat: {name} is not on the ring: `sprat rack add` brings it there");
            }
        }
    }
    let mut more = Vec::new();
    if args.check {
        more.extend(["--check", "--diff"]);
    }
    if let Some(names) = &args.limit {
        more.extend(["--limit", names]);
    }
    let bar = ProgressBar::new_spinner();
    let mut line = |line: &str| {
        // What is told of differences is for whoever asked; else the task that runs will do.
        if args.check && !args.json {
            let _ = print_line(line);
        } else {
            show_task(&bar, line);
        }
    };
    let recaps = playbook(&rack.folder, &rack.reach, "site.yml", &more, &mut line);
    bar.finish_and_clear();
    if !args.check {
        rack.remember_begun(&hosts)?; // who was started has rows, whatever became of the rest
    }
    let recaps = recaps?;
    if args.json {
        print_json(&serde_json::to_value(&recaps)?)?;
    } else {
        for recap in &recaps {
            print_line(&format!("{:<12} {} right, of which {} changed", recap.host, recap.ok, recap.changed))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows which task runs.
pub(super) fn show_task(bar: &ProgressBar, line: &str) {
    if let Some(task) = line.strip_prefix("TASK [") {
        bar.set_message(task.trim_end_matches(['*', ' ', ']']).to_owned());
        bar.tick();
    }
}

pub(crate) fn status(args: &RackStatusArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    let hosts = hosts(&rack.plan);
    let alive = survey(&rack.reach, &rack.plan.spec.provision.user, &hosts);
    // Who does not run cannot tell of others.
    let running: Vec<&str> = alive.iter().filter(|seen| is_running(seen)).map(|seen| seen.instance.as_str()).collect();
    let (by, seen) = match running.is_empty() {
        true => (None, Vec::new()),
        false => {
            let (by, seen) = rack.look(&hosts, |instance| running.contains(&instance.name.as_str()))?;
            (Some(by), seen)
        }
    };
    let all: Vec<Line<'_>> = hosts
        .iter()
        .flat_map(|host| &host.instances)
        .zip(&alive)
        .map(|(instance, seen_here)| {
            let address = instance.address.to_string();
            let node = seen.iter().find(|node| node.address == address);
            Line { name: &instance.name, address, alive: &seen_here.alive, node }
        })
        .collect();
    let user = &rack.plan.spec.provision.user;
    let services = survey_services(&rack.reach, user, &hosts);
    let services: Vec<Served<'_>> = hosts
        .iter()
        .flat_map(|host| &host.services)
        .zip(&services)
        .map(|(service, seen)| Served {
            name: &service.name,
            kind: service.kind,
            address: service.address,
            alive: &seen.alive,
        })
        .collect();
    if args.json {
        print_json(&json!({ "seen-by": by, "instances": all, "services": services }))?;
    } else {
        let mut table = Table::new(&["instance", "address", "process", "state", "load", "tokens", "rack"]);
        for line in &all {
            let told = |of: &dyn Fn(&Node) -> String| line.node.map_or("-".to_owned(), of);
            let process = process(line.alive);
            table.row(vec![
                line.name.to_owned(),
                line.address.clone(),
                process,
                told(&|node| node.state.clone()),
                told(&|node| node.load.clone()),
                told(&|node| node.tokens.to_string()),
                told(&|node| node.rack.clone()),
            ]);
        }
        if !all.is_empty() {
            print_line(table.to_string().trim_end())?;
        }
        match &by {
            Some(by) => print_line(&format!("state as {by} sees it; who has just died is UN for some seconds"))?,
            None if all.is_empty() => {}
            None => print_line("no instance runs")?,
        }
        if !services.is_empty() {
            let mut table = Table::new(&["service", "kind", "address", "process"]);
            for served in &services {
                let (name, kind) = (served.name.to_owned(), served.kind.to_owned());
                table.row(vec![name, kind, served.address.to_string(), process(served.alive)]);
            }
            print_line(table.to_string().trim_end())?;
        }
        for line in &all {
            if let Alive::Unreachable { why } = line.alive {
                print_line(&format!("{}: {why}", line.name))?;
            }
        }
    }
    let well = |line: &Line<'_>| {
        matches!(line.alive, Alive::Running { .. }) && line.node.is_some_and(|node| node.state == "UN")
    };
    let serves = |served: &Served<'_>| matches!(served.alive, Alive::Running { .. });
    Ok(if all.iter().all(well) && services.iter().all(serves) { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

/// An instance, as its host and as another one sees it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    address: String,
    #[serde(flatten)]
    alive: &'a Alive,
    node: Option<&'a Node>,
}

/// Of etcd and Sprat one, as its host sees it.
#[derive(Debug, Serialize)]
struct Served<'a> {
    name: &'a str,
    kind: &'static str,
    address: IpAddr,
    #[serde(flatten)]
    alive: &'a Alive,
}

fn process(alive: &Alive) -> String {
    match alive {
        Alive::Running { pid } => pid.to_string(),
        Alive::Stopped => "not running".to_owned(),
        Alive::Absent => "never brought".to_owned(),
        Alive::Unreachable { .. } => "unreachable".to_owned(),
    }
}

fn is_running(seen: &Seen) -> bool {
    matches!(seen.alive, Alive::Running { .. })
}

pub(crate) fn replace(args: &RackReplaceArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    rack.end_on_signals()?;
    let _mine = rack.folder.lock()?;
    rack.nobody_leaves()?;
    let hosts = rack.folder.write(&rack.plan, &std::path::absolute(&args.jars)?)?;
    let all = hosts.iter().flat_map(|host| host.instances.iter().map(move |instance| (host, instance)));
    let Some((host, instance)) = all.into_iter().find(|(_, instance)| instance.name == args.instance) else {
        bail!("no instance {:?}: `sprat rack status` names them", args.instance);
    };
    rack.folder.replacing(instance)?;
    // It may run: then it is stopped, or nobody would see it down. A server that is new has nothing to stop.
    let program = format!("{}/instance", instance.home.display());
    rack.ask(host, &format!("test ! -e {program} || {program} stop"))?;
    let begun = Instant::now();
    let address = instance.address.to_string();
    let bar = ProgressBar::new_spinner();
    bar.set_message("waiting until the others see that it is down");
    while rack
        .look(&hosts, |other| other.name != instance.name)?
        .1
        .iter()
        .any(|node| node.address == address && node.state.starts_with('U'))
    {
        if begun.elapsed() > DOWN_PATIENCE {
            bail!("the others still see {} up after {} s", instance.name, DOWN_PATIENCE.as_secs());
        }
        bar.tick();
        #[expect(clippy::disallowed_methods, reason = "a command waits by sleeping")]
        std::thread::sleep(LOOK);
    }
    let chosen = format!("instance={}", instance.name);
    let mut line = |line: &str| show_task(&bar, line);
    let told = playbook(
        &rack.folder,
        &rack.reach,
        "replace.yml",
        &["--limit", &host.name, "--extra-vars", &chosen],
        &mut line,
    );
    bar.finish_and_clear();
    told?;
    print_line(&format!("{} has taken its place anew", instance.name))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(args: &RackDownArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    match &rack.local {
        Some(local) => {
            if local.stands(rack.name()) {
                local.down(rack.name())?;
            }
            if args.purge && rack.folder.path().exists() {
                std::fs::remove_dir_all(rack.folder.path())
                    .with_context(|| rack.folder.path().display().to_string())?;
            }
        }
        None => {
            rack.end_on_signals()?;
            playbook(&rack.folder, &rack.reach, "stop.yml", &[], &mut |_| {})?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
