//! `bench`.

use super::print_line;
use crate::args::{
    BasicArgs, BreakdownArgs, ClusterBenchArgs, ClusterPerfArgs, Connect, DEFAULT_COORDINATOR, EchoArgs, FlowBenchArgs,
    LabBenchArgs, PingArgs, PromisesArgs, ResultArgs, StoreBenchArgs,
};
use anyhow::{Context as _, Result, bail};
use sprat_bench::basic::{Basic, Settings, measure};
use sprat_bench::cables::Cables;
use sprat_bench::goals;
use sprat_bench::load::{Arrivals, Pace};
use sprat_bench::machine::Machine;
use sprat_bench::ours::{self, Sockets};
use sprat_bench::peers::Peer;
use sprat_bench::ping::{Climber, climb};
use sprat_bench::promises::{self, Chapter};
use sprat_bench::report::{Report, write_json};
use sprat_bench::scenarios::{self, Lab, Results};
use sprat_bench::system::Setup;
use sprat_bench::target::{Target, Wait};
use sprat_client::Mode;
use sprat_net::Event;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What a turn takes where nobody sets it.
const SECOND: Duration = Duration::from_secs(1);

/// Objects of the memory and restart chapters.
const OBJECTS: u64 = 2_000_000;

/// The same with `--full`.
const OBJECTS_FULL: u64 = 10_000_000;

