//! `rack`: racks of small servers.

use super::rack_bridge::RackBridgeArgs;
use super::rack_load::RackLoadArgs;
use super::rack_power::{RackCostArgs, RackPowerArgs};
use super::rack_ring::{RackAddArgs, RackRemoveArgs};
use super::rack_tune::RackTuneArgs;
use super::rack_up::{RackDownArgs, RackReplaceArgs, RackRollingArgs, RackStatusArgs, RackUpArgs};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum RackCommand {
    /// Check a rack on paper: what it holds, how it is joined, where data lies, what fails with what.
    Plan(RackPlanArgs),
    /// Send requests over a planned rack, frame by frame on virtual time, and tell their latency.
    Simulate(RackSimulateArgs),
    /// Bring servers to what the plan says, over ssh; or make them on this machine.
    Up(RackUpArgs),
    /// Show all instances in one table, as nodetool tells it.
    Status(RackStatusArgs),
    /// Start instances anew one at a time: as they are, with other settings, or with another version.
    Rolling(RackRollingArgs),
    /// Have instances come to the ring that the description has and the ring lacks.
    Add(RackAddArgs),
    /// Have an instance, or all of a server, leave the ring.
    Remove(RackRemoveArgs),
    /// Have an instance that lost its data take its own place anew.
    Replace(RackReplaceArgs),
    /// Read and write at a rate fixed beforehand, and tell latency by the second.
    Load(Box<RackLoadArgs>),
    /// Try settings of hosts and instances, one class at a time, and keep what is measured to be better.
    Tune(Box<RackTuneArgs>),
    /// Keep a table in the store's memory, and Cassandra as its large, slow home; speaks Redis' protocol.
    Bridge(Box<RackBridgeArgs>),
    /// Read what servers take, by their sensors, and tell energy and joules per operation.
    Power(RackPowerArgs),
    /// Tell what servers cost over the years, to buy and to run, side by side.
    Cost(RackCostArgs),
    /// Stop all instances; hosts on this machine are removed.
    Down(RackDownArgs),
    /// List the racks that come with the program, or print one.
    Examples(RackExamplesArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack examples                           what there is to begin with
  sprat rack examples cassandra-6 > rack.toml   one to change
  sprat rack plan rack.toml
  sprat rack plan rack.toml --write plan/       cables, addresses, tokens, a picture
  sprat rack plan mms-16                        a published rack: what of its figures follows
  sprat rack plan rack.toml --json | jq .network.diameter

--write makes these files in a folder: plan.json, all of what is told; plan.svg, racks and links;
cables.csv, what leads from where to where; hosts.csv, names and addresses of servers and instances;
tokens.csv, which instance of Cassandra has which tokens.

A plan that cannot be is an error that names what to change: too few ports, too few addresses,
replicas that a server takes with it. Claims that do not follow are told, and are no error.")]
pub(crate) struct RackPlanArgs {
    /// A file, or a rack that comes with the program.
    pub(crate) rack: String,

    /// Write lists and a picture into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack simulate mms-cube                          one at a time: an empty network
  sprat rack simulate mms-cube --pattern load --load 60%
  sprat rack simulate mms-5 --pattern incast --answer 20kB
  sprat rack simulate rack.toml --answer 1MB --service 3us --json
  sprat rack simulate mms-5 --forwarding store-and-forward

Latency is from a request's first bit to its answer's last, by how many links between chassis are between the
servers. What servers take for sending and receiving is not in it. What does not fit into a switch's
buffer is lost, and is not sent again.")]
pub(crate) struct RackSimulateArgs {
    /// A file, or a rack that comes with the program.
    pub(crate) rack: String,

    /// Who asks whom, and when.
    #[arg(long, value_enum, default_value_t = PatternArg::One)]
    pub(crate) pattern: PatternArg,

    /// With `--pattern load`: what part of a server's ports answers take.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = sprat_units::ratio)]
    pub(crate) load: f64,

    /// How many requests.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub(crate) requests: usize,

    /// Size of a request.
    #[arg(long, value_name = "SIZE", default_value = "50B", value_parser = sprat_units::size)]
    pub(crate) request: u64,

    /// Size of an answer.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = sprat_units::size)]
    pub(crate) answer: u64,

    /// What a server takes for a request.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = sprat_units::duration)]
    pub(crate) service: Duration,

    /// How switches pass frames on, whatever the file says.
    #[arg(long, value_enum)]
    pub(crate) forwarding: Option<ForwardingArg>,

    /// Where chance begins: the same number is the same run.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PatternArg {
    /// One request at a time, between servers by chance.
    One,
    /// All servers ask others, at random times.
    Load,
    /// All servers answer one at once.
    Incast,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ForwardingArg {
    /// A frame leaves when its head is in.
    CutThrough,
    /// A frame leaves when all of it is in.
    StoreAndForward,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack examples
  sprat rack examples cassandra-6 > rack.toml   one to change")]
pub(crate) struct RackExamplesArgs {
    /// Print this one.
    pub(crate) name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
