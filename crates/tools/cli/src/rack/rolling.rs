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
  sprat rack rolling config rack.toml --jars lib      apply changed settings of the description
  sprat rack rolling config rack.toml --jars lib --check
  sprat rack rolling restart rack.toml --jars lib --limit c0-n2
  sprat rack rolling upgrade rack.toml --jars new     switch to the jars in new/

Before each instance and after the last one, all instances must be up and agree on the schema.
The instance flushes its memory to disk, stops, gets its new files and starts again. `config`
and `upgrade` skip instances that already have their files, so run the command again to
continue.

Servers keep the jars of several versions. To go back, run `upgrade` with the old jars, as long
as the old version reads the files that the new one wrote.

Exit codes:
  6  stopped by Ctrl-C, after the current instance was completed")]
pub(crate) struct RackRollingArgs {
    /// Operation.
    what: RollingArg,

    #[command(flatten)]
    place: RackPlace,

    /// Folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    jars: PathBuf,

    /// Only these servers or instances: names separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    limit: Vec<String>,

    /// Show what would change, and change nothing.
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum RollingArg {
    /// Restart every instance.
    Restart,
    /// Restart instances whose settings differ from the description.
    Config,
    /// Restart instances with other jars, and let all rewrite their tables in the new format.
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
        true => (Output::Differences, "would be restarted"),
        false => (Output::Instances, "restarted"),
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

/// Prints how far a change got before it was stopped, and returns the exit code.
pub(super) fn stopped(how_far: &str) -> ExitCode {
    eprintln!("sprat: stopped{how_far}; run the command again to continue");
    ExitCode::from(INCOMPLETE)
}
