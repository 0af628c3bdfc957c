//! `rack bridge`: serves a Cassandra table from the store's memory to clients of Redis.

use crate::connect::Connect;
use crate::exit::BEHIND;
use crate::output::print_json;
use crate::signals::signals;
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use sprat_bridge::{BridgeStats, Consistency, HomeOptions, Options, RunningBridge};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack bridge users --contact 10.0.0.3,10.0.0.5        to a store on this machine
  sprat rack bridge users --contact 10.0.0.3 -C tcp:host=10.0.0.1,port=11100 --memory 8G
  redis-cli -p 6379 SET alice 'likes tea'
  redis-cli -p 6379 GET alice

A write is answered when the store has it durably; Cassandra gets it some milliseconds later. What is at
home already leaves memory when the table takes more than --memory, least lately read first, and is
read from there when it is asked for. Each write reaches Cassandra with a write timestamp that
follows from its version in the store: once in effect, however often it is sent, and by whichever bridge. Several
bridges may serve a table at once. While Cassandra is away, writes and what is in memory go on.

Commands: GET, SET, DEL, MGET, PING, INFO, QUIT. Ctrl-C carries home what waits and ends; exit code 7: not all
of it is there yet, and the next bridge finds it in the store.")]
pub(crate) struct RackBridgeArgs {
    /// The store's table, made where it is not there. It is the bridge's alone.
    table: String,

    /// Where Cassandra is found: HOST or HOST:PORT, several with commas between.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', required = true)]
    contact: Vec<String>,

    /// Cassandra's keyspace, made where it is not there.
    #[arg(long, value_name = "NAME", default_value = "sprat")]
    keyspace: String,

    /// Cassandra's table, made where it is not there; default the name of the store's.
    #[arg(long, value_name = "NAME")]
    home_table: Option<String>,

    /// The datacenter that a keyspace is made for.
    #[arg(long, value_name = "NAME", default_value = "dc1")]
    datacenter: String,

    /// How many replicas a keyspace is made with.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    replication: usize,

    /// How many replicas must have answered. Reads must meet writes, so one is not enough.
    #[arg(long, value_enum, default_value_t = BridgeConsistencyArg::LocalQuorum)]
    consistency: BridgeConsistencyArg,

    /// How long Cassandra may take for an answer.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = sprat_units::duration)]
    home_timeout: Duration,

    /// The store's memory that the table may take, such as 512M or 16G.
    #[arg(long, value_name = "SIZE", value_parser = sprat_units::size, default_value = "1G")]
    memory: u64,

    /// How often all of the table is looked through, for what others left behind and for what may
    /// leave.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = sprat_units::duration)]
    sweep: Duration,

    /// Where clients of Redis are let in; port 0 for one that is free. There is no password: stay
    /// on a network you trust.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,

    /// How long the end may take, to carry home what waits.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = sprat_units::duration)]
    drain: Duration,

    /// How often figures are told.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sprat_units::duration)]
    every: Duration,

    /// Tell figures as JSON, one object a line.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: Connect,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BridgeConsistencyArg {
    LocalQuorum,
    Quorum,
    All,
}

/// Default port of Cassandra's clients.
const PORT: u16 = 9042;

pub(crate) fn bridge(args: &RackBridgeArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let signals = signals()?;
    let running = RunningBridge::start(&options, args.listen)?;
    let home = format!("{}.{}", options.home.keyspace, options.home.table);
    if args.json {
        print_json(&json!({ "table": args.table, "home": home, "listen": running.address() }))?;
    } else {
        let at = running.address();
        eprintln!(
            "bridge: table {}, at home in {home}; clients of Redis at {at}; Ctrl-C ends it",
            args.table
        );
    }
    // The reader of the output may have gone: that is no reason to stop writing keys home.
    while signals.recv_timeout(args.every) == Err(RecvTimeoutError::Timeout) {
        let _ = report(args, &running.stats());
    }
    let last = running.stats();
    if last.dirty > 0 && !args.json {
        eprintln!("bridge: carrying {} keys home, for {:?} at most", last.dirty, args.drain);
    }
    let left = running.close(args.drain);
    let _ = report(args, &BridgeStats { dirty: left, ..last });
    if left > 0 {
        eprintln!(
            "bridge: {left} keys are not at home yet; the store has them, and the next bridge \
             carries them"
        );
        return Ok(ExitCode::from(BEHIND));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the bridge's options from the flags.
fn options(args: &RackBridgeArgs) -> Result<Options> {
    let address = |contact: &String| match contact.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => contact.clone(),
        _ => format!("{contact}:{PORT}"),
    };
    let home = HomeOptions {
        contacts: args.contact.iter().map(address).collect(),
        keyspace: args.keyspace.clone(),
        table: args.home_table.clone().unwrap_or_else(|| args.table.clone()),
        datacenter: args.datacenter.clone(),
        replication: args.replication,
        consistency: match args.consistency {
            BridgeConsistencyArg::LocalQuorum => Consistency::LocalQuorum,
            BridgeConsistencyArg::Quorum => Consistency::Quorum,
            BridgeConsistencyArg::All => Consistency::All,
        },
        timeout: args.home_timeout,
    };
    Ok(Options {
        store: args.connect.options()?,
        table: args.table.clone(),
        home,
        memory: args.memory,
        sweep: args.sweep,
    })
}

fn report(args: &RackBridgeArgs, of: &BridgeStats) -> Result<()> {
    if args.json {
        return print_json(&serde_json::to_value(of)?);
    }
    eprintln!(
        "bridge: {} hits, {} misses, {} writes; {} at home, {} to go, the oldest for {:.1} s; {} \
         left memory",
        of.hits, of.misses, of.writes, of.applied, of.dirty, of.lag, of.evicted
    );
    if let Some(error) = &of.last_error {
        eprintln!("bridge: lately: {error}");
    }
    Ok(())
}
