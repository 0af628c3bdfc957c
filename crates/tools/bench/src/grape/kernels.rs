//! Compares the rates of the built-in kernels with the processor's peak.

use anyhow::Result;
use sprat_grape::{Precision, READY, Target};

use super::rate::{PARTICLES, ROUNDS, Timed, numbers, pinned, targets, word};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;

/// The kernel for which goals are set.
const GRAVITY: &str = "gravity";

/// Goal: gravity's rate in 32 bits as a share of the peak rate.
const SHARE: f64 = 0.75;

/// Goal: gravity's rate in 64 bits as a share of its rate in 32 bits.
const WIDE: f64 = 0.4;

const HEAD: [&str; 10] = [
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
];

/// Measures all kernels on the best vectors, and gravity on the others.
pub(super) fn chapter(_: &Settings, findings: &mut Findings) -> Result<()> {
    let _pinned = pinned()?;
    let columns = numbers(8);
    let mut table = Table::new(&HEAD);
    for (place, target) in targets().into_iter().enumerate() {
        let best = place == 0;
        let narrow = TargetResults::new(Precision::F32, target, best, &columns)?;
        let wide = TargetResults::new(Precision::F64, target, best, &columns)?;
        for measured in [&narrow, &wide] {
            measured
                .kernels
                .iter()
                .for_each(|(name, kernel)| table.row(measured.line(name, kernel)));
            measured.rows(best, findings);
        }
        if best {
            let (wide, narrow) = (wide.gravity().rate(), narrow.gravity().rate());
            let what = "gravity f64 beside f32, best vectors";
            findings.row(
                what,
                Some(wide),
                Some(narrow),
                "G interactions/s",
                Goal::RatioAtLeast(WIDE),
            );
        }
    }
    findings
        .table(&format!("{PARTICLES} particles, one thread, best of {ROUNDS}, in turns"), table);
    Ok(())
}

/// The built-in kernels on one vector instruction set, measured alternately with the peak rate of
/// its multipliers.
struct TargetResults {
    precision: Precision,
    target: Target,
    peak: Timed,
    kernels: Vec<(&'static str, Timed)>,
}

impl TargetResults {
    /// Measures all built-in kernels, or just gravity.
    fn new(precision: Precision, target: Target, all: bool, columns: &[Vec<f64>]) -> Result<Self> {
        let mut peak = Timed::peak(precision, target)?;
        let names = READY.iter().map(|ready| ready.name).filter(|&name| all || name == GRAVITY);
        let mut kernels: Vec<(&str, Timed)> = names
            .map(|name| Ok((name, Timed::ready(name, precision, target)?)))
            .collect::<Result<_>>()?;
        let rounds = if target == Target::Portable { 2 } else { ROUNDS };
        for _ in 0..rounds {
            peak.run(columns)?;
            for (_, kernel) in &mut kernels {
                kernel.run(columns)?;
            }
        }
        Ok(Self { precision, target, peak, kernels })
    }

    fn gravity(&self) -> &Timed {
        let (_, gravity) =
            self.kernels.iter().find(|(name, _)| *name == GRAVITY).expect("it is always measured");
        gravity
    }

    fn title(&self, name: &str) -> String {
        format!("{name} {}, {:?}", word(self.precision), self.target)
    }

    /// Renders a kernel's line of the table.
    fn line(&self, name: &str, kernel: &Timed) -> Vec<String> {
        let (facts, flops, peak) =
            (kernel.compiled.facts(), kernel.gflops(), self.peak.peak_gflops());
        let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
        vec![
            format!("{name} {}", word(self.precision)),
            format!("{:?}", self.target),
            format!("{:.3}", kernel.rate()),
            or_dash(flops.map(|flops| format!("{flops:.1}"))),
            or_dash(flops.map(|flops| format!("{:.0} %", 100.0 * flops / peak))),
            format!("{peak:.1}"),
            facts.lanes.to_string(),
            facts.unroll.to_string(),
            facts.registers.to_string(),
            facts.spills.to_string(),
        ]
    }

    /// Reports the kernels' rates, and gravity's share of the peak. There is a goal for the share
    /// on the best vectors in 32 bits.
    fn rows(&self, best: bool, findings: &mut Findings) {
        for (name, kernel) in &self.kernels {
            findings.row(
                &self.title(name),
                Some(kernel.rate()),
                None,
                "G interactions/s",
                Goal::Shown,
            );
        }
        let promised = best && self.precision == Precision::F32;
        let goal = if promised { Goal::RatioAtLeast(SHARE) } else { Goal::Shown };
        let what = format!(
            "{}, 38 operations a pair, beside the peak of fused multiplications",
            self.title(GRAVITY)
        );
        findings.row(
            &what,
            self.gravity().gflops(),
            Some(self.peak.peak_gflops()),
            "Gflop/s",
            goal,
        );
    }
}
