//! `[jobs]` of a description: what runs on a rack besides Cassandra.

use serde::Deserialize;

/// Job managers that are installed on the servers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Jobs {
    /// Whether Slurm runs batch jobs on all servers.
    pub slurm: bool,
    /// Whether libvirt keeps virtual machines on each server.
    pub libvirt: bool,
}
