//! The one table of commands and flags, from which help, completions and man pages come.
#![allow(rustdoc::broken_intra_doc_links, reason = "what stands at a flag is its help, brackets and all")]

mod bench;
mod browser;
mod cp;
pub(crate) mod doctor;
mod grape;
mod judged;
mod key;
mod lab;
mod lab_ctl;
mod lab_up;
mod rack;
mod rack_bridge;
mod rack_load;
mod rack_power;
mod rack_ring;
mod rack_tune;
mod rack_up;
mod share;
mod store;
mod tables;
mod units;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sprat_client::{FileError, Mode, Options};
use sprat_net::Event;
use sprat_store::replication::MAX_COPIES;
use sprat_store::server::MAX_NODES;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use bench::{
    BasicArgs, BenchCommand, ClusterPerfArgs, DistributionArgs, EchoArgs, JitterArgs, OpArg, OverArg, PingArgs,
};
pub(crate) use browser::{BrowserCommand, BrowserHostArgs, BrowserInstallArgs, BrowserPlaceArgs, ForArg};
pub(crate) use cp::CpArgs;
pub(crate) use grape::{
    DivideArg, EngineArg, EngineArgs, GrapeAsmArgs, GrapeCommand, GrapeExplainArgs, GrapeKernelsArgs, GrapeMatrixArgs,
    GrapeNbodyArgs, GrapeRunArgs, GrapeSimArgs, InputArgs, KernelArgs, MatrixArg, PrecisionArg, SchemeArg, ShapeArgs,
    TargetArg,
};
pub(crate) use judged::{
    BreakdownArgs, ClusterBenchArgs, FlowBenchArgs, LabBenchArgs, PromisesArgs, ResultArgs, StoreBenchArgs,
};
pub(crate) use key::{GuardArgs, IdentityArgs, KeyCommand, KeyInitArgs, KeyIssueArgs, KeyShowArgs};
pub(crate) use lab::{LabCommand, LabReportArgs, LabRunArgs, LabWatchArgs, SeriesArgs, ToleranceArgs};
pub(crate) use lab_ctl::{LabCtlArgs, LabCtlCommand, LabFilterCommand};
pub(crate) use lab_up::{LabDownArgs, LabLsArgs, LabState, LabTopologiesArgs, LabUpArgs};
pub(crate) use rack::{ForwardingArg, PatternArg, RackCommand, RackExamplesArgs, RackPlanArgs, RackSimulateArgs};
pub(crate) use rack_bridge::{BridgeConsistencyArg, RackBridgeArgs};
pub(crate) use rack_load::{ConsistencyArg, RackLoadArgs, WorkArgs, WorkloadArg};
pub(crate) use rack_power::{RackCostArgs, RackPowerArgs};
pub(crate) use rack_ring::{RackAddArgs, RackRemoveArgs};
pub(crate) use rack_tune::RackTuneArgs;
pub(crate) use rack_up::{
    RackDownArgs, RackPlace, RackReplaceArgs, RackRollingArgs, RackStatusArgs, RackUpArgs, RollingArg,
};
pub(crate) use share::ShareArgs;
pub(crate) use store::{StoreCommand, StoreExportArgs, StoreRebuildArgs, StoreVerifyArgs};
pub(crate) use tables::{DrainArgs, MoveArgs, ServerCommand, TableArgs, TableCommand};

/// DRAM storage for clusters of small servers: microsecond reads, every write durable.
#[derive(Debug, Parser)]
#[command(name = "sprat", version, propagate_version = true, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Examples:
  sprat server                          a whole store on this machine, data in ./sprat-data
  sprat table create users
  sprat put users alice 'likes tea'
  sprat get users alice
  sprat bench basic                     latency of reads and writes by size

