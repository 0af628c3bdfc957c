//! Reads from the environment how many processes of this program were started together.

use std::env::var;

/// Environment variables that state the number of ranks. Open MPI's `mpirun` sets the first.
/// Slurm's `srun` sets the second for a job step; the tasks of a job step are ranks only if `srun`
/// also gives each task a PMIx number.
const VARIABLES: [(&str, Option<&str>); 2] =
    [("OMPI_COMM_WORLD_SIZE", None), ("SLURM_STEP_NUM_TASKS", Some("PMIX_RANK"))];

/// Returns the number of ranks: 1 if no variable states it. MPI itself is not asked, because it
/// would start a daemon even for a single process.
pub(crate) fn count() -> usize {
    let parse = |name: &str| var(name).ok()?.parse().ok();
    let counts = VARIABLES.iter().filter(|(_, with)| with.is_none_or(|with| var(with).is_ok()));
    counts.filter_map(|(name, _)| parse(name)).find(|count| *count > 0).unwrap_or(1)
}
