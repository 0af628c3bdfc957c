//! `rack`: plans racks of small servers, and operates Cassandra on them.

pub(crate) mod add;
pub(crate) mod bridge;
pub(crate) mod cost;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod power;
pub(crate) mod remove;
pub(crate) mod rolling;
pub(crate) mod tune;
pub(crate) mod up;
mod watch;

use crate::rack::add::RackAddArgs;
use crate::rack::bridge::RackBridgeArgs;
use crate::rack::cost::RackCostArgs;
use crate::rack::load::RackLoadArgs;
use crate::rack::plan::{RackExamplesArgs, RackPlanArgs, RackSimulateArgs};
use crate::rack::power::RackPowerArgs;
use crate::rack::remove::RackRemoveArgs;
use crate::rack::rolling::RackRollingArgs;
use crate::rack::tune::RackTuneArgs;
use crate::rack::up::{RackDownArgs, RackReplaceArgs, RackStatusArgs, RackUpArgs};
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum RackCommand {
    /// Plan a rack: capacity, network, replica placement and failures.
    Plan(RackPlanArgs),
    /// Simulate requests over a planned rack, and report their latency.
    Simulate(RackSimulateArgs),
    /// List the built-in racks, or print one.
    Examples(RackExamplesArgs),
    /// Set up and start a rack's servers, over ssh or on this machine.
    Up(RackUpArgs),
    /// Show the state of all instances and services.
    Status(RackStatusArgs),
    /// Stop all instances, and remove hosts on this machine.
    Down(RackDownArgs),
    /// Add instances listed in the description but missing from the ring.
    Add(RackAddArgs),
    /// Remove an instance, or all instances of a server, from the ring.
    Remove(RackRemoveArgs),
    /// Rebuild an instance that lost its data from the other replicas.
    Replace(RackReplaceArgs),
    /// Restart, reconfigure or upgrade instances one at a time.
    Rolling(RackRollingArgs),
    /// Load Cassandra at a fixed rate, and report latency for each second.
    Load(Box<RackLoadArgs>),
    /// Try settings of hosts and instances, and keep those that improve latency.
    Tune(Box<RackTuneArgs>),
    /// Serve a Cassandra table from the store's memory, over the Redis protocol.
    Bridge(Box<RackBridgeArgs>),
    /// Measure the power and energy of a rack's servers, or of this machine.
    Power(RackPowerArgs),
    /// Compare what servers cost to buy and to run.
    Cost(RackCostArgs),
}

impl RackCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Plan(args) => plan::plan(args),
            Self::Simulate(args) => plan::simulated(args),
            Self::Up(args) => up::up(args),
            Self::Status(args) => up::status(args),
            Self::Rolling(args) => rolling::rolling(args),
            Self::Add(args) => add::add(args),
            Self::Remove(args) => remove::remove(args),
            Self::Replace(args) => up::replace(args),
            Self::Load(args) => load::load(args),
            Self::Tune(args) => tune::tune(args),
            Self::Bridge(args) => bridge::bridge(args),
            Self::Power(args) => power::power(args),
            Self::Cost(args) => cost::cost(args),
            Self::Down(args) => up::down(args),
            Self::Examples(args) => plan::examples(args),
        }
    }
}
