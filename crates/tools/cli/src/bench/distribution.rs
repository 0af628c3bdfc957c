//! `bench distribution` and `bench jitter`.

use crate::bench::judged::parse_rounds;
use crate::meta::key::IdentityArgs;
use crate::output::print_line;
use crate::quantity;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use sprat_bench::distribution::{self, Distributions, Subject, picture, render};
use sprat_bench::ours::Transport;
use sprat_bench::scenarios::Lab;
use sprat_client::{Mode, Options};
use sprat_measure::cpu::allowed_cores;
use sprat_measure::jitter::{MeterPlacement, meter, table};
use sprat_measure::machine::Machine;
use sprat_measure::report::{Report, write_compact_json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A transport of `bench distribution`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OverArg {
    /// Kernel bypass over memory that both processes share.
    Memif,
    /// Kernel bypass over a virtio device (needs a build with DPDK).
    Virtio,
    /// Kernel UDP.
    #[value(name = "fast+udp")]
    Udp,
    /// Kernel TCP.
    Tcp,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OpArg {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench distribution
  sprat bench distribution --over fast+udp,tcp --op write --samples 200000
  sprat bench distribution -C tcp:host=192.168.100.31,port=12246 --label 'virtual function'
  sprat bench distribution --compare metal.json vf.json guest.json --html hosts.html

Without -C, the benchmark starts one server for each transport; it spins on the last core. With
-C, start the cluster's servers with --timed --idle spin for the most detail.")]
pub(crate) struct DistributionArgs {
    /// Transports to measure in turns, separated by commas [default: memif,fast+udp,tcp].
    #[arg(long, value_name = "PATH", value_enum, value_delimiter = ',')]
    over: Vec<OverArg>,
    /// Operation to measure.
    #[arg(long, value_enum, default_value = "read")]
    op: OpArg,
    /// Size of an object, such as 100B or 10kB.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = quantity::object_size)]
    size: u32,
    /// Number of operations over each transport.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(100..=1_000_000_000)
    )]
    samples: u64,
    /// Number of turns into which each transport's operations are divided; 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_rounds)]
    rounds: usize,
    /// Print and draw the results of earlier runs side by side, and measure nothing.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        conflicts_with_all = [
            "over", "coordinator", "samples", "op", "size", "rounds", "label", "out"
        ]
    )]
    compare: Vec<PathBuf>,
    /// Name of these results in a comparison, such as the host or its kind.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        help_heading = "Output"
    )]
    label: String,
    /// Write the results with all counts to this file [default: target/bench/distribution.json].
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Write an HTML report with charts to this file [default: beside --out].
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Locator of the coordinator of a running cluster, to measure instead of servers of its own.
    #[arg(
        short = 'C',
        long,
        value_name = "LOCATOR",
        conflicts_with = "over",
        help_heading = "Connection"
    )]
    coordinator: Option<String>,
    /// Locator of this client, if servers use fast+dpdk: its address, port 0 and device, such as
    /// fast+dpdk:host=10.0.0.9,port=0,dev=0000:01:00.1.
    #[arg(long, value_name = "LOCATOR", env = "SPRAT_LOCAL", help_heading = "Connection")]
    local: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench jitter
  sprat bench jitter --cores 2,3 --seconds 60
  sprat bench jitter --json | jq .meters")]
pub(crate) struct JitterArgs {
    /// Cores to measure at once, separated by commas [default: all that this process may use].
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Length of the measurement, such as 500ms; a bare number is seconds.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::measuring_time)]
    seconds: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Default file of the results.
const OUT: &str = "target/bench/distribution.json";

