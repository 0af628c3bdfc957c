//! `rack load`: puts load on a rack's instances at a given rate, and reports response times.

use crate::exit::{BEHIND, CORRUPT};
use crate::output::{print_json, print_line};
use crate::rack::up::RackPlace;
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use sprat_load::{
    Arrivals, Consistency, FinishedLoad, Load, LoadReport, RunningLoad, Step, Verification,
    Workload,
};
use sprat_measure::machine::Machine;
use sprat_measure::report::Report as Page;
use sprat_measure::report::svg::{Axis, Line, chart};
use sprat_measure::table::Table;
use sprat_plan::spec::Cassandra;
use sprat_rack::{Host, hosts};
use sprat_ring::Deployment;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack load rack.toml --rate 2000 --duration 60s
  sprat rack load three.toml --local --rate 1000 --verify    check that no write gets lost
  sprat rack load rack.toml --rate 1000..20000 --steps 20 --duration 10m --html load.html
  sprat rack load rack.toml --workload wide --keys 100 --rate 500 --duration 1h --json
  sprat rack load rack.toml --contact 10.0.0.3:9042          load only these instances
  sprat rack load rack.toml --reads 0 --duration 10m         write data for later reads

The start time of each operation is fixed beforehand, and response time counts from it. So if
the cluster stalls for a second, the operations of that second wait, and their latency is
reported. `asked` counts the operations that were due in a second, `delivered` those that were
answered.

The load creates the keyspace sprat_load if it is missing. Reads of keys that were never written
find nothing. Ctrl-C ends the load early, with its report.

Exit codes:
  7   the cluster missed the rate in some second
  10  the cluster lost acknowledged writes (--verify)")]
pub(crate) struct RackLoadArgs {
    /// Operations a second, at most 1000000: a number, or FROM..TO for a rate that rises in steps.
    #[arg(long, value_name = "RATE", default_value = "1000")]
    rate: String,

    /// Length of the load, such as 90s, 10m or 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sprat_units::duration)]
    duration: Duration,

    /// Number of steps of a rising rate.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    steps: usize,

    /// Connect to this instance instead of all instances of the plan: HOST:PORT. Repeatable.
    #[arg(long = "contact", value_name = "ADDRESS")]
    contacts: Vec<String>,

    /// Remember acknowledged writes, and read them back at the end.
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    work: WorkArgs,

    /// Write an HTML report with charts of latency and rate to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Print JSON, with the figures of every second.
    #[arg(long, help_heading = "Output")]
    json: bool,

    #[command(flatten)]
    place: RackPlace,
}

/// The operations of a load.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// Data model of reads and writes.
    #[arg(long, value_enum, default_value_t = WorkloadArg::Kv, help_heading = "Workload")]
    workload: WorkloadArg,

    /// Number of keys, sensors or partitions [default: 100000 keys, 1000 sensors, 100 partitions].
    #[arg(long, value_name = "COUNT", help_heading = "Workload")]
    keys: Option<u64>,

    /// Share of reads, such as 95%; the other operations are writes.
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "50%",
        value_parser = sprat_units::share,
        help_heading = "Workload"
    )]
    reads: f64,

    /// Size of each value, such as 100B or 16kB.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "100B",
        value_parser = sprat_units::size,
        help_heading = "Workload"
    )]
    value: u64,

    /// Replicas that must answer an operation.
    #[arg(
        long,
        value_enum,
        default_value_t = ConsistencyArg::LocalQuorum,
        help_heading = "Workload"
    )]
    consistency: ConsistencyArg,

    /// Count an operation as failed if it is not answered within this time.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = sprat_units::duration,
        help_heading = "Workload"
    )]
    timeout: Duration,

    /// Start operations at random times (Poisson arrivals) instead of evenly spaced ones.
    #[arg(long, help_heading = "Workload")]
    poisson: bool,

    /// Seed of the random numbers; the same seed repeats the same operations at the same times.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Workload")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorkloadArg {
    /// Keys with one value each; writes overwrite it.
    Kv,
    /// Sensors with a time series each; writes append a value, reads get the newest values.
    Series,
    /// Few partitions that grow with each write; reads get rows from anywhere in a partition.
    Wide,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ConsistencyArg {
    One,
    LocalQuorum,
    Quorum,
    All,
}

/// Port at which instances accept clients.
const PORT: u16 = 9042;

/// Interval at which to check whether a window of a second has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Goal for the 99th percentile of the response time, in ms. The chart shows it as a line.
const BAND_MS: f64 = 10.0;

