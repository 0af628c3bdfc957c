//! The benchmarks that judge a list of promises: `store`, `cluster`, `lab`, `flow`, `rack`,
//! `grape`, `breakdown` and `bypass`.

use crate::output::print_line;
use crate::quantity::{self, counted};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use sprat_bench::cables::Cables;
use sprat_bench::promises::{self, Chapter};
use sprat_bench::scenarios::Lab;
use sprat_bench::system::Setup;
use sprat_measure::goals;
use sprat_measure::machine::Machine;
use sprat_measure::report::{Report, write_json};
use sprat_net::PerfEvent;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub(super) fn parse_rounds(text: &str) -> Result<usize, String> {
    counted(text, 1000, "rounds")
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench store
  sprat bench store --only memory --full")]
pub(crate) struct StoreBenchArgs {
    /// Measure memory and restarts with 10 million objects instead of 2 million; needs 9 GB of
    /// memory.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    promises: PromisesArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench cluster
  sprat bench cluster --only recovery --full

The benchmark starts coordinators, servers and Redis on loopback, and stops them at its end.")]
pub(crate) struct ClusterBenchArgs {
    /// Recover 1 GB of log instead of 256 MB, and kill 100 servers instead of 10.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    promises: PromisesArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench lab
  sprat bench lab --only delay --seconds 10
  sprat bench lab --full

The benchmark creates network namespaces for its hosts, and removes them at its end. No packet
leaves them. Needs root, iproute2 and /dev/net/tun.")]
pub(crate) struct LabBenchArgs {
    /// Measure up to 10 Gb/s, and longer; needs some GB of memory and idle cores.
    #[arg(long)]
    full: bool,
    /// Length of each measurement after congestion windows have grown, such as 500ms; a bare number
    /// is seconds. Some measurements take longer.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::measuring_time)]
    seconds: Duration,
    #[command(flatten)]
    results: ResultArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench flow
  sprat bench flow --only ramp --rounds 5
  sprat bench flow --only browser
  sprat bench flow --full

The benchmark creates network namespaces for its hosts, and removes them at its end. No packet
leaves them. Needs root, iproute2 and /dev/net/tun; curl, aria2, axel, rclone and nginx as
peers; and for downloads from browsers Firefox, and Chromium if installed.")]
pub(crate) struct FlowBenchArgs {
    /// Measure files of up to 4 GB instead of 1 GB, and paths of up to 5 Gb/s instead of 2 Gb/s.
    #[arg(long)]
    full: bool,
    /// Number of repetitions of each transfer, of which the median is reported; 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    rounds: usize,
    #[command(flatten)]
    results: ResultArgs,
}

/// Selects the chapters of a benchmark and the files of its results.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResultArgs {
    /// Run only chapters whose name contains this; an unknown name lists all chapters.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Write the results as JSON to this file [default: target/bench/BENCHMARK.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write an HTML report with charts to this file [default: target/bench/BENCHMARK.html].
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PromisesArgs {
    /// Number of rounds of each comparison, of which the median is reported; 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    rounds: usize,
    /// Length of each system's turn in a round, such as 500ms; a bare number is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::measuring_time)]
    seconds: Duration,
    #[command(flatten)]
    results: ResultArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench breakdown
  sprat bench breakdown --only memif --count instructions,page-faults

Events are counted in separate passes, in user mode. The report names the events that this
machine cannot count, with the reason.")]
pub(crate) struct BreakdownArgs {
    /// Events to count for each stage besides its time, separated by commas: instructions, cycles,
    /// cache-misses, page-faults, task-clock [default: instructions,cycles,cache-misses].
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    count: Vec<PerfEvent>,
    #[command(flatten)]
    promises: PromisesArgs,
}

/// How long one measurement runs by default.
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Objects in the memory and restart chapters.
const OBJECTS: u64 = 2_000_000;

/// Objects in the memory and restart chapters with `--full`.
const OBJECTS_FULL: u64 = 10_000_000;

/// Settings that only some of these benchmarks have.
struct Special {
    /// Objects in the memory and restart chapters.
    objects: u64,
    full: bool,
    cables: Result<Cables, String>,
    count: Vec<PerfEvent>,
}

impl Default for Special {
    fn default() -> Self {
        let cables = Err("this benchmark uses no virtual cables".to_owned());
        Self { objects: OBJECTS, full: false, cables, count: PerfEvent::HARDWARE.to_vec() }
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

/// Runs `bench flow`. Its streams run for fixed times, so it has no `--seconds`.
pub(crate) fn flow(args: &FlowBenchArgs) -> Result<ExitCode> {
    let FlowBenchArgs { results, rounds, full } = args.clone();
    let special = Special { full, ..Special::default() };
    judge(
        "flow",
        sprat_bench::flow::CHAPTERS,
        &PromisesArgs { results, rounds, seconds: SECOND },
        special,
    )
}

/// Runs `bench rack`. Its loads run for fixed times.
pub(crate) fn rack(results: &ResultArgs) -> Result<ExitCode> {
    let promises = PromisesArgs { results: results.clone(), seconds: SECOND, rounds: 1 };
    judge("rack", sprat_bench::rack::CHAPTERS, &promises, Special::default())
}

/// Runs `bench grape`. It runs each kernel a fixed number of times, whatever times are set.
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

/// Runs `bench bypass`. It starts all servers itself. With the necessary privileges it also makes a
/// network namespace with virtual cables for them.
pub(crate) fn bypass(args: &PromisesArgs) -> Result<ExitCode> {
    let cables = match cfg!(feature = "dpdk") {
        true => Cables::lay(),
        false => Err("this sprat was built without DPDK".to_owned()),
    };
    judge("bypass", sprat_bench::bypass::CHAPTERS, args, Special { cables, ..Special::default() })
}

/// Runs the chapters, judges their promises, and writes and prints the results.
fn judge(
    name: &str,
    chapters: &[Chapter],
    args: &PromisesArgs,
    special: Special,
) -> Result<ExitCode> {
    let ResultArgs { out, html, only } = args.results.clone();
    if let Some(only) = &only
        && !chapters.iter().any(|(name, _)| name.contains(only.as_str()))
    {
        let names: Vec<&str> = chapters.iter().map(|(name, _)| *name).collect();
        bail!("--only {only:?}: no such chapter; want part of one of: {}", names.join(", "));
    }
    let machine = Machine::describe();
    eprintln!("{machine}");
    let beside = |ending: &str| PathBuf::from(format!("target/bench/{name}.{ending}"));
    let (out, html) = (out.unwrap_or(beside("json")), html.unwrap_or(beside("html")));
    // The data is written to the folder of the results: a temporary folder may be a tmpfs, where a
    // sync does not write to a disk.
    let data =
        out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let lab = Lab::new();
    let settings = promises::Settings {
        program: std::env::current_exe().context("cannot find the path of this program")?,
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
    print_line(&format!("results in {}, report in {}", out.display(), html.display()))?;
    Ok(ExitCode::SUCCESS)
}
