//! The ready kernels beside the processor's peak.

use anyhow::Result;
use sprat_grape::{Precision, READY, Target};

use super::rate::{PARTICLES, ROUNDS, Timed, numbers, pinned, targets, word};
use crate::goals::Goal;
use crate::promises::{Findings, Settings};
use crate::table::Table;

/// Least share of the peak that gravity in 32 bits is promised to reach.
const SHARE: f64 = 0.75;

/// Least share of the rate in 32 bits that gravity in 64 is promised to reach.
const WIDE: f64 = 0.4;

/// See the module.
pub(super) fn chapter(_: &Settings, findings: &mut Findings) -> Result<()> {
    let _pinned = pinned()?;
    let columns = numbers(8);
    let mut table = Table::new(&[
        "kernel",
        "vectors",
        "G interactions/s",
        "Gflop/s",
        "of peak",
        "peak Gflop/s",
        "lanes",
        "unrolled",
        "registers",
        "spills",
    ]);
    let mut gravity = Vec::new();
    for (place, target) in targets().into_iter().enumerate() {
        for precision in [Precision::F32, Precision::F64] {
            let mut peak = Timed::peak(precision, target)?;
            // On lesser targets than the best, gravity stands for all.
            let names = READY.iter().map(|ready| ready.name).filter(|&name| place == 0 || name == "gravity");
            let mut kernels: Vec<(&str, Timed)> =
                names.map(|name| Ok((name, Timed::ready(name, precision, target)?))).collect::<Result<_>>()?;
            let rounds = if target == Target::Portable { 2 } else { ROUNDS };
            for _ in 0..rounds {
                peak.turn(&columns)?;
                for (_, kernel) in &mut kernels {
                    kernel.turn(&columns)?;
                }
            }
            for (name, kernel) in &kernels {
                let what = format!("{name} {}, {target:?}", word(precision));
                findings.row(&what, Some(kernel.rate()), None, "G interactions/s", Goal::Shown);
                let facts = kernel.compiled.facts();
                let flops = kernel.gflops();
                let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
                table.row(vec![
                    format!("{name} {}", word(precision)),
                    format!("{target:?}"),
                    format!("{:.3}", kernel.rate()),
                    figure(flops),
                    flops
                        .map_or_else(|| "-".to_owned(), |flops| format!("{:.0} %", 100.0 * flops / peak.peak_gflops())),
                    figure(Some(peak.peak_gflops())),
                    facts.lanes.to_string(),
                    facts.unroll.to_string(),
                    facts.registers.to_string(),
                    facts.spills.to_string(),
                ]);
                if *name == "gravity" {
                    let promised = place == 0 && precision == Precision::F32;
                    let goal = if promised { Goal::RatioAtLeast(SHARE) } else { Goal::Shown };
                    findings.row(
                        &format!("{what}, 38 operations a pair, beside the peak of fused multiplications"),
                        flops,
                        Some(peak.peak_gflops()),
                        "Gflop/s",
                        goal,
                    );
                    if place == 0 {
                        gravity.push(kernel.rate());
                    }
                }
            }
        }
    }
    if let [narrow, wide] = gravity[..] {
        let goal = Goal::RatioAtLeast(WIDE);
        findings.row("gravity f64 beside f32, best vectors", Some(wide), Some(narrow), "G interactions/s", goal);
    }
    findings.table(&format!("{PARTICLES} particles, one thread, best of {ROUNDS}, in turns"), table);
    Ok(())
}
