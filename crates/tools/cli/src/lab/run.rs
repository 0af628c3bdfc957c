//! `lab run`: runs one network box.

use crate::exit::BEHIND;
use crate::lab::series::{Series, SeriesArgs};
use crate::lab::up::{LabState, dir};
use crate::output::{print_json, print_line};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sprat_lab::config::{
    BoxConfig, BoxWords, LineWords, PortWords, Word, set, tolerance as parse_tolerance,
};
use sprat_lab::control::{ControlDir, ControlError, Server};
use sprat_lab::engine::{Engine, Forwarding, LineReport, Report, Tolerance};
use sprat_lab::hosts::{MAX_NAME, enter_own_namespaces, make_own_namespace, missing_privileges};
use sprat_lab::series::{LineAbout, line_name};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ip netns add left; ip netns add right
  sprat lab run --port tap:a0@left --port tap:b0@right --delay 100ms --duration 60s &
  ip -n left addr add 10.0.0.1/24 dev a0; ip -n right addr add 10.0.0.2/24 dev b0
  ip netns exec left ping 10.0.0.2              200 ms

  sprat lab run --port tap:a0@left --port tap:b0@right --delay 100ms \\
      --to b0:rate=2Gb/s,buffer=64MB,queue=harmonize --json
  sprat lab run --port tap:a0@left --port tap:b0@right --loss 0.1% --seed 7
  sprat lab run --port tap:a@h1 --port tap:b@h2 --port tap:c@h3 --forward switch --rate 1Gb/s
  sprat lab run --port tap:a --port tap:b --port tap:c --port tap:d --pair a,b --pair c,d
  sprat lab run --port xdp:eth1 --port xdp:eth2 --delay 5ms     single frames, nothing merged
  sprat lab run --port tap:a0@left \\
      --port dpdk:net_memif0,role=server,socket=/tmp/box.sock,socket-abstract=no
  sprat lab run --config box.toml --duration 10s --report box.svg

