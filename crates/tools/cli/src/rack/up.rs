//! `rack up`, `status`, `replace` and `down`.

use crate::exit::INCOMPLETE;
use crate::output::{print_json, print_line};
use crate::rack::plan::read;
use crate::rack::watch::{Output, Terminal};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use signal_hook::consts::SIGINT;
use sprat_measure::table::Table;
use sprat_provision::{Node, ProcessState};
use sprat_ring::{Deployment, Location, Machines, Status};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Clone, Debug)]
pub(crate) struct RackPlace {
    /// A file, or a rack that comes with the program.
    pub(super) rack: String,

    /// Hosts are made on this machine, as namespaces with an ssh server each. Needs root.
    #[arg(long, group = "here")]
    local: bool,

    /// Hosts are made on this machine, as guests with a kernel, disks and a clock each (User-Mode
    /// Linux). Needs root.
    #[arg(long, group = "here")]
    guests: bool,

    /// The folder with all of the rack: inventory, files, keys, data of hosts on this machine
    /// [default: below $XDG_STATE_HOME/sprat/racks or ~/.local/state/sprat/racks, by the rack's
    /// name].
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,

    /// The folder into which pip put Ansible with --target; else ansible-playbook is looked for on
    /// the path.
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

impl RackPlace {
    /// Opens the rack that the flags name, with the machines on which it runs.
    pub(super) fn open(&self) -> Result<Deployment> {
        let spec = read(&self.rack)?;
        let folder = match &self.state {
            Some(path) => std::path::absolute(path)?,
            None => state()?.join(&spec.name),
        };
        let machines = match (self.local, self.guests) {
            (true, _) => Machines::Namespaces,
            (_, true) => Machines::Guests { images: images()? },
            (false, false) => Machines::Servers,
        };
        let location = Location { folder, machines, ansible: self.ansible.clone() };
        Ok(Deployment::open(&self.rack, spec, &location)?)
    }
}

/// Lets Ctrl-C and SIGTERM end the running Ansible play and then the command. Without this, the
/// play would go on changing hosts after the command has ended.
fn end_on_signals(rack: &Deployment) -> Result<()> {
    let (signals, interrupt) = (signals()?, rack.access.interrupt.clone());
    let wait = move || {
        if signals.recv().is_ok() && !interrupt.end() {
            let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
        }
    };
    std::thread::Builder::new()
        .name("sprat-interrupt".into())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}

/// Returns the default folder of the states of racks.
fn state() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("no HOME: name a folder with --state")?.join("sprat/racks"))
}

/// Returns the folder with the images of virtual machines, which all racks share.
fn images() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    Ok(base
        .context("no HOME: set XDG_CACHE_HOME to a folder for the guests' image")?
        .join("sprat/guests"))
}

pub(crate) fn up(args: &RackUpArgs) -> Result<ExitCode> {
    let rack = args.place.open()?;
    end_on_signals(&rack)?;
    let _lock = rack.lock()?;
    let jars = match (&args.jars, rack.plan.ring.is_some()) {
        (Some(jars), _) => std::path::absolute(jars)?,
        (None, true) => bail!(
            "the description has Cassandra: name the folder with its jars (--jars, SPRAT_CASSANDRA)"
        ),
        (None, false) => PathBuf::new(),
    };
    let output = if args.check && !args.json { Output::Ansible } else { Output::Nothing };
    let mut terminal = Terminal::new(output);
    let recaps = rack.up(&jars, args.check, args.limit.as_deref(), &mut terminal)?;
    terminal.finish();
    if args.json {
        print_json(&serde_json::to_value(&recaps)?)?;
    } else {
        for recap in &recaps {
            print_line(&format!(
                "{:<12} {} right, of which {} changed",
                recap.host, recap.ok, recap.changed
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn status(args: &RackStatusArgs) -> Result<ExitCode> {
    let status = args.place.open()?.status()?;
    if args.json {
        print_json(&serde_json::to_value(&status)?)?;
    } else {
        print_status(&status)?;
    }
    Ok(if status.is_well() { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

fn print_status(status: &Status) -> Result<()> {
    let mut table =
        Table::new(&["instance", "address", "process", "state", "load", "tokens", "rack"]);
    for one in &status.instances {
        let of_node = |of: &dyn Fn(&Node) -> String| one.node.as_ref().map_or("-".to_owned(), of);
        table.row(vec![
            one.name.clone(),
            one.address.clone(),
            process(&one.alive),
            of_node(&|node| node.state.clone()),
            of_node(&|node| node.load.clone()),
            of_node(&|node| node.tokens.to_string()),
            of_node(&|node| node.rack.clone()),
        ]);
    }
    if !status.instances.is_empty() {
        print_line(table.to_string().trim_end())?;
    }
    match &status.seen_by {
        Some(by) => {
            print_line(&format!("state as {by} sees it; who has just died is UN for some seconds"))?
        }
        None if status.instances.is_empty() => {}
        None => print_line("no instance runs")?,
    }
    if !status.services.is_empty() {
        let mut table = Table::new(&["service", "kind", "address", "process"]);
        for one in &status.services {
            let (name, kind) = (one.name.clone(), one.kind.to_owned());
            table.row(vec![name, kind, one.address.to_string(), process(&one.alive)]);
        }
        print_line(table.to_string().trim_end())?;
    }
    for one in &status.instances {
        if let ProcessState::Unreachable { why } = &one.alive {
            print_line(&format!("{}: {why}", one.name))?;
        }
    }
    Ok(())
}

fn process(alive: &ProcessState) -> String {
    match alive {
        ProcessState::Running { pid } => pid.to_string(),
        ProcessState::Stopped => "not running".to_owned(),
        ProcessState::Absent => "never brought".to_owned(),
        ProcessState::Unreachable { .. } => "unreachable".to_owned(),
    }
}

pub(crate) fn replace(args: &RackReplaceArgs) -> Result<ExitCode> {
    let rack = args.place.open()?;
    end_on_signals(&rack)?;
    let _lock = rack.lock()?;
    let mut terminal = Terminal::new(Output::Nothing);
    sprat_ring::replace(&rack, &args.instance, &std::path::absolute(&args.jars)?, &mut terminal)?;
    terminal.finish();
    print_line(&format!("{} has taken its place anew", args.instance))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(args: &RackDownArgs) -> Result<ExitCode> {
    let rack = args.place.open()?;
    if rack.local.is_none() {
        end_on_signals(&rack)?;
    }
    rack.down(args.purge, &mut Terminal::new(Output::Nothing))?;
    Ok(ExitCode::SUCCESS)
}