pub(crate) fn basic(args: &BasicArgs) -> Result<ExitCode> {
    let machine = Machine::describe();
    let tables = run_basic(args)?;
    if args.json {
        print_line(&serde_json::to_string(&serde_json::json!({ "machine": machine, "tables": tables }))?)?;
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
        report.note("Atom, Cut, Xeon+IB: figures of [MMS], on other machines and a real network; its MB/s are MiB/s.");
        report.write(path)?;
        eprintln!("sprat: report in {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn run_basic(args: &BasicArgs) -> Result<Vec<Basic>> {
    let mut targets: Vec<Box<dyn Target>> = vec![Box::new(cluster(&args.connect, args.clients)?)];
    for url in &args.vs {
        let peer: Peer = url.parse()?;
        targets.push(peer.connect(args.clients).with_context(|| format!("--vs {url}"))?);
    }
    let defaults = Settings::default();
    let settings = Settings {
        wait: if args.sleep { Wait::Sleep } else { Wait::Spin },
        clients: args.clients,
        depth: args.depth,
        pace: args.rate.map_or(Pace::Closed, |rate| Pace::Open { rate, arrivals: Arrivals::Poisson }),
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
    ours::forget(&args.connect.options()?).context("dropping the table that was measured")?;
    measured
}

/// Connects to a running cluster; says how to start one if there is none.
fn cluster(connect: &Connect, clients: usize) -> Result<ours::Connection> {
    // A host that bypasses the kernel is one for all its clients.
    let sockets = if connect.local.is_some() { Sockets::One } else { Sockets::Each };
    ours::connect(&connect.options()?, clients, sockets, Mode::Sleep).with_context(|| absent(&connect.coordinator))
}

/// That no cluster answers there, and what to do about it.
fn absent(coordinator: &str) -> String {
    let start = match coordinator {
        DEFAULT_COORDINATOR => "sprat server".to_owned(),
        other => format!("sprat server -C {other} --with-coordinator"),
    };
    format!("no cluster answers at {coordinator}; start one with `{start}`, or name one that runs with -C")
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
    let climber = Climber::connect(&options).with_context(|| absent(&args.connect.coordinator))?;
    let ladder = climb(climber, args.size as usize, args.seconds);
    ours::forget(&options).context("dropping the table that was measured")?;
    let ladder = ladder?;
    print_line(&if args.json { serde_json::to_string(&ladder)? } else { ladder.table().to_string() })?;
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
        print_line(&serde_json::to_string(&serde_json::json!({ "machine": machine, "results": found }))?)?;
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

/// What a benchmark of promises has beyond the others.
struct Special {
    /// Objects of the memory and restart chapters.
    objects: u64,
    full: bool,
    cables: Result<Cables, String>,
    count: Vec<Event>,
}

impl Default for Special {
    fn default() -> Self {
        let cables = Err("this benchmark lays no cables".to_owned());
        Self { objects: OBJECTS, full: false, cables, count: Event::HARDWARE.to_vec() }
    }
}

pub(crate) fn store(args: &StoreBenchArgs) -> Result<ExitCode> {
    let objects = if args.full { OBJECTS_FULL } else { OBJECTS };
    let special = Special { objects, full: args.full, ..Special::default() };
    judge("store", sprat_bench::store::CHAPTERS, &args.promises, special)
}

pub(crate) fn replicated(args: &ClusterBenchArgs) -> Result<ExitCode> {
    let special = Special { full: args.full, ..Special::default() };
    judge("cluster", sprat_bench::cluster::CHAPTERS, &args.promises, special)
}

pub(crate) fn lab(args: &LabBenchArgs) -> Result<ExitCode> {
    let LabBenchArgs { results, seconds, full } = args.clone();
    let special = Special { full, ..Special::default() };
    judge("lab", sprat_bench::lab::CHAPTERS, &PromisesArgs { results, seconds, rounds: 1 }, special)
}

/// Its streams run for times of their own: nobody sets the seconds.
pub(crate) fn flow(args: &FlowBenchArgs) -> Result<ExitCode> {
    let FlowBenchArgs { results, rounds, full } = args.clone();
    let special = Special { full, ..Special::default() };
    judge("flow", sprat_bench::flow::CHAPTERS, &PromisesArgs { results, rounds, seconds: SECOND }, special)
}

/// Its loads run for times of their own.
pub(crate) fn rack(results: &ResultArgs) -> Result<ExitCode> {
    let promises = PromisesArgs { results: results.clone(), seconds: SECOND, rounds: 1 };
    judge("rack", sprat_bench::rack::CHAPTERS, &promises, Special::default())
}

/// Its kernels are run as often as it takes.
pub(crate) fn grape(results: &ResultArgs) -> Result<ExitCode> {
    let promises = PromisesArgs { results: results.clone(), seconds: SECOND, rounds: 1 };
    judge("grape", sprat_bench::grape::CHAPTERS, &promises, Special::default())
}

pub(crate) fn breakdown(args: &BreakdownArgs) -> Result<ExitCode> {
    let mut special = Special::default();
    if !args.count.is_empty() {
        special.count.clone_from(&args.count);
    }
    judge("breakdown", sprat_bench::breakdown::CHAPTERS, &args.promises, special)
}

/// All of its servers are its own: it measures in a network of its own too, if it may, with cables to drive.
pub(crate) fn bypass(args: &PromisesArgs) -> Result<ExitCode> {
    let cables = match cfg!(feature = "dpdk") {
        true => Cables::lay(),
        false => Err("this sprat was built without DPDK".to_owned()),
    };
    judge("bypass", sprat_bench::bypass::CHAPTERS, args, Special { cables, ..Special::default() })
}

/// Everything a list of chapters promises.
fn judge(name: &str, chapters: &[Chapter], args: &PromisesArgs, special: Special) -> Result<ExitCode> {
    let ResultArgs { out, html, only } = args.results.clone();
    if let Some(only) = &only
        && !chapters.iter().any(|(name, _)| name.contains(only.as_str()))
    {
        let names: Vec<&str> = chapters.iter().map(|(name, _)| *name).collect();
        bail!("no chapter's name contains {only:?}; there are: {}", names.join(", "));
    }
    let machine = Machine::describe();
    eprintln!("{machine}");
    let beside = |ending: &str| PathBuf::from(format!("target/bench/{name}.{ending}"));
    let (out, html) = (out.unwrap_or(beside("json")), html.unwrap_or(beside("html")));
    // The data goes where the results go: a temporary folder may be in memory, and then nothing is ever synced.
    let data = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(data).with_context(|| format!("making {}", data.display()))?;
    let lab = Lab::new();
    let settings = promises::Settings {
        program: std::env::current_exe().context("finding this program's own file")?,
        lab: Lab {
            setup: Setup { data: data.canonicalize()?, ..lab.setup },
            rounds: args.rounds,
            duration: args.seconds,
            ..lab
        },
        objects: special.objects,
        full: special.full,
        only,
        count: special.count,
        cables: special.cables,
    };
    let findings = promises::run(chapters, &settings, &mut |text| eprintln!("{text}"));
    write_json(&findings.rows, &out)?;
    let mut report = Report::new(&format!("sprat bench {name}"), &machine);
    findings.report(&mut report);
    report.write(&html)?;
    print_line(&goals::table(&findings.rows).to_string())?;
    print_line(&goals::verdict(&findings.rows))?;
    print_line(&format!("rows in {}, report in {}", out.display(), html.display()))?;
    Ok(ExitCode::SUCCESS)
}
