//! Numbers that others cannot guess: seeds of generators, and names of clusters and lives.

/// A number that others cannot guess, and that is not 0.
pub(super) fn random() -> u64 {
    sprat_host::random() | 1
}
