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
    /// List the kernels that come with the program, or print one.
    Kernels(GrapeKernelsArgs),
    /// Run a kernel on arrays in NumPy's files.
    Run(GrapeRunArgs),
    /// Show what becomes of a kernel: its values, operations, registers, steps, and how fast it is.
    Explain(GrapeExplainArgs),
    /// Print a kernel as the GRAPE-DR executes it.
    Asm(GrapeAsmArgs),
    /// Run a kernel on a simulated GRAPE-DR, and tell what it took of the machine.
    Sim(GrapeSimArgs),
    /// Follow bodies that attract each other.
    Nbody(Box<GrapeNbodyArgs>),
    /// Multiply two matrices on a simulated GRAPE-DR, or on this processor.
    Dgemm(GrapeMatrixArgs),
    /// Decompose a matrix on a simulated GRAPE-DR, or on this processor.
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
