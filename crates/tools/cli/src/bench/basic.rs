//! `bench basic`, `echo` and `ping`, and ClusterPerf.

use crate::bench::judged::{SECOND, parse_rounds};
use crate::connect::{Connect, DEFAULT_COORDINATOR};
use crate::output::print_line;
use crate::quantity::{self, bounded, counted};
use anyhow::{Context as _, Result};
use clap::Args;
use sprat_bench::basic::{Basic, Settings, measure};
use sprat_bench::ours::{self, Sockets};
use sprat_bench::peers::Peer;
use sprat_bench::ping::{Climber, climb};
use sprat_bench::scenarios::{self, Lab};
use sprat_client::Mode;
use sprat_measure::load::Results;
use sprat_measure::load::{Arrivals, Pace};
use sprat_measure::machine::Machine;
use sprat_measure::report::Report;
use sprat_measure::target::{LoadTarget, Wait};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Parses a rate in operations per second.
fn parse_rate(text: &str) -> Result<f64, String> {
    bounded(text, 1.0, 1e9, "a rate")
}

fn parse_clients(text: &str) -> Result<usize, String> {
    counted(text, 1000, "clients")
}

fn parse_depth(text: &str) -> Result<usize, String> {
    counted(text, 1000, "operations in flight")
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench basic
  sprat bench basic --vs redis://127.0.0.1:6379 --vs memcached://127.0.0.1:11211
  sprat bench basic --html report.html")]
pub(crate) struct BasicArgs {
    #[command(flatten)]
    connect: Connect,
    /// Measure a peer too, with the same work in the same run.
    #[arg(long, value_name = "URL")]
    vs: Vec<String>,
    /// Clients at once, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_clients)]
    clients: usize,
    /// Operations each client keeps in flight; 1 waits for every answer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_depth)]
    depth: usize,
    /// Clients sleep while they wait, as ordinary ones do, instead of spinning.
    #[arg(long)]
    sleep: bool,
    /// How long each turn of each line of the table takes; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::measuring_time)]
    seconds: Duration,
    /// Turns of each line; medians count.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    rounds: usize,
    /// Only objects of these sizes, such as 100,10kB.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = quantity::object_size)]
    sizes: Vec<u32>,
    /// Keys of each size, drawn evenly; by default 10,000, or what 64 MB hold.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: Option<u64>,
    /// Send at this rate a second, whether answers come or not (open loop).
    #[arg(long, value_name = "OPS", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Also write a report with pictures.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ClusterPerfArgs {
    #[command(flatten)]
    connect: Connect,
    /// Clients at once.
    #[arg(long = "numClients", value_name = "N", default_value_t = 1, value_parser = parse_clients)]
    num_clients: usize,
    /// Test to run.
    #[arg(default_value = "basic", value_parser = ["basic"])]
    test: String,
}

#[derive(Args, Debug)]
pub(crate) struct EchoArgs {
    /// How long each turn of each line of the table takes; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::measuring_time)]
    seconds: Duration,
    /// Turns of each line; medians count.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    rounds: usize,
    /// Also write a report with pictures.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    connect: Connect,
    /// Size of what is echoed and read.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = quantity::object_size)]
    size: u32,
    /// How long, in all; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::measuring_time)]
    seconds: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn basic(args: &BasicArgs) -> Result<ExitCode> {
    let machine = Machine::describe();
    let tables = run_basic(args)?;
    if args.json {
        print_line(&serde_json::to_string(
            &serde_json::json!({ "machine": machine, "tables": tables }),
        )?)?;
    } else {
        print_line(&machine.to_string())?;
        for table in &tables {
            print_line(&table.render())?;
        }
    }
    if let Some(path) = &args.html {
        let mut report = Report::new("sprat bench basic", &machine);
        for table in &tables {
            report.table(&format!("{} over {}", table.target, table.transport), &table.table());
        }
        report.note(
            "Atom, Cut, Xeon+IB: figures of [MMS], on other machines and a real network; \
            its MB/s are MiB/s.",
        );
        report.write(path)?;
        eprintln!("sprat: report in {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn run_basic(args: &BasicArgs) -> Result<Vec<Basic>> {
    let mut targets: Vec<Box<dyn LoadTarget>> =
        vec![Box::new(cluster(&args.connect, args.clients)?)];
    for url in &args.vs {
        let peer: Peer = url.parse()?;
        targets.push(peer.connect(args.clients).with_context(|| format!("--vs {url}"))?);
    }
    let defaults = Settings::default();
    let settings = Settings {
        wait: if args.sleep { Wait::Sleep } else { Wait::Spin },
        clients: args.clients,
        depth: args.depth,
        pace: args
            .rate
            .map_or(Pace::Closed, |rate| Pace::Open { rate, arrivals: Arrivals::Poisson }),
        duration: args.seconds,
        rounds: args.rounds,
        sizes: if args.sizes.is_empty() {
            defaults.sizes
        } else {
            args.sizes.iter().map(|&bytes| usize::try_from(bytes)).collect::<Result<_, _>>()?
        },
        keys: args.keys,
        ..defaults
    };
    let measured = measure(&mut targets, &settings, &mut |what| eprintln!("sprat: {what}"));
    drop(targets);
    ours::drop_table(&args.connect.options()?).context("dropping the table that was measured")?;
    measured
}

/// Connects to a running cluster; the error says how to start one.
fn cluster(connect: &Connect, clients: usize) -> Result<ours::Connection> {
    // A kernel-bypass device belongs to one host, which all clients share.
    let sockets = if connect.local.is_some() { Sockets::One } else { Sockets::Each };
    ours::connect(&connect.options()?, clients, sockets, Mode::Sleep)
        .with_context(|| no_cluster_hint(&connect.coordinator))
}

/// Returns the error text for an address at which no cluster answers, with a remedy.
fn no_cluster_hint(coordinator: &str) -> String {
    let start = match coordinator {
        DEFAULT_COORDINATOR => "sprat server".to_owned(),
        other => format!("sprat server -C {other} --with-coordinator"),
    };
    format!(
        "no cluster answers at {coordinator}; start one with `{start}`, or name one that runs \
         with -C"
    )
}

pub(crate) fn cluster_perf(args: &ClusterPerfArgs) -> Result<ExitCode> {
    basic(&BasicArgs {
        connect: args.connect.clone(),
        vs: Vec::new(),
        clients: args.num_clients,
        depth: 1,
        sleep: false,
        seconds: SECOND,
        rounds: 3,
        sizes: Vec::new(),
        keys: None,
        rate: None,
        html: None,
        json: false,
    })
}

pub(crate) fn ping(args: &PingArgs) -> Result<ExitCode> {
    let options = args.connect.options()?;
    let climber =
        Climber::connect(&options).with_context(|| no_cluster_hint(&args.connect.coordinator))?;
    let ladder = climb(climber, args.size as usize, args.seconds);
    ours::drop_table(&options).context("dropping the table that was measured")?;
    let ladder = ladder?;
    print_line(&if args.json {
        serde_json::to_string(&ladder)?
    } else {
        ladder.table().to_string()
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn echo(args: &EchoArgs) -> Result<ExitCode> {
    let machine = Machine::describe();
    let lab = Lab { rounds: args.rounds, duration: args.seconds, ..Lab::new() };
    let found: Vec<Results> = [Wait::Spin, Wait::Sleep]
        .into_iter()
        .map(|wait| {
            let mut results = scenarios::read_latency(&lab, &[], wait)?;
            results.title = format!("bare echo of 160 B on loopback, both sides {}", wait.word());
            Ok(results)
        })
        .collect::<Result<_>>()?;
    if args.json {
        print_line(&serde_json::to_string(
            &serde_json::json!({ "machine": machine, "results": found }),
        )?)?;
    } else {
        print_line(&machine.to_string())?;
        for results in &found {
            print_line(&results.to_string())?;
        }
    }
    if let Some(path) = &args.html {
        let mut report = Report::new("sprat bench echo", &machine);
        found.iter().for_each(|results| report.results(results));
        report.write(path)?;
        eprintln!("sprat: report in {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
