//! `grape`: kernels of particle interactions.

use clap::{Args, Subcommand, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

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

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape kernels
  sprat grape kernels gravity > mine.kernel     one to change")]
pub(crate) struct GrapeKernelsArgs {
    /// The kernel to print.
    pub(crate) name: Option<String>,

    /// Print JSON, one object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A kernel, and in which precision.
#[derive(Args, Debug)]
pub(crate) struct KernelArgs {
    /// A file, or a kernel that comes with the program.
    pub(crate) kernel: String,

    /// Precision of variables and results that do not say theirs. Default: f64 if a file has
    /// float64, otherwise f32.
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionArg>,
}

/// What a kernel is run on.
#[derive(Args, Debug)]
pub(crate) struct InputArgs {
    /// A NumPy file of what is held: a row for each i, a column for each variable in the kernel's order.
    #[arg(long, value_name = "FILE")]
    pub(crate) i: Option<PathBuf>,

    /// Likewise of what is broadcast.
    #[arg(long, value_name = "FILE")]
    pub(crate) j: Option<PathBuf>,

    /// A constant of the kernel.
    #[arg(long = "const", value_name = "NAME=VALUE", value_parser = constant, allow_hyphen_values = true)]
    pub(crate) constants: Vec<(String, f64)>,

    /// Write results to this NumPy file, which is none of those read: a row for each i, a column
    /// for each result.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// What computes.
#[derive(Args, Debug)]
pub(crate) struct EngineArgs {
    /// What computes: this processor's vectors, a simulated GRAPE-DR (slow), or one pair after the other (slow).
    #[arg(long, value_enum, default_value_t = EngineArg::Vector)]
    pub(crate) engine: EngineArg,

    /// Which vectors; default the best that this processor has.
    #[arg(long, value_enum)]
    pub(crate) target: Option<TargetArg>,

    /// How many threads, 16 for each processor at most; default one for each.
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<NonZeroUsize>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  python3 -c 'import numpy as n; a = n.random.rand(4096, 4); n.save(\"i\", a[:, :3]); n.save(\"j\", a)'
  sprat grape run gravity --i i.npy --j j.npy
  sprat grape run gravity --i i.npy --j j.npy --const eps2=1e-6 --precision f32 --out forces.npy
  sprat grape run mine.kernel --i i.npy --j j.npy --engine reference
  mpirun -n 4 sprat grape run gravity --i i.npy --j j.npy --out forces.npy

Precision follows the files: a run with a float64 file computes in f64, unless --precision f32 (faster) asks for less.
Without --out the first results are printed. A kernel without i variables, or without j variables, takes no file of them.
Numbers that are not finite are computed with as the kernel language says; how many results are not is told.")]
pub(crate) struct GrapeRunArgs {
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// What several ranks of mpirun's divide between them: i, or where these are few, j, whose results are reduced.
    #[arg(long, value_enum, default_value_t = DivideArg::I)]
    pub(crate) divide: DivideArg,

    /// Print JSON: what was run, how fast, and without --out all results.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape explain gravity
  sprat grape explain mine.kernel --precision f64 --no-measure

A rate is of one thread on 4096 i and as many j. What is predicted of vectors takes each instruction for as long as one
of a kernel of nothing but multiply-and-add, measured in turns with this one: an estimate, from which roots, divisions
and memory lead away.")]
pub(crate) struct GrapeExplainArgs {
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,

    /// Measure nothing: what is printed is the same each time.
    #[arg(long)]
    pub(crate) no_measure: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape asm gravity
  sprat grape asm lennard-jones --precision f64")]
pub(crate) struct GrapeAsmArgs {
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ShapeArgs {
    /// Chips of the board: 1 to 4; default 1.
    #[arg(long, value_name = "COUNT")]
    pub(crate) chips: Option<usize>,

    /// Their clock: 500MHz in the design (default), 400MHz as the board was used.
    #[arg(long, value_name = "FREQUENCY", value_parser = frequency)]
    pub(crate) clock: Option<f64>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape sim gravity --i i.npy --j j.npy
  sprat grape sim gravity --i i.npy --j j.npy --chips 4 --clock 400MHz --out forces.npy
  sprat grape sim gravity --i i.npy --j j.npy --trace 0 --limit 100
  sprat grape asm gravity > mine.asm                  one to change
  sprat grape sim mine.asm --i i.npy --j j.npy

A KERNEL may be a file of what asm prints, as it is or changed; its types are those that it says.")]
pub(crate) struct GrapeSimArgs {
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) shape: ShapeArgs,

    /// Print what the element that has this i computes, instruction by instruction.
    #[arg(long, value_name = "I")]
    pub(crate) trace: Option<usize>,

    /// How many instructions of it.
    #[arg(long, value_name = "COUNT", default_value_t = 64, requires = "trace")]
    pub(crate) limit: usize,

    /// Print JSON.
    #[arg(long, conflicts_with = "trace")]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape nbody --bodies 1024 --until 1
  sprat grape nbody --bodies 4096 --scheme leapfrog --step 0.001 --picture cluster.svg
  sprat grape nbody --snapshots run/ --every 0.25
  sprat grape nbody --from run/snapshot-0004.npy --until 2

Units are such that mass and the constant of gravity are 1, and the energy of the cluster is about -1/4. A snapshot is a
NumPy array with rows of mass, x, y, z, vx, vy, vz. Ctrl-C ends a run after its step, with the last snapshot and picture written;
exit code 130. Ranks that mpirun started divide the bodies between them; the first one reads, tells and writes.")]
pub(crate) struct GrapeNbodyArgs {
    /// How many bodies, as Plummer's model has them.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub(crate) bodies: usize,

    /// Where chance begins: the same number is the same cluster.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Begin with the bodies of this snapshot, at time 0.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bodies", "seed"])]
    pub(crate) from: Option<PathBuf>,

    /// How positions follow from pulls.
    #[arg(long, value_enum, default_value_t = SchemeArg::Hermite)]
    pub(crate) scheme: SchemeArg,

    /// With hermite: the accuracy, from which steps follow.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.02)]
    pub(crate) eta: f64,

    /// With leapfrog: the step.
    #[arg(long, value_name = "TIME", default_value_t = 0.001)]
    pub(crate) step: f64,

    /// The softening length; 0 for none: then bodies that meet end the run.
    #[arg(long, value_name = "LENGTH", default_value_t = 0.01)]
    pub(crate) softening: f64,

    /// Until when.
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    pub(crate) until: f64,

    /// Of pulls; energies are always computed in f64.
    #[arg(long, value_enum, default_value_t = PrecisionArg::F64)]
    pub(crate) precision: PrecisionArg,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Write snapshots into this folder: at the beginning, every --every, and at the end.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) snapshots: Option<PathBuf>,

    /// How often energy is told and a snapshot written; default a tenth of the run.
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<f64>,

    /// Draw the bodies, as they are at the end, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,

    /// Print JSON, one object each time that energy is told.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape dgemm --size 256
  sprat grape lu --size 256 --chips 4 --clock 400MHz
  sprat grape dgemm --size 4096 --on cpu

What comes of it is held against a plain computation, of large matrices some rows; exit code 10 where they differ.
On this processor a library computes (faer), three times: the middle time is told.")]
pub(crate) struct GrapeMatrixArgs {
    /// Rows and columns of the matrices, whose numbers are drawn by chance.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = side)]
    pub(crate) size: usize,

    /// Where chance begins.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,

    /// What computes: a simulated GRAPE-DR (slow), or this processor.
    #[arg(long, value_enum, default_value_t = MatrixArg::Grapedr)]
    pub(crate) on: MatrixArg,

    #[command(flatten)]
    pub(crate) shape: ShapeArgs,

    /// With cpu: how many threads, 16 for each processor at most; default one for each.
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MatrixArg {
    Grapedr,
    Cpu,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DivideArg {
    I,
    J,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrecisionArg {
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum EngineArg {
    Vector,
    Grapedr,
    Reference,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TargetArg {
    Avx512,
    Avx2,
    Portable,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SchemeArg {
    Hermite,
    Leapfrog,
}

fn constant(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("want NAME=VALUE, such as eps2=1e-4")?;
    let number = value.trim().parse().map_err(|_| format!("{value:?} is no number"))?;
    Ok((name.trim().to_owned(), number))
}

fn frequency(text: &str) -> Result<f64, String> {
    let units = [("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3), ("Hz", 1.0)];
    let found = units.iter().find_map(|(name, unit)| Some((text.trim().strip_suffix(name)?, unit)));
    let number = found.and_then(|(number, unit)| Some(number.trim().parse::<f64>().ok()? * unit));
    number.ok_or_else(|| format!("{text:?} is no frequency; write 500MHz, say"))
}

fn side(text: &str) -> Result<usize, String> {
    let limit = sprat_grapedr::MAX_SIDE;
    let size = text.parse().ok().filter(|size| (1..=limit).contains(size));
    size.ok_or_else(|| format!("want a whole number from 1 to {limit}"))
}
