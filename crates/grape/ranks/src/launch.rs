//! How many of this program were started together: what starts them tells it in the environment.

use std::env::var;

/// Open MPI's `mpirun` tells how many there are; `srun` tells that of a step, whose tasks are ranks
/// where it gives each a PMIx number.
const TOLD: [(&str, Option<&str>); 2] =
    [("OMPI_COMM_WORLD_SIZE", None), ("SLURM_STEP_NUM_TASKS", Some("PMIX_RANK"))];

/// How many ranks there are: 1 where nobody says otherwise. To ask MPI itself would have it start a
/// daemon for a single process.
pub(crate) fn count() -> usize {
    let told = |name: &str| var(name).ok()?.parse().ok();
    let counts = TOLD.iter().filter(|(_, with)| with.is_none_or(|with| var(with).is_ok()));
    counts.filter_map(|(name, _)| told(name)).find(|count| *count > 0).unwrap_or(1)
}
