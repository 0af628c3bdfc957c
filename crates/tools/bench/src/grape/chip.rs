//! Compares the steps of kernels on the simulated GRAPE-DR with published figures.

use anyhow::Result;

use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;

/// Reports the steps and rates of all published kernels.
pub(super) fn chapter(_: &Settings, findings: &mut Findings) -> Result<()> {
    let mut table = Table::new(&[
        "kernel",
        "steps",
        "published",
        "Gflop/s",
        "published",
        "steps in 64 bits",
        "Gflop/s in 64 bits",
    ]);
    for row in sprat_grapedr::published()? {
        let published = row.published;
        let steps = |steps: u64| Some(steps as f64);
        findings.row(
            &format!("steps of {} on a GRAPE-DR, beside the published", published.name),
            steps(row.short_steps),
            steps(published.steps),
            "steps",
            Goal::RatioAtMost(1.0),
        );
        table.row(vec![
            published.name.to_owned(),
            row.short_steps.to_string(),
            published.steps.to_string(),
            format!("{:.0}", row.short_rate),
            published.rate.to_string(),
            row.long_steps.to_string(),
            format!("{:.0}", row.long_rate),
        ]);
    }
    findings.table("One chip at 500 MHz, simulated", table);
    Ok(())
}
