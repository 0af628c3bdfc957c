//! `server` and `coordinator`: runs a server or a coordinator until a signal ends it.

use crate::connect::DEFAULT_COORDINATOR;
use crate::meta::key::GuardArgs;
use crate::store::moves::ServerCommand;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sprat_client::Mode;
use sprat_host::lock;
use sprat_net::{Locator, Locators, PerfEvent, Transport};
use sprat_store::agent::SessionEnd;
use sprat_store::coordinator::etcd::EtcdPlace;
use sprat_store::replication::MAX_COPIES;
use sprat_store::server::{
    Durability, Guard, MAX_NODES, RedisPassword, Restored, Server, ServerError, ServerOptions,
    Stopper, is_exposed,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;

/// Locator at which a server listens by default.
pub(crate) const DEFAULT_LISTEN: &str = "fast+udp:host=127.0.0.1,port=11101";

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat server                                  a complete store on this machine
  sprat server --memory 16G --data /srv/sprat
  sprat server --redis                          also for Redis clients, at 127.0.0.1:6379
  sprat server -L tcp:host=127.0.0.1,port=11101
  sprat server --nodes 4 --core 2,3,4,5         4 data threads, each pinned to a core
  sprat server -C tcp:host=10.0.0.1,port=11100 -L fast+udp:host=10.0.0.2,port=11101 \\
      -r 3 --identity server.id                 a server of a cluster
  sprat server drain 3                          move its tablets away before it is removed

Without -C, the server also runs the coordinator and is a complete store. Ctrl-C or SIGTERM
stops it. By default, acknowledged writes also survive kill -9 and power failures.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    command: Option<ServerCommand>,

    /// Memory for the log, such as 512M or 16G (= 16GiB) [default: half of the machine's memory].
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = sprat_units::size,
        help_heading = "Memory and disk"
    )]
    memory: Option<u64>,

    /// Directory for the log, the metadata and the server's identity; created if missing.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "sprat-data",
        help_heading = "Memory and disk"
    )]
    data: PathBuf,

    /// Disk space for the log, such as 40G or 1TB [default: 2.5 times the memory; with -r, about
    /// 3.5 times the memory for each replica].
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = sprat_units::size,
        help_heading = "Memory and disk"
    )]
    disk: Option<u64>,

    /// Failures that an acknowledged write survives.
    #[arg(
        long,
        value_enum,
        default_value_t = DurabilityArg::Sync,
        help_heading = "Memory and disk"
    )]
    durability: DurabilityArg,

    /// Locator at which clients and servers reach this server. With several nodes, give -L once for
    /// each node, or once: the further nodes then use the ports that follow.
    #[arg(
        short = 'L',
        long,
        value_name = "LOCATOR",
        default_value = DEFAULT_LISTEN,
        help_heading = "Cluster"
    )]
    listen: Vec<String>,

    /// Join the cluster of the coordinator at this locator, or of several coordinators, separated
    /// by commas. Without -C, this process also runs the coordinator.
    #[arg(
        short = 'C',
        long,
        value_name = "LOCATOR",
        env = "SPRAT_COORDINATOR",
        help_heading = "Cluster"
    )]
    coordinator: Option<String>,

    /// Run the coordinator in this process too, at the locator of -C.
    #[arg(long, requires = "coordinator", help_heading = "Cluster")]
    with_coordinator: bool,

    /// Keep N replicas of this server's log on other servers, and store replicas for them. With 0,
    /// the log is only on this server's disk.
    #[arg(
        short = 'r',
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=MAX_COPIES as i64),
        help_heading = "Cluster"
    )]
    replicas: u8,

    /// Rack (or other failure domain) of this server: 1 to 32 letters, digits, _ and -. Replicas of
    /// its log go to other racks as far as there are enough.
    #[arg(
        long,
        value_name = "LABEL",
        env = "SPRAT_RACK",
        value_parser = parse_rack,
        help_heading = "Cluster"
    )]
    rack: Option<String>,

    /// Run N nodes in this process. Each has a thread, a port and an equal share of memory and
    /// disk, and is a server of its own to the cluster [default: one for each -L].
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=MAX_NODES as i64),
        help_heading = "Threads"
    )]
    nodes: Option<u16>,

    /// Pin the data thread to this core. With several nodes, give a core for each, such as 2,3,4,5,
    /// or the first: the further nodes then use the cores that follow.
    #[arg(long, value_name = "CPU", value_delimiter = ',', help_heading = "Threads")]
    core: Vec<usize>,

    /// Behaviour of a data thread without work.
    #[arg(long, value_enum, default_value_t = IdleArg::Adaptive, help_heading = "Threads")]
    idle: IdleArg,

    /// Also serve Redis clients (RESP2 and RESP3), at 127.0.0.1:6379 unless an address is given.
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:6379",
        help_heading = "Other clients"
    )]
    redis: Option<SocketAddr>,

    /// File whose only line is the password with which Redis clients must authenticate (`AUTH`).
    #[arg(long, value_name = "FILE", requires = "redis", help_heading = "Other clients")]
    redis_password_file: Option<PathBuf>,

    /// Address at which to serve Prometheus metrics over HTTP, or `none`.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:11109",
        help_heading = "Monitoring"
    )]
    metrics: String,

    /// Time each request and loop iteration, and add counters for the median request time
    /// (request_p50_ns) and the delays of the data thread.
    #[arg(long, help_heading = "Monitoring")]
    timed: bool,

    /// Count an event, and add a counter for its mean per request, in thousandths
    /// (request_events_milli): instructions, cycles, cache-misses, page-faults or task-clock.
    #[arg(long, value_name = "EVENT", conflicts_with = "timed", help_heading = "Monitoring")]
    counted: Option<PerfEvent>,

    #[command(flatten)]
    guard: GuardArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat coordinator --data /srv/coordinator
  sprat coordinator -C tcp:host=10.0.0.1,port=11100 --identity server.id \\
      --etcd http://10.0.0.1:2379,http://10.0.0.2:2379     one of several coordinators

