//! `server` and `coordinator`.

use crate::args::{CoordinatorArgs, DEFAULT_COORDINATOR, DurabilityArg, IdleArg, ServerArgs};
use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sprat_net::{Locator, Mode};
use sprat_store::server::{Durability, Server, ServerOptions, Stopper};
use std::process::ExitCode;
use std::thread;

/// Least memory a server is given without being told.
const LEAST_MEMORY: u64 = 256 << 20;

pub(crate) fn server(args: &ServerArgs) -> Result<ExitCode> {
    tell_events();
    let options = options(args)?;
    warn_of_strangers(&options);
    eprintln!("sprat: starting; {} MB of memory, {} MB of disk", options.memory >> 20, options.disk >> 20);
    let server = Server::start(&options)?;
    on_signal(server.stopper())?;
    if let Some(restored) = server.restored.as_ref().filter(|restored| !restored.access.is_empty()) {
        let report = &restored.report;
        eprintln!("sprat: log on disk by {}", restored.access);
        eprintln!(
            "sprat: {} objects restored from {} entries in {} segments ({} MB) in {:.2} s",
            restored.objects,
            report.entries,
            report.segments,
            report.bytes >> 20,
            restored.elapsed.as_secs_f64(),
        );
        if let Some(cut) = &report.cut {
            let (bytes, offset, found) = (cut.bytes, cut.offset, &cut.found);
            eprintln!("sprat: cut an unfinished write of {bytes} bytes at offset {offset} of the log ({found})");
        }
    }
    if let Some(address) = server.metrics {
        eprintln!("sprat: metrics at http://{address}/metrics");
    }
    let listen = server.listen.as_ref().map(ToString::to_string).unwrap_or_default();
    eprintln!("sprat: ready at {listen}; coordinator at {}; stop with Ctrl-C", server.coordinator);
    server.wait()?;
    eprintln!("sprat: stopped in order");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn coordinator(args: &CoordinatorArgs) -> Result<ExitCode> {
    tell_events();
    let server = Server::start_coordinator(&args.coordinator, &args.data)?;
    on_signal(server.stopper())?;
    eprintln!("sprat: coordinator ready at {}; stop with Ctrl-C", server.coordinator);
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
    Ok(ServerOptions {
        coordinator: args.coordinator.clone().unwrap_or_else(|| DEFAULT_COORDINATOR.to_owned()),
        embedded: args.coordinator.is_none() || args.with_coordinator,
        listen: args.listen.clone(),
        memory,
        disk: args.disk.unwrap_or(memory.saturating_mul(5) / 2 + (256 << 20)),
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
        core: args.core,
        metrics,
        timed: args.timed,
        counted: args.counted,
    })
}

/// Writes what the server has to say while it runs to standard error.
fn tell_events() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().with_target(false).with_ansi(false).init();
}

/// Says aloud when an endpoint can be reached from elsewhere: nothing is encrypted or authenticated yet.
fn warn_of_strangers(options: &ServerOptions) {
    for text in [&options.coordinator, &options.listen] {
        let Ok(locator) = text.parse::<Locator>() else { continue };
        let loopback =
            locator.resolve().is_ok_and(|addresses| addresses.iter().all(|address| address.ip().is_loopback()));
        if !loopback {
            eprintln!("sprat: WARNING: {text} is not loopback, and this version neither encrypts nor authenticates");
        }
    }
}

/// Stops the server at the first Ctrl-C or SIGTERM, and the process at the second.
fn on_signal(stopper: Stopper) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let watch = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            eprintln!("sprat: stopping; once more to stop at once (nothing acknowledged is lost either way)");
            stopper.stop();
        }
        if let Some(signal) = signals.next() {
            // As if nobody had watched: the process ends by the signal itself.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("sprat-signals".into()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}