A box.toml uses the same names:
  [line]                                        every line
  delay = \"100ms\"
  [[port]]
  open = \"tap:a0@left\"
  [[port]]
  open = \"tap:b0@right\"
  line = { rate = \"2Gb/s\" }                     the line to this port

Ports:
  tap:NAME[@NAMESPACE][,mtu=BYTES]              a TAP that the box creates and removes
  packet:NAME[@NAMESPACE]                       an existing interface, by a packet socket
  xdp:NAME[@NAMESPACE][,mtu=BYTES]              an existing interface, frame by frame (AF_XDP)
  dpdk:DEVICE[,ARGUMENTS][,mtu=BYTES]           a DPDK device, or memory shared with another box

Rates count bits on an Ethernet wire: each frame has 24 bytes more than its own (--overhead).
Without root (or CAP_NET_ADMIN and CAP_SYS_ADMIN), the box runs in namespaces of its own,
creates each NAMESPACE there, and prints at the start how to enter them.

Exit codes:
  0  done
  1  any other error
  2  wrong usage
  7  the box did not keep up; standard error says why")]
pub(crate) struct LabRunArgs {
    /// Port to open, in one of the forms below, such as tap:a0@left. Repeat for each port.
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<String>,

    /// Read the box from this TOML file; options override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Change the line to one port: PORT:SETTING=VALUE,... with the names under "Every line", such
    /// as b0:rate=2Gb/s,buffer=64MB. Repeat for several ports.
    #[arg(long = "to", value_name = "PORT:SETTINGS")]
    to: Vec<String>,

    /// Connect the ports by `cross` (in pairs) or `switch` [default: cross for two ports or with
    /// --pair].
    #[arg(long, value_name = "HOW")]
    forward: Option<String>,

    /// Connect these two ports: NAME,NAME. Repeat until each port is in one pair; two ports need no
    /// --pair.
    #[arg(long = "pair", value_name = "NAMES")]
    pairs: Vec<String>,

    /// Stop after this time, such as 60s [default: at Ctrl-C].
    #[arg(long, value_name = "TIME", value_parser = sprat_units::duration)]
    duration: Option<Duration>,

    /// Name of the box for `sprat lab ctl` and `watch` [default: the names of its ports, such as
    /// a0-b0].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Also take over interfaces that have addresses or the default route.
    #[arg(long)]
    force: bool,

    /// Time without frames after which a switch forgets an address [default: 300s].
    #[arg(long, value_name = "TIME")]
    ageing: Option<String>,

    /// Packet memory of each direction, such as 256MB [default: enough for rate, delay and buffer].
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    #[command(flatten)]
    tolerate: ToleranceArgs,

    #[command(flatten)]
    state: LabState,

    /// Print the counters at the end as JSON.
    #[arg(long)]
    json: bool,

    /// Print no live line.
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    line: LineArgs,
}

/// How late a box may be.
#[derive(Args, Clone, Debug)]
pub(crate) struct ToleranceArgs {
    /// Tolerate that this share of a line's segments leaves later than this: SHARE or SHARE:TIME,
    /// such as 5%:10ms. Beyond it the exit code is 7; 100% tolerates any lateness.
    #[arg(long, value_name = "SHARE:TIME", default_value = "1%:1ms")]
    tolerate: String,
}

/// What every line does, each way.
#[derive(Args, Debug)]
#[command(next_help_heading = "Every line")]
pub(crate) struct LineArgs {
    /// One-way delay, such as 100ms; at most 500ms.
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Rate, such as 2Gb/s or 100Mbit; a bare number is bits per second [default: unlimited].
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Size of the queue before a limited rate, such as 64MB; a bare number is bytes [default:
    /// 64MB].
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
    /// Queue: `drop-tail`, or `harmonize`, which gives each flow a queue and an equal share
    /// [default: drop-tail].
    #[arg(long, value_name = "HOW")]
    queue: Option<String>,
    /// Rate of each flow, with `--queue harmonize` [default: unlimited].
    #[arg(long, value_name = "RATE")]
    flow_rate: Option<String>,
    /// Lost segments: a share such as 0.1%, Gilbert-Elliott
    /// bursts:TO_BAD,TO_GOOD[,LOSS_BAD[,LOSS_GOOD]], or numbers list:N,N,...
    #[arg(long, value_name = "LOSS")]
    loss: Option<String>,
    /// Random extra delay, up to this time; segments stay in order.
    #[arg(long, value_name = "TIME")]
    jitter: Option<String>,
    /// Share of segments to hold back, and for how long, so that others overtake them: such as
    /// 1%:5ms.
    #[arg(long, value_name = "SHARE:TIME")]
    reorder: Option<String>,
    /// Share of segments to duplicate, such as 0.1%.
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<String>,
    /// Share of segments in which to flip one bit, such as 0.1%.
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<String>,
    /// Seed of all random numbers; the same seed loses the same segments [default: 1].
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Most segments that leave together [default: super-packets of up to 64 KB leave whole].
    #[arg(long, value_name = "N")]
    burst: Option<String>,
    /// Time at which a frame leaves: `store-and-forward` or `cut-through` [default:
    /// store-and-forward].
    #[arg(long, value_name = "WHEN")]
    timing: Option<String>,
    /// Bytes that each frame takes on the wire besides its own [default: 24].
    #[arg(long, value_name = "BYTES")]
    overhead: Option<String>,
}

impl LineArgs {
    /// Returns the settings as texts. Settings that were not given are taken from `base`.
    pub(crate) fn words(&self, base: &LineWords) -> LineWords {
        let or = |given: &Option<String>, base: &Option<Word>| {
            given.clone().map(Word).or_else(|| base.clone())
        };
        LineWords {
            delay: or(&self.delay, &base.delay),
            rate: or(&self.rate, &base.rate),
            buffer: or(&self.buffer, &base.buffer),
            queue: or(&self.queue, &base.queue),
            flow_rate: or(&self.flow_rate, &base.flow_rate),
            burst: or(&self.burst, &base.burst),
            timing: or(&self.timing, &base.timing),
            overhead: or(&self.overhead, &base.overhead),
            loss: or(&self.loss, &base.loss),
            jitter: or(&self.jitter, &base.jitter),
            reorder: or(&self.reorder, &base.reorder),
            duplicate: or(&self.duplicate, &base.duplicate),
            corrupt: or(&self.corrupt, &base.corrupt),
            seed: or(&self.seed, &base.seed),
        }
    }
}

/// Interval between two updates of the progress line.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which to check whether the box has ended by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &LabRunArgs) -> Result<ExitCode> {
    let mut config = config(args)?;
    // A user who can make TAPs, but not enter namespaces, may want the TAPs in the machine's own
    // namespace. So this process enters namespaces of its own only if the user cannot make TAPs.
    if missing_privileges().iter().any(|name| name.starts_with("CAP_NET_ADMIN"))
        && own_namespaces()?
    {
        let named = config.ports.iter().filter_map(|(spec, _)| spec.netns());
        named.filter(|name| !name.contains('/')).try_for_each(make_own_namespace)?;
    }
    config.tolerance = tolerance(&args.tolerate)?;
    if let Some(name) = &args.name {
        config.name.clone_from(name);
    }
    let description = describe(&config);
    let mut series = Series::new(&args.series)?;
    let signals = signals()?;
    let about = config
        .ports
        .iter()
        .map(|(spec, line)| LineAbout::new(line_name("", spec.name()), line))
        .collect();
    let engine = config.start()?;
    let control = control(args, &engine)?;
    if let Some(series) = &mut series {
        series.begin(description.clone(), about)?;
    }
    eprintln!("sprat: {description}");
    match &control {
        Some(control) => eprintln!("sprat: the box runs as {}; stop with Ctrl-C", control.name()),
        None => eprintln!("sprat: the box runs; stop with Ctrl-C"),
    }
    let watched =
        watch(&engine, control.as_ref(), &signals, args.duration, args.quiet, series.as_mut());
    let report = engine.stop()?;
    drop(control); // replies to the client that requested the stop
    watched?;
    if let Some(series) = series {
        series.end(&[(String::new(), report.clone())])?;
    }
    if args.json {
        print_json(&serde_json::to_value(&report)?)?;
    } else {
        text(&report).iter().try_for_each(|line| print_line(line))?;
    }
    for why in &report.behind {
        eprintln!("sprat: the box did not keep up: {why}");
    }
    Ok(if report.kept_up() { ExitCode::SUCCESS } else { ExitCode::from(BEHIND) })
}

/// Starts the control server, by which `lab ctl` queries and changes the box. If a server with the
/// name of `--name` cannot start, the box does not run. Without `--name`, the name is derived from
/// the ports, or is `box-PID` if that name is taken or not allowed; if this fails, a warning says
/// so and the box runs without a control server.
fn control(args: &LabRunArgs, engine: &Engine) -> Result<Option<Server>> {
    let place = ControlDir::of(&dir(&args.state));
    let start = |name: &str| Server::start(&place, name, engine.handle().clone());
    if let Some(name) = &args.name {
        return Ok(Some(start(name)?));
    }
    let name = name_of(engine.ports());
    let started = match start(&name) {
        Err(ControlError::Taken { .. } | ControlError::Name(_)) => {
            start(&format!("box-{}", std::process::id()))
        }
        started => started,
    };
    Ok(started
        .inspect_err(|error| eprintln!("sprat: `sprat lab ctl` cannot reach this box: {error}"))
        .ok())
}

/// Derives a box's name from its ports' names, cut to the length limit.
fn name_of(ports: &[String]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = ports.join("-").chars().map(plain).take(MAX_NAME).collect();
    name.trim_matches('-').to_owned()
}

/// Without root privileges, enters new namespaces and prints how to join them. Returns whether it
/// entered any.
pub(super) fn own_namespaces() -> Result<bool> {
    let entered = enter_own_namespaces()?;
    if entered {
        let process = std::process::id();
        eprintln!(
            "sprat: not root: in namespaces of its own; a shell in them: nsenter \
             --preserve-credentials -U -m -n -t {process}"
        );
    }
    Ok(entered)
}

/// Parses `--tolerate`.
pub(super) fn tolerance(args: &ToleranceArgs) -> Result<Tolerance> {
    let text = &args.tolerate;
    parse_tolerance(text).context("--tolerate: want SHARE or SHARE:TIME, such as 5%:10ms")
}

/// Returns the configuration of the box from `--config` and the flags.
fn config(args: &LabRunArgs) -> Result<BoxConfig> {
    let mut words = match &args.config {
        None => BoxWords::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--config {}", path.display()))?;
            BoxWords::from_toml(&text).with_context(|| format!("--config {}", path.display()))?
        }
    };
    let more =
        args.ports.iter().map(|open| PortWords { open: open.clone(), line: Default::default() });
    words.ports.extend(more);
    for text in &args.pairs {
        let pair =
            text.split_once(',').map(|(one, other)| [one.trim(), other.trim()].map(str::to_owned));
        words
            .pairs
            .push(pair.with_context(|| format!("--pair {text:?}: want two ports, such as a0,b0"))?);
    }
    for (flag, word) in [
        (&args.forward, &mut words.forward),
        (&args.ageing, &mut words.ageing),
        (&args.memory, &mut words.memory),
    ] {
        if let Some(text) = flag {
            *word = Some(Word(text.clone()));
        }
    }
    words.line = args.line.words(&words.line);
    if words.ports.is_empty() {
        bail!("a box needs ports: --port tap:NAME@NAMESPACE, twice or more, or --config FILE");
    }
    let mut config = words.check()?;
    if args.force {
        config.force();
    }
    for text in &args.to {
        let (port, given) = port_in(text, config.ports.iter().map(|(spec, _)| spec.name()))
            .with_context(|| {
                format!("--to {text:?}: want PORT:SETTING=VALUE, such as b0:rate=2Gb/s")
            })?;
        let (port, given) = (port.to_owned(), given.to_owned());
        let known: Vec<_> = config.ports.iter().map(|(spec, _)| spec.name().to_owned()).collect();
        let line = config.ports.iter_mut().find(|(spec, _)| spec.name() == port);
        let Some((_, settings)) = line else {
            bail!("--to {text:?}: no port {port:?}; the ports are {}", known.join(", "))
        };
        for (key, value) in settings_in(&given) {
            let value = value.with_context(|| {
                format!("--to {text:?}: {key:?} has no value; want {key}=VALUE")
            })?;
            set(settings, key, &value).with_context(|| format!("--to {text:?}"))?;
        }
    }
    Ok(config)
}