`sprat COMMAND --help` shows each command with examples.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server: alone, it is coordinator, master and backup in one.
    Server(ServerArgs),
    /// Run a coordinator by itself.
    Coordinator(CoordinatorArgs),
    /// Print an object's value.
    Get(GetArgs),
    /// Store an object.
    Put(PutArgs),
    /// Remove an object.
    Del(DelArgs),
    /// Add to a number, atomically.
    Incr(IncrArgs),
    /// List a table's objects.
    Scan(ScanArgs),
    /// Make, drop, list and measure tables.
    Table(TableArgs),
    /// Show servers, tables and their counters.
    Status(StatusArgs),
    /// Load files, CSV or JSON lines into a table.
    Import(ImportArgs),
    /// Write a table out again, exactly as it was imported.
    Export(ExportArgs),
    /// Run mixed operations against a cluster and hold every answer against a model.
    Check(CheckArgs),
    /// Check, salvage or mend the files of a server that is stopped.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Measure, as the seed's program of that name: an alias of `bench basic`.
    #[command(name = "ClusterPerf", hide = true)]
    ClusterPerf(ClusterPerfArgs),
    /// Show the whole store on real input: import, verify, measure, kill, recover.
    Demo(DemoArgs),
    /// Run the store in the simulator, faults included, and check every history.
    Sim(SimArgs),
    /// Copy files from servers, however far, whole and verified.
    Cp(CpArgs),
    /// Serve a directory over HTTP, for any client, and verified for `sprat cp`.
    Share(ShareArgs),
    /// Let Firefox and Chromium hand their downloads to sprat.
    #[command(subcommand)]
    Browser(BrowserCommand),
    /// Make a cluster's root, and identities by which its members know one another.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Networks to try things on: long fat pipes, harmonizers, switches.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Racks of small servers: on paper, then as the paper has it.
    #[command(subcommand)]
    Rack(RackCommand),
    /// Kernels of particle interactions, on this processor's vectors or a simulated GRAPE-DR.
    #[command(subcommand)]
    Grape(GrapeCommand),
    /// Find what holds this machine back.
    #[command(subcommand)]
    Doctor(doctor::DoctorCommand),
    /// Print a completion script for a shell.
    Completions(CompletionArgs),
    /// Write man pages into a directory.
    Man(ManArgs),
}

/// Where the coordinator is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connect {
    /// Locator of the coordinator; of several, all of them with commas between.
    #[arg(
        short = 'C',
        long,
        value_name = "LOCATOR",
        default_value = DEFAULT_COORDINATOR,
        env = "SPRAT_COORDINATOR",
        global = true
    )]
    pub(crate) coordinator: String,

    /// Our own end, when tables are served over fast+dpdk: address, port 0, device.
    #[arg(long, value_name = "LOCATOR", env = "SPRAT_LOCAL", global = true)]
    pub(crate) local: Option<String>,

    /// Give up on an operation after this long, such as 500ms or 1m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::operation_timeout, global = true)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
}

impl Connect {
    /// The same for a client, which waits by sleeping: a command is one of many on the machine.
    ///
    /// # Errors
    /// When the identity cannot be read.
    pub(crate) fn options(&self) -> Result<Options, FileError> {
        Ok(Options {
            coordinator: self.coordinator.clone(),
            local: self.local.clone(),
            timeout: self.timeout,
            waiting: Mode::Sleep,
            identity: self.identity.load()?,
            ..Options::default()
        })
    }
}

/// Where a coordinator listens unless told.
pub(crate) const DEFAULT_COORDINATOR: &str = "tcp:host=127.0.0.1,port=11100";

