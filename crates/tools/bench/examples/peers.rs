//! Runs every scenario of `bench store` briefly, with the peers alone:
//! `cargo run --release --example peers -- OUTPUT.html`. Shows whether the load generator, the
//! peers and the bare path give plausible figures on this machine.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use sprat_bench::basic;
use sprat_bench::scenarios::{self, Lab, Mix};
use sprat_bench::system::{Durability, Memcached, Redis, Server, Setup, System};
use sprat_measure::load::Results;
use sprat_measure::machine::Machine;
use sprat_measure::report::Report;
use sprat_measure::target::Wait;

fn main() -> Result<()> {
    let output = std::env::args_os().nth(1).map(PathBuf::from);
    let machine = Machine::describe();
    println!("{machine}");
    let mut report = Report::new("Peers", &machine);
    let lab = Lab { rounds: 2, duration: Duration::from_millis(500), ..Lab::new() };
    let systems: [&dyn System; 3] = [&Redis { unix: false }, &Redis { unix: true }, &Memcached];
    let mut show = |results: Results| {
        println!("{results}");
        report.results(&results);
    };
    show(scenarios::read_latency(&lab, &systems, Wait::Sleep)?);
    show(scenarios::read_latency(&lab, &systems, Wait::Spin)?);
    for (durability, clients) in
        [(Durability::Sync, 1), (Durability::Sync, 50), (Durability::Buffered, 50)]
    {
        show(scenarios::durable_write(&lab, &systems, durability, clients)?);
    }
    for mix in [Mix::reads(50, 1), Mix::reads(1, 16), Mix::reads(50, 16), Mix::writes(50, 1)] {
        show(scenarios::throughput(&lab, &systems, mix)?);
    }
    show(scenarios::offered(&lab, &systems, Mix::reads(50, 4), 20_000.0)?);
    let fifo = Lab { client_fifo: Some(10), ..lab.clone() };
    show(scenarios::read_latency(&fifo, &systems, Wait::Spin)?);
    let (quiet, contended) = scenarios::contention(&lab, &systems, Wait::Sleep)?;
    show(quiet);
    show(contended);
    for memory in scenarios::memory(&lab, &systems, 500_000)? {
        let (each, fill) = (memory.per_object(), memory.fill_per_second);
        println!(
            "{}: {each:.0} B an object of {}, filled at {fill:.0}/s",
            memory.system, memory.objects
        );
    }
    for restart in scenarios::restart(&lab, &systems, 500_000)? {
        let (rate, lost) = (restart.per_cpu_second(), restart.lost);
        println!(
            "{}: {rate:.0} objects replayed a CPU second, {:.2} s, {lost} lost",
            restart.system, restart.seconds
        );
    }
    for idle in scenarios::idle(&lab, &systems, Duration::from_secs(2))? {
        println!("{}: {:.2} % of a core when idle", idle.system, idle.cores * 100.0);
    }
    let setup: Setup = lab.setup.clone();
    let servers: Vec<Box<dyn Server>> =
        vec![Redis { unix: false }.start(&setup)?, Memcached.start(&setup)?];
    let mut targets = servers.iter().map(|server| server.connect(1)).collect::<Result<Vec<_>>>()?;
    let settings = basic::Settings {
        rounds: 1,
        duration: Duration::from_millis(300),
        ..basic::Settings::default()
    };
    for table in basic::measure(&mut targets, &settings, &mut |_| {})? {
        println!("{}", table.render());
        report.table(&format!("Basic: {}", table.target), &table.table());
    }
    if let Some(path) = output {
        report.write(&path)?;
        println!("report: {}", path.display());
    }
    Ok(())
}
