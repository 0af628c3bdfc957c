//! Prints the figures of `docs/grapedr.md`: steps compared with the published steps, matrices, and
//! the time that the simulation takes.

use sprat_formula::{Column, Inputs, Kernel, Precision, ready};
use sprat_grapedr::{Shape, Sides, Timing, compile, dgemm, gflops, lu, published, run};
use std::io::Write;
use std::time::Instant;

/// Returns pseudo-random numbers from -0.5 to 0.5.
fn numbers(count: usize, mut seed: u64) -> Vec<f64> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(seed >> 32).expect("32 bits")) / f64::from(u32::MAX) - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn rates(out: &mut impl Write, operations: u64, timing: Timing) -> std::io::Result<()> {
    let seconds = timing.seconds(Shape::DESIGN);
    let products =
        Timing { load_cycles: 0, store_cycles: 0, ..timing }.seconds(Shape::DESIGN).compute;
    let [products, compute, whole] =
        [products, seconds.compute, seconds.whole].map(|all| gflops(operations, all));
    writeln!(
        out,
        "products {products:.1}, all cycles {compute:.1}, with the interface {whole:.1} Gflop/s"
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "kernel: steps published, short, long; Gflop/s published, short, long")?;
    for row in published()? {
        let (theirs, name) = (row.published, row.published.name);
        write!(out, "{name}: {}, {}, {}; ", theirs.steps, row.short_steps, row.long_steps)?;
        writeln!(out, "{}, {:.0}, {:.0}", theirs.rate, row.short_rate, row.long_rate)?;
    }
    for precision in [Precision::F32, Precision::F64] {
        let program =
            Kernel::parse(ready("gravity").expect("a ready kernel").text, precision)?.program;
        let kernel = compile(&program)?;
        let all: Vec<Vec<f64>> = (1..5).map(|seed| numbers(2048, seed)).collect();
        let columns =
            |count: usize| all[..count].iter().map(|numbers| Column::from(&numbers[..])).collect();
        let inputs = Inputs::new(&program, columns(3), columns(4), &[None])?;
        let begun = Instant::now();
        let timing = run(&kernel, &inputs, Shape::DESIGN, None).timing;
        let (seconds, took) = (timing.seconds(Shape::DESIGN), begun.elapsed());
        writeln!(out, "gravity of 2048, {precision:?}: {seconds:?}; simulated in {took:?}")?;
    }
    let Sides { m, n, k } = Sides { m: 128, n: 512, k: 1024 };
    let begun = Instant::now();
    let timing = dgemm(
        Shape::DESIGN,
        Sides { m, n, k },
        &numbers(m * k, 1),
        &numbers(k * n, 2),
        &mut vec![0.0; m * n],
    )?;
    write!(out, "DGEMM of {m} x {n} x {k}: ")?;
    rates(&mut out, u64::try_from(2 * m * n * k)?, timing)?;
    let found = lu(Shape::DESIGN, 512, &numbers(512 * 512, 3))?;
    write!(out, "LU of 512: ")?;
    rates(&mut out, found.operations, found.timing)?;
    writeln!(out, "both simulated in {:?}", begun.elapsed())?;
    Ok(())
}
