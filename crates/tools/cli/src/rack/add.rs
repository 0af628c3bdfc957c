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
  sprat rack add rack.toml --jars lib                 all that the description has and the ring lacks
  sprat rack add rack.toml c0-n4 --jars lib           this server's instances, also if they have left before
  sprat rack add rack.toml --jars lib --check         who would come, with which share of rows

Say in the description what there is now: more servers of a chassis, more chassis. Who is on the ring keeps its
tokens; those of newcomers are fitted in between. Each in turn is brought to its server, fetches its rows from the others, and
must be seen by all before the next one; then the others remove what is theirs no more (nodetool cleanup), one at a
time. All must be well before, as for `rolling`. Ctrl-C ends it between two steps: the same command goes on, and
what fetches its rows meanwhile goes on by itself.")]
pub(crate) struct RackAddArgs {
    #[command(flatten)]
    place: RackPlace,

    /// Servers or instances; without any, all that were never there.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,

    /// Tell who would come, and change nothing.
    #[arg(long)]
    check: bool,

    /// Print JSON: who came, and who was cleaned up.
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
        print_line("all that the description has are on the ring, or have left it")?;
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
