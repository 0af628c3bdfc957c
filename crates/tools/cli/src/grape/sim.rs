//! `grape asm` and `sim`: kernels on a simulated GRAPE-DR.

use crate::grape::run::{
    Arrays, InputArgs, KernelArgs, json_of, listing, metric, program, protect_inputs,
    report_results, save,
};
use crate::output::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use sprat_grape::{ALONE, Precision, Shape};
use sprat_grapedr::{
    Kernel, READ_RATE, Timing, Trace, TraceRequest, WORD_BYTES, WRITE_RATE, compile,
};
use sprat_measure::table::Table;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape asm gravity
  sprat grape asm lennard-jones --precision f64")]
pub(crate) struct GrapeAsmArgs {
    #[command(flatten)]
    kernel: KernelArgs,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ShapeArgs {
    /// Chips of the board: 1 to 4; default 1.
    #[arg(long, value_name = "COUNT")]
    pub(super) chips: Option<usize>,

    /// Their clock: 500MHz in the design (default), 400MHz as the board was used.
    #[arg(long, value_name = "FREQUENCY", value_parser = frequency)]
    pub(super) clock: Option<f64>,
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
    kernel: KernelArgs,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Print what the element that has this i computes, instruction by instruction.
    #[arg(long, value_name = "I")]
    trace: Option<usize>,

    /// How many instructions of it.
    #[arg(long, value_name = "COUNT", default_value_t = 64, requires = "trace")]
    limit: usize,

    /// Print JSON.
    #[arg(long, conflicts_with = "trace")]
    json: bool,
}

fn frequency(text: &str) -> Result<f64, String> {
    let units = [("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3), ("Hz", 1.0)];
    let found = units.iter().find_map(|(name, unit)| Some((text.trim().strip_suffix(name)?, unit)));
    let number = found.and_then(|(number, unit)| Some(number.trim().parse::<f64>().ok()? * unit));
    number.ok_or_else(|| format!("{text:?} is no frequency; write 500MHz, say"))
}

pub(crate) fn asm(args: &GrapeAsmArgs) -> Result<ExitCode> {
    let kernel = compile(&program(&args.kernel, Precision::F32, &ALONE)?)
        .with_context(|| args.kernel.kernel.clone())?;
    print_line(kernel.to_string().trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Compiles the kernel for the GRAPE-DR, or assembles a file that [`asm`] printed.
fn kernel(args: &KernelArgs, of_files: Precision) -> Result<Kernel> {
    let named = || args.kernel.clone();
    let Some(listing) = listing(&args.kernel)? else {
        return compile(&program(args, of_files, &ALONE)?).with_context(named);
    };
    if args.precision.is_some() {
        bail!(
            "--precision is of kernels; {} is a listing, which says the type of each variable",
            args.kernel
        );
    }
    Kernel::assemble(&listing).with_context(named)
}

pub(crate) fn sim(args: &GrapeSimArgs) -> Result<ExitCode> {
    let shape = shape(args.shape)?;
    protect_inputs(&args.kernel, &args.input)?;
    let arrays = Arrays::read(&args.input, &ALONE)?;
    let kernel = kernel(&args.kernel, arrays.precision())?;
    let inputs = arrays.inputs(kernel.program(), &args.input)?;
    if let Some(i) = args.trace.filter(|i| *i >= inputs.ni()) {
        bail!("--trace {i}: there are {} i, counted from 0", inputs.ni());
    }
    let watch = args.trace.map(|i| TraceRequest { i, limit: args.limit });
    let run = sprat_grapedr::run(&kernel, &inputs, shape, watch);
    let pairs = inputs.ni() as f64 * inputs.nj() as f64;
    let rate = pairs / run.timing.seconds(shape).whole;
    if args.json {
        let mut value = json!({
            "i": inputs.ni(), "j": inputs.nj(), "steps": kernel.steps(),
            "timing": json_of_timing(&run.timing, shape),
        });
        if args.input.out.is_none() {
            value["results"] = json_of(kernel.program(), &run.outputs);
        }
        save(&args.input, &run.outputs)?;
        print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((lane, trace)) = &run.watched {
        trace_lines(*lane, trace)?;
        print_line("")?;
    }
    report_results(&args.input, kernel.program(), &run.outputs)?;
    print_line("")?;
    print_line(table(&run.timing, shape).to_string().trim_end())?;
    if rate.is_finite() {
        print_line(&format!(
            "{} interactions/s on the machine, with all that goes in and out",
            metric(rate)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn shape(args: ShapeArgs) -> Result<Shape> {
    let design = Shape::DESIGN;
    Ok(Shape::new(args.chips.unwrap_or(design.chips()), args.clock.unwrap_or(design.clock()))?)
}

/// Renders the machine's cycles, bytes and seconds by phase.
pub(super) fn table(timing: &Timing, shape: Shape) -> Table {
    let mut table = Table::new(&["part", "cycles", "bytes", "seconds"]);
    let seconds = timing.seconds(shape);
    let mut row = |name: &str, cycles: Option<u64>, words: Option<u64>, seconds: f64| {
        let some = |count: Option<u64>| count.map_or_else(String::new, |count| count.to_string());
        table.row(vec![
            name.to_owned(),
            some(cycles),
            some(words.map(|w| w * WORD_BYTES)),
            format!("{seconds:.3e}"),
        ]);
    };
    #[expect(clippy::cast_precision_loss, reason = "cycles are far below 2^53")]
    let took = |cycles: u64| cycles as f64 / shape.clock();
    row("held, in", None, Some(timing.held_words), seconds.write_held);
    row("load", Some(timing.load_cycles), None, took(timing.load_cycles));
    row("broadcast, in", None, Some(timing.broadcast_words), seconds.write_broadcast);
    row("loop", Some(timing.loop_cycles), None, took(timing.loop_cycles));
    row("store", Some(timing.store_cycles), None, took(timing.store_cycles));
    row("results, out", None, Some(timing.read_words), seconds.read);
    row("whole", Some(timing.cycles()), None, seconds.whole);
    table
}

pub(super) fn json_of_timing(timing: &Timing, shape: Shape) -> Value {
    let seconds = timing.seconds(shape);
    json!({
        "chips": shape.chips(), "clock": shape.clock(), "cycles": timing.cycles(),
        "load_cycles": timing.load_cycles, "loop_cycles": timing.loop_cycles,
        "store_cycles": timing.store_cycles,
        "held_bytes": timing.held_words * WORD_BYTES,
        "broadcast_bytes": timing.broadcast_words * WORD_BYTES,
        "read_bytes": timing.read_words * WORD_BYTES, "write_rate": WRITE_RATE,
        "read_rate": READ_RATE,
        "seconds": {
            "compute": seconds.compute, "write_held": seconds.write_held,
            "write_broadcast": seconds.write_broadcast,
            "read": seconds.read, "whole": seconds.whole,
        },
    })
}

/// Prints the trace of the element that computes the watched i, instruction by instruction, with
/// the value of each operation in the vector lane of that i.
fn trace_lines(lane: usize, trace: &Trace) -> Result<()> {
    print_line(&format!("element {}, vector element {lane}", trace.element()))?;
    for entry in trace.entries() {
        let values: Vec<_> = entry.values.iter().map(|words| words[lane].to_string()).collect();
        print_line(&format!(
            "{:>8}  {}  -> {}",
            entry.cycle,
            entry.instruction,
            values.join(" ; ")
        ))?;
    }
    match trace.left_out() {
        0 => Ok(()),
        more => print_line(&format!("and {more} more; --limit prints them")),
    }
}
