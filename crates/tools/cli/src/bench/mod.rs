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
    /// Benchmark reads and writes by object size on a running cluster.
    Basic(BasicArgs),
    /// Benchmark each layer to a running server: driver, RPC, object read.
    #[command(after_help = "Examples:
  sprat bench ping                  a server on this machine
  sprat bench ping -C tcp:host=192.168.100.31,port=12246 --size 1000 --seconds 10

The client spins while it waits. The driver's ping is measured on kernel-bypass transports only.")]
    Ping(PingArgs),
    /// Benchmark the store beside its peers, and check its performance goals.
    Store(StoreBenchArgs),
    /// Benchmark a cluster: replication, crash recovery, impact on clients.
    Cluster(ClusterBenchArgs),
    /// Show where the time of a read and a write goes, for each transport.
    Breakdown(BreakdownArgs),
    /// Benchmark all transports, shared memory to TCP (needs a build with DPDK).
    #[command(after_help = "Examples:
  sprat bench bypass
  sprat bench bypass --rounds 5 --html bypass.html")]
    Bypass(PromisesArgs),
    /// Benchmark file transfer over long fat pipes beside its peers (needs root).
    Flow(FlowBenchArgs),
    /// Benchmark the network emulator: delay, rate, loss, fairness (needs root).
    Lab(LabBenchArgs),
    /// Benchmark a rack on this machine: load and tuning (needs root).
    #[command(after_help = "Examples:
  sprat bench rack
  sprat bench rack --only honesty

Takes 20 minutes. Each server gets 8 GB of disk and 2.5 GB of memory, in the system's temporary
folder. Needs root, Cassandra and Ansible; `make bench-rack` sets the environment variables:
  SPRAT_CASSANDRA   folder with Cassandra's jars
  SPRAT_ANSIBLE     folder with Ansible
  SPRAT_LATTE       the peer, latte")]
    Rack(ResultArgs),
    /// Benchmark kernels beside the processor's peak, numba and KeOps.
    #[command(after_help = "Examples:
  sprat bench grape
  sprat bench grape --only peers

The variable SPRAT_GRAPE_PEERS names the folder with the peers' packages
[default: target/tools/grape-peers]; `make bench-grape` installs them there.")]
    Grape(ResultArgs),
    /// Measure the full latency distribution, and the cause of each step in its tail.
    Distribution(DistributionArgs),
    /// Measure round trips without a store: the network path alone.
    Echo(EchoArgs),
    /// Measure how often and how long the system interrupts a spinning thread.
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
