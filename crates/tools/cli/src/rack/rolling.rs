//! `rack rolling`: restarts, reconfigures or upgrades a rack's instances one by one.

use crate::exit::INCOMPLETE;
use crate::output::print_line;
use crate::rack::up::RackPlace;
use crate::rack::watch::{Output, Terminal};
use anyhow::Result;
use clap::{Args, ValueEnum};
use sprat_ring::{Ended, Rolling};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack rolling config rack.toml --jars lib      bring changed settings to who has others, one at a time
  sprat rack rolling upgrade rack.toml --jars new     the same with other jars, and their files written anew
  sprat rack rolling restart rack.toml --jars lib
  sprat rack rolling config rack.toml --jars lib --check

Each instance in turn: all others must be up and agree on the schema; it writes down what it has in memory, stops, is given its
files, starts, and the others must see it before the next one. Ctrl-C ends it after the present one. Safe to
run again: `config` and `upgrade` pass over who has its files already. Jars of several versions lie beside each
other on servers: the way back is `upgrade` with the old ones, as long as Cassandra reads what the new one wrote.")]
pub(crate) struct RackRollingArgs {
    /// What to do.
    what: RollingArg,

    #[command(flatten)]
    place: RackPlace,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,

    /// Only these: names of servers or instances, with commas between.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    limit: Vec<String>,

    /// Tell what would change, and change nothing.
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum RollingArg {
    /// Stop each and start it.
    Restart,
    /// Start those anew whose settings are others than before.
    Config,
    /// Start those anew whose jars are others than before, and have all write their tables in the
    /// new form.
    Upgrade,
}

pub(crate) fn rolling(args: &RackRollingArgs) -> Result<ExitCode> {
    let rack = args.place.open()?;
    let _lock = rack.lock()?;
    let what = match args.what {
        RollingArg::Restart => Rolling::Restart,
        RollingArg::Config => Rolling::Config,
        RollingArg::Upgrade => Rolling::Upgrade,
    };
    let (output, became) = match args.check {
        true => (Output::Differences, "would begin anew"),
        false => (Output::Instances, "began anew"),
    };
    let mut terminal = Terminal::stoppable(output)?;
    let jars = std::path::absolute(&args.jars)?;
    let ended = sprat_ring::rolling(&rack, what, &jars, &args.limit, args.check, &mut terminal)?;
    terminal.finish();
    match ended {
        Ended::Stopped(how_far) => Ok(stopped(&how_far)),
        Ended::Done(report) => {
            print_line(&format!("{} of {} {became}", report.restarted, report.of))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints how far a stopped change got, and returns the exit code.
pub(super) fn stopped(how_far: &str) -> ExitCode {
    eprintln!("sprat: stopped{how_far}; run it again to go on");
    ExitCode::from(INCOMPLETE)
}
