//! The settings of instances that tuning found. They take precedence over the rack's description.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sprat_plan::Spec;
use sprat_plan::quantity::Bytes;
use sprat_plan::spec::Collector;
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Name of the file in the rack's folder.
pub(crate) const FILE: &str = "tuned.json";

const MIB: f64 = 1_048_576.0;

/// Settings of instances that take precedence over those of the description.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overlay {
    /// Heap, MiB; `None` leaves the heap of the description.
    pub heap_mib: Option<u64>,
    /// Garbage collector; `None` leaves the collector of the description.
    pub collector: Option<Collector>,
    /// Settings of `cassandra.yaml`.
    pub yaml: BTreeMap<String, Value>,
    /// Additional arguments for the JVM.
    pub java: Vec<String>,
}

impl Overlay {
    /// Reads the overlay from a rack's folder. A missing file is read as an empty overlay.
    ///
    /// # Errors
    /// The file exists but cannot be read, or is not the JSON of an overlay. The error has the
    /// path.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| with_path(io::Error::other(error)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(with_path(error)),
        }
    }

    /// Writes the overlay to a rack's folder atomically. An empty overlay removes the file.
    ///
    /// # Errors
    /// The new file cannot be written, synced or renamed, or the old one cannot be removed.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(FILE);
        if *self != Self::default() {
            return crate::journal::replace(&path, self);
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the description with the overlay's settings in place of its own. The overlay's
    /// arguments for the JVM follow those of the description.
    #[must_use]
    pub fn adapt(&self, mut spec: Spec) -> Spec {
        if let Some(cassandra) = &mut spec.cassandra {
            if let Some(heap) = self.heap_mib {
                cassandra.heap = Some(Bytes(heap as f64 * MIB));
            }
            cassandra.collector = self.collector.or(cassandra.collector);
            cassandra.yaml.extend(self.yaml.clone());
            cassandra.java.extend(self.java.iter().cloned());
        }
        spec
    }

    /// Merges another overlay into this one; the other overlay takes precedence. Arguments for the
    /// JVM are kept from both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.heap_mib = other.heap_mib.or(self.heap_mib);
        both.collector = other.collector.or(self.collector);
        both.yaml.extend(other.yaml.clone());
        both.java
            .extend(other.java.iter().filter(|argument| !self.java.contains(argument)).cloned());
        both
    }

    /// Returns the settings as lines of a rack's description, for the user to copy there.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.heap_mib.map(|heap| format!("heap = \"{heap}MiB\"")));
        lines
            .extend(self.collector.map(|collector| format!("collector = \"{}\"", name(collector))));
        if !self.yaml.is_empty() {
            let inline = |(key, value): (&String, &Value)| {
                let value = toml::Value::try_from(value)
                    .map_or_else(|_| value.to_string(), |value| value.to_string());
                format!("{key} = {value}")
            };
            lines.push(format!(
                "yaml = {{ {} }}",
                self.yaml.iter().map(inline).collect::<Vec<_>>().join(", ")
            ));
        }
        if !self.java.is_empty() {
            let all: Vec<_> = self.java.iter().map(|argument| format!("{argument:?}")).collect();
            lines.push(format!("java = [{}]", all.join(", ")));
        }
        lines
    }
}

/// Returns the name that descriptions use for a collector.
#[must_use]
pub(crate) fn name(collector: Collector) -> &'static str {
    match collector {
        Collector::Z => "z",
        Collector::G1 => "g1",
        Collector::Serial => "serial",
    }
}
