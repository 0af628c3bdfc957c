//! `rack load`.

use super::rack_up::RackPlace;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack load rack.toml --rate 2000 --duration 60s
  sprat rack load three.toml --local --rate 1000 --verify        and no acknowledged write is lost
  sprat rack load rack.toml --rate 1000..20000 --steps 20 --duration 10m --html load.html
  sprat rack load rack.toml --workload wide --keys 100 --rate 500 --duration 1h --json
  sprat rack load rack.toml --contact 10.0.0.3:9042              these instances only

When each operation starts is fixed before the first one does; response time counts from there. So a cluster that
stands still for a second makes a second's operations wait, and that is what is told: nothing is left out.
`delivered` is what was answered in a second, beside what was asked. A run that misses its rate ends with exit code 7,
one that lost acknowledged writes with 10.

The keyspace sprat_load is made where it is not there. Keys that were never written are not found when they are
read: writes alone (--reads 0) fill them.")]
pub(crate) struct RackLoadArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// Where the cluster is found, instead of at all instances of the plan: HOST:PORT. Once for each.
    #[arg(long = "contact", value_name = "ADDRESS")]
    pub(crate) contacts: Vec<String>,

    /// Operations a second: a number, or FROM..TO for a rate that rises.
    #[arg(long, value_name = "RATE", default_value = "1000")]
    pub(crate) rate: String,

    /// In how many steps the rate rises.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) steps: usize,

    /// How long in all, such as 90s, 10m or 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sprat_units::duration)]
    pub(crate) duration: Duration,

    #[command(flatten)]
    pub(crate) work: WorkArgs,

    /// Remember which writes were acknowledged, and look for them afterwards.
    #[arg(long)]
    pub(crate) verify: bool,

    /// Draw latency and rate over time into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print JSON, all seconds with it.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What operations are.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// What is written and read.
    #[arg(long, value_enum, default_value_t = WorkloadArg::Kv)]
    pub(crate) workload: WorkloadArg,

    /// How many keys, sensors or partitions [default: 100000 keys, 1000 sensors, 100 partitions].
    #[arg(long, value_name = "COUNT")]
    pub(crate) keys: Option<u64>,

    /// Share of reads; the others are writes.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = sprat_units::share)]
    pub(crate) reads: f64,

    /// Size of each value.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = sprat_units::size)]
    pub(crate) value: u64,

    /// How many replicas must have answered.
    #[arg(long, value_enum, default_value_t = ConsistencyArg::LocalQuorum)]
    pub(crate) consistency: ConsistencyArg,

    /// How long an answer may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sprat_units::duration)]
    pub(crate) timeout: Duration,

    /// Start operations at random times, as many who know nothing of each other do.
    #[arg(long)]
    pub(crate) poisson: bool,

    /// Where chance begins: the same number is the same operations at the same times.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorkloadArg {
    /// Keys with one value each, which is overwritten.
    Kv,
    /// Sensors whose values are appended; reads ask for the newest ones.
    Series,
    /// Few partitions that grow with each write; reads ask for rows from anywhere in one.
    Wide,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ConsistencyArg {
    One,
    LocalQuorum,
    Quorum,
    All,
}
