//! RAPL: energy counters of processors and their memory, in the kernel's powercap folder. A counter
//! is in microjoules and goes round.

use crate::sysfs::{BOOT_ID, Files, Place};
use crate::{Reading, Trouble};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The class in sysfs.
pub const CLASS: &str = "powercap";

/// Largest counter that is believed, uJ: a megawatt for a year would be 3e19.
const MAX_UJ: u64 = 1 << 62;

/// Most power that a package, or the memory beside it, is believed to take, W: several times what
/// the largest are made for. A counter that stands lower than before either passed the end of its
/// range or began again from 0, because its server started again or slept. Taking the second for
/// the first once made 324 kW.
pub const MAX_ZONE_WATTS: f64 = 2_000.0;

/// Shortest time for which that bound is applied. Counters advance in steps of a millisecond or
/// more.
const LEAST_TIME: Duration = Duration::from_millis(50);

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

/// The counters that are added up, by their folder: packages of processors, and memory, which is
/// beside them. Parts of a package (`core`, `uncore`), the whole platform (`psys`) and the same
/// counters by another way (`intel-rapl-mmio`) would count twice.
///
/// # Errors
/// A counter makes no sense.
pub fn zones(files: &Files) -> Result<BTreeMap<String, Zone>, Trouble> {
    let mut zones = BTreeMap::new();
    for (path, name) in files {
        let Some(folder) =
            path.strip_suffix("/name").filter(|folder| folder.starts_with("intel-rapl:"))
        else {
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

/// What was used between two looks at a counter, uJ. It goes round at most once between them: at
/// 200 W most take more than ten minutes. None where that would be more than [`MAX_ZONE_WATTS`]:
/// the counter began again.
#[must_use]
pub fn used(before: &Zone, now: &Zone, elapsed: Duration) -> Option<u64> {
    let used = match now.energy_uj.checked_sub(before.energy_uj) {
        Some(used) => used,
        None => now.range_uj.saturating_sub(before.energy_uj) + now.energy_uj,
    };
    let most = MAX_ZONE_WATTS * 1e6 * elapsed.max(LEAST_TIME).as_secs_f64();
    Some(used).filter(|used| *used as f64 <= most)
}

/// One look at all counters of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Look {
    /// When they were looked at.
    pub at: Instant,
    /// The number that the server's kernel gave itself when it started, where that is known.
    pub boot: Option<String>,
    /// The counters, by their folders.
    pub zones: BTreeMap<String, Zone>,
}

/// What all counters of a server say was used between two looks, uJ.
///
/// # Errors
/// [`Trouble::Restarted`]: the server started again, a counter did, or the counters are no longer
/// those that there were.
pub fn used_by_all(before: &Look, now: &Look) -> Result<u64, Trouble> {
    if before.boot != now.boot {
        return Err(Trouble::Restarted(
            "the server has started again, and its counters with it".to_owned(),
        ));
    }
    if !before.zones.keys().eq(now.zones.keys()) {
        let names = |look: &Look| look.zones.keys().cloned().collect::<Vec<_>>().join(", ");
        let why = format!("its counters were {}, and are {}", names(before), names(now));
        return Err(Trouble::Restarted(why));
    }
    let elapsed = now.at.saturating_duration_since(before.at);
    let pairs = before.zones.values().zip(&now.zones);
    pairs
        .map(|(old, (folder, new))| {
            used(old, new, elapsed).ok_or_else(|| restarted(folder, old, new))
        })
        .sum()
}

fn restarted(folder: &str, old: &Zone, new: &Zone) -> Trouble {
    let (from, to) = (old.energy_uj, new.energy_uj);
    Trouble::Restarted(format!(
        "{folder} ({}) began again: from {from} uJ to {to} uJ would be more than {MAX_ZONE_WATTS} W",
        new.name
    ))
}

/// All counters of a server.
#[derive(Debug)]
pub(crate) struct Rapl {
    place: Place,
    last: Option<Look>,
    total_uj: u64,
}

impl Rapl {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, last: None, total_uj: 0 }
    }

    pub(crate) fn told(&self) -> String {
        self.place.told(CLASS)
    }

    /// Joules since the first look, or since a counter began again.
    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Trouble> {
        let at = Instant::now();
        let files = self.place.files(CLASS, &["name", "energy_uj", "max_energy_range_uj"], time)?;
        let zones = zones(&files)?;
        if zones.is_empty() {
            let hidden = files
                .iter()
                .any(|(path, name)| path.starts_with("intel-rapl:") && name.starts_with("package"));
            return Err(Trouble::Absent(match hidden {
                true => "its counters are for root alone: run this as root".to_owned(),
                false => {
                    "the processor has no counters, or a virtual machine hides them".to_owned()
                }
            }));
        }
        let now = Look { at, boot: files.get(BOOT_ID).cloned(), zones };
        let used = self.last.as_ref().map_or(Ok(0), |before| used_by_all(before, &now));
        self.last = Some(now);
        // Whoever sums this up begins at 0 again, too.
        self.total_uj = used.as_ref().map_or(0, |used| self.total_uj.saturating_add(*used));
        used.map(|_| Reading::Joules(self.total_uj as f64 / 1e6))
    }
}
