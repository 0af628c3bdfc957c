//! `rack power`: measures the power of a rack's servers, or of this machine.

use crate::exit::{INCOMPLETE, NOT_FOUND};
use crate::output::{print_json, print_line};
use crate::rack::plan::read;
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use sprat_measure::machine::Machine;
use sprat_measure::report::Report as Page;
use sprat_measure::report::svg::{Axis, COLOURS, Line, chart};
use sprat_measure::table::Table;
use sprat_plan::Plan;
use sprat_plan::quantity::digits;
use sprat_power::report::{Report, TargetReport};
use sprat_power::sampling::{LEAST_EVERY, MAX_DURATION, Sampling};
use sprat_power::{Watts, targets};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack power rack.toml --duration 60s             read the sensors that the plan names
  sprat rack power rack.toml --operations 1200000       add joules per million operations
  sprat rack power rack.toml --load load.json           with the operations of `sprat rack load`
  sprat rack power rack.toml --every 5s --duration 8h --html power.html
  sprat rack power --here                               read this machine's own sensors

List sensors in the plan, most trusted first. Those of the first one's kind are summed; others
are shown beside them. docs/power.md describes all kinds.
  [[power.sensors]]            # of each server: {name}, {address}, {chassis}, {slot}, {user}
  kind = \"redfish\"             # rapl, hwmon, ipmi, redfish, shelly, tasmota or command
  url = \"https://bmc-{name}\"
  login = \"/etc/sprat/bmc\"     # a file with USER:PASSWORD, readable only by its owner
[[power.chassis]] lists the sensors of a whole chassis in the same way.

Exit codes:
  3  no sensor could be read
  6  some sensors could not be read, or not all of the time")]
pub(crate) struct RackPowerArgs {
    /// Rack description: a file, or a built-in rack (see `sprat rack examples`).
    #[arg(required_unless_present = "here", conflicts_with = "here")]
    rack: Option<String>,

    /// Read this machine's sensors: RAPL, hwmon, and its management controller over IPMI.
    #[arg(long, help_heading = "This machine")]
    here: bool,

    /// Count only this sensor of the board. Repeatable.
    #[arg(long = "channel", value_name = "NAME", requires = "here", help_heading = "This machine")]
    channels: Vec<String>,

    /// Number of instances that share this machine.
    #[arg(
        long,
        value_name = "COUNT",
        requires = "here",
        default_value_t = 0,
        help_heading = "This machine"
    )]
    instances: usize,

    /// Folder where sysfs is mounted.
    #[arg(
        long,
        value_name = "FOLDER",
        requires = "here",
        default_value = "/sys",
        help_heading = "This machine"
    )]
    sysfs: PathBuf,

    /// Interval between readings, 50ms or more.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sprat_units::duration)]
    every: Duration,

    /// Length of the measurement, such as 90s, 10m or 1h; Ctrl-C ends it early.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sprat_units::duration)]
    duration: Duration,

    /// Number of operations during the measurement, for joules per operation.
    #[arg(long, value_name = "COUNT")]
    operations: Option<u64>,

    /// Output of a `sprat rack load --json` that ran meanwhile, for joules per operation.
    #[arg(long, value_name = "FILE", conflicts_with = "operations")]
    load: Option<PathBuf>,

    /// Write an HTML report with a chart of power over time to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Print JSON, with all readings.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Interval at which to check for new readings, or for the end of a load.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Limit on the targets that have a column of their own in the lines printed while measuring.
const COLUMNS: usize = 8;

/// How long to wait for the load's result after the measurement has ended.
const LOAD_PATIENCE: Duration = Duration::from_secs(30);

/// Limit on the bytes of a load's result that are read. A longer result is not valid JSON, and is
/// refused.
const MAX_LOAD: u64 = 256 << 20;