/// Splits `PORT:SETTINGS`. A port's name may contain colons, such as a PCI address.
fn port_in<'a>(text: &'a str, ports: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    let settings = |port: &'a str| Some((port, text.strip_prefix(port)?.strip_prefix(':')?));
    ports.filter_map(settings).max_by_key(|(port, _)| port.len()).or_else(|| text.split_once(':'))
}

/// Parses `KEY=VALUE,...`. A value may contain commas: a part without `=` belongs to the value
/// before it.
pub(super) fn settings_in(text: &str) -> Vec<(&str, Option<String>)> {
    let mut all: Vec<(&str, Option<String>)> = Vec::new();
    for part in text.split(',') {
        match (part.split_once('='), all.last_mut()) {
            (Some((key, value)), _) => all.push((key, Some(value.to_owned()))),
            (None, Some((_, Some(value)))) => {
                value.push(',');
                value.push_str(part);
            }
            (None, _) => all.push((part, None)),
        }
    }
    all
}

/// Describes the box in a line.
fn describe(config: &BoxConfig) -> String {
    let names: Vec<_> = config.ports.iter().map(|(spec, _)| spec.to_string()).collect();
    match config.forwarding {
        Forwarding::Cross => {
            names.chunks(2).map(|pair| pair.join(" <-> ")).collect::<Vec<_>>().join(", ")
        }
        Forwarding::Switch(_) => format!("a switch of {}", names.join(", ")),
    }
}

