//! How fast gravity is, beside the processor's peak in the same run, by one thread's processor time on one core.

#![allow(clippy::print_stdout, reason = "what it is for")]
#![allow(clippy::cast_possible_truncation, reason = "numbers are rounded to the type of a kernel's variables")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{bodies, gravity, targets};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use sprat_formula::{Column, Inputs, Program, Type};
use sprat_vector::{Compiled, Options, PEAK_FLOPS, peak};
use std::num::NonZeroUsize;

/// Operations of a pair by the convention of the field, whatever instructions there are.
const GRAVITY_FLOPS: f64 = 38.0;
const BODIES: usize = 8192;
const ROUNDS: usize = 12;

fn main() {
    let mut cpus = CpuSet::new();
    cpus.set(1);
    let pinned = sched_setaffinity(None, &cpus).is_ok();
    println!("{BODIES} bodies, one thread{}, best of {ROUNDS}", if pinned { " on core 1" } else { "" });
    let (x, m) = bodies(BODIES);
    for target in targets() {
        for (of, bits) in [(Type::F32, 24), (Type::F64, 53)] {
            let single = |all: &[f64]| all.iter().map(|&x| x as f32).collect::<Vec<f32>>();
            let narrow = [single(&x[0]), single(&x[1]), single(&x[2]), single(&m)];
            let wide = [&x[0], &x[1], &x[2], &m];
            let columns: Vec<Column> = if of == Type::F32 {
                narrow.iter().map(|x| Column::from(&x[..])).collect()
            } else {
                wide.iter().map(|x| Column::from(&x[..])).collect()
            };
            let options = Options { target, threads: NonZeroUsize::MIN };
            let compile = |program: &Program| {
                let before = std::time::Instant::now();
                let compiled = Compiled::new(program, options).expect("the target is here");
                (compiled, before.elapsed())
            };
            let (best, _) = compile(&peak(of));
            let (kernel, took) = compile(&gravity(of, bits));
            let of_peak = Inputs::new(best.program(), columns[..2].to_vec(), columns.clone(), &[]).expect("columns");
            let of_kernel =
                Inputs::new(kernel.program(), columns[..3].to_vec(), columns.clone(), &[Some(1e-4)]).expect("columns");
            let rounds = if target == sprat_vector::Target::Portable { 1 } else { ROUNDS };
            let (mut peak_time, mut time) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..rounds {
                peak_time = peak_time.min(timed(&best, &of_peak));
                time = time.min(timed(&kernel, &of_kernel));
            }
            let pairs = (BODIES * BODIES) as f64;
            let (peak_rate, rate) = (pairs * f64::from(PEAK_FLOPS) / peak_time, pairs * GRAVITY_FLOPS / time);
            println!(
                "{target:?} {of:?}: {:.3} G interactions/s, {:.1} Gflop/s; peak {:.1}; {:.0} %; compiled in {took:?}\n    {:?}",
                pairs / time / 1e9,
                rate / 1e9,
                peak_rate / 1e9,
                100.0 * rate / peak_rate,
                kernel.facts(),
            );
        }
    }
}

/// Seconds of this thread.
fn timed(kernel: &Compiled, inputs: &Inputs) -> f64 {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let before = now();
    std::hint::black_box(kernel.run(inputs));
    now() - before
}