/// Where a server listens unless told.
pub(crate) const DEFAULT_LISTEN: &str = "fast+udp:host=127.0.0.1,port=11101";

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat server
  sprat server --memory 16G --data /srv/sprat --durability sync
  sprat server -L tcp:host=127.0.0.1,port=11101
  sprat server --nodes 4 --core 2,3,4,5
  sprat server -C tcp:host=10.0.0.1,port=11100 -L fast+udp:host=10.0.0.2,port=11101 -r 3 --identity server.id
  sprat server drain 3                                   before it is stopped for good")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServerCommand>,

    /// Locator of a coordinator that runs elsewhere, or of several with commas between; without it, this server brings its own.
    #[arg(short = 'C', long, value_name = "LOCATOR", env = "SPRAT_COORDINATOR")]
    pub(crate) coordinator: Option<String>,

    /// Bring the coordinator too, at the locator of -C.
    #[arg(long, requires = "coordinator")]
    pub(crate) with_coordinator: bool,

    /// Where clients reach this server; once for each node, or once for all: then the others have the ports behind it.
    #[arg(short = 'L', long, value_name = "LOCATOR", default_value = DEFAULT_LISTEN)]
    pub(crate) listen: Vec<String>,

    /// Nodes in this process, each with a thread, a port, and its part of memory and disk; default one for each -L.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_NODES as i64))]
    pub(crate) nodes: Option<u16>,

    /// Memory for the log, such as 512M or 16G (16GiB); default half of this machine's.
    #[arg(long, value_name = "SIZE", value_parser = sprat_units::size)]
    pub(crate) memory: Option<u64>,

    /// Directory for what must survive.
    #[arg(long, value_name = "DIR", default_value = "sprat-data")]
    pub(crate) data: PathBuf,

    /// Disk space for the log, such as 40G or 1TB; default two and a half times the memory; with -r about 3.5 times for each replica.
    #[arg(long, value_name = "SIZE", value_parser = sprat_units::size)]
    pub(crate) disk: Option<u64>,

    /// What a write has survived when it is acknowledged.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Sync)]
    pub(crate) durability: DurabilityArg,

    /// Replicas of its log on other servers of the cluster, and then it keeps some for them; 0: its log is on its own disk alone.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=MAX_COPIES as i64))]
    pub(crate) replicas: u8,

    /// The rack that it is in, or whatever fails as one: 1 to 32 of letters, digits, _ and -. Replicas of its log are kept in others, as
    /// far as there are enough.
    #[arg(long, value_name = "LABEL", env = "SPRAT_RACK", value_parser = parse_rack)]
    pub(crate) rack: Option<String>,

    /// What an idle thread does: spin (lowest latency, a whole core), sleep, or adapt.
    #[arg(long, value_enum, default_value_t = IdleArg::Adaptive)]
    pub(crate) idle: IdleArg,

    /// Pin the data thread to this core; of several nodes, each to one of these, or to those that follow this one.
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pub(crate) core: Vec<usize>,

    /// Serve Prometheus metrics over HTTP at this address; `none` for not at all.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11109")]
    pub(crate) metrics: String,

    /// Time requests and rounds: its counters then tell the median (request_p50_ns) and how its thread fared.
    #[arg(long)]
    pub(crate) timed: bool,

    /// Count an event instead: its counters then tell what requests do, on the average (request_events_milli).
    #[arg(long, value_name = "EVENT", conflicts_with = "timed")]
    pub(crate) counted: Option<Event>,

    #[command(flatten)]
    pub(crate) guard: GuardArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat coordinator --data /srv/coordinator
  sprat coordinator -C tcp:host=10.0.0.1,port=11100 --identity server.id --etcd http://10.0.0.1:2379,http://10.0.0.2:2379")]
pub(crate) struct CoordinatorArgs {
    /// Where it listens; with --etcd also where others reach it.
    #[arg(short = 'C', long, value_name = "LOCATOR", default_value = DEFAULT_COORDINATOR, env = "SPRAT_COORDINATOR")]
    pub(crate) coordinator: String,

    /// Directory for its metadata.
    #[arg(long, value_name = "DIR", default_value = "sprat-coordinator", conflicts_with = "etcd")]
    pub(crate) data: PathBuf,

    /// Keep the metadata in this etcd instead; then several coordinators can run, one of which leads while the others stand by.
    #[arg(long, value_name = "URL,..")]
    pub(crate) etcd: Option<String>,

