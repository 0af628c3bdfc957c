//! Measures how well the integration of stars conserves energy.

use anyhow::Result;
use sprat_grape::nbody::{Gravity, Scheme, Simulation, plummer};
use sprat_grape::{ALONE, Engine, Precision};

use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;

const BODIES: usize = 1024;
const ETA: f64 = 0.01;
const SOFTENING: f64 = 1.0 / 256.0;
const SEED: u64 = 1;

/// Reports the drift of the energy in both precisions.
pub(super) fn chapter(_: &Settings, findings: &mut Findings) -> Result<()> {
    for (precision, word) in [(Precision::F64, "f64"), (Precision::F32, "f32")] {
        let gravity = Gravity::new(&Engine::default(), precision, SOFTENING, &ALONE)?;
        let mut run =
            Simulation::new(gravity, plummer(BODIES, SEED)?, Scheme::Hermite { eta: ETA })?;
        let before = run.conserved()?.energy();
        while !run.step(1.0)? {}
        let drift = ((run.conserved()?.energy() - before) / before).abs();
        let what = format!(
            "energy's relative drift, Plummer of {BODIES}, 1 time unit, Hermite eta {ETA}, {word}"
        );
        findings.row(&what, Some(drift), None, "1", Goal::Shown);
        findings.note(format!(
            "The Plummer run in {word}: softening 1/256, seed {SEED}, {} steps.",
            run.steps()
        ));
    }
    Ok(())
}
