//! `lab up`, `down`, `ls` and `topologies`.

use crate::exit::BEHIND;
use crate::lab::run::{ToleranceArgs, own_namespaces, text, tolerance};
use crate::lab::series::{Series, SeriesArgs};
use crate::output::{print_json, print_line, print_ready};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use sprat_lab::capture::CaptureSummary;
use sprat_lab::control::{ControlDir, RunningBox};
use sprat_lab::hosts::{
    Commands, Event, HostsPlan, Job, Leftover, StateDir, Stream, down as take_down,
};
use sprat_lab::series::{LineAbout, line_name};
use sprat_lab::topology::{LabResult, READY, RunningLab, Topology, ready};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// The folder in which Sprat records labs and running boxes.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabState {
    /// Folder with the records of labs and boxes [default: /run/sprat/lab].
    #[arg(long = "state", value_name = "DIR", env = "SPRAT_LAB_STATE", global = true)]
    dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab up two-sites                        until Ctrl-C; in another terminal:
  ip netns exec two-sites-left ping 10.64.0.2

  sprat lab up two-sites --in left -- 'ping -c 3 $RIGHT_V4; ping -c 3 $RIGHT_V6'
  sprat lab up lab.toml --duration 60s --json
  sprat lab up merge --report merge.svg

A lab.toml:
  name = \"pair\"
  [host.left]
  run = \"iperf3 -s\"                             a shell command; SPRAT_HOST is the host's name
  [host.right]
  run = \"sleep 1; iperf3 -c $LEFT_V4\"           addresses of all hosts are in variables
  [box.wan]
  ports = [\"left\", \"right\"]                     hosts, boxes, or packet:, xdp: or dpdk: ports
  line = { delay = \"100ms\" }                    as for `sprat lab run`
  to.right = { rate = \"2Gb/s\", buffer = \"64MB\" }
  capture = { file = \"wan.pcapng\" }
  filters = [{ match = \"udp port 53\", action = \"drop\" }]

`sprat lab topologies NAME` prints a built-in topology to start from. The lab lives as long as
COMMAND; without one, as long as any command of the topology; without any, until Ctrl-C. Then
every process in it is ended.

Hosts are network namespaces named LAB-HOST; nothing outside them changes. Without root (or
CAP_NET_ADMIN and CAP_SYS_ADMIN), the lab runs in namespaces of its own, and prints at the start
how to enter them.

Exit codes:
  0  done
  1  a command of the topology failed, or another error
  2  wrong usage
  7  a box did not keep up, a capture lost packets, or the kernel ran short of TCP memory
  N  the exit code of COMMAND if it failed; 128 + number of the signal that killed it")]
pub(crate) struct LabUpArgs {
    /// TOML file, or the name of a built-in topology.
    #[arg(value_name = "TOPOLOGY")]
    topology: String,

    /// Name of the lab, instead of the topology's.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Host in which to run COMMAND.
    #[arg(long = "in", value_name = "HOST", requires = "command")]
    host: Option<String>,

    /// Take the lab down after this time, such as 60s.
    #[arg(long, value_name = "TIME", value_parser = sprat_units::duration)]
    duration: Option<Duration>,

    #[command(flatten)]
    tolerate: ToleranceArgs,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    state: LabState,

    /// Print results as JSON, one value a line.
    #[arg(long)]
    json: bool,

    /// Command to run: a single word is run by a shell, several are a program and its arguments.
    #[arg(last = true, value_name = "COMMAND", requires = "host")]
    command: Vec<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab ls
  sprat lab down two-sites

A running `sprat lab up` is stopped, and takes its lab down. If it was killed, this command
removes what it left, but keeps and reports namespaces that others created since.")]
pub(crate) struct LabDownArgs {
    /// Name of the lab.
    name: String,

    #[command(flatten)]
    state: LabState,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab ls
  sprat lab ls --json")]
pub(crate) struct LabLsArgs {
    #[command(flatten)]
    state: LabState,

    /// Print results as JSON, one value a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab topologies
  sprat lab topologies merge > lab.toml         a copy to change")]
pub(crate) struct LabTopologiesArgs {
    /// Topology to print.
    name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Interval at which to check signals and boxes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The kernel's file with the limits on the memory of all TCP connections of the machine: three
/// thresholds in pages. Above the second, the kernel reduces windows.
const TCP_MEMORY: &str = "/proc/sys/net/ipv4/tcp_mem";

pub(crate) fn up(args: &LabUpArgs) -> Result<ExitCode> {
    let mut topology = read(&args.topology)?;
    if let Some(name) = &args.name {
        topology.name.clone_from(name);
    }
    let mut lab = topology.lay_out().with_context(|| args.topology.clone())?;
    lab.tolerance = tolerance(&args.tolerate)?;
    let requested = requested_jobs(args, &lab.plan)?;
    own_namespaces()?;
    let mut series = Series::new(&args.series)?;
    let about = lab.boxes.iter().flat_map(|plan| {
        plan.ports
            .iter()
            .map(|port| LineAbout::new(line_name(&prefix(&plan.name), &port.name), &port.line))
    });
    let about = about.collect();
    // From here on a signal ends the lab cleanly.
    let signals = signals()?;
    let raised = RunningLab::up(lab, &dir(&args.state))?;
    let jobs = raised.jobs(&requested);
    eprintln!("sprat: {}", describe(&topology, raised.hosts().plan()));
    let hosts: Vec<_> =
        jobs.iter().map(|job| raised.hosts().plan().hosts[job.host].name.clone()).collect();
    let mut commands = raised.run(&requested)?;
    if commands.is_over() {
        eprintln!("sprat: the lab is up; Ctrl-C takes it down");
    }
    if let Some(series) = &mut series {
        series.begin(format!("lab {}: {}", topology.name, topology.about), about)?;
    }
    let watched = watch(
        &raised,
        &mut commands,
        &hosts,
        requested.len(),
        (args.duration, &signals),
        args.json,
        series.as_mut(),
    );
    let statuses: Vec<_> = (0..jobs.len()).map(|job| commands.status(job)).collect();
    drop(commands);
    let ended = raised.down()?;
    watched?;
    if let Some(series) = series {
        let reports = ended
            .boxes
            .iter()
            .filter_map(|end| Some((prefix(&end.name), end.report.as_ref().ok()?.clone())));
        series.end(&reports.collect::<Vec<_>>())?;
    }
    let kept_up = report(&ended, args.json)?;
    let failed = statuses.iter().flatten().any(|status| !status.success());
    Ok(match statuses.first().copied().flatten() {
        Some(status) if !requested.is_empty() && !status.success() => ExitCode::from(code(status)),
        _ if requested.is_empty() && failed => ExitCode::FAILURE,
        _ if !kept_up => ExitCode::from(BEHIND),
        _ => ExitCode::SUCCESS,
    })
}

pub(crate) fn down(args: &LabDownArgs) -> Result<ExitCode> {
    let left = take_down(&args.name, &dir(&args.state))?;
    if args.json {
        let left: Vec<_> =
            left.iter().map(|Leftover { path, why }| json!({ "path": path, "why": why })).collect();
        print_json(&json!({ "down": args.name, "left": left }))?;
    } else {
        print_left(&left);
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn ls(args: &LabLsArgs) -> Result<ExitCode> {
    // Every user may list the labs, but only their owner may list the boxes.
    let mut boxes = ControlDir::of(&dir(&args.state)).list().unwrap_or_else(|error| {
        eprintln!("sprat: cannot list boxes: {error}");
        Vec::new()
    });
    for lab in dir(&args.state).list()? {
        let own =
            |live: &mut RunningBox| live.name.split_once('.').is_some_and(|(of, _)| of == lab.name);
        let own: Vec<_> = boxes.extract_if(.., own).map(|live| live.name).collect();
        if args.json {
            print_json(&json!({
                "name": lab.name, "owner": lab.owner, "alive": lab.alive,
                "namespaces": lab.namespaces, "boxes": own,
            }))?;
        } else {
            let state = match lab.alive {
                true => {
                    format!(
                        "process {}{}",
                        lab.owner,
                        own.iter().map(|name| format!("  {name}")).collect::<String>()
                    )
                }
                false => {
                    format!("left by process {}; remove: sprat lab down {}", lab.owner, lab.name)
                }
            };
            print_line(&format!(
                "{:<24} {:>3} namespaces  {state}",
                lab.name,
                lab.namespaces.len()
            ))?;
        }
    }
    // The boxes that remain are those of `sprat lab run`.
    for RunningBox { name, process } in boxes {
        if args.json {
            print_json(&json!({ "box": name, "owner": process }))?;
        } else {
            let process = process.map_or_else(String::new, |process| format!("process {process}"));
            print_line(&format!("{name:<24}           a box  {process}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn topologies(args: &LabTopologiesArgs) -> Result<ExitCode> {
    let one =
        args.name.as_deref().map(|name| ready(name).with_context(|| unknown(name))).transpose()?;
    let about = |found: &sprat_lab::topology::Ready| {
        Ok((found.name, Topology::from_toml(found.text)?.about))
    };
    let all = READY.iter().map(about).collect::<Result<Vec<_>>>()?;
    print_ready(one.map(|found| (found.name, found.text)), all, args.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn dir(state: &LabState) -> StateDir {
    state.dir.as_ref().map_or_else(StateDir::usual, StateDir::at)
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = READY.iter().map(|ready| ready.name).collect();
    format!("no topology {name:?}: name a file (./{name}.toml), or one of {}", names.join(", "))
}

/// Reads a topology: one that is built in, or a file.
fn read(name: &str) -> Result<Topology> {
    if let Some(found) = ready(name) {
        return Ok(Topology::from_toml(found.text)?);
    }
    if !Path::new(name).exists() && !name.contains(['/', '.']) {
        bail!(unknown(name));
    }
    let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
    Topology::from_toml(&text).with_context(|| name.to_owned())
}

/// Returns the command of `--in HOST -- COMMAND` as a job, if there is one.
fn requested_jobs(args: &LabUpArgs, plan: &HostsPlan) -> Result<Vec<Job>> {
    let Some(host) = &args.host else { return Ok(Vec::new()) };
    let Some(host) = plan.position(host) else {
        let names: Vec<_> = plan.hosts.iter().map(|host| &host.name[..]).collect();
        bail!("--in {host}: no such host; the hosts are {}", names.join(", "))
    };
    let command = match &args.command[..] {
        [text] => text.clone(),
        words => words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect::<Vec<_>>()
            .join(" "),
    };
    Ok(vec![Job { host, command }])
}

/// Returns the prefix of the names of a box's lines.
fn prefix(name: &str) -> String {
    format!("box.{name}: ")
}

/// Describes the lab in a line.
fn describe(topology: &Topology, plan: &HostsPlan) -> String {
    let namespaces: Vec<_> = plan.hosts.iter().map(|host| plan.namespace(host)).collect();
    let shown = match &namespaces[..] {
        [first, .., last] if namespaces.len() > 6 => format!("{first} to {last}"),
        _ => namespaces.join(", "),
    };
    format!(
        "lab {}: {} hosts ({shown}), {} boxes",
        plan.name,
        topology.hosts.len(),
        topology.boxes.len()
    )
}

/// Prints events until the lab is to end: the requested command or all commands of the topology
/// have ended, a signal or a stop request has arrived, the time is over, or a box has ended.
fn watch(
    raised: &RunningLab,
    commands: &mut Commands,
    hosts: &[String],
    requested: usize,
    (longest, signals): (Option<Duration>, &Receiver<()>),
    json: bool,
    mut series: Option<&mut Series>,
) -> Result<()> {
    let (began, idle) = (Instant::now(), hosts.is_empty());
    loop {
        let poll = series
            .as_ref()
            .map_or(POLL_INTERVAL, |series| series.time_to_sample().min(POLL_INTERVAL));
        let left =
            longest.map_or(poll, |longest| longest.saturating_sub(began.elapsed()).min(poll));
        // Without commands, the only events are signals.
        let stopped = match idle {
            true => !matches!(signals.recv_timeout(left), Err(RecvTimeoutError::Timeout)),
            false => {
                commands.next(left).map(|event| print_event(&event, hosts, json)).transpose()?;
                !matches!(signals.try_recv(), Err(TryRecvError::Empty))
            }
        };
        let over = longest.is_some_and(|longest| began.elapsed() >= longest);
        let count = if requested > 0 { requested } else { hosts.len() };
        let done = !idle && (0..count).all(|job| commands.status(job).is_some());
        if stopped
            || over
            || done
            || raised.stop_requested()
            || raised.boxes().any(|(_, engine)| engine.ended())
        {
            return Ok(());
        }
        if let Some(series) = &mut series {
            series.sample_if_due(raised.boxes().map(|(name, engine)| (prefix(name), engine)))?;
        }
    }
}

fn print_event(event: &Event, hosts: &[String], json: bool) -> Result<()> {
    match event {
        Event::Line { job, stream, text } if json => {
            let stream = if *stream == Stream::Output { "output" } else { "error" };
            let mut line = serde_json::Map::new();
            line.insert("host".to_owned(), hosts[*job].clone().into());
            line.insert("stream".to_owned(), stream.into());
            crate::output::json_bytes(&mut line, "text", text);
            print_json(&line.into())
        }
        Event::Line { job, stream, text } => {
            let line = [format!("{} | ", hosts[*job]).as_bytes(), text, b"\n"].concat();
            match stream {
                Stream::Output => crate::output::print_bytes(&line),
                Stream::Error => Ok(std::io::stderr().lock().write_all(&line)?),
            }
        }
        Event::Ended { job, status } if json => print_json(
            &json!({ "host": hosts[*job], "ended": code(*status), "how": status.to_string() }),
        ),
        Event::Ended { job, status } => {
            eprintln!("sprat: {}: {status}", hosts[*job]);
            Ok(())
        }
    }
}

/// Returns the exit code that a shell would report: the command's own, or 128 plus the number of
/// the signal that ended it.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Prints the final reports of the boxes. Returns whether all boxes kept up, all captures are
/// complete and the kernel had enough memory for TCP.
///
/// # Errors
/// If a box failed.
fn report(ended: &LabResult, json: bool) -> Result<bool> {
    let mut kept_up = true;
    for ended in &ended.boxes {
        let report = match &ended.report {
            Ok(report) => report,
            Err(error) => bail!("box.{}: {error}", ended.name),
        };
        kept_up &= report.kept_up();
        if json {
            let mut value = serde_json::to_value(report)?;
            value["box"] = ended.name.clone().into();
            value["capture"] = ended.capture.as_ref().map_or(Value::Null, json_of_capture);
            print_json(&value)?;
        } else {
            let named = text(report).into_iter().map(|line| format!("box.{}: {line}", ended.name));
            named
                .chain(ended.capture.iter().map(|capture| describe_capture(&ended.name, capture)))
                .for_each(|line| eprintln!("{line}"));
            for (number, filter) in report.filters.iter().enumerate() {
                let (name, packets, bytes) = (&ended.name, filter.packets, filter.bytes);
                eprintln!(
                    "box.{name}: filters[{number}]: {packets} packets, {bytes} bytes, {} without \
                     the field",
                    filter.lacking
                );
            }
        }
        for why in &report.behind {
            eprintln!("sprat: box.{} did not keep up: {why}", ended.name);
        }
        if let Some(error) = ended.capture.as_ref().and_then(|capture| capture.error.as_ref()) {
            eprintln!("sprat: box.{}: {error}", ended.name);
            kept_up = false;
        }
        kept_up &= ended
            .capture
            .iter()
            .flat_map(|capture| &capture.interfaces)
            .all(|totals| totals.dropped == 0);
    }
    if json {
        print_json(&json!({ "tcp_memory_shortages": ended.memory_shortages }))?;
    }
    if ended.memory_shortages > 0 {
        let sizes = std::fs::read_to_string(TCP_MEMORY).context(TCP_MEMORY)?;
        let sizes = sizes.split_whitespace().collect::<Vec<_>>().join(" ");
        let often = match ended.memory_shortages {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        eprintln!(
            "sprat: the kernel ran short of memory for TCP {often} and cut the windows of \
             connections; raise net.ipv4.tcp_mem, now {sizes:?} pages"
        );
        kept_up = false;
    }
    print_left(&ended.left);
    Ok(kept_up)
}

fn json_of_capture(capture: &CaptureSummary) -> Value {
    let interfaces: Vec<_> = capture
        .interfaces
        .iter()
        .map(|totals| json!({ "seen": totals.seen, "dropped": totals.dropped }))
        .collect();
    json!({ "files": capture.files, "bytes": capture.bytes, "interfaces": interfaces })
}

fn describe_capture(name: &str, capture: &CaptureSummary) -> String {
    let seen: u64 = capture.interfaces.iter().map(|totals| totals.seen).sum();
    let dropped: u64 = capture.interfaces.iter().map(|totals| totals.dropped).sum();
    format!(
        "box.{name}: captured {} of {seen} packets in {} files, {} bytes",
        seen - dropped,
        capture.files.len(),
        capture.bytes
    )
}

/// Warns about files and namespaces that could not be removed when the lab was taken down.
fn print_left(left: &[Leftover]) {
    for Leftover { path, why } in left {
        eprintln!("sprat: {}: not removed: {why}", path.display());
    }
}
