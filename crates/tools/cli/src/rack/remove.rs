//! `rack remove`: removes an instance from a rack's ring.

use crate::output::{print_json, print_line};
use crate::rack::rolling::stopped;
use crate::rack::up::RackPlace;
use crate::rack::watch::{Output, Terminal};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sprat_ring::{Ended, Removal};
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack remove rack.toml c0-n4-i1         move its rows to the other instances, stop it
  sprat rack remove rack.toml c0-n4            remove all instances of a server
  sprat rack remove rack.toml c0-n4 --check
  sprat rack remove rack.toml c0-n4 --gone     remove a dead server; the others copy its rows
                                               from their replicas

The remaining instances must be up, and enough for all replicas. The data of a removed instance
stays on its server in HOME/kept-TIME unless --purge is given. `up` leaves a removed instance
alone even if the description lists it; `sprat rack add RACK NAME` brings it back.

Exit codes:
  6  stopped by Ctrl-C between two steps; run it again to continue")]
pub(crate) struct RackRemoveArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Instance or server to remove.
    name: String,

    /// The instance is dead and will not return: do not contact it.
    #[arg(long)]
    gone: bool,

    /// Delete the instance's data after the other instances have its rows.
    #[arg(long)]
    purge: bool,

    /// Check whether the instance can be removed, and change nothing.
    #[arg(long)]
    check: bool,

    /// Print JSON: the instances that were removed.
    #[arg(long)]
    json: bool,
}

pub(crate) fn remove(args: &RackRemoveArgs) -> Result<ExitCode> {
    let mut rack = args.place.open()?;
    let _lock = rack.lock()?;
    let removal =
        Removal { name: &args.name, gone: args.gone, purge: args.purge, check: args.check };
    let mut terminal =
        Terminal::stoppable(if args.json { Output::Nothing } else { Output::Instances })?;
    let ended = sprat_ring::remove(&mut rack, removal, &mut terminal)?;
    terminal.finish();
    let removed = match ended {
        Ended::Stopped(how_far) => return Ok(stopped(&how_far)),
        Ended::Done(removed) => removed,
    };
    let names = removed.left.join(", ");
    match (args.json, args.check) {
        (true, _) => print_json(&json!({ "check": args.check, "left": removed.left }))?,
        (false, _) if names.is_empty() => {
            print_line(&format!("{} has already left the ring", args.name))?
        }
        (false, true) => print_line(&format!("{names} would leave the ring"))?,
        (false, false) => {
            print_line(&format!("{} removed, {} remain", removed.left.len(), removed.stay))?
        }
    }
    Ok(ExitCode::SUCCESS)
}
