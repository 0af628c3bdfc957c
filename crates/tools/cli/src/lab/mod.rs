//! `lab`: emulated networks for experiments.

pub(crate) mod ctl;
pub(crate) mod run;
pub(crate) mod series;
pub(crate) mod up;
pub(crate) mod watch;

use crate::lab::ctl::LabCtlArgs;
use crate::lab::run::LabRunArgs;
use crate::lab::series::LabReportArgs;
use crate::lab::up::{LabDownArgs, LabLsArgs, LabTopologiesArgs, LabUpArgs};
use crate::lab::watch::LabWatchArgs;
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run one network box: a long fat pipe, a stream harmonizer or a switch.
    Run(Box<LabRunArgs>),
    /// Show or change the settings of a running box.
    Ctl(LabCtlArgs),
    /// Create the hosts and boxes of a topology, and run commands in them.
    Up(LabUpArgs),
    /// Take a lab down, or remove what a crash left of it.
    Down(LabDownArgs),
    /// List labs and running boxes.
    Ls(LabLsArgs),
    /// Watch a running box live: rates, queues, drops and round trips.
    Watch(LabWatchArgs),
    /// Draw recorded rates, queues, drops and round trips over time.
    Report(LabReportArgs),
    /// List the built-in topologies, or print one.
    Topologies(LabTopologiesArgs),
}

impl LabCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Run(args) => run::run(args),
            Self::Ctl(args) => ctl::ctl(args),
            Self::Up(args) => up::up(args),
            Self::Down(args) => up::down(args),
            Self::Ls(args) => up::ls(args),
            Self::Watch(args) => watch::watch(args),
            Self::Report(args) => series::report(args),
            Self::Topologies(args) => up::topologies(args),
        }
    }
}
