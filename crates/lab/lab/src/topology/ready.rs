//! Topologies that come with the program.

/// A topology that comes with the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ready {
    /// The topology's name.
    pub name: &'static str,
    /// The topology's text, in TOML.
    pub text: &'static str,
}

/// All topologies that come with the program.
pub const READY: &[Ready] = &[
    Ready { name: "two-sites", text: include_str!("ready/two-sites.toml") },
    Ready { name: "merge", text: include_str!("ready/merge.toml") },
    Ready { name: "switch", text: include_str!("ready/switch.toml") },
    Ready { name: "chassis", text: include_str!("ready/chassis.toml") },
];

/// Returns the topology with this name, if there is one.
#[must_use]
pub fn ready(name: &str) -> Option<&'static Ready> {
    READY.iter().find(|ready| ready.name == name)
}
