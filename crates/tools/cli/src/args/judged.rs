//! `bench`, those that hold lists of promises.

use super::{parse_rounds, units};
use clap::Args;
use sprat_net::Event;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct StoreBenchArgs {
    #[command(flatten)]
    pub(crate) promises: PromisesArgs,
    /// Memory and restarts with 10 million objects instead of 2 million: takes some 9 GB of memory.
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench cluster
  sprat bench cluster --only recovery --full

Coordinator, servers and Redis are processes of the benchmark's own, on the loopback, and gone with it.")]
pub(crate) struct ClusterBenchArgs {
    #[command(flatten)]
    pub(crate) promises: PromisesArgs,
    /// Bring back 1 GB of log instead of 256 MB, and kill 100 servers instead of 10.
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench lab
  sprat bench lab --only delay --seconds 10
  sprat bench lab --full

Hosts are network namespaces of the benchmark's own, and gone with it; nothing leaves them. Needs root, iproute2 and /dev/net/tun.")]
pub(crate) struct LabBenchArgs {
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// How long each measurement counts for, after the growth of windows; some take longer at least. A number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::turn)]
    pub(crate) seconds: Duration,
    /// Up to 10 Gb/s, and longer: some GB of memory, and cores that are idle.
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench flow
  sprat bench flow --only ramp --rounds 5
  sprat bench flow --only browser
  sprat bench flow --full

Hosts are network namespaces of the benchmark's own, and gone with it; nothing leaves them. Needs root, iproute2, /dev/net/tun,
and curl, aria2, axel, rclone and nginx to measure beside; for clicks Firefox, and Chromium if it is here.")]
pub(crate) struct FlowBenchArgs {
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// Turns of each program that fetches files; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    /// Files of up to 4 GB instead of 1, and paths of up to 5 Gb/s instead of 2.
    #[arg(long)]
    pub(crate) full: bool,
}

/// Where what a list of chapters finds goes, and which of them run.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResultArgs {
    /// Where to write the rows [default: target/bench/ and the benchmark's name].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Also write a report with pictures [default: beside the rows].
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Only chapters whose name contains this; a name that is none lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PromisesArgs {
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// Rounds of each comparison; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    /// How long each system's turn in a round takes; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::turn)]
    pub(crate) seconds: Duration,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sprat bench breakdown
  sprat bench breakdown --only memif --count instructions,page-faults

Events are counted in passes of their own, in user mode. What the machine does not count is said, with the reason.")]
pub(crate) struct BreakdownArgs {
    #[command(flatten)]
    pub(crate) promises: PromisesArgs,
    /// What to count by stage, besides the time: instructions, cycles, cache-misses, page-faults, task-clock [default:
    /// instructions,cycles,cache-misses].
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub(crate) count: Vec<Event>,
}
