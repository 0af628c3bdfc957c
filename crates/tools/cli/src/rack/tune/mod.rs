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
  sprat rack tune rack.toml --check                     show settings that differ from advice
  sprat rack load rack.toml --reads 0 --duration 10m    write data first, if there is none
  sprat rack tune rack.toml --apply --jars lib --rate 2000 --html tune.html
  sprat rack tune rack.toml --apply --jars lib --only collector,read-ahead
  sprat rack tune rack.toml --undo --jars lib           restore all settings

Classes, in the order in which they are tried:
  kept if latency improves by more than two measurements of the same settings differ:
    collector, read-ahead, compaction, concurrency, memtable, commit-log, scheduler
  kept unless latency gets worse, since they prevent rare stalls:
    memory, limits, governor, interrupts, network
  only with --table, kept if latency improves:
    chunks, strategy, speculation
Each is measured before and after under the same load. Latency is the geometric mean of the p99
of each second.

Old values are saved in the rack's folder (tune.json) before anything changes: the next run
undoes a step that was interrupted, and --undo restores everything. `rack up` uses the settings
found for instances (tuned.json); hosts with systemd apply kernel settings at boot. With
--local, kernel settings are those of this machine.

Exit codes:
  6  --check found settings that differ from advice")]
pub(crate) struct RackTuneArgs {
    /// Show settings that differ from the advised ones, and change nothing.
    #[arg(long, group = "what")]
    check: bool,

    /// Try the advised settings, and keep those that help.
    #[arg(long, group = "what")]
    apply: bool,

    /// Restore all settings that tuning changed.
    #[arg(long, group = "what")]
    undo: bool,

    /// Folder with Cassandra's jars on this machine; --apply and --undo require it.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: Option<PathBuf>,

    /// Only these classes, separated by commas.
    #[arg(long, value_name = "CLASSES", value_delimiter = ',')]
    only: Vec<String>,

    /// Also tune this table: KEYSPACE.TABLE. Rewrites its files, which takes time and disk space.
    /// Repeatable.
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,

    /// Operations a second while measuring.
    #[arg(long, value_name = "RATE", default_value_t = 1000.0, help_heading = "Measurement")]
    rate: f64,

    /// Length of each measurement.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        value_parser = sprat_units::duration,
        help_heading = "Measurement"
    )]
    duration: Duration,

    /// Time under the same load before each measurement, not counted.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = sprat_units::duration,
        help_heading = "Measurement"
    )]
    warm: Duration,

    #[command(flatten)]
    work: WorkArgs,

    /// Write an HTML report to this file: each change, its reason, and latency before and after.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,

    #[command(flatten)]
    place: RackPlace,
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
        print_line(&format!("restored {undone} settings"))?;
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
        print_line("all settings are as advised")?;
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

/// Returns the settings that are worth trying, computed from the hosts' present facts.
fn advised(args: &RackTuneArgs, rack: &Deployment) -> Result<Vec<Candidate>> {
    let only = args
        .only
        .iter()
        .map(|name| {
            let known = || Class::ALL.map(Class::name).join(", ");
            Class::named(name.trim())
                .with_context(|| format!("--only {name}: no such class; want one of {}", known()))
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
