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

/// The rack and the hosts on which it runs. Pages list the hosts' flags under a heading of their
/// own.
#[derive(Args, Clone, Debug)]
pub(crate) struct RackPlace {
    /// Rack description: a file, or a built-in rack (see `sprat rack examples`).
    pub(super) rack: String,

    /// Run the hosts on this machine, as network namespaces with an ssh server each. Needs root.
    #[arg(long, group = "here", help_heading = "Hosts")]
    local: bool,

    /// Run the hosts on this machine, as User-Mode Linux guests with a kernel, disks and a clock
    /// each. Needs root.
    #[arg(long, group = "here", help_heading = "Hosts")]
    guests: bool,

    /// Folder of the rack's state: inventory, files, keys, and data of hosts on this machine
    /// [default: sprat/racks/NAME in $XDG_STATE_HOME or ~/.local/state].
    #[arg(long, value_name = "FOLDER", help_heading = "Hosts")]
    state: Option<PathBuf>,

    /// Folder into which `pip install --target` put Ansible; without it, sprat runs
    /// `ansible-playbook` from PATH.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_ANSIBLE", help_heading = "Hosts")]
    ansible: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack up rack.toml --jars lib                  set up the servers over ssh
  sprat rack up rack.toml --jars lib --check          only show what would change
  sprat rack up rack.toml --jars lib --limit c0-n3    set up one server
  sprat rack up three.toml --local --jars lib         on this machine, in namespaces
  sprat rack up three.toml --guests --jars lib        on this machine, in guests

Run it again at any time: it changes only what differs from the description, and starts
instances that do not run. It does not restart running instances; use `sprat rack rolling` for
that.

Servers need ssh and Python 3, and Debian's package archive if Java 17 is missing. This machine
needs Ansible (ansible-core) and the jars of Cassandra 5, which Maven downloads with
deploy/cassandra/pom.xml.

Exit codes:
  130  interrupted; run it again to continue")]
pub(crate) struct RackUpArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Folder with Cassandra's jars on this machine; required if the description has [cassandra].
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: Option<PathBuf>,

    /// Show what would change, and change nothing.
    #[arg(long)]
    check: bool,

    /// Set up only these servers: names separated by commas.
    #[arg(long, value_name = "NAMES")]
    limit: Option<String>,

    /// Print JSON: the number of changes on each server.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack replace rack.toml c0-n3-i1 --jars lib
  sprat rack replace three.toml c0-n2-i1 --local --jars lib

Use it for an instance with a new disk or server, or with data that cannot be trusted. It stops
the instance, keeps its old data in HOME/kept-TIME, waits some seconds until the other instances
see that it is down, and then starts it empty to fetch its rows from them.

Exit codes:
  130  interrupted; run it again to continue")]
pub(crate) struct RackReplaceArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Name of the instance, as `sprat rack status` shows it.
    instance: String,

    /// Folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack status rack.toml
  sprat rack status three.toml --local --json

Exit codes:
  6  an instance is not up and normal (UN), or a service does not run")]
pub(crate) struct RackStatusArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack down rack.toml                     stop the instances; their data stays
  sprat rack down three.toml --local            also remove the hosts; the data stays
  sprat rack down three.toml --local --purge    also remove the data

Exit codes:
  130  interrupted; run it again to continue")]
pub(crate) struct RackDownArgs {
    #[command(flatten)]
    place: RackPlace,

    /// With --local or --guests: also remove the rack's folder, with all data.
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

/// Makes Ctrl-C and SIGTERM end the running Ansible play, and then the command. Otherwise the play
/// would continue to change hosts after the command has ended.
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
    Ok(base.context("HOME is not set: add --state FOLDER")?.join("sprat/racks"))
}

/// Returns the folder with the images of virtual machines, which all racks share.
fn images() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    Ok(base
        .context("HOME is not set: set XDG_CACHE_HOME, the folder for the guests' image")?
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
            print_line(&format!("{:<12} {} ok, {} changed", recap.host, recap.ok, recap.changed))?;
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
        Some(by) => print_line(&format!(
            "state as seen by {by}; an instance that just died stays UN for some seconds"
        ))?,
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
        ProcessState::Absent => "not set up".to_owned(),
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
    print_line(&format!("{} replaced; it has its rows again", args.instance))?;
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
