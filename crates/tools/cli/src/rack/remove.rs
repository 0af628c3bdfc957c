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
  sprat rack remove rack.toml c0-n4-i1                its rows go to the others, then it stops
  sprat rack remove rack.toml c0-n4                   all instances of a server
  sprat rack remove rack.toml c0-n4 --gone            its server is dead: the others make its rows anew from replicas
  sprat rack remove rack.toml c0-n4 --check

Who stays must be well, and enough for all replicas. What it had is kept on its server (HOME/kept-TIME), unless
--purge. It is not on the ring any more, whatever the description says: `up` leaves it alone, `add` with its name has
it come back. Safe to run again after an interruption: the same command goes on.")]
pub(crate) struct RackRemoveArgs {
    #[command(flatten)]
    place: RackPlace,

    /// The instance, or the server.
    name: String,

    /// It does not run and never will again: nothing is asked of it.
    #[arg(long)]
    gone: bool,

    /// Remove its data, once its rows are with others.
    #[arg(long)]
    purge: bool,

    /// Tell whether it may leave, and change nothing.
    #[arg(long)]
    check: bool,

    /// Print JSON: who left.
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
            print_line(&format!("{} has left the ring already", args.name))?
        }
        (false, true) => print_line(&format!("{names} would leave the ring"))?,
        (false, false) => {
            print_line(&format!("{} left, {} stay", removed.left.len(), removed.stay))?
        }
    }
    Ok(ExitCode::SUCCESS)
}
