//! What else runs on a rack: `[jobs]` of a description.

use serde::Deserialize;

/// What servers do besides Cassandra.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Jobs {
    /// Jobs of a batch, given out over all servers by Slurm.
    pub slurm: bool,
    /// Guests, kept on each server by libvirt.
    pub libvirt: bool,
}
