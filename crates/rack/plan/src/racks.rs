//! Racks to begin with: those of published systems, with what was said of them.

/// A description that comes with this crate.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub toml: &'static str,
}

/// All of them.
pub const READY: [Ready; 7] = [
    Ready { name: "cassandra-6", toml: include_str!("../racks/cassandra-6.toml") },
    Ready { name: "ipu-6", toml: include_str!("../racks/ipu-6.toml") },
    Ready { name: "mms-3", toml: include_str!("../racks/mms-3.toml") },
    Ready { name: "mms-5", toml: include_str!("../racks/mms-5.toml") },
    Ready { name: "mms-16", toml: include_str!("../racks/mms-16.toml") },
    Ready { name: "mms-cube", toml: include_str!("../racks/mms-cube.toml") },
    Ready { name: "mms-65536", toml: include_str!("../racks/mms-65536.toml") },
];

/// One by its name.
#[must_use]
pub fn ready(name: &str) -> Option<&'static Ready> {
    READY.iter().find(|ready| ready.name == name)
}
