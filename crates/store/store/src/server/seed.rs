//! Random numbers: seeds of generators, and ids of clusters and processes.

/// Returns a number that others cannot guess, and that is not 0.
pub(super) fn random() -> u64 {
    sprat_host::random() | 1
}
