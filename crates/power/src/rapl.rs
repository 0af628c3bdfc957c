//! RAPL: energy counters of processors and their memory, in the kernel's powercap folder. A counter is in microjoules and goes round.

use crate::sysfs::{Files, Place};
use crate::{Reading, Trouble};
use std::collections::BTreeMap;
use std::time::Duration;

/// The class in sysfs.
pub const CLASS: &str = "powercap";

/// Largest counter that is believed, uJ: a megawatt for a year would be 3e19.
const MAX_UJ: u64 = 1 << 62;

/// A counter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Zone {
    /// What it counts: `package-0`, `dram`.
    pub name: String,
    /// Where it stands, uJ.
    pub energy_uj: u64,
    /// Where it begins anew, uJ.
    pub range_uj: u64,
}

/// The counters that are added up, by their folder: packages of processors, and memory, which is beside them. Parts of a package (`core`,
/// `uncore`), the whole platform (`psys`) and the same counters by another way (`intel-rapl-mmio`) would count twice.
///
/// # Errors
/// A counter makes no sense.
pub fn zones(files: &Files) -> Result<BTreeMap<String, Zone>, Trouble> {
    let mut zones = BTreeMap::new();
    for (path, name) in files {
        let Some(folder) = path.strip_suffix("/name").filter(|folder| folder.starts_with("intel-rapl:")) else {
            continue;
        };
        if !name.starts_with("package") && name != "dram" {
            continue;
        }
        let number = |file: &str| {
            let path = format!("{folder}/{file}");
            let Some(text) = files.get(&path) else { return Ok(None) };
            let number = text.parse::<u64>().ok().filter(|number| *number <= MAX_UJ);
            number.map(Some).ok_or_else(|| Trouble::Nonsense(format!("{path}: {text:?}")))
        };
        // Only root may read it, or it is not there.
        let Some(energy_uj) = number("energy_uj")? else { continue };
        let range_uj = number("max_energy_range_uj")?.unwrap_or(MAX_UJ).max(energy_uj);
        zones.insert(folder.to_owned(), Zone { name: name.clone(), energy_uj, range_uj });
    }
    Ok(zones)
}

/// What was used between two looks at a counter, uJ. It goes round at most once between them: at 200 W most take more than ten minutes.
#[must_use]
pub fn used(before: &Zone, now: &Zone) -> u64 {
    match now.energy_uj.checked_sub(before.energy_uj) {
        Some(used) => used,
        None => now.range_uj.saturating_sub(before.energy_uj) + now.energy_uj,
    }
}

/// All counters of a server.
#[derive(Debug)]
pub(crate) struct Rapl {
    place: Place,
    last: BTreeMap<String, Zone>,
    total_uj: u64,
}

impl Rapl {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, last: BTreeMap::new(), total_uj: 0 }
    }

    pub(crate) fn told(&self) -> String {
        self.place.told(CLASS)
    }

    /// Joules since the first look.
    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Trouble> {
        let files = self.place.files(CLASS, &["name", "energy_uj", "max_energy_range_uj"], time)?;
        let now = zones(&files)?;
        if now.is_empty() {
            let hidden =
                files.iter().any(|(path, name)| path.starts_with("intel-rapl:") && name.starts_with("package"));
            return Err(Trouble::Absent(match hidden {
                true => "its counters are for root alone: run this as root".to_owned(),
                false => "the processor has no counters, or a virtual machine hides them".to_owned(),
            }));
        }
        // A counter that comes or goes counts from when it is there.
        for (folder, zone) in &now {
            let used = self.last.get(folder).map_or(0, |before| used(before, zone));
            self.total_uj = self.total_uj.saturating_add(used);
        }
        self.last = now;
        Ok(Reading::Joules(self.total_uj as f64 / 1e6))
    }
}