The coordinator names tables and assigns their tablets to servers. Without --etcd there is one
coordinator, with its metadata in --data. With --etcd, run several: one leads, the others take
over when it fails.")]
pub(crate) struct CoordinatorArgs {
    /// Locator at which to listen. With --etcd, other machines must reach the coordinator at it.
    #[arg(
        short = 'C',
        long,
        value_name = "LOCATOR",
        default_value = DEFAULT_COORDINATOR,
        env = "SPRAT_COORDINATOR"
    )]
    coordinator: String,

    /// Directory for the coordinator's metadata; created if missing.
    #[arg(long, value_name = "DIR", default_value = "sprat-coordinator", conflicts_with = "etcd")]
    data: PathBuf,

    /// Keep the metadata in etcd at these URLs, separated by commas, instead of --data. Several
    /// coordinators can then share them: one leads, the others stand by.
    #[arg(long, value_name = "URL,..")]
    etcd: Option<String>,

    /// Name of the cluster in etcd; give all coordinators of a cluster the same.
    #[arg(long, value_name = "NAME", default_value = "default", requires = "etcd")]
    name: String,

    #[command(flatten)]
    guard: GuardArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// Power failures: the write is on disk (fdatasync).
    Sync,
    /// Crashes of the process; a power failure loses up to the last second.
    Buffered,
    /// None: the write is in memory only.
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum IdleArg {
    /// Never sleep: lowest latency, uses a whole core.
    Spin,
    /// Sleep at once: least CPU time.
    Sleep,
    /// Spin briefly, then sleep.
    Adaptive,
}

/// Parses the name of a rack.
fn parse_rack(text: &str) -> Result<String, String> {
    match sprat_wire::is_rack(text) {
        true => Ok(text.to_owned()),
        false => Err(sprat_wire::op::Malformed::Rack.to_string()),
    }
}