    /// Name of the cluster in etcd: coordinators of one cluster have the same.
    #[arg(long, value_name = "NAME", default_value = "default", requires = "etcd")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) guard: GuardArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// It is on disk (fdatasync).
    Sync,
    /// It is with the kernel: survives the process, and a power cut after at most a second.
    Buffered,
    /// It is in memory only.
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum IdleArg {
    /// Never sleep.
    Spin,
    /// Sleep at once.
    Sleep,
    /// Spin a little, then sleep.
    Adaptive,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat get users alice
  sprat get users alice --json
  sprat get pictures cat.jpg -o cat.jpg
  sprat get counters visits --number")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table.
    pub(crate) table: String,
    /// Key.
    pub(crate) key: String,
    /// Write the value to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print a counter as a number instead of its 8 bytes; other objects are an error.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    pub(crate) number: bool,
    /// Print key, version and value as JSON; of a counter its number too.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat put users alice 'likes tea'
  sprat put pictures cat.jpg -i cat.jpg
  sprat put users alice 'first!' --if-absent
  sprat put users alice 'newer' --if-version 7")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table.
    pub(crate) table: String,
    /// Key.
    pub(crate) key: String,
    /// Value; from --input, or else standard input, when not given.
    pub(crate) value: Option<String>,
    /// Read the value from this file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "value")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) condition: ConditionArgs,
    /// Only if there is no such object.
    #[arg(long, conflicts_with_all = ["if_exists", "if_version"])]
    pub(crate) if_absent: bool,
    /// Print the version as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ConditionArgs {
    /// Only if there is such an object.
    #[arg(long)]
    pub(crate) if_exists: bool,
    /// Only if the object has this version.
    #[arg(long, value_name = "N", conflicts_with = "if_exists")]
    pub(crate) if_version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct DelArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table.
    pub(crate) table: String,
    /// Key.
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) condition: ConditionArgs,
    /// Print the version removed as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat incr counters visits
  sprat incr counters visits -- -5
  sprat incr counters temperature 0.5 --double")]
pub(crate) struct IncrArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table.
    pub(crate) table: String,
    /// Key.
    pub(crate) key: String,
    /// What to add.
    #[arg(default_value = "1", allow_negative_numbers = true)]
    pub(crate) delta: String,
    /// Add to a double, not to a 64-bit integer. A counter stays what its first increment made it.
    #[arg(long)]
    pub(crate) double: bool,
    /// Print value and version as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat scan users
  sprat scan users --keys --limit 20
  sprat scan users --json | jq .key
  sprat scan users --limit 1000 --after 81985529216486895")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table.
    pub(crate) table: String,
    /// Keys only.
    #[arg(long)]
    pub(crate) keys: bool,
    /// Stop after about this many objects, and tell the cursor to go on from.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Go on from a cursor that an earlier scan told.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<u64>,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum FormatArg {
    /// A directory tree: path -> bytes.
    Tree,
    /// Comma-separated values.
    Csv,
    /// One JSON object a line.
    Jsonl,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat import sources ~/project              every file, by its path
  sprat import users users.csv --key id       every row, by a column
  sprat import users pairs.csv                columns `key` and `value`
  sprat import events events.jsonl --key uuid every line, by a field")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table; made if it does not exist.
    pub(crate) table: String,
    /// Directory or file to read.
    pub(crate) source: PathBuf,
    /// What the source is; by default as its name says.
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatArg>,
    /// Column (by name, or number from 0) or field that is the key, the whole row or line being the value; without it,
    /// the columns or fields `key` and `value`. A column `encoding`, as `export` writes it, says
    /// which of both are base64: `key`, `value`, `both` or nothing.
    #[arg(long, value_name = "NAME")]
    pub(crate) key: Option<String>,
    /// The CSV file has no header row; without --key its first two columns are key and value.
    #[arg(long)]
    pub(crate) no_header: bool,
    /// Leave out values over 1 MB instead of refusing the import.
    #[arg(long)]
    pub(crate) skip_large: bool,
    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print the totals as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat export sources /tmp/copy
  sprat export users users.csv
  sprat export events events.jsonl --rows
  sprat export events - --format jsonl | head")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Table.
    pub(crate) table: String,
    /// Directory or file to write; must not exist. `-` is standard output.
    pub(crate) target: PathBuf,
    /// What to write; by default as the target's name says.
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatArg>,
    /// Write values alone, each as a row or line: what was imported with `--key`. CSV with a header does so anyway.
    #[arg(long)]
    pub(crate) rows: bool,
    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print the totals as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat check                       10,000 operations in a table of its own, dropped afterwards
  sprat check --operations 1000000 --depth 32
  sprat check --seed 4711 --keep    the operations of that seed; the table stays
  sprat check -C tcp:host=192.168.100.31,port=12246 --json

One operation in ten adds one to a number that others of them add to at the same time. A hundred of
the rest: 40 gets, 35 puts, 10 removals, 15 increments, on 256 objects; half of the puts and
removals are conditional. A hundred puts: 10 empty values, 5 of 8 B, 55 up to 200 B,
20 up to 10 KB, 8 up to 100 KB, 2 up to 1 MB; every fourth object holds a number instead.
A wrong answer ends the run with exit code 1, and the table stays.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// How many operations.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: u64,
    /// What the operations are drawn from [default: by chance, and told].
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// Operations kept in flight, each on another object but for the shared number; 1 waits for every answer.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_check_depth)]
    pub(crate) depth: usize,
    /// Table to make; there must be none of that name [default: check- and the seed].
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// Leave the table when all is well.
    #[arg(long)]
    pub(crate) keep: bool,
    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Directory tree to import: by default the sources that building Sprat left in the cargo registry.
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat sim --seeds 1000
  sprat sim --seed 4711 --verbose
  sprat sim --cluster --operations 10000 --seeds 20 --from 1000
  sprat sim --cluster --fresh --for 10m --keep failed.txt")]
pub(crate) struct SimArgs {
    /// How many histories.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) seeds: u64,
    /// Of whole clusters: servers that keep replicas for each other, and are killed, stopped and cut off.
    #[arg(long)]
    pub(crate) cluster: bool,
    /// Operations of each history, and as many more faults: from 1 up to 1000000; what a seed says without.
    #[arg(long, value_name = "N", requires = "cluster", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) operations: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) from: u64,
    /// Begin with a seed by chance, and tell which.
    #[arg(long, conflicts_with = "from")]
    pub(crate) fresh: bool,
    /// As many histories as can be begun in this time, such as 10m; a number alone is seconds.
    #[arg(long = "for", value_name = "TIME", value_parser = units::long, conflicts_with = "seeds")]
    pub(crate) time: Option<Duration>,
    /// Add a line for each history that fails to this file: the command that repeats it.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Only this one.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from", "fresh", "time", "keep"])]
    pub(crate) seed: Option<u64>,
    /// Tell what happens.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// Shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory; made if it does not exist.
    pub(crate) dir: PathBuf,
}

/// Operations a second.
fn parse_rate(text: &str) -> Result<f64, String> {
    bounded(text, 1.0, 1e9, "a rate")
}

fn parse_rounds(text: &str) -> Result<usize, String> {
    counted(text, 1000, "rounds")
}

fn parse_clients(text: &str) -> Result<usize, String> {
    counted(text, 1000, "clients")
}

fn parse_depth(text: &str) -> Result<usize, String> {
    counted(text, 1000, "operations in flight")
}

/// Far fewer than there are objects, of which each has one operation under way at most.
fn parse_check_depth(text: &str) -> Result<usize, String> {
    counted(text, 64, "operations in flight")
}

fn bounded(text: &str, least: f64, most: f64, what: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("want {what} from {least} to {most}"))
}

fn counted(text: &str, most: usize, what: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|value| (1..=most).contains(value));
    value.ok_or_else(|| format!("want 1 to {most} {what}"))
}

/// Parses the name of a rack.
fn parse_rack(text: &str) -> Result<String, String> {
    match sprat_wire::is_rack(text) {
        true => Ok(text.to_owned()),
        false => Err(sprat_wire::op::Malformed::Rack.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_table_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_published_command_lines_parse() {
        for line in [
            "sprat coordinator -C tcp:host=192.168.100.31,port=12246",
            "sprat server -C tcp:host=192.168.100.31,port=12246 \
             -L fast+dpdk:host=192.168.101.29,mac=94:DE:80:AB:01:79,port=12247 -r 0",
            "sprat server --nodes 2 --core 2,3",
            "sprat ClusterPerf -C tcp:host=192.168.100.31,port=12246 --numClients 1 basic",
        ] {
            Cli::try_parse_from(line.split_whitespace()).unwrap();
        }
    }
}
