//! `grape kernels` and `run`, and the flags and functions that commands about kernels share.

use crate::exit::exit_code;
use crate::output::{describe_error, print_json, print_line, print_ready};
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use sprat_grape::{
    Array, Divide, DividedKernel, Engine, Inputs, Options, Output, Precision, Program, READY,
    Ranks, Shape, Target, ready, write_outputs,
};
use sprat_grapedr::is_listing;
use sprat_measure::table::Table;
use sprat_plan::quantity::digits;
use std::fs::Metadata;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape kernels
  sprat grape kernels gravity > mine.kernel     start a kernel from a built-in one")]
pub(crate) struct GrapeKernelsArgs {
    /// Print this kernel; without a name, list all kernels.
    name: Option<String>,

    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// A kernel and its precision.
#[derive(Args, Debug)]
pub(crate) struct KernelArgs {
    /// Kernel: a file, or a built-in kernel (see `sprat grape kernels`).
    pub(super) kernel: String,

    /// Precision of variables and results without a type of their own [default: f64 if an input
    /// file has float64, otherwise f32].
    #[arg(long, value_enum)]
    pub(super) precision: Option<PrecisionArg>,
}

/// The inputs of a kernel, and the file of its results.
#[derive(Args, Debug)]
pub(crate) struct InputArgs {
    /// NumPy file with the i particles: a row for each i, a column for each of the kernel's i
    /// variables, in their order.
    #[arg(long, value_name = "FILE")]
    i: Option<PathBuf>,

    /// NumPy file with the j particles, in the same form.
    #[arg(long, value_name = "FILE")]
    j: Option<PathBuf>,

    /// Value of a constant of the kernel, such as eps2=1e-4. Repeatable.
    #[arg(
        long = "const",
        value_name = "NAME=VALUE",
        value_parser = constant,
        allow_hyphen_values = true
    )]
    constants: Vec<(String, f64)>,

    /// Write the results to this NumPy file: a row for each i, a column for each result. It must
    /// not be an input file.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

/// What executes a kernel.
#[derive(Args, Debug)]
pub(crate) struct EngineArgs {
    /// What executes the kernel: this processor's vector units, a simulated GRAPE-DR (slow), or one
    /// pair at a time without vectors (slow).
    #[arg(long, value_enum, default_value_t = EngineArg::Vector, help_heading = "Engine")]
    engine: EngineArg,

    /// Vector instructions, with --engine vector [default: the best of this processor].
    #[arg(long, value_enum, help_heading = "Engine")]
    target: Option<TargetArg>,

    /// Number of threads, with --engine vector [default: one for each processor]; at most 16 for
    /// each processor.
    #[arg(long, value_name = "COUNT", help_heading = "Engine")]
    threads: Option<NonZeroUsize>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  python3 -c 'import numpy as n; a = n.random.rand(99,4); n.save(\"j\", a); n.save(\"i\", a[:, :3])'
  sprat grape run gravity --i i.npy --j j.npy
  sprat grape run gravity --i i.npy --j j.npy --const eps2=1e-6 --precision f32 --out forces.npy
  sprat grape run mine.kernel --i i.npy --j j.npy --engine reference
  mpirun -n 4 sprat grape run gravity --i i.npy --j j.npy --out forces.npy

With a float64 input file, the kernel computes in f64; --precision f32 is faster. Omit --i or
--j if the kernel has no such variables. Without --out, the first results are printed. A
warning says how many results are not finite.")]
pub(crate) struct GrapeRunArgs {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    input: InputArgs,

    /// What the ranks of mpirun divide: the i particles, or the j particles, whose partial results
    /// are then reduced. Use j if there are few i.
    #[arg(long, value_enum, default_value_t = DivideArg::I)]
    divide: DivideArg,

