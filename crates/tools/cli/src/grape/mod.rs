//! `grape`: kernels of particle interactions and of dense matrices.

pub(crate) mod explain;
pub(crate) mod matrix;
pub(crate) mod nbody;
pub(crate) mod run;
pub(crate) mod sim;

use crate::grape::explain::GrapeExplainArgs;
use crate::grape::matrix::GrapeMatrixArgs;
use crate::grape::nbody::GrapeNbodyArgs;
use crate::grape::run::{GrapeKernelsArgs, GrapeRunArgs};
use crate::grape::sim::{GrapeAsmArgs, GrapeSimArgs};
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum GrapeCommand {
    /// List the built-in kernels, or print one.
    Kernels(GrapeKernelsArgs),
    /// Run a kernel on NumPy arrays.
    Run(GrapeRunArgs),
    /// Show how a kernel compiles, and its predicted and measured speed.
    Explain(GrapeExplainArgs),
    /// Print a kernel as instructions of the GRAPE-DR.
    Asm(GrapeAsmArgs),
    /// Run a kernel on a simulated GRAPE-DR, and report cycles and transfers.
    Sim(GrapeSimArgs),
    /// Simulate a cluster of bodies that attract each other.
    Nbody(Box<GrapeNbodyArgs>),
    /// Multiply two matrices on a simulated GRAPE-DR or on this processor.
    Dgemm(GrapeMatrixArgs),
    /// Factor a matrix (LU) on a simulated GRAPE-DR or on this processor.
    Lu(GrapeMatrixArgs),
}

impl GrapeCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Kernels(args) => run::kernels(args),
            Self::Run(args) => run::run(args),
            Self::Explain(args) => explain::explain(args),
            Self::Asm(args) => sim::asm(args),
            Self::Sim(args) => sim::sim(args),
            Self::Nbody(args) => nbody::nbody(args),
            Self::Dgemm(args) => matrix::dgemm(args),
            Self::Lu(args) => matrix::lu(args),
        }
    }
}
