//! `rack bridge`.

use super::lab::signals;
use super::{BEHIND, print_json};
use crate::args::{BridgeConsistencyArg, RackBridgeArgs};
use anyhow::Result;
use serde_json::json;
use sprat_bridge::{Consistency, Figures, HomeOptions, Options, Running};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;

/// Where Cassandra listens, unless told.
const PORT: u16 = 9042;

pub(crate) fn bridge(args: &RackBridgeArgs) -> Result<ExitCode> {
    let options = asked(args)?;
    let signals = signals()?;
    let running = Running::start(&options, args.listen)?;
    let home = format!("{}.{}", options.home.keyspace, options.home.table);
    if args.json {
        print_json(&json!({ "table": args.table, "home": home, "listen": running.address() }))?;
    } else {
        let at = running.address();
        eprintln!("bridge: table {}, at home in {home}; clients of Redis at {at}; Ctrl-C ends it", args.table);
    }
    // Who listened may have gone: that is no reason to stop carrying.
    while signals.recv_timeout(args.every) == Err(RecvTimeoutError::Timeout) {
        let _ = tell(args, &running.figures());
    }
    let last = running.figures();
    if last.dirty > 0 && !args.json {
        eprintln!("bridge: carrying {} keys home, for {:?} at most", last.dirty, args.drain);
    }
    let left = running.close(args.drain);
    let _ = tell(args, &Figures { dirty: left, ..last });
    if left > 0 {
        eprintln!("bridge: {left} keys are not at home yet; the store has them, and the next bridge carries them");
        return Ok(ExitCode::from(BEHIND));
    }
    Ok(ExitCode::SUCCESS)
}

/// What the flags ask for.
fn asked(args: &RackBridgeArgs) -> Result<Options> {
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

fn tell(args: &RackBridgeArgs, of: &Figures) -> Result<()> {
    if args.json {
        return print_json(&serde_json::to_value(of)?);
    }
    eprintln!(
        "bridge: {} hits, {} misses, {} writes; {} at home, {} to go, the oldest for {:.1} s; {} left memory",
        of.hits, of.misses, of.writes, of.applied, of.dirty, of.lag, of.evicted
    );
    if let Some(trouble) = &of.trouble {
        eprintln!("bridge: lately: {trouble}");
    }
    Ok(())
}