    /// Print JSON: sizes and speed, and without --out all results.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrecisionArg {
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DivideArg {
    I,
    J,
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

fn constant(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("want NAME=VALUE, such as eps2=1e-4")?;
    let number = value.trim().parse().map_err(|_| format!("{value:?} is not a number"))?;
    Ok((name.trim().to_owned(), number))
}

/// Limit on the rows of results that are printed.
const ROWS: usize = 10;

/// Size limit of a kernel's file, in bytes: far more than the language allows.
const MAX_FILE: u64 = 1 << 24;

pub(crate) fn kernels(args: &GrapeKernelsArgs) -> Result<ExitCode> {
    let one =
        args.name.as_deref().map(|name| ready(name).with_context(|| unknown(name))).transpose()?;
    match one {
        Some(found) if args.json => print_json(&json!({ "name": found.name, "text": found.text }))?,
        one => print_ready(
            one.map(|found| (found.name, found.text)),
            READY.iter().map(|ready| (ready.name, ready.about.to_owned())),
            args.json,
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run(args: &GrapeRunArgs) -> Result<ExitCode> {
    on_all_ranks(|ranks| run_on(args, ranks))
}

/// Joins the ranks that `mpirun` started together, usually just one, and runs `work` on this rank.
/// If one rank fails, all ranks fail, and the first rank reports the error.
pub(super) fn on_all_ranks(work: impl FnOnce(&Ranks) -> Result<ExitCode>) -> Result<ExitCode> {
    let ranks = Ranks::join()?;
    let done = work(&ranks);
    if ranks.count() == 1 {
        return done;
    }
    let outcome =
        done.as_ref().map(drop).map_err(|error| (describe_error(error), exit_code(error)));
    match ranks.end(outcome) {
        // If any rank exits with an error, mpirun ends all ranks. So only the first rank does,
        // after it has reported the error.
        _ if !ranks.is_first() => Ok(ExitCode::SUCCESS),
        Err(stopped) => Err(stopped.into()),
        Ok(()) => done,
    }
}

fn run_on(args: &GrapeRunArgs, ranks: &Ranks) -> Result<ExitCode> {
    let engine = engine(&args.engine)?;
    if ranks.is_first() {
        protect_inputs(&args.kernel, &args.input)?;
    }
    let arrays = Arrays::read(&args.input, ranks)?;
    let program = program(&args.kernel, arrays.precision(), ranks)?;
    let by = match args.divide {
        DivideArg::I => Divide::I,
        DivideArg::J => Divide::J,
    };
    let kernel = DividedKernel::new(&program, &engine, ranks, by)
        .with_context(|| args.kernel.kernel.clone())?;
    let inputs = arrays.inputs(&program, &args.input)?;
    let begun = Instant::now();
    let outputs = kernel.run(&inputs)?;
    if !ranks.is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    let seconds = begun.elapsed().as_secs_f64().max(f64::EPSILON);
    let pairs = inputs.ni() as f64 * inputs.nj() as f64;
    if args.json {
        let flops = program.flops().map(|flops| f64::from(flops) * pairs / seconds);
        let mut value = json!({
            "i": inputs.ni(), "j": inputs.nj(), "ranks": ranks.count(), "seconds": seconds,
            "interactions_per_second": pairs / seconds,
            "flops_per_second": flops, "not_finite": not_finite(&outputs), "out": args.input.out,
        });
        if args.input.out.is_none() {
            value["results"] = json_of(&program, &outputs);
        }
        save(&args.input, &outputs)?;
        print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    report_results(&args.input, &program, &outputs)?;
    let flops = program.flops();
    let flops = flops.map_or_else(String::new, |flops| {
        format!(", {} Gflop/s", digits(f64::from(flops) * pairs / seconds / 1e9))
    });
    let by = if ranks.count() > 1 { format!(", {} ranks", ranks.count()) } else { String::new() };
    eprintln!(
        "{} i, {} j{by}: {} interactions/s{flops}",
        inputs.ni(),
        inputs.nj(),
        metric(pairs / seconds)
    );
    Ok(ExitCode::SUCCESS)
}

/// Parses the kernel: a built-in one, or a file, which the first rank reads and broadcasts. Without
/// `--precision` the kernel has the precision of its input files, `of_files`. Warns about names
/// that the kernel does not use.
pub(super) fn program(args: &KernelArgs, of_files: Precision, ranks: &Ranks) -> Result<Program> {
    let name = &args.kernel;
    let text = match ready(name) {
        Some(found) => found.text.to_owned(),
        None if ranks.is_first() => ranks.broadcast_text(text(name)?)?,
        None => ranks.broadcast_text(String::new())?,
    };
    if is_listing(&text) {
        bail!(
            "{name} is a listing of GRAPE-DR instructions, from `sprat grape asm`: run it with \
             `sprat grape sim`"
        );
    }
    let precision = args.precision.map_or(of_files, precision);
    let kernel = sprat_formula::Kernel::parse(&text, precision).with_context(|| name.clone())?;
    for unused in kernel.unused.iter().filter(|_| ranks.is_first()) {
        eprintln!(
            "sprat: {name}: line {}, column {}: {} is never used",
            unused.line, unused.column, unused.name
        );
    }
    Ok(kernel.program)
}

/// Returns the file's text if it is a listing of GRAPE-DR instructions, and `None` if it is a
/// kernel.
pub(super) fn listing(name: &str) -> Result<Option<String>> {
    let text = if ready(name).is_some() { None } else { Some(text(name)?) };
    Ok(text.filter(|text| is_listing(text)))
}

fn text(name: &str) -> Result<String> {
    if !Path::new(name).exists() {
        bail!(unknown(name));
    }
    let long = std::fs::metadata(name).with_context(|| name.to_owned())?.len();
    if long > MAX_FILE {
        bail!("{name}: {long} bytes are too many for a kernel; the limit is {MAX_FILE} bytes");
    }
    std::fs::read_to_string(name).with_context(|| name.to_owned())
}

/// Returns an error if `--out` would overwrite a file that the command reads, even if `--out`
/// reaches that file through a link.
pub(super) fn protect_inputs(kernel: &KernelArgs, input: &InputArgs) -> Result<()> {
    let Some(out) = &input.out else { return Ok(()) };
    let kernel = (ready(&kernel.kernel).is_none()).then(|| Path::new(&kernel.kernel));
    let read = [("the kernel", kernel), ("--i", input.i.as_deref()), ("--j", input.j.as_deref())];
    for (name, path) in read.into_iter().filter_map(|(name, path)| Some((name, path?))) {
        if is_same_file(out, path) {
            bail!(
                "--out {}: it is the file of {name}, {}; name another for results",
                out.display(),
                path.display()
            );
        }
    }
    Ok(())
}

/// Returns whether both paths name the same regular file. Devices never count, since one device,
/// such as a terminal, can be both read and written.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| {
        path.metadata().ok().filter(Metadata::is_file).map(|file| (file.dev(), file.ino()))
    };
    of(one).is_some_and(|one| of(other) == Some(one))
}

pub(super) fn precision(of: PrecisionArg) -> Precision {
    match of {
        PrecisionArg::F32 => Precision::F32,
        PrecisionArg::F64 => Precision::F64,
    }
}

pub(super) fn engine(args: &EngineArgs) -> Result<Engine> {
    if args.engine != EngineArg::Vector && (args.target.is_some() || args.threads.is_some()) {
        bail!("--target and --threads need --engine vector");
    }
    let best = Options::default();
    let target = match args.target {
        None => best.target,
        Some(TargetArg::Avx512) => Target::Avx512,
        Some(TargetArg::Avx2) => Target::Avx2,
        Some(TargetArg::Portable) => Target::Portable,
    };
    Ok(match args.engine {
        EngineArg::Vector => {
            Engine::Vector(Options { target, threads: args.threads.unwrap_or(best.threads) })
        }
        EngineArg::Grapedr => Engine::GrapeDr(Shape::DESIGN),
        EngineArg::Reference => Engine::Reference,
    })
}

/// The particles of a run, read from the files of `--i` and `--j`.
pub(super) struct Arrays {
    i: Option<Array>,
    j: Option<Array>,
}

impl Arrays {
    pub(super) fn read(args: &InputArgs, ranks: &Ranks) -> Result<Self> {
        let read = |path: &Option<PathBuf>| {
            path.as_deref().map(|path| Array::shared(path, ranks)).transpose()
        };
        Ok(Self { i: read(&args.i)?, j: read(&args.j)? })
    }

    /// Returns f64 if a file contains `float64`: only `--precision` reduces the precision of
    /// inputs.
    pub(super) fn precision(&self) -> Precision {
        let wide = [&self.i, &self.j]
            .into_iter()
            .flatten()
            .any(|array| array.precision() == Precision::F64);
        if wide { Precision::F64 } else { Precision::F32 }
    }

    /// Matches the arrays and constants with those that the program needs.
    pub(super) fn inputs(&self, program: &Program, args: &InputArgs) -> Result<Inputs<'_>> {
        let known = program.constants();
        let mut constants = vec![None; known.len()];
        for (name, value) in &args.constants {
            let Some(at) = known.iter().position(|constant| constant.name == *name) else {
                let names: Vec<_> = known.iter().map(|constant| constant.name.as_str()).collect();
                let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                bail!("--const {name}: the kernel has no such constant; it has {has}");
            };
            constants[at] = Some(*value);
        }
        let i = self.i.as_ref().map(Array::columns).unwrap_or_default();
        let j = self.j.as_ref().map(Array::columns).unwrap_or_default();
        let of_i = ("--i", program.i(), &self.i, i.len());
        for (flag, fields, given, columns) in [of_i, ("--j", program.j(), &self.j, j.len())] {
            let names =
                || fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
            let rows = given.as_ref().map(Array::rows);
            if !fields.is_empty() && rows.is_none() {
                bail!("the kernel needs {flag} FILE, with columns {}", names());
            }
            if columns != fields.len() && rows == Some(fields.len()) {
                let turned = format!(
                    "rows are particles; the transposed array fits, with columns {}: save x.T",
                    names()
                );
                bail!("{flag}: got an array of ({}, {columns}): {turned}", fields.len());
            }
        }
        Ok(Inputs::new(program, i, j, &constants)?)
    }
}

/// Writes the results to `--out`, or prints the first rows if there is no `--out`. Warns about
/// results that are not finite.
pub(super) fn report_results(
    args: &InputArgs,
    program: &Program,
    outputs: &[Output],
) -> Result<()> {
    save(args, outputs)?;
    if args.out.is_none() {
        let names =
            std::iter::once("i").chain(program.results().iter().map(|result| result.name.as_str()));
        let mut table = Table::new(&names.collect::<Vec<_>>());
        let rows = outputs.first().map_or(0, Output::len);
        for row in 0..rows.min(ROWS) {
            let cells = outputs.iter().map(|output| cell(output, row));
            table.row(std::iter::once(row.to_string()).chain(cells).collect());
        }
        print_line(table.to_string().trim_end())?;
        if rows > ROWS {
            eprintln!("and {} more; --out FILE writes all", rows - ROWS);
        }
    }
    match not_finite(outputs) {
        0 => {}
        count => eprintln!("sprat: {count} results are not finite numbers"),
    }
    Ok(())
}

pub(super) fn save(args: &InputArgs, outputs: &[Output]) -> Result<()> {
    Ok(args.out.as_deref().map_or(Ok(()), |path| write_outputs(path, outputs))?)
}

/// Returns the results by name. Numbers that are not finite become null, since JSON cannot express
/// them.
pub(super) fn json_of(program: &Program, outputs: &[Output]) -> Value {
    let values = program.results().iter().zip(outputs).map(|(result, output)| {
        let value = match output {
            Output::F32(numbers) => json!(numbers),
            Output::F64(numbers) => json!(numbers),
            Output::Bool(all) => json!(all),
            Output::Index(places) => json!(places),
        };
        (result.name.clone(), value)
    });
    Value::Object(values.collect::<Map<_, _>>())
}

pub(super) fn not_finite(outputs: &[Output]) -> usize {
    let of = |output: &Output| match output {
        Output::F32(numbers) => numbers.iter().filter(|number| !number.is_finite()).count(),
        Output::F64(numbers) => numbers.iter().filter(|number| !number.is_finite()).count(),
        Output::Bool(_) | Output::Index(_) => 0,
    };
    outputs.iter().map(of).sum()
}

/// Renders a rate with a metric prefix.
pub(super) fn metric(rate: f64) -> String {
    let (unit, scale) = [(" G", 1e9), (" M", 1e6), (" k", 1e3)]
        .into_iter()
        .find(|(_, scale)| rate >= *scale)
        .unwrap_or(("", 1.0));
    format!("{}{unit}", digits(rate / scale))
}

fn cell(output: &Output, row: usize) -> String {
    match output {
        Output::F32(numbers) => format!("{:.6e}", numbers[row]),
        Output::F64(numbers) => format!("{:.12e}", numbers[row]),
        Output::Bool(all) => all[row].to_string(),
        Output::Index(places) => places[row].to_string(),
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = READY.iter().map(|ready| ready.name).collect();
    format!("no kernel {name:?}: name a file, or one of {}", names.join(", "))
}
