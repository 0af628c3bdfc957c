//! `grape explain`: how a kernel is compiled for this processor and for a GRAPE-DR.

use crate::grape::run::{KernelArgs, metric, program};
use crate::output::print_line;
use anyhow::Result;
use clap::Args;
use sprat_chance::Chance;
use sprat_formula::{Column, Counts, Field, Inputs, Program, Scope, Type};
use sprat_grape::{ALONE, Options, Precision, Target};
use sprat_grapedr::published;
use sprat_measure::table::Table;
use sprat_plan::quantity::digits;
use sprat_vector::{Compiled, Error, Facts, peak};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape explain gravity
  sprat grape explain mine.kernel --precision f64 --no-measure

Shows the kernel's values and operations, the registers and instructions of each vector unit,
and the steps of the GRAPE-DR. Rates are those of one thread, with 4096 i and 4096 j particles.
The prediction assumes that each instruction takes as long as a multiply-and-add; square roots,
divisions and memory accesses take longer.")]
pub(crate) struct GrapeExplainArgs {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Measure nothing; the output is then the same each time.
    #[arg(long)]
    no_measure: bool,
}

/// Particles of each side in a measurement.
const PARTICLES: usize = 4096;

/// How long a measurement runs.
const MEASURING_TIME: Duration = Duration::from_millis(300);

/// Name and target of each vector instruction set.
const TARGETS: [(&str, Target); 3] =
    [("avx512", Target::Avx512), ("avx2", Target::Avx2), ("portable", Target::Portable)];

pub(crate) fn explain(args: &GrapeExplainArgs) -> Result<ExitCode> {
    let program = program(&args.kernel, Precision::F32, &ALONE)?;
    print_line(program.to_string().trim_end())?;
    print_line("")?;
    print_line(counts(&program).to_string().trim_end())?;
    if let Some(flops) = program.flops() {
        print_line(&format!("{flops} operations a pair, by convention"))?;
    }
    print_line("")?;
    vectors(&program, args.no_measure)?;
    print_line("")?;
    grapedr(&program)?;
    Ok(ExitCode::SUCCESS)
}

/// Gets the count of one kind of operations.
type Count = fn(&Counts) -> usize;

fn counts(program: &Program) -> Table {
    let scopes = [Scope::Pair, Scope::I, Scope::J, Scope::Run].map(|scope| program.counts(scope));
    let mut table = Table::new(&["operations", "a pair", "an i", "a j", "a run"]);
    let kinds: [(&str, Count); 11] = [
        ("add, subtract", |counts| counts.adds),
        ("multiply", |counts| counts.muls),
        ("multiply and add", |counts| counts.fmas),
        ("divide", |counts| counts.divisions),
        ("sqrt", |counts| counts.roots),
        ("rsqrt", |counts| counts.rsqrts),
        ("exp", |counts| counts.exps),
        ("compare, min, max", |counts| counts.comparisons),
        ("select", |counts| counts.selects),
        ("other", |counts| counts.others),
        ("reduce", |counts| counts.reductions),
    ];
    for (name, of) in kinds {
        let cells = scopes.each_ref().map(of);
        if cells.iter().any(|count| *count > 0) {
            table.row(
                std::iter::once(name.to_owned())
                    .chain(cells.map(|count| count.to_string()))
                    .collect(),
            );
        }
    }
    let all = scopes.map(|counts| counts.total().to_string());
    table.row(std::iter::once("all".to_owned()).chain(all).collect());
    table
}