pub(crate) fn load(args: &RackLoadArgs) -> Result<ExitCode> {
    let rack = args.place.open()?;
    let load = configure(args, &rack)?;
    let (report, verified) = rack.within(|| run(args, load))??;
    if let Some(path) = &args.html {
        page(rack.name(), &report).write(path)?;
    }
    if args.json {
        print_json(
            &json!({ "report": report, "kept-rate": report.kept_rate(), "verified": verified }),
        )?;
    } else {
        print_line(times(&report).to_string().trim_end())?;
        text(&report, verified.as_ref()).iter().try_for_each(|line| print_line(line))?;
    }
    if verified.is_some_and(|verified| verified.lost_keys > 0) {
        return Ok(ExitCode::from(CORRUPT));
    }
    Ok(if report.kept_rate() { ExitCode::SUCCESS } else { ExitCode::from(BEHIND) })
}

/// Configures the load from the flags and the rack's plan.
fn configure(args: &RackLoadArgs, rack: &Deployment) -> Result<Load> {
    let Some(cassandra) = &rack.plan.spec.cassandra else {
        bail!("{}: the plan has no [cassandra]", args.place.rack);
    };
    let all = args.duration;
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let steps = match args.rate.split_once("..") {
        None => number(&args.rate).map(|rate| vec![Step { rate, duration: all }]),
        Some((from, to)) => number(from).zip(number(to)).map(|(from, to)| {
            Step::ramp(from, to, args.steps, all.div_f64(args.steps.max(1) as f64))
        }),
    };
    let steps = steps.with_context(|| {
        format!("--rate {:?}: want operations a second, such as 1000 or 1000..20000", args.rate)
    })?;
    let contacts = match args.contacts.is_empty() {
        false => args.contacts.clone(),
        true => contacts(&hosts(&rack.plan)),
    };
    let mut load = work(&args.work, contacts, steps, cassandra)?;
    load.remember = args.verify;
    load.check()?;
    Ok(load)
}

/// Returns the addresses at which instances accept clients, at most
/// [`MAX_CONTACTS`](sprat_load::MAX_CONTACTS).
pub(super) fn contacts(hosts: &[Host]) -> Vec<String> {
    let all = hosts.iter().flat_map(|host| &host.instances);
    all.map(|instance| format!("{}:{PORT}", instance.address))
        .take(sprat_load::MAX_CONTACTS)
        .collect()
}

/// Configures a load from the flags about its operations and the description of the cluster.
pub(super) fn work(
    args: &WorkArgs,
    contacts: Vec<String>,
    steps: Vec<Step>,
    cassandra: &Cassandra,
) -> Result<Load> {
    let mut load = Load::new(contacts, steps);
    load.workload = match args.workload {
        WorkloadArg::Kv => Workload::KeyValue { keys: args.keys.unwrap_or(100_000) },
        WorkloadArg::Series => Workload::Series { sensors: args.keys.unwrap_or(1_000) },
        WorkloadArg::Wide => Workload::Wide { partitions: args.keys.unwrap_or(100) },
    };
    load.consistency = match args.consistency {
        ConsistencyArg::One => Consistency::One,
        ConsistencyArg::LocalQuorum => Consistency::LocalQuorum,
        ConsistencyArg::Quorum => Consistency::Quorum,
        ConsistencyArg::All => Consistency::All,
    };
    (load.reads, load.value_bytes, load.seed) =
        (args.reads, usize::try_from(args.value)?, args.seed);
    (load.replication, load.timeout) = (cassandra.replication, args.timeout);
    load.datacenter.clone_from(&cassandra.datacenter);
    load.arrivals = if args.poisson { Arrivals::Poisson } else { Arrivals::Even };
    Ok(load)
}

/// Runs the load and prints a line after each second. Ctrl-C ends it early.
fn run(args: &RackLoadArgs, load: Load) -> Result<(LoadReport, Option<Verification>)> {
    let signals = signals()?;
    let running = RunningLoad::start(load)?;
    if !args.json {
        eprintln!(
            "{:>6} {:>8} {:>9} {:>8} {:>8} {:>9} {:>6} {:>6}",
            "s", "asked/s", "delivered", "p50 ms", "p99 ms", "p99.9 ms", "failed", "open"
        );
    }
    let mut printed = -1.0;
    while !running.is_done() {
        match signals.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => running.stop(),
        }
        let progress = running.progress();
        if let Some(last) = progress.last.filter(|last| last.begins > printed && !args.json) {
            printed = last.begins;
            // The times of the operations that were due in that second. There are none if no
            // operation is answered yet.
            let time = |micros: u64| match last.response.count {
                0 => "-".to_owned(),
                _ => format!("{:.2}", millis(micros)),
            };
            let [p50, p99, p999] =
                [last.response.p50, last.response.p99, last.response.p999].map(time);
            eprintln!(
                "{:>6.0} {:>8} {:>9} {p50:>8} {p99:>8} {p999:>9} {:>6} {:>6}",
                last.begins, last.scheduled, last.delivered, last.failed, progress.outstanding
            );
        }
    }
    let finished: FinishedLoad = running.finish();
    let verified = if args.verify { Some(finished.verify()?) } else { None };
    Ok((finished.report, verified))
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1e3
}