/// Waits until the box is to end, and meanwhile shows its throughput.
fn watch(
    engine: &Engine,
    control: Option<&Server>,
    signals: &Receiver<()>,
    longest: Option<Duration>,
    quiet: bool,
    mut series: Option<&mut Series>,
) -> Result<()> {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let bar = bar
        .with_style(ProgressStyle::with_template("{elapsed} {msg}").expect("a constant template"));
    let (began, mut shown, mut before) = (Instant::now(), Instant::now(), HashMap::new());
    loop {
        let poll = series
            .as_ref()
            .map_or(POLL_INTERVAL, |series| series.time_to_sample().min(POLL_INTERVAL));
        let left =
            longest.map_or(poll, |longest| longest.saturating_sub(began.elapsed()).min(poll));
        let stopped = !matches!(signals.recv_timeout(left), Err(RecvTimeoutError::Timeout));
        let over = longest.is_some_and(|longest| began.elapsed() >= longest);
        if stopped || over || engine.ended() || control.is_some_and(Server::stop_requested) {
            bar.finish_and_clear();
            return Ok(());
        }
        if let Some(series) = &mut series {
            series.sample_if_due(std::iter::once((String::new(), engine)))?;
        }
        if shown.elapsed() >= UPDATE_INTERVAL && !bar.is_hidden() {
            let since = shown.elapsed().as_secs_f64();
            shown = Instant::now();
            if let Ok(report) = engine.report() {
                bar.set_message(live(&report, since, &mut before));
            }
        }
    }
}

