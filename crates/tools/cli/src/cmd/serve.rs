//! `server` and `coordinator`.

use crate::args::{CoordinatorArgs, DEFAULT_COORDINATOR, DurabilityArg, IdleArg, ServerArgs};
use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sprat_net::{Locator, Locators, Mode, Transport};
use sprat_store::agent::Gone;
use sprat_store::coordinator::etcd::EtcdPlace;
use sprat_store::server::{
    Durability, Guard, MAX_NODES, Restored, Server, ServerError, ServerOptions, Stopper, is_exposed,
};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Least memory a server is given without being told.
const LEAST_MEMORY: u64 = 256 << 20;

pub(crate) fn server(args: &ServerArgs) -> Result<ExitCode> {
    tell_events();
    let mut options = options(args)?;
    warn_of_strangers(&options.guard, [&options.coordinator].into_iter().chain(&options.listen));
    eprintln!("sprat: starting; {} MiB of memory, {} MiB of disk", options.memory >> 20, options.disk >> 20);
    let life = Life::default();
    life.end_on_signal()?;
    loop {
        match live(&options, &life) {
            // It stood still, or was cut off, for longer than its lease: others have its tables, and it begins anew.
            Err(ServerError::Gone(gone)) if may_begin_anew(&gone, &options) && !life.is_over() => {
                eprintln!("sprat: {gone}; it begins anew, with what it keeps for others");
                options.deaths += 1;
            }
            ended => {
                ended?;
                eprintln!("sprat: stopped in order");
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// Whether a server that the coordinator has given up can begin anew within this process: not over a device past the kernel, which is
/// given back only when the process ends.
fn may_begin_anew(gone: &Gone, options: &ServerOptions) -> bool {
    let past_the_kernel = |text: &String| {
        text.parse::<Locator>().is_ok_and(|locator| matches!(locator.transport, Transport::FastDpdk(_)))
    };
    matches!(gone, Gone::Dead(_)) && !options.listen.iter().any(past_the_kernel)
}

/// Runs a server from its start to its end.
fn live(options: &ServerOptions, life: &Life) -> Result<(), ServerError> {
    let server = Server::start(options)?;
    life.goes_on_in(server.stopper());
    for (number, node) in (1..).zip(&server.nodes) {
        let whose = if server.nodes.len() > 1 { format!("node {number}: ") } else { String::new() };
        tell_restored(&whose, &node.restored);
    }
    if let Some(address) = server.metrics {
        eprintln!("sprat: metrics at http://{address}/metrics");
    }
    let listen: Vec<_> = server.nodes.iter().map(|node| node.listen.to_string()).collect();
    let listen = listen.join(" ");
    eprintln!("sprat: ready at {listen}; coordinator at {}; stop with Ctrl-C", server.coordinator);
    server.wait()
}

/// Says what was found in a node's log.
fn tell_restored(whose: &str, restored: &Restored) {
    let report = &restored.report;
    if restored.access.is_empty() {
        return; // it has none
    }
    eprintln!("sprat: {whose}log on disk by {}", restored.access);
    eprintln!(
        "sprat: {whose}{} objects restored from {} entries in {} segments ({} MiB) in {:.2} s",
        restored.objects,
        report.entries,
        report.segments,
        report.bytes >> 20,
        restored.elapsed.as_secs_f64(),
    );
    if report.header_repaired {
        eprintln!("sprat: {whose}one of the two copies of log.sprat's header was damaged; it is written again");
    }
    if !report.left_out.is_empty() {
        let tables: Vec<String> =
            report.left_out.iter().map(|(table, count)| format!("{count} of table {table}")).collect();
        eprintln!("sprat: {whose}left out objects of tables that were dropped: {}", tables.join(", "));
    }
    if let Some(cut) = &report.cut {
        let (bytes, offset, found) = (cut.bytes, cut.offset, &cut.found);
        eprintln!("sprat: {whose}cut an unfinished write of {bytes} bytes at offset {offset} of the log ({found})");
    }
}

pub(crate) fn coordinator(args: &CoordinatorArgs) -> Result<ExitCode> {
    tell_events();
    let guard = args.guard.guard()?;
    warn_of_strangers(&guard, [&args.coordinator]);
    let server = match &args.etcd {
        Some(urls) => Server::start_candidate(&args.coordinator, &EtcdPlace::new(urls, &args.name)?, &guard)?,
        None => Server::start_coordinator(&args.coordinator, &args.data, &guard)?,
    };
    let life = Life::default();
    life.goes_on_in(server.stopper());
    life.end_on_signal()?;
    let others = if args.etcd.is_some() { ", one of several" } else { "" };
    eprintln!("sprat: coordinator ready at {}{others}; stop with Ctrl-C", server.coordinator);
    server.wait()?;
    eprintln!("sprat: stopped in order");
    Ok(ExitCode::SUCCESS)
}

fn options(args: &ServerArgs) -> Result<ServerOptions> {
    let memory = match args.memory {
        Some(memory) => memory,
        None => (sprat_bench::machine::Machine::describe().memory_bytes / 2).max(LEAST_MEMORY),
    };
    let metrics = match args.metrics.as_str() {
        "none" => None,
        address => Some(address.parse().with_context(|| format!("--metrics {address}: want ADDRESS:PORT or `none`"))?),
    };
    let listen = locators(args)?;
    let cores = cores(args, listen.len())?;
    let disk = args.disk.unwrap_or_else(|| ServerOptions::usual_disk(memory, listen.len() as u64, args.replicas));
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

/// Where each node listens: as given, or, if that was given once, at the ports behind the first.
fn locators(args: &ServerArgs) -> Result<Vec<String>> {
    let (given, nodes) = (args.listen.len(), args.nodes.map_or(args.listen.len(), usize::from));
    let [one] = args.listen.as_slice() else {
        if given != nodes || given > MAX_NODES {
            bail!(
                "-L was given {given} times; give it once, or once for each node (--nodes {nodes}, at most {MAX_NODES})"
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
            bail!("{device} is for one node: each of the {nodes} wants a device of its own, with -L once for each");
        }
        if first.port == 0 {
            bail!("{one}: nodes that share a device have ports that follow one another; name the first");
        }
    }
    let at = |number: usize| match first.port {
        0 => Some(first.clone()),
        port => Some(Locator { port: port.checked_add(u16::try_from(number).ok()?)?, ..first.clone() }),
    };
    let all: Option<Vec<_>> = (0..nodes).map(|number| Some(at(number)?.to_string())).collect();
    all.with_context(|| format!("{one}: there are no {nodes} ports from there on; choose a lower one"))
}

/// The core of each node, if they are to have any.
fn cores(args: &ServerArgs, nodes: usize) -> Result<Vec<usize>> {
    match args.core.as_slice() {
        &[first] => Ok((first..).take(nodes).collect()),
        cores if cores.is_empty() || cores.len() == nodes => Ok(cores.to_vec()),
        cores => {
            let count = cores.len();
            bail!(
                "--core names {count} cores for {nodes} nodes; name one for each, or the first and they take those behind it"
            )
        }
    }
}

/// Writes what the server has to say while it runs to standard error.
fn tell_events() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().with_target(false).with_ansi(false).init();
}

/// Says aloud when anybody is let in from other machines, as was asked for.
fn warn_of_strangers<'a>(guard: &Guard, locators: impl IntoIterator<Item = &'a String>) {
    if !guard.insecure {
        return; // whoever listens there without an identity does not start
    }
    let parsed = locators.into_iter().filter_map(|text| text.parse::<Locators>().ok());
    for locator in parsed.flat_map(|locators| locators.to_vec()).filter(is_exposed) {
        eprintln!("sprat: WARNING: {locator} can be reached from other machines, and anybody is let in (--insecure)");
    }
}

/// What a signal ends: the server that runs, and those that would come after it.
#[derive(Clone, Default)]
struct Life(Arc<Mutex<(Option<Stopper>, bool)>>);

impl Life {
    /// This server runs now.
    fn goes_on_in(&self, stopper: Stopper) {
        let mut life = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if life.1 {
            stopper.stop();
        }
        life.0 = Some(stopper);
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Whether a server has started.
    fn has_begun(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    fn end(&self) {
        let mut life = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        life.1 = true;
        if let Some(stopper) = &life.0 {
            stopper.stop();
        }
    }

    /// Stops the server at the first Ctrl-C or SIGTERM, and the process at the second; at the first while the server is
    /// starting, which may take long: it replays its log, or waits for its coordinator.
    fn end_on_signal(&self) -> Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let life = self.clone();
        let watch = move || {
            for signal in signals.forever() {
                if life.is_over() || !life.has_begun() {
                    // The process ends by the signal itself, as without this thread.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                eprintln!("sprat: stopping; once more to stop at once (nothing acknowledged is lost either way)");
                life.end();
            }
        };
        thread::Builder::new().name("sprat-signals".into()).spawn(watch).context("cannot start a thread")?;
        Ok(())
    }
}
