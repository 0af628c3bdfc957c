//! How fast the ready kernels are, beside the processor's peak in the same run, by one thread's processor time on one core.

#![allow(clippy::print_stdout, reason = "what it is for")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{random, targets};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use sprat_formula::{Column, Inputs, Kernel, Precision, Program, READY};
use sprat_vector::{Compiled, Options, PEAK_FLOPS, Target, peak};
use std::num::NonZeroUsize;

const PARTICLES: usize = 8192;
const ROUNDS: usize = 8;

fn main() {
    let mut cpus = CpuSet::new();
    cpus.set(1);
    let pinned = sched_setaffinity(None, &cpus).is_ok();
    println!("{PARTICLES} particles, one thread{}, best of {ROUNDS}", if pinned { " on core 1" } else { "" });
    let mut random = random(5);
    let columns: Vec<Vec<f64>> = (0..8).map(|_| (0..PARTICLES).map(|_| random()).collect()).collect();
    for target in targets() {
        for precision in [Precision::F32, Precision::F64] {
            let (best, _) = compile(&peak(precision.into()), target);
            for ready in READY {
                let program = Kernel::parse(ready.text, precision).expect("ready").program;
                let (kernel, took) = compile(&program, target);
                let rounds = if target == Target::Portable { 1 } else { ROUNDS };
                let (mut peak_time, mut time) = (f64::INFINITY, f64::INFINITY);
                for _ in 0..rounds {
                    peak_time = peak_time.min(timed(&best, &columns));
                    time = time.min(timed(&kernel, &columns));
                }
                let pairs = (PARTICLES * PARTICLES) as f64;
                print!("{target:?} {precision:?} {}: {:.3} G interactions/s", ready.name, pairs / time / 1e9);
                if let Some(flops) = program.flops() {
                    let (peak_rate, rate) = (f64::from(PEAK_FLOPS) / peak_time, f64::from(flops) / time);
                    let share = 100.0 * rate / peak_rate;
                    let giga = pairs / 1e9;
                    print!(", {:.1} Gflop/s, {share:.0} % of a peak of {:.1}", giga * rate, giga * peak_rate);
                }
                let facts = kernel.facts();
                println!(
                    "\n    {} lanes, {} vectors, {:.1} instructions each, {} registers, {} spills, {} bytes, compiled in {took:?}",
                    facts.lanes,
                    facts.unroll,
                    facts.instructions as f64 / facts.unroll as f64,
                    facts.registers,
                    facts.spills,
                    facts.code,
                );
            }
        }
    }
}

fn compile(program: &Program, target: Target) -> (Compiled, std::time::Duration) {
    let before = std::time::Instant::now();
    let compiled = Compiled::new(program, Options { target, threads: NonZeroUsize::MIN }).expect("the target is here");
    (compiled, before.elapsed())
}

/// Seconds of this thread.
fn timed(kernel: &Compiled, columns: &[Vec<f64>]) -> f64 {
    let program = kernel.program();
    let take = |count: usize| columns[..count].iter().map(|all| Column::from(&all[..])).collect();
    let constants: Vec<Option<f64>> =
        program.constants().iter().map(|constant| Some(constant.default.unwrap_or(0.01))).collect();
    let inputs = Inputs::new(program, take(program.i().len()), take(program.j().len()), &constants).expect("columns");
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let before = now();
    std::hint::black_box(kernel.run(&inputs));
    now() - before
}