fn live(report: &Report, seconds: f64, before: &mut HashMap<String, u64>) -> String {
    let line = |line: &LineReport| {
        let bytes = line.counters.left.bytes;
        let more = bytes - before.insert(line.to.clone(), bytes).unwrap_or(0);
        let (queue, drops) = (megabytes(line.counters.queue), line.counters.drops.total());
        format!(
            "to {}: {:.1} Mb/s, {queue:.1} MB queued, {drops} dropped",
            line.to,
            megabytes(more) * 8.0 / seconds
        )
    };
    report.lines.iter().map(line).collect::<Vec<_>>().join(" | ")
}

/// Renders the counters of a report, line by line.
pub(super) fn text(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("{:.1} s", report.seconds)];
    for input in report.inputs.iter().filter(|input| input.malformed > 0) {
        lines.push(format!(
            "from {}: {} of {} packets were malformed (cut short, too long or corrupt)",
            input.port,
            input.malformed,
            input.packets + input.malformed
        ));
    }
    for LineReport { to, counters, lateness, .. } in &report.lines {
        let (left, drops) = (counters.left, counters.drops);
        lines.push(format!(
            "to {to}: {} segments ({:.1} MB) arrived, {} ({:.1} MB) left; {} dropped ({} by the \
             loss setting, {} buffer full, {} no memory, {} refused, {} too big)",
            counters.arrived.segments,
            megabytes(counters.arrived.bytes),
            left.segments,
            megabytes(left.bytes),
            drops.total(),
            drops.loss,
            drops.buffer,
            drops.memory,
            drops.refused,
            drops.too_big,
        ));
        lines.push(format!(
            "  queue {:.1} MB at most; {} duplicated, {} corrupted, {} reordered; left {:.1} us \
             late on average, {:.1} ms at most",
            megabytes(counters.queue_max),
            counters.duplicated,
            counters.corrupted,
            counters.reordered,
            lateness.mean().as_secs_f64() * 1e6,
            Duration::from_nanos(lateness.max_ns).as_secs_f64() * 1e3,
        ));
        for (flow, counted) in &counters.flows {
            let trips = counted.round_trips;
            let ms = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e3;
            let trip = match trips.whole_ns {
                Some(whole) => format!(", round trip {:.3} ms", ms(whole)),
                None if trips.samples > 0 => {
                    format!(", answers after {:.3} ms", ms(trips.smoothed_ns))
                }
                None => String::new(),
            };
            lines.push(format!(
                "  {flow}: {} segments ({:.1} MB) left, {} dropped, queue {:.1} MB at most{trip}",
                counted.left.segments,
                megabytes(counted.left.bytes),
                counted.drops.total(),
                megabytes(counted.queue_max),
            ));
        }
    }
    if let Some(switch) = report.switch {
        lines.push(format!(
            "switch: {} packets forwarded, {} flooded, {} filtered; {} stations",
            switch.forwarded, switch.flooded, switch.filtered, switch.stations
        ));
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "megabytes to be read by people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