/// Renders the quantiles of the times in ms.
fn times(report: &LoadReport) -> Table {
    let mut table = Table::new(&["ms", "p50", "p99", "p99.9", "max"]);
    let times = [
        ("response", &report.response),
        ("service", &report.service),
        ("delay of the load itself", &report.lateness),
    ];
    for (name, of) in times {
        let cells =
            [of.p50, of.p99, of.p999, of.max].map(|micros| format!("{:.2}", millis(micros)));
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    table
}

/// Renders the results other than times, line by line.
fn text(report: &LoadReport, verified: Option<&Verification>) -> Vec<String> {
    let mut lines = Vec::new();
    let rate = report.scheduled as f64 / report.seconds.max(1e-9);
    lines.push(format!(
        "asked {} operations in {:.0} s, {rate:.0} a second",
        report.scheduled, report.seconds
    ));
    lines.push(format!(
        "done {}, failed {}, not sent {}, not answered {}",
        report.done, report.failed, report.not_sent, report.unanswered
    ));
    for kind in &report.failures.kinds {
        lines.push(format!("  {} x {}: {}", kind.count, kind.kind, kind.example));
    }
    if report.found_nothing > 0 {
        lines.push(format!("{} reads found nothing", report.found_nothing));
    }
    lines.push(match report.missed.len() {
        0 => "the rate was kept in every second".to_owned(),
        missed => format!("the rate was MISSED in {missed} of {} seconds", report.windows.len()),
    });
    if let Some(verified) = verified {
        lines.push(format!(
            "read {} keys back: {} lost an acknowledged write",
            verified.checked, verified.lost_keys
        ));
        for lost in &verified.lost {
            lines.push(format!(
                "  key {}: {:?} instead of {}",
                lost.key, lost.found, lost.acknowledged
            ));
        }
    }
    lines
}

/// Renders an HTML page with charts of response time and rate.
fn page(name: &str, report: &LoadReport) -> Page {
    let mut page = Page::new(&format!("sprat rack load: {name}"), &Machine::describe());
    page.table("Times", &times(report));
    for line in text(report, None) {
        page.note(&line);
    }
    let seconds = report.seconds.max(1.0);
    let x = Axis::linear("seconds", seconds, |at| format!("{at:.0}"));
    let point = |begins: f64, value: f64| (begins, value);
    let of = |name: &str, take: &dyn Fn(&sprat_load::Window) -> f64| Line {
        name: name.to_owned(),
        points: report.windows.iter().map(|window| point(window.begins, take(window))).collect(),
        filled: false,
    };
    // A second without an answer is a gap in the curve.
    let log = |window: &sprat_load::Window, micros: u64| {
        if window.response.count > 0 { millis(micros.max(1)).log10() } else { f64::NAN }
    };
    let most = millis(report.response.max.max(1)).max(2.0 * BAND_MS);
    let y = Axis::decades("response, ms", 0.1, most, |at| format!("{at}"));
    let flat = Line {
        name: format!("{BAND_MS} ms"),
        points: vec![(0.0, BAND_MS.log10()), (seconds, BAND_MS.log10())],
        filled: false,
    };
    let latency = [
        of("p50", &|window| log(window, window.response.p50)),
        of("p99", &|window| log(window, window.response.p99)),
        of("p99.9", &|window| log(window, window.response.p999)),
        flat,
    ];
    page.figure(
        "Response time by the second in which operations were to start",
        &chart(&x, &y, &latency),
    );
    let fastest = report
        .windows
        .iter()
        .map(|window| window.scheduled.max(window.delivered))
        .max()
        .unwrap_or(1);
    let y = Axis::linear("operations a second", fastest as f64, |at| format!("{at:.0}"));
    let rate = [
        of("asked", &|window| window.scheduled as f64),
        of("delivered", &|window| window.delivered as f64),
    ];
    page.figure("Asked and delivered", &chart(&x, &y, &rate));
    page
}