/// Timeout for an operation of the measured cluster.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn distribution(args: &DistributionArgs) -> Result<ExitCode> {
    if !args.compare.is_empty() {
        return compare(args);
    }
    let out = args.out.clone().unwrap_or_else(|| OUT.into());
    let found = measure(args, &out)?;
    write_compact_json(&found, &out)?;
    let html = args.html.clone().unwrap_or_else(|| out.with_extension("html"));
    let mut report = Report::new("sprat bench distribution", &found.machine);
    found.report(&mut report);
    report.write(&html)?;
    if args.json {
        print_line(&serde_json::to_string(&found)?)?;
    } else {
        print_line(&found.machine.to_string())?;
        print_line(&found.render())?;
        print_line(&format!("results in {}, report in {}", out.display(), html.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &DistributionArgs, out: &Path) -> Result<Distributions> {
    let over = match &args.coordinator {
        Some(coordinator) => Subject::Cluster(Options {
            coordinator: coordinator.clone(),
            local: args.local.clone(),
            timeout: TIMEOUT,
            waiting: Mode::Sleep,
            identity: args.identity.load()?,
            ..Options::default()
        }),
        None => {
            let program =
                std::env::current_exe().context("cannot find the path of this program")?;
            Subject::Own(program, paths(&args.over)?)
        }
    };
    // The servers' data folders are made in the folder of the results, and stay empty.
    let folder =
        out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let mut lab = Lab { rounds: args.rounds, ..Lab::new() };
    lab.setup.data = folder.canonicalize()?;
    let settings = distribution::Settings {
        lab: lab.undisturbed(),
        samples: args.samples,
        bytes: usize::try_from(args.size)?,
        write: args.op == OpArg::Write,
        label: args.label.clone(),
    };
    distribution::measure(&settings, &over, &mut |what| eprintln!("sprat: {what}"))
}

/// Returns the requested transports, without duplicates, or the usual ones if none is requested.
fn paths(requested: &[OverArg]) -> Result<Vec<Transport>> {
    const USUAL: &[OverArg] = &[OverArg::Memif, OverArg::Udp, OverArg::Tcp];
    let requested = if requested.is_empty() { USUAL } else { requested };
    let mut paths = Vec::new();
    for path in requested {
        let transport = match path {
            OverArg::Memif => Transport::Memif,
            OverArg::Virtio => Transport::Virtio,
            OverArg::Udp => Transport::Udp,
            OverArg::Tcp => Transport::Tcp,
        };
        // memif needs no DPDK: Sprat has a driver of its own.
        if transport == Transport::Virtio && !cfg!(feature = "dpdk") {
            bail!(
                "this build of sprat has no {}: build it with `--features dpdk` (docs/bypass.md)",
                transport.word()
            );
        }
        if !paths.contains(&transport) {
            paths.push(transport);
        }
    }
    Ok(paths)
}

fn compare(args: &DistributionArgs) -> Result<ExitCode> {
    let all: Vec<Distributions> =
        args.compare.iter().map(|path| Distributions::read(path)).collect::<Result<_>>()?;
    if args.json {
        print_line(&serde_json::to_string(&all)?)?;
    } else {
        print_line(&render::compared(&all).to_string())?;
    }
    if let Some(html) = &args.html {
        write_comparison(&all, html)?;
        eprintln!("sprat: report in {}", html.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn write_comparison(all: &[Distributions], html: &Path) -> Result<()> {
    let drawn: Vec<&Distributions> = all.iter().collect();
    let mut report =
        Report::new("sprat bench distribution: hosts side by side", &Machine::describe());
    report.note("The machine above drew this report; the measured machines are named below.");
    report.table("Quantiles and cliffs", &render::compared(all));
    report.figure("Share of operations that took longer", &picture::ccdf(&drawn));
    report.figure("Share of operations that took no longer", &picture::cdf(&drawn));
    for one in all {
        report.note(&format!("{}: {}", one.label, one.machine));
        one.report(&mut report);
    }
    report.write(html)
}

pub(crate) fn jitter(args: &JitterArgs) -> Result<ExitCode> {
    let machine = Machine::describe();
    let cores = if args.cores.is_empty() { allowed_cores()? } else { args.cores.clone() };
    // Ordinary threads on every core: with a real-time class on all of them, no other process would
    // run.
    let places: Vec<MeterPlacement> =
        cores.into_iter().map(|core| MeterPlacement { core: Some(core), fifo: None }).collect();
    let found = meter(&places, args.seconds)?;
    if args.json {
        print_line(&serde_json::to_string(
            &serde_json::json!({ "machine": machine, "meters": found }),
        )?)?;
    } else {
        print_line(&machine.to_string())?;
        print_line(&table(&found).to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
