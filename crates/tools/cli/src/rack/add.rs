//! `rack add`: adds instances to a rack's ring.

use crate::output::{print_json, print_line};
use crate::rack::rolling::stopped;
use crate::rack::up::RackPlace;
use crate::rack::watch::{Output, Terminal};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sprat_plan::quantity::digits;
use sprat_ring::{Ended, JoinedInstance};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack add rack.toml --jars lib --check      show who would join, with which share of rows
  sprat rack add rack.toml --jars lib              add everything that the ring lacks
  sprat rack add rack.toml c0-n4 --jars lib        add a server's instances, also removed ones

First describe the larger rack: more servers in a chassis, or more chassis. All instances must
be up, as for `rolling`. New instances join one at a time: each is set up, fetches its rows
from the others, and must be seen by all before the next one. Then the others drop rows that
they no longer own (nodetool cleanup). Instances that are on the ring keep their tokens. After
Ctrl-C, an instance that is joining continues to fetch its rows.

Exit codes:
  6  stopped by Ctrl-C between two steps; run it again to continue")]
pub(crate) struct RackAddArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Servers or instances to add; without names, all that have never been on the ring.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,

    /// Show which instances would join, and change nothing.
    #[arg(long)]
    check: bool,

    /// Print JSON: the instances that joined, and those that were cleaned up.
    #[arg(long)]
    json: bool,
}

pub(crate) fn add(args: &RackAddArgs) -> Result<ExitCode> {
    let mut rack = args.place.open()?;
    let _lock = rack.lock()?;
    let output = if args.json { Output::Nothing } else { Output::Instances };
    let mut terminal = Terminal::stoppable(output)?;
    let jars = std::path::absolute(&args.jars)?;
    let ended = sprat_ring::add(&mut rack, &args.names, &jars, args.check, &mut terminal)?;
    terminal.finish();
    let added = match ended {
        Ended::Stopped(how_far) => return Ok(stopped(&how_far)),
        Ended::Done(added) => added,
    };
    let (joined, cleaned) = (&added.joined, &added.cleaned);
    if args.json {
        print_json(&json!({ "check": args.check, "joined": joined, "cleaned": cleaned }))?;
    } else if joined.is_empty() && cleaned.is_empty() {
        print_line("nothing to add: every instance is on the ring, or was removed from it")?;
    } else if args.check {
        joined.iter().try_for_each(|one| print_line(&joined_line(one, "would join")))?;
    } else {
        print_line(&format!("{} joined, {} cleaned up", joined.len(), cleaned.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn joined_line(one: &JoinedInstance, what: &str) -> String {
    format!(
        "{} {what} as {}, with {} tokens and {} % of all rows",
        one.name,
        one.address,
        one.tokens.len(),
        digits(one.share * 100.0)
    )
}
