//! `rack tune`.

use super::rack_load::WorkArgs;
use super::rack_up::RackPlace;
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true), after_help = "Examples:
  sprat rack tune rack.toml --check                     what is otherwise than advised; nothing is changed
  sprat rack load rack.toml --reads 0 --duration 10m    data to measure on, if the rack has none
  sprat rack tune rack.toml --apply --jars lib --rate 2000 --html tune.html
  sprat rack tune rack.toml --apply --jars lib --only collector,read-ahead
  sprat rack tune rack.toml --undo --jars lib           all as it was

Settings are tried one class at a time, in this order: collector, read-ahead, compaction, concurrency, memtable,
commit-log, scheduler, memory, limits, governor, interrupts, network; with --table also chunks, strategy,
speculation. Each is measured just before and just after, under the same load, and is kept only if latency is better by
more than two measurements of the same differ; memory, limits, governor, interrupts and network if it is not worse,
since what they prevent is seldom. Latency is compared by the geometric mean of each second's p99.

Before something is changed, what it was is written down in the rack's folder (tune.json): an end at any time
is mended by the next run, and --undo brings all of it back. What is found for instances counts from then on in `rack up`
too (tuned.json). Files of a kernel are set anew when a host with systemd starts. With hosts on this machine (--local) these
are this machine's.")]
pub(crate) struct RackTuneArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// Tell what is otherwise than advised, and change nothing. Exit code 6 if there is something.
    #[arg(long, group = "what")]
    pub(crate) check: bool,

    /// Try it, and keep what helps.
    #[arg(long, group = "what")]
    pub(crate) apply: bool,

    /// Bring back what was before.
    #[arg(long, group = "what")]
    pub(crate) undo: bool,

    /// Only these classes.
    #[arg(long, value_name = "CLASSES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Tune this table too: KEYSPACE.TABLE. Its files are written anew, which takes time and room. Once for each.
    #[arg(long = "table", value_name = "TABLE")]
    pub(crate) tables: Vec<String>,

    /// The folder with Cassandra's jars on this machine; --apply and --undo want it.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    pub(crate) jars: Option<PathBuf>,

    /// Operations a second of the load.
    #[arg(long, value_name = "RATE", default_value_t = 1000.0)]
    pub(crate) rate: f64,

    /// How long each measurement is.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = sprat_units::duration)]
    pub(crate) duration: Duration,

    /// How long the same load runs before each measurement, without being counted.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sprat_units::duration)]
    pub(crate) warm: Duration,

    #[command(flatten)]
    pub(crate) work: WorkArgs,

    /// Write a page: what was changed, why, and latency before and after.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