pub(crate) fn power(args: &RackPowerArgs) -> Result<ExitCode> {
    let (every, long) = (args.every, args.duration);
    if every < LEAST_EVERY || long > MAX_DURATION || long.is_zero() {
        let least = LEAST_EVERY.as_millis();
        bail!(
            "--every {every:?} --duration {long:?}: want readings {least} ms apart or more, for up \
             to a year"
        );
    }
    if let Some(path) = &args.load {
        File::open(path).with_context(|| format!("--load {}", path.display()))?;
    }
    let (name, targets) = match &args.rack {
        Some(rack) => {
            let plan = Plan::new(read(rack)?).with_context(|| rack.clone())?;
            (plan.spec.name.clone(), targets::of_rack(&plan))
        }
        None => {
            let mut here =
                targets::this_machine(args.sysfs.clone(), &args.channels, args.instances);
            // Few machines have all kinds of sensors: only those that can be read are used.
            let mut why = Vec::new();
            here.sensors.retain_mut(|sensor| {
                sensor.read().map_err(|error| why.push(error.to_string())).is_ok()
            });
            if here.sensors.is_empty() {
                eprintln!("sprat: this machine has no power sensor that can be read:");
                why.iter().for_each(|why| eprintln!("  {why}"));
                return Ok(ExitCode::from(NOT_FOUND));
            }
            ("here".to_owned(), vec![here])
        }
    };
    if targets.iter().all(|target| target.sensors.is_empty()) {
        eprintln!(
            "sprat: {name}: the plan has no sensors: add [[power.sensors]], see `sprat rack power \
             --help`"
        );
        return Ok(ExitCode::from(NOT_FOUND));
    }
    let report = run(args, Sampling::start(targets, every, long))?;
    let load = args.load.as_deref().map(read_load).transpose()?;
    let per_million = match (&load, args.operations) {
        (Some((operations, seconds)), _) => report.joules_per_million_over(*operations, *seconds),
        (None, Some(operations)) => report.joules_per_million(operations),
        (None, None) => None,
    };
    if let Some(path) = &args.html {
        page(&name, &report, per_million).write(path)?;
    }
    let counted = load.is_some() || args.operations.is_some();
    if counted && per_million.is_none() && report.total.is_some() {
        eprintln!(
            "sprat: cannot compute joules per million operations: too many readings are missing"
        );
    }
    if args.json {
        print_json(&json!({ "report": report, "joules-per-million-operations": per_million }))?;
    } else {
        print_line(table(&report).to_string().trim_end())?;
        text(&report, per_million).iter().try_for_each(|line| print_line(line))?;
    }
    Ok(match (&report.total, report.is_whole()) {
        (None, _) => ExitCode::from(NOT_FOUND),
        (Some(_), false) => ExitCode::from(INCOMPLETE),
        (Some(_), true) => ExitCode::SUCCESS,
    })
}

/// Reads the operations and seconds of a load from the output of `sprat rack load --json`. Waits up
/// to [`LOAD_PATIENCE`] for complete output, since the load may end later than the measurement.
fn read_load(path: &Path) -> Result<(u64, f64)> {
    let begun = Instant::now();
    loop {
        let text = File::open(path).and_then(|file| sprat_host::read_text(file, MAX_LOAD));
        let text = text.with_context(|| format!("--load {}", path.display()))?;
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let (done, seconds) =
                (value["report"]["done"].as_u64(), value["report"]["seconds"].as_f64());
            let found = done.zip(seconds).filter(|(done, seconds)| *done > 0 && *seconds > 0.0);
            return found
                .with_context(|| format!("--load {}: no operations were done", path.display()));
        }
        if begun.elapsed() > LOAD_PATIENCE {
            bail!(
                "--load {}: want the complete output of `sprat rack load --json`",
                path.display()
            );
        }
        #[expect(clippy::disallowed_methods, reason = "a command waits by sleeping")]
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Samples until the end of the measurement, and prints a line after each reading, except with
/// `--json`. Ctrl-C ends the measurement early.
fn run(args: &RackPowerArgs, sampling: Sampling) -> Result<Report> {
    let signals = signals()?;
    let mut head = false;
    let mut printed = 0;
    while !sampling.is_done() {
        match signals.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => sampling.stop(),
        }
        let report = sampling.report();
        let reads = report
            .targets
            .iter()
            .flat_map(|target| &target.sensors)
            .map(|sensor| sensor.reads)
            .max();
        if args.json || reads.is_none_or(|reads| reads <= printed) {
            continue;
        }
        printed = reads.unwrap_or_default();
        let columns: Vec<&TargetReport> = report.targets.iter().take(COLUMNS).collect();
        if !head {
            let names: String =
                columns.iter().map(|target| format!(" {:>10}", target.name)).collect();
            eprintln!("{:>7} {:>10}{names}", "s", "all, W");
            head = true;
        }
        let watts =
            |watts: Option<Watts>| watts.map_or("-".to_owned(), |watts| format!("{:.1}", watts.0));
        let of = report.total.map(|total| total.of);
        let counted = || {
            report
                .targets
                .iter()
                .filter(|target| Some(target.of) == of)
                .filter_map(|target| target.now)
        };
        let all = (counted().count() > 0).then(|| counted().sum::<Watts>());
        let cells: String =
            columns.iter().map(|target| format!(" {:>10}", watts(target.now))).collect();
        eprintln!("{:>7.1} {:>10}{cells}", report.seconds, watts(all));
    }
    Ok(sampling.finish())
}

