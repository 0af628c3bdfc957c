//! `bench`: benchmarks of Sprat, of its peers and of the machine.

pub(crate) mod basic;
pub(crate) mod distribution;
pub(crate) mod judged;

use crate::bench::basic::{BasicArgs, EchoArgs, PingArgs};
use crate::bench::distribution::{DistributionArgs, JitterArgs};
use crate::bench::judged::{
    BreakdownArgs, ClusterBenchArgs, FlowBenchArgs, LabBenchArgs, PromisesArgs, ResultArgs,
    StoreBenchArgs,
};
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

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
    /// Replicas on other servers: what they cost a write, how fast what a dead server had is back,
    /// what clients notice.
    Cluster(ClusterBenchArgs),
    /// Every path from shared memory to TCP, and what a read costs above each (needs a build with
    /// DPDK).
    Bypass(PromisesArgs),
    /// Where the time of a read and a write goes: client, driver and network, server; over each
    /// transport.
    Breakdown(BreakdownArgs),
    /// What the network box promises: delay, rate, loss, streams, fairness (needs root).
    Lab(LabBenchArgs),
    /// The mover through long fat pipes, beside curl, aria2, axel and rclone, BBR and CUBIC (needs
    /// root).
    Flow(FlowBenchArgs),
    /// A rack on this machine: what its load tells beside latte, and what tuning brings (needs
    /// root, Cassandra and Ansible).
    #[command(after_help = "Examples:
  sprat bench rack
  sprat bench rack --only honesty

The variables SPRAT_CASSANDRA and SPRAT_ANSIBLE say where jars and Ansible are, SPRAT_LATTE where the peer is: `make bench-rack` sets
them. Servers have 8 GB of disk and 2.5 GB of memory of their own, in the system's temporary folder; 20 minutes.")]
    Rack(ResultArgs),
    /// The calculator's kernels beside the processor's peak, numba and KeOps; a cluster's energy;
    /// steps of a GRAPE-DR.
    #[command(after_help = "Examples:
  sprat bench grape
  sprat bench grape --only peers

The variable SPRAT_GRAPE_PEERS says where the peers' packages are [default: target/tools/grape-peers]; `make bench-grape` puts them there.")]
    Grape(ResultArgs),
    /// The whole distribution of a latency, and what each step in its tail comes from; hosts side
    /// by side.
    Distribution(DistributionArgs),
    /// The machine without any store: how often a thread that only spins is held up, and for how
    /// long.
    Jitter(JitterArgs),
}

impl BenchCommand {
    /// Runs the benchmark and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Basic(args) => basic::basic(args),
            Self::Echo(args) => basic::echo(args),
            Self::Ping(args) => basic::ping(args),
            Self::Store(args) => judged::store(args),
            Self::Breakdown(args) => judged::breakdown(args),
            Self::Bypass(args) => judged::bypass(args),
            Self::Lab(args) => judged::lab(args),
            Self::Cluster(args) => judged::replicated(args),
            Self::Flow(args) => judged::flow(args),
            Self::Rack(args) => judged::rack(args),
            Self::Grape(args) => judged::grape(args),
            Self::Distribution(args) => distribution::distribution(args),
            Self::Jitter(args) => distribution::jitter(args),
        }
    }
}
