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
    /// Check a rack on paper: what it holds, how it is joined, where data lies, what fails with
    /// what.
    Plan(RackPlanArgs),
    /// Send requests over a planned rack, frame by frame on virtual time, and tell their latency.
    Simulate(RackSimulateArgs),
    /// Bring servers to what the plan says, over ssh; or make them on this machine.
    Up(RackUpArgs),
    /// Show all instances in one table, as nodetool tells it.
    Status(RackStatusArgs),
    /// Start instances anew one at a time: as they are, with other settings, or with another
    /// version.
    Rolling(RackRollingArgs),
    /// Have instances come to the ring that the description has and the ring lacks.
    Add(RackAddArgs),
    /// Have an instance, or all of a server, leave the ring.
    Remove(RackRemoveArgs),
    /// Have an instance that lost its data take its own place anew.
    Replace(RackReplaceArgs),
    /// Read and write at a rate fixed beforehand, and tell latency by the second.
    Load(Box<RackLoadArgs>),
    /// Try settings of hosts and instances, one class at a time, and keep what is measured to be
    /// better.
    Tune(Box<RackTuneArgs>),
    /// Keep a table in the store's memory, and Cassandra as its large, slow home; speaks Redis'
    /// protocol.
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
