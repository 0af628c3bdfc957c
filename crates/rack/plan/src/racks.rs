//! Example descriptions of racks. Most are of published systems, with the claims that were
//! published.

/// A description that is compiled into this crate.
#[derive(Clone, Copy, Debug)]
pub struct ExampleRack {
    /// The rack's name.
    pub name: &'static str,
    /// The description.
    pub toml: &'static str,
}

/// All examples.
pub const EXAMPLES: [ExampleRack; 7] = [
    ExampleRack { name: "cassandra-6", toml: include_str!("../racks/cassandra-6.toml") },
    ExampleRack { name: "ipu-6", toml: include_str!("../racks/ipu-6.toml") },
    ExampleRack { name: "mms-3", toml: include_str!("../racks/mms-3.toml") },
    ExampleRack { name: "mms-5", toml: include_str!("../racks/mms-5.toml") },
    ExampleRack { name: "mms-16", toml: include_str!("../racks/mms-16.toml") },
    ExampleRack { name: "mms-cube", toml: include_str!("../racks/mms-cube.toml") },
    ExampleRack { name: "mms-65536", toml: include_str!("../racks/mms-65536.toml") },
];

/// Returns an example by its name, or `None` if there is no example of that name.
#[must_use]
pub fn ready(name: &str) -> Option<&'static ExampleRack> {
    EXAMPLES.iter().find(|ready| ready.name == name)
}