/// Prints what the kernel compiles to for each vector instruction set of this processor. Unless
/// `no_measure` is set, also prints the kernel's predicted and measured rates.
fn vectors(program: &Program, no_measure: bool) -> Result<()> {
    let mut head =
        vec!["vectors", "lanes", "unroll", "instructions", "registers", "spills", "code"];
    if !no_measure {
        head.extend(["predicted/s", "measured/s"]);
    }
    let mut table = Table::new(&head);
    for (name, target) in TARGETS {
        let options = Options { target, threads: NonZeroUsize::MIN };
        let compiled = match Compiled::new(program, options) {
            Ok(compiled) => compiled,
            Err(Error::Lacks { .. }) => {
                let mut row = vec![name.to_owned(), "not on this processor".to_owned()];
                row.resize(head.len(), String::new());
                table.row(row);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let facts = compiled.facts();
        let code = facts.code > 0;
        let some = |count: usize| if code { count.to_string() } else { "-".to_owned() };
        let mut row = vec![name.to_owned(), facts.lanes.to_string(), facts.unroll.to_string()];
        row.extend([facts.instructions, facts.registers, facts.spills, facts.code].map(some));
        if !no_measure {
            let wide = program.nodes().iter().any(|(_, of)| *of == Type::F64);
            let best = Compiled::new(&peak(if wide { Type::F64 } else { Type::F32 }), options)?;
            let each =
                |facts: Facts| facts.instructions as f64 / (facts.lanes * facts.unroll) as f64;
            let [of_best, measured] = measure([&best, &compiled])?;
            let predicted = of_best * each(best.facts()) / each(facts);
            row.push(if code { metric(predicted) } else { "-".to_owned() });
            row.push(metric(measured));
        }
        table.row(row);
    }
    print_line(table.to_string().trim_end())
}

/// Returns the interactions per second of two kernels: the best of several runs of each. They
/// alternate, so that a change in the processor's clock affects both.
fn measure(both: [&Compiled; 2]) -> Result<[f64; 2]> {
    let mut chance = Chance::new(1);
    let mut numbers = |fields: &[Field]| -> Vec<Vec<f64>> {
        fields.iter().map(|_| (0..PARTICLES).map(|_| chance.share()).collect()).collect()
    };
    let arrays = both.map(|one| [numbers(one.program().i()), numbers(one.program().j())]);
    let inputs = [inputs(both[0].program(), &arrays[0])?, inputs(both[1].program(), &arrays[1])?];
    let (begun, mut best) = (Instant::now(), [f64::INFINITY; 2]);
    while begun.elapsed() < MEASURING_TIME {
        for ((compiled, inputs), best) in both.iter().zip(&inputs).zip(&mut best) {
            let run = Instant::now();
            std::hint::black_box(compiled.run(inputs));
            *best = best.min(run.elapsed().as_secs_f64().max(f64::EPSILON));
        }
    }
    let rate = |at: usize| inputs[at].ni() as f64 * inputs[at].nj() as f64 / best[at];
    Ok([rate(0), rate(1)])
}

fn inputs<'a>(program: &Program, [i, j]: &'a [Vec<Vec<f64>>; 2]) -> Result<Inputs<'a>> {
    // The values do not matter for the time, so constants without a default are 1.
    let constants: Vec<_> =
        program.constants().iter().map(|constant| constant.default.or(Some(1.0))).collect();
    Ok(Inputs::new(program, columns(i), columns(j), &constants)?)
}

fn columns(all: &[Vec<f64>]) -> Vec<Column<'_>> {
    all.iter().map(|one| Column::from(&one[..])).collect()
}

/// Prints how the kernel compiles for a GRAPE-DR, next to published figures of such kernels.
fn grapedr(program: &Program) -> Result<()> {
    let kernel = match sprat_grapedr::compile(program) {
        Ok(kernel) => kernel,
        Err(error) => return print_line(&format!("GRAPE-DR: {error}")),
    };
    let steps = kernel.steps();
    let mut summary = format!(
        "GRAPE-DR: {steps} steps, {} instructions, {} words a j; a chip at 500 MHz: {} \
         interactions/s predicted",
        kernel.listing().body.len(),
        kernel.listing().stride,
        metric(sprat_grapedr::rate(1, steps) * 1e9)
    );
    if let Some(flops) = program.flops() {
        summary += &format!(", {} Gflop/s", digits(sprat_grapedr::rate(flops.into(), steps)));
    }
    print_line(&summary)?;
    let mut table = Table::new(&[
        "published kernels",
        "steps, published",
        "ours, f32",
        "f64",
        "Gflop/s, published",
        "ours, f32",
        "f64",
    ]);
    for row in published()? {
        table.row(vec![
            row.published.name.to_owned(),
            row.published.steps.to_string(),
            row.short_steps.to_string(),
            row.long_steps.to_string(),
            row.published.rate.to_string(),
            digits(row.short_rate),
            digits(row.long_rate),
        ]);
    }
    print_line(table.to_string().trim_end())
}
