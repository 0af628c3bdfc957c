//! `rack tune`: tries settings on a running rack and keeps those that improve latency.

mod live;
mod page;

use crate::exit::INCOMPLETE;
use crate::output::{print_json, print_line};
use crate::rack::load::WorkArgs;
use crate::rack::tune::live::Live;
use crate::rack::up::RackPlace;
use anyhow::{Context as _, Result, bail};
use clap::{ArgGroup, Args};
use serde_json::json;
use sprat_rack::hosts;
use sprat_ring::Deployment;
use sprat_tune::{Candidate, Class, Facts, Journal, SCRIPT, candidates, run, undo};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true), after_help = "Examples:
  sprat rack tune rack.toml --check                     what is otherwise than advised; nothing is changed
  sprat rack load rack.toml --reads 0 --duration 10m    data to measure on, if the rack has none
  sprat rack tune rack.toml --apply --jars lib --rate 2000 --html tune.html
  sprat rack tune rack.toml --apply --jars lib --only collector,read-ahead
  sprat rack tune rack.toml --undo --jars lib           all as it was

Settings are tried one class at a time, in this order: collector, read-ahead, compaction, concurrency, memtable,
commit-log, scheduler, memory, limits, governor, interrupts, network; with --table also chunks, strategy,
speculation. Each is measured just before and just after, under the same load, and is kept only if latency is better by
more than two measurements of the same differ; memory, limits, governor, interrupts and network if it is not worse,
since what they prevent is seldom. Latency is compared by the geometric mean of each second's p99.

Before something is changed, what it was is written down in the rack's folder (tune.json): an end at any time
is mended by the next run, and --undo brings all of it back. What is found for instances counts from then on in `rack up`
too (tuned.json). Files of a kernel are set anew when a host with systemd starts. With hosts on this machine (--local) these
are this machine's.")]
pub(crate) struct RackTuneArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Tell what is otherwise than advised, and change nothing. Exit code 6 if there is something.
    #[arg(long, group = "what")]
    check: bool,

    /// Try it, and keep what helps.
    #[arg(long, group = "what")]
    apply: bool,

    /// Bring back what was before.
    #[arg(long, group = "what")]
    undo: bool,

    /// Only these classes.
    #[arg(long, value_name = "CLASSES", value_delimiter = ',')]
    only: Vec<String>,

    /// Tune this table too: KEYSPACE.TABLE. Its files are written anew, which takes time and room.
    /// Once for each.
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,

    /// The folder with Cassandra's jars on this machine; --apply and --undo want it.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: Option<PathBuf>,

    /// Operations a second of the load.
    #[arg(long, value_name = "RATE", default_value_t = 1000.0)]
    rate: f64,

    /// How long each measurement is.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = sprat_units::duration)]
    duration: Duration,

    /// How long the same load runs before each measurement, without being counted.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sprat_units::duration)]
    warm: Duration,

    #[command(flatten)]
    work: WorkArgs,

    /// Write a page: what was changed, why, and latency before and after.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn tune(args: &RackTuneArgs) -> Result<ExitCode> {
    let rack = args.place.open()?;
    if rack.plan.spec.cassandra.is_none() {
        bail!("{}: the plan has no [cassandra]", args.place.rack);
    }
    if args.check {
        return check(args, &rack);
    }
    let (measured, warm) = (args.duration, args.warm);
    let _lock = rack.lock()?;
    let mut journal = Journal::open(rack.folder.path())?;
    let mut live = Live::new(args, rack, warm, measured)?;
    if args.undo {
        let undone = undo(&mut live, &mut journal).map_err(|error| live.explain(error))?;
        live.keep_across_boots(&journal)?;
        print_line(&format!("{undone} settings are as they were"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let advised = advised(args, live.rack())?;
    let ran = run(&mut live, &mut journal, &advised);
    live.finish();
    ran.map_err(|error| live.explain(error))?;
    live.keep_across_boots(&journal)?;
    if let Some(path) = &args.html {
        page::page(live.rack().name(), &journal).write(path)?;
    }
    if args.json {
        print_json(&serde_json::to_value(&journal)?)?;
    } else {
        print_line(page::tried(&journal).to_string().trim_end())?;
        page::text(&journal).iter().try_for_each(|line| print_line(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the settings that differ from the advised ones. The exit code is [`INCOMPLETE`] if there
/// are any.
fn check(args: &RackTuneArgs, rack: &Deployment) -> Result<ExitCode> {
    let advised = advised(args, rack)?;
    if args.json {
        print_json(&json!({ "advised": advised }))?;
    } else if advised.is_empty() {
        print_line("all is as advised")?;
    } else {
        let mut last = None;
        for candidate in &advised {
            if last.replace(candidate.class) != Some(candidate.class) {
                print_line(&format!("{}: {}", candidate.class.name(), candidate.why))?;
            }
            print_line(&format!("  {} -> {}", candidate.present, candidate.proposed))?;
        }
    }
    Ok(if advised.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

/// Returns the settings that are worth trying, from the facts that the hosts report now.
fn advised(args: &RackTuneArgs, rack: &Deployment) -> Result<Vec<Candidate>> {
    let only = args
        .only
        .iter()
        .map(|name| {
            let known = || Class::ALL.map(Class::name).join(", ");
            Class::named(name.trim())
                .with_context(|| format!("--only {name}: there are {}", known()))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut facts = Vec::new();
    for host in &hosts(&rack.plan) {
        let folders: Vec<_> =
            host.instances.iter().map(|instance| instance.home.display().to_string()).collect();
        let script = SCRIPT.replace('\'', "'\\''");
        let answer =
            rack.run_command(host, &format!("sh -c '{script}' sh {}", folders.join(" ")))?;
        let of_host = Facts::parse(&answer).with_context(|| host.name.clone())?;
        facts.push((host.name.clone(), of_host));
    }
    let tables = match args.tables.is_empty() {
        true => Vec::new(),
        false => rack.within(|| live::tables(rack, &args.tables))??,
    };
    let mut all = candidates(&rack.plan.spec, &facts, &tables);
    all.retain(|candidate| only.is_empty() || only.contains(&candidate.class));
    Ok(all)
}