/// Renders a table of all targets.
fn table(report: &Report) -> Table {
    let mut table = Table::new(&[
        "target",
        "W",
        "W an instance",
        "peak W",
        "J",
        "unread, s",
        "readings",
        "failed",
        "sensor",
    ]);
    let watts = |watts: Option<Watts>| watts.map_or("-".to_owned(), |watts| digits(watts.0));
    for target in &report.targets {
        let first = [target.name.clone(), watts(target.watts), watts(target.watts_per_instance)];
        let by = |counts: bool| target.sensors.iter().filter(move |sensor| sensor.counts == counts);
        let peak = by(true).map(|sensor| sensor.peak).sum::<Watts>();
        let rest = if target.shared {
            ["-", "-", "-", "-", "-", "share of the chassis"].map(str::to_owned)
        } else {
            [
                digits(peak.0),
                target.joules.map_or("-".to_owned(), digits),
                digits(target.unread),
                by(true).map(|sensor| sensor.reads).sum::<u64>().to_string(),
                by(true).map(|sensor| sensor.failed).sum::<u64>().to_string(),
                by(true).map(|sensor| sensor.kind).next().unwrap_or("no sensor").to_owned(),
            ]
        };
        table.row(first.into_iter().chain(rest).collect());
        for sensor in by(false) {
            let cells = [
                format!("  {} (not summed)", target.name),
                watts(sensor.watts),
                "-".to_owned(),
                digits(sensor.peak.0),
                digits(sensor.joules),
                digits(sensor.unread),
                sensor.reads.to_string(),
                sensor.failed.to_string(),
                sensor.kind.to_owned(),
            ];
            table.row(cells.into_iter().collect());
        }
    }
    table
}

/// Renders totals and failures, line by line.
fn text(report: &Report, per_million: Option<f64>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(total) = &report.total {
        let each = total
            .watts_per_instance
            .map_or_else(String::new, |watts| format!(", {watts} an instance"));
        let energy = format!("{} J in {} s", digits(total.joules), digits(report.seconds));
        lines.push(format!("{} on average{each}; {energy}", total.watts));
        if total.measured < total.there_are {
            lines.push(format!(
                "only {1} of {0} were measured; the sums leave out the others",
                total.there_are, total.measured
            ));
        }
    }
    if let Some(total) = report.total.filter(|total| total.unread > 0.0) {
        let share = digits(total.unread * 100.0);
        lines.push(format!("{share} % of the time was not measured; the energy leaves it out"));
    }
    if let Some(joules) = per_million {
        lines.push(format!("{} J per million operations", digits(joules)));
    }
    if report.stopped {
        lines.push("ended early".to_owned());
    }
    let failed = report
        .targets
        .iter()
        .flat_map(|target| target.sensors.iter().map(move |sensor| (target, sensor)));
    for (target, sensor) in failed {
        if let Some(error) = &sensor.error {
            lines.push(format!(
                "{}: {} of {} readings failed: {error}",
                target.name, sensor.failed, sensor.reads
            ));
        }
    }
    lines
}

/// Renders an HTML page with charts of power over time.
fn page(name: &str, report: &Report, per_million: Option<f64>) -> Page {
    let mut page = Page::new(&format!("sprat rack power: {name}"), &Machine::describe());
    page.table("Power", &table(report));
    text(report, per_million).iter().for_each(|line| page.note(line));
    let lines: Vec<Line> = report
        .targets
        .iter()
        .flat_map(|target| target.sensors.iter().map(move |sensor| (target, sensor)))
        .filter(|(_, sensor)| !sensor.points.is_empty())
        .map(|(target, sensor)| Line {
            name: format!("{}, {}", target.name, sensor.kind),
            points: sensor.points.clone(),
            filled: false,
        })
        .collect();
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(1.0, f64::max);
    let x = Axis::linear("seconds", report.seconds.max(1e-3), digits);
    let y = Axis::linear("W", most, digits);
    for lines in lines.chunks(COLOURS) {
        page.figure("Power over time", &chart(&x, &y, lines));
    }
    page
}