/// Minimum of the default memory size.
const MIN_DEFAULT_MEMORY: u64 = 256 << 20;

pub(crate) fn server(args: &ServerArgs) -> Result<ExitCode> {
    if let Some(ServerCommand::Drain(args)) = &args.command {
        return super::moves::drain(args);
    }
    log_to_stderr();
    let mut options = options(args)?;
    warn_if_exposed(&options.guard, [&options.coordinator].into_iter().chain(&options.listen));
    eprintln!(
        "sprat: starting; {} MiB of memory, {} MiB of disk",
        options.memory >> 20,
        options.disk >> 20
    );
    let shutdown = Shutdown::default();
    shutdown.stop_on_signal()?;
    loop {
        match run(&options, &shutdown) {
            // The server was suspended or cut off for longer than its lease, so other servers now
            // have its tables. It starts again without them.
            Err(ServerError::Gone(gone))
                if can_restart(&gone, &options) && !shutdown.is_requested() =>
            {
                eprintln!(
                    "sprat: {gone}; restarting it without its tablets, with the replicas that it \
                     stores"
                );
                options.deaths += 1;
            }
            ended => {
                ended?;
                eprintln!("sprat: stopped cleanly");
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// Returns whether a server that the coordinator has declared dead can start again within this
/// process. A server with a kernel-bypass device cannot, since DPDK releases the device only when
/// the process ends.
fn can_restart(gone: &SessionEnd, options: &ServerOptions) -> bool {
    let bypasses_kernel = |text: &String| {
        text.parse::<Locator>()
            .is_ok_and(|locator| matches!(locator.transport, Transport::FastDpdk(_)))
    };
    matches!(gone, SessionEnd::Dead(_)) && !options.listen.iter().any(bypasses_kernel)
}

/// Starts a server, prints where it listens, and waits until it stops.
fn run(options: &ServerOptions, shutdown: &Shutdown) -> Result<(), ServerError> {
    let server = Server::start(options)?;
    shutdown.set_stopper(server.stopper());
    for (number, node) in (1..).zip(&server.nodes) {
        let prefix =
            if server.nodes.len() > 1 { format!("node {number}: ") } else { String::new() };
        print_restored(&prefix, &node.restored);
    }
    if let Some(address) = server.redis {
        let ask = if options.redis_password.is_some() { " --askpass" } else { "" };
        eprintln!(
            "sprat: serving Redis clients at {address}; try: redis-cli -h {} -p {}{ask} ping",
            address.ip(),
            address.port()
        );
    }
    if let Some(address) = server.metrics {
        eprintln!("sprat: serving metrics at http://{address}/metrics");
    }
    let listen: Vec<_> = server.nodes.iter().map(|node| node.listen.to_string()).collect();
    let listen = listen.join(" ");
    eprintln!("sprat: ready at {listen}; coordinator at {}; stop with Ctrl-C", server.coordinator);
    server.wait()
}

/// Prints what a node restored from its log.
fn print_restored(prefix: &str, restored: &Restored) {
    let report = &restored.report;
    if restored.access.is_empty() {
        return; // the node has no log on disk
    }
    eprintln!("sprat: {prefix}accessing the log on disk with {}", restored.access);
    eprintln!(
        "sprat: {prefix}{} objects restored from {} entries in {} segments ({} MiB) in {:.2} s",
        restored.objects,
        report.entries,
        report.segments,
        report.bytes >> 20,
        restored.elapsed.as_secs_f64(),
    );
    if report.header_repaired {
        eprintln!(
            "sprat: {prefix}repaired the header of log.sprat: one of its two copies was damaged"
        );
    }
    if !report.left_out.is_empty() {
        let tables: Vec<String> = report
            .left_out
            .iter()
            .map(|(table, count)| format!("{count} of table {table}"))
            .collect();
        eprintln!("sprat: {prefix}skipped objects of dropped tables: {}", tables.join(", "));
    }
    if let Some(cut) = &report.cut {
        let (bytes, offset, found) = (cut.bytes, cut.offset, &cut.found);
        eprintln!(
            "sprat: {prefix}cut an unfinished write of {bytes} bytes off the log at offset \
             {offset} ({found})"
        );
    }
}

pub(crate) fn coordinator(args: &CoordinatorArgs) -> Result<ExitCode> {
    log_to_stderr();
    let guard = args.guard.guard()?;
    warn_if_exposed(&guard, [&args.coordinator]);
    let server = match &args.etcd {
        Some(urls) => {
            Server::start_candidate(&args.coordinator, &EtcdPlace::new(urls, &args.name)?, &guard)?
        }
        None => Server::start_coordinator(&args.coordinator, &args.data, &guard)?,
    };
    let shutdown = Shutdown::default();
    shutdown.set_stopper(server.stopper());
    shutdown.stop_on_signal()?;
    let others = if args.etcd.is_some() { ", metadata in etcd" } else { "" };
    eprintln!("sprat: coordinator ready at {}{others}; stop with Ctrl-C", server.coordinator);
    server.wait()?;
    eprintln!("sprat: stopped cleanly");
    Ok(ExitCode::SUCCESS)
}

fn options(args: &ServerArgs) -> Result<ServerOptions> {
    let memory = match args.memory {
        Some(memory) => memory,
        None => {
            (sprat_measure::machine::Machine::describe().memory_bytes / 2).max(MIN_DEFAULT_MEMORY)
        }
    };
    let metrics = match args.metrics.as_str() {
        "none" => None,
        address => Some(
            address
                .parse()
                .with_context(|| format!("--metrics {address}: want ADDR:PORT or `none`"))?,
        ),
    };
    let listen = locators(args)?;
    let cores = cores(args, listen.len())?;
    let disk = args.disk.unwrap_or_else(|| {
        ServerOptions::default_disk_bytes(memory, listen.len() as u64, args.replicas)
    });
    Ok(ServerOptions {
        coordinator: args.coordinator.clone().unwrap_or_else(|| DEFAULT_COORDINATOR.to_owned()),
        embedded: args.coordinator.is_none() || args.with_coordinator,
        listen,
        memory,
        disk,
        data: args.data.clone(),
        durability: match args.durability {
            DurabilityArg::Sync => Durability::Sync,
            DurabilityArg::Buffered => Durability::Buffered,
            DurabilityArg::None => Durability::None,
        },
        idle: match args.idle {
            IdleArg::Spin => Mode::Spin,
            IdleArg::Sleep => Mode::Sleep,
            IdleArg::Adaptive => Mode::Adaptive,
        },
        redis: args.redis,
        redis_password: args
            .redis_password_file
            .as_deref()
            .map(|file| {
                RedisPassword::read(file)
                    .with_context(|| format!("--redis-password-file {}", file.display()))
            })
            .transpose()?,
        copies: args.replicas,
        rack: args.rack.clone().unwrap_or_default(),
        cores,
        metrics,
        timed: args.timed,
        counted: args.counted,
        guard: args.guard.guard()?,
        deaths: 0,
    })
}

/// Returns the locator of each node: the given locators, or, if one is given for several nodes,
/// that locator and the ports after it.
fn locators(args: &ServerArgs) -> Result<Vec<String>> {
    let (given, nodes) = (args.listen.len(), args.nodes.map_or(args.listen.len(), usize::from));
    let [one] = args.listen.as_slice() else {
        if given != nodes || given > MAX_NODES {
            bail!(
                "-L is given {given} times for {nodes} nodes: give it once, or once for each \
                 node (--nodes, at most {MAX_NODES})"
            );
        }
        return Ok(args.listen.clone());
    };
    if nodes == 1 {
        return Ok(args.listen.clone());
    }
    let first: Locator = one.parse()?;
    if let Transport::FastDpdk(bypass) = &first.transport {
        if let Some(device) = bypass.devices.iter().find(|device| device.starts_with("net_memif")) {
            bail!(
                "{device} serves one node only: give -L {nodes} times, with a device for each node"
            );
        }
        if first.port == 0 {
            bail!(
                "{one}: nodes that share a device use consecutive ports: give the first port, not 0"
            );
        }
    }
    let at = |number: usize| match first.port {
        0 => Some(first.clone()),
        port => {
            Some(Locator { port: port.checked_add(u16::try_from(number).ok()?)?, ..first.clone() })
        }
    };
    let all: Option<Vec<_>> = (0..nodes).map(|number| Some(at(number)?.to_string())).collect();
    all.with_context(|| {
        format!("{one}: {nodes} nodes need {nodes} consecutive ports: choose a lower first port")
    })
}

/// Returns the core of each node, or an empty list if the nodes are not pinned to cores.
fn cores(args: &ServerArgs, nodes: usize) -> Result<Vec<usize>> {
    match args.core.as_slice() {
        &[first] => Ok((first..).take(nodes).collect()),
        cores if cores.is_empty() || cores.len() == nodes => Ok(cores.to_vec()),
        cores => {
            let count = cores.len();
            bail!(
                "--core lists {count} cores for {nodes} nodes: list one core for each node, or \
                 only the first"
            )
        }
    }
}

/// Sends the server's log events to standard error.
fn log_to_stderr() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .init();
}

/// Warns about each locator at which `--insecure` admits clients from other machines.
fn warn_if_exposed<'a>(guard: &Guard, locators: impl IntoIterator<Item = &'a String>) {
    if !guard.insecure {
        return; // a server that other machines can reach does not start without an identity
    }
    let parsed = locators.into_iter().filter_map(|text| text.parse::<Locators>().ok());
    for locator in parsed.flat_map(|locators| locators.to_vec()).filter(is_exposed) {
        eprintln!(
            "sprat: WARNING: every machine that reaches {locator} can read and write everything \
             (--insecure)"
        );
    }
}

/// Connects signals with the running server. A requested shutdown stops the present server, and
/// prevents the start of another in this process.
#[derive(Clone, Default)]
struct Shutdown(Arc<Mutex<(Option<Stopper>, bool)>>);

impl Shutdown {
    /// Sets the server that runs now. Stops it if a shutdown has been requested before.
    fn set_stopper(&self, stopper: Stopper) {
        let mut shutdown = lock(&self.0);
        if shutdown.1 {
            stopper.stop();
        }
        shutdown.0 = Some(stopper);
    }

    fn is_requested(&self) -> bool {
        lock(&self.0).1
    }

    /// Returns whether a server has been started.
    fn has_started(&self) -> bool {
        lock(&self.0).0.is_some()
    }

    fn request(&self) {
        let mut shutdown = lock(&self.0);
        shutdown.1 = true;
        if let Some(stopper) = &shutdown.0 {
            stopper.stop();
        }
    }

    /// Stops the server at the first Ctrl-C or SIGTERM, and ends the process at the second. While
    /// the process starts its first server, the first signal ends the process: a start may take
    /// long, since the server replays its log or waits for its coordinator.
    fn stop_on_signal(&self) -> Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let shutdown = self.clone();
        let watch = move || {
            for signal in signals.forever() {
                if shutdown.is_requested() || !shutdown.has_started() {
                    // The signal ends the process, as it would without this thread.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                eprintln!(
                    "sprat: stopping; send the signal again to stop at once (acknowledged writes \
                     are kept either way)"
                );
                shutdown.request();
            }
        };
        thread::Builder::new()
            .name("sprat-signals".into())
            .spawn(watch)
            .context("cannot start a thread")?;
        Ok(())
    }
}
