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
  sprat rack bridge users --contact 10.0.0.3,10.0.0.5      with a store on this machine
  sprat rack bridge users --contact 10.0.0.3 -C tcp:host=10.0.0.1,port=11100 --memory 8G
  redis-cli -p 6379 SET alice 'likes tea'
  redis-cli -p 6379 GET alice

The bridge acknowledges a write when the store has it durably, and writes it to Cassandra some
milliseconds later. If the table exceeds --memory, objects that Cassandra has leave the store,
least recently read first; later reads fetch them from Cassandra. Several bridges may serve a
table at once. While Cassandra is away, writes and reads of objects in memory continue.

Redis commands: GET, SET, DEL, MGET, PING, INFO and QUIT. Ctrl-C writes the waiting keys to
Cassandra, for up to --drain, and ends.

Exit codes:
  7  some keys are not in Cassandra yet; they stay in the store, and the next bridge writes them")]
pub(crate) struct RackBridgeArgs {
    /// Table in the store; created if missing. Only bridges may write to it.
    table: String,

    /// Addresses of Cassandra instances: HOST or HOST:PORT, separated by commas.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', required = true)]
    contact: Vec<String>,

    /// Memory of the store that the table may use, such as 512M or 16G.
    #[arg(long, value_name = "SIZE", value_parser = sprat_units::size, default_value = "1G")]
    memory: u64,

    /// Address for Redis clients; port 0 picks a free port. There is no password: listen only on a
    /// trusted network.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,

    /// Interval between scans of the table, for writes that another bridge left behind and for
    /// objects that may leave memory.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = sprat_units::duration)]
    sweep: Duration,

    /// At the end, write waiting keys to Cassandra for up to this time.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = sprat_units::duration)]
    drain: Duration,

    /// Keyspace in Cassandra; created if missing.
    #[arg(long, value_name = "NAME", default_value = "sprat", help_heading = "Cassandra")]
    keyspace: String,

    /// Table in Cassandra; created if missing [default: the name of the store's table].
    #[arg(long, value_name = "NAME", help_heading = "Cassandra")]
    home_table: Option<String>,

    /// Datacenter of a keyspace that the bridge creates.
    #[arg(long, value_name = "NAME", default_value = "dc1", help_heading = "Cassandra")]
    datacenter: String,

    /// Number of replicas of a keyspace that the bridge creates.
    #[arg(long, value_name = "COUNT", default_value_t = 3, help_heading = "Cassandra")]
    replication: usize,

    /// Replicas that must answer an operation.
    #[arg(
        long,
        value_enum,
        default_value_t = BridgeConsistencyArg::LocalQuorum,
        help_heading = "Cassandra"
    )]
    consistency: BridgeConsistencyArg,

    /// Give up on an operation of Cassandra after this time.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5s",
        value_parser = sprat_units::duration,
        help_heading = "Cassandra"
    )]
    home_timeout: Duration,

    /// Interval between reports of counters.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = sprat_units::duration,
        help_heading = "Output"
    )]
    every: Duration,

    /// Print reports as JSON, one object a line.
    #[arg(long, help_heading = "Output")]
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
            "bridge: table {}, stored in Cassandra's {home}; Redis clients at {at}; Ctrl-C ends it",
            args.table
        );
    }
    if !running.address().ip().is_loopback() {
        eprintln!(
            "bridge: everybody who can reach {} may read and change the table: Redis clients need \
             no password here",
            running.address()
        );
    }
    // An error in printing is ignored: without a reader, the bridge still writes keys to Cassandra.
    while signals.recv_timeout(args.every) == Err(RecvTimeoutError::Timeout) {
        let _ = report(args, &running.stats());
    }
    let last = running.stats();
    if last.dirty > 0 && !args.json {
        eprintln!("bridge: writing {} keys to Cassandra, for up to {:?}", last.dirty, args.drain);
    }
    let left = running.close(args.drain);
    let _ = report(args, &BridgeStats { dirty: left, ..last });
    if left > 0 {
        eprintln!(
            "bridge: {left} keys are not in Cassandra yet; the store has them, and the next bridge \
             writes them"
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
        "bridge: {} hits, {} misses, {} writes; {} in Cassandra, {} waiting, the oldest for {:.1} \
         s; {} evicted",
        of.hits, of.misses, of.writes, of.applied, of.dirty, of.lag, of.evicted
    );
    if let Some(error) = &of.last_error {
        eprintln!("bridge: last error: {error}");
    }
    Ok(())
}
