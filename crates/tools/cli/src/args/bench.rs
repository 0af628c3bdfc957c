//! `bench`.

use super::{
    BreakdownArgs, ClusterBenchArgs, Connect, FlowBenchArgs, IdentityArgs, LabBenchArgs, PromisesArgs, ResultArgs,
    StoreBenchArgs, parse_clients, parse_depth, parse_rate, parse_rounds, units,
};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Latency and bandwidth of reads and writes by object size, beside published figures.
    Basic(BasicArgs),
    /// The bare path: what a round trip costs before there is any store.
    Echo(EchoArgs),
    /// The ladder to a server that runs: its driver, a call, an object
    #[command(after_help = "Examples:
  sprat bench ping                  a server on this machine
  sprat bench ping -C tcp:host=192.168.100.31,port=12246 --size 1000 --seconds 10

Each rung spins while it waits. The driver's ping is of transports past the kernel alone.")]
    Ping(PingArgs),
    /// Everything the store promises, beside its peers, in one run.
    Store(StoreBenchArgs),
    /// Replicas on other servers: what they cost a write, how fast what a dead server had is back, what clients notice.
    Cluster(ClusterBenchArgs),
    /// Every path from shared memory to TCP, and what a read costs above each (needs a build with DPDK).
    Bypass(PromisesArgs),
    /// Where the time of a read and a write goes: client, driver and network, server; over each transport.
    Breakdown(BreakdownArgs),
    /// What the network box promises: delay, rate, loss, streams, fairness (needs root).
    Lab(LabBenchArgs),
    /// The mover through long fat pipes, beside curl, aria2, axel and rclone, BBR and CUBIC (needs root).
    Flow(FlowBenchArgs),
    /// A rack on this machine: what its load tells beside latte, and what tuning brings (needs root, Cassandra and Ansible).
    #[command(after_help = "Examples:
  sprat bench rack
  sprat bench rack --only honesty

The variables SPRAT_CASSANDRA and SPRAT_ANSIBLE say where jars and Ansible are, SPRAT_LATTE where the peer is: `make bench-rack` sets
them. Servers have 8 GB of disk and 2.5 GB of memory of their own, in the system's temporary folder; 20 minutes.")]
    Rack(ResultArgs),
    /// The calculator's kernels beside the processor's peak, numba and KeOps; a cluster's energy; steps of a GRAPE-DR.
    #[command(after_help = "Examples:
  sprat bench grape
  sprat bench grape --only peers

The variable SPRAT_GRAPE_PEERS says where the peers' packages are [default: target/tools/grape-peers]; `make bench-grape` puts them there.")]
    Grape(ResultArgs),
    /// The whole distribution of a latency, and what each step in its tail comes from; hosts side by side.
    Distribution(DistributionArgs),
    /// The machine without any store: how often a thread that only spins is held up, and for how long.
    Jitter(JitterArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench basic
  sprat bench basic --vs redis://127.0.0.1:6379 --vs memcached://127.0.0.1:11211
  sprat bench basic --html report.html")]
pub(crate) struct BasicArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Measure a peer too, with the same work in the same run.
    #[arg(long, value_name = "URL")]
    pub(crate) vs: Vec<String>,
    /// Clients at once, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_clients)]
    pub(crate) clients: usize,
    /// Operations each client keeps in flight; 1 waits for every answer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_depth)]
    pub(crate) depth: usize,
    /// Clients sleep while they wait, as ordinary ones do, instead of spinning.
    #[arg(long)]
    pub(crate) sleep: bool,
    /// How long each turn of each line of the table takes; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::turn)]
    pub(crate) seconds: Duration,
    /// Turns of each line; medians count.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    /// Only objects of these sizes, such as 100,10kB.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = units::object_size)]
    pub(crate) sizes: Vec<u32>,
    /// Keys of each size, drawn evenly; by default 10,000, or what 64 MB hold.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: Option<u64>,
    /// Send at this rate a second, whether answers come or not (open loop).
    #[arg(long, value_name = "OPS", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Also write a report with pictures.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ClusterPerfArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Clients at once.
    #[arg(long = "numClients", value_name = "N", default_value_t = 1, value_parser = parse_clients)]
    pub(crate) num_clients: usize,
    /// Test to run.
    #[arg(default_value = "basic", value_parser = ["basic"])]
    pub(crate) test: String,
}

#[derive(Args, Debug)]
pub(crate) struct EchoArgs {
    /// How long each turn of each line of the table takes; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::turn)]
    pub(crate) seconds: Duration,
    /// Turns of each line; medians count.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    /// Also write a report with pictures.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Size of what is echoed and read.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = units::object_size)]
    pub(crate) size: u32,
    /// How long, in all; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::turn)]
    pub(crate) seconds: Duration,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A path of `bench distribution`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OverArg {
    /// Past the kernel, over memory that both processes share.
    Memif,
    /// Past the kernel, as para-virtual devices do it (needs a build with DPDK).
    Virtio,
    /// Kernel UDP.
    #[value(name = "fast+udp")]
    Udp,
    /// Kernel TCP.
    Tcp,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OpArg {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench distribution
  sprat bench distribution --over fast+udp,tcp --op write --samples 200000
  sprat bench distribution -C tcp:host=192.168.100.31,port=12246 --label 'virtual function'
  sprat bench distribution --compare metal.json vf.json guest.json --html hosts.html")]
pub(crate) struct DistributionArgs {
    /// Paths, each with a server of its own that spins on the last core, measured in turns [default: memif,
    /// fast+udp,tcp].
    #[arg(long, value_name = "PATH", value_enum, value_delimiter = ',')]
    pub(crate) over: Vec<OverArg>,
    /// Instead, the cluster of this coordinator. A server started with --timed --idle spin tells most.
    #[arg(short = 'C', long, value_name = "LOCATOR", conflicts_with = "over")]
    pub(crate) coordinator: Option<String>,
    /// Our own end, when tables are served over fast+dpdk: address, port 0, device.
    #[arg(long, value_name = "LOCATOR", env = "SPRAT_LOCAL")]
    pub(crate) local: Option<String>,
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// What is measured.
    #[arg(long, value_enum, default_value = "read")]
    pub(crate) op: OpArg,
    /// Size of an object.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = units::object_size)]
    pub(crate) size: u32,
    /// Operations over each path.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub(crate) samples: u64,
    /// Turns of each path.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    /// What the results are called where they are compared: the host, its kind.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) label: String,
    /// Where to write the results, all counts included [default: target/bench/distribution.json].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Also write a report with pictures [default: beside the results].
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the results as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure nothing: print and draw the results of earlier runs side by side.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        conflicts_with_all = ["over", "coordinator", "samples", "op", "size", "rounds", "label", "out"]
    )]
    pub(crate) compare: Vec<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat bench jitter
  sprat bench jitter --cores 2,3 --seconds 60
  sprat bench jitter --json | jq .meters")]
pub(crate) struct JitterArgs {
    /// Cores to watch, all at once [default: all that this process may use].
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    pub(crate) cores: Vec<usize>,
    /// How long to watch; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::turn)]
    pub(crate) seconds: Duration,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
