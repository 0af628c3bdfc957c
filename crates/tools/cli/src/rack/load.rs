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
  sprat rack load three.toml --local --rate 1000 --verify        and no acknowledged write is lost
  sprat rack load rack.toml --rate 1000..20000 --steps 20 --duration 10m --html load.html
  sprat rack load rack.toml --workload wide --keys 100 --rate 500 --duration 1h --json
  sprat rack load rack.toml --contact 10.0.0.3:9042              these instances only

When each operation starts is fixed before the first one does; response time counts from there. So a cluster that
stands still for a second makes a second's operations wait, and that is what is told: nothing is left out.
`delivered` is what was answered in a second, beside what was asked. A run that misses its rate ends with exit code 7,
one that lost acknowledged writes with 10.

The keyspace sprat_load is made where it is not there. Keys that were never written are not found when they are
read: writes alone (--reads 0) fill them.")]
pub(crate) struct RackLoadArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Where the cluster is found, instead of at all instances of the plan: HOST:PORT. Once for
    /// each.
    #[arg(long = "contact", value_name = "ADDRESS")]
    contacts: Vec<String>,

    /// Operations a second: a number, or FROM..TO for a rate that rises.
    #[arg(long, value_name = "RATE", default_value = "1000")]
    rate: String,

    /// In how many steps the rate rises.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    steps: usize,

    /// How long in all, such as 90s, 10m or 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sprat_units::duration)]
    duration: Duration,

    #[command(flatten)]
    work: WorkArgs,

    /// Remember which writes were acknowledged, and look for them afterwards.
    #[arg(long)]
    verify: bool,

    /// Draw latency and rate over time into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON, all seconds with it.
    #[arg(long)]
    json: bool,
}

/// What operations are.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// What is written and read.
    #[arg(long, value_enum, default_value_t = WorkloadArg::Kv)]
    workload: WorkloadArg,

    /// How many keys, sensors or partitions [default: 100000 keys, 1000 sensors, 100 partitions].
    #[arg(long, value_name = "COUNT")]
    keys: Option<u64>,

    /// Share of reads; the others are writes.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = sprat_units::share)]
    reads: f64,

    /// Size of each value.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = sprat_units::size)]
    value: u64,

    /// How many replicas must have answered.
    #[arg(long, value_enum, default_value_t = ConsistencyArg::LocalQuorum)]
    consistency: ConsistencyArg,

    /// How long an answer may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sprat_units::duration)]
    timeout: Duration,

    /// Start operations at random times, as many who know nothing of each other do.
    #[arg(long)]
    poisson: bool,

    /// Where chance begins: the same number is the same operations at the same times.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorkloadArg {
    /// Keys with one value each, which is overwritten.
    Kv,
    /// Sensors whose values are appended; reads ask for the newest ones.
    Series,
    /// Few partitions that grow with each write; reads ask for rows from anywhere in one.
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

/// Interval at which to check whether a second is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Goal for the 99th percentile of the response time in ms, drawn as a line in the chart.
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
            // The times of the operations that were due in that second: perhaps none is answered
            // yet.
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
        ("the load's own lateness", &report.lateness),
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
        "asked for {} operations in {:.0} s, {rate:.0} a second",
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
            "{} keys read again: {} have lost an acknowledged write",
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
