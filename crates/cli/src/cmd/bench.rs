//! `bench`.

use crate::args::{BasicArgs, ClusterPerfArgs, EchoArgs, StoreBenchArgs};
use anyhow::{Result, bail};
use std::process::ExitCode;

pub(crate) fn basic(_: &BasicArgs) -> Result<ExitCode> {
    bail!("in the making")
}

pub(crate) fn echo(_: &EchoArgs) -> Result<ExitCode> {
    bail!("in the making")
}

pub(crate) fn store(_: &StoreBenchArgs) -> Result<ExitCode> {
    bail!("in the making")
}

pub(crate) fn cluster_perf(_: &ClusterPerfArgs) -> Result<ExitCode> {
    bail!("in the making")
}
