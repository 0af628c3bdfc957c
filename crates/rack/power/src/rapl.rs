//! Reads RAPL, the energy counters of processors and memory, from the kernel's powercap class.
//! Counters are in microjoules and wrap around.

use crate::sysfs::{BOOT_ID, Files, SysfsRoot};
use crate::{Cause, Reading};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Name of the class in sysfs.
pub const CLASS: &str = "powercap";

/// The largest plausible counter, in uJ: 4.6e18. For comparison: a megawatt for a year is 3e19 uJ.
const MAX_UJ: u64 = 1 << 62;

/// The highest plausible power of a package or its memory, W: several times the power that the
/// largest are designed for. A counter that is lower than before has either wrapped around, or
/// restarted from 0 because its server restarted or slept. Once a restart was taken for a
/// wraparound, which gave 324 kW.
pub const MAX_ZONE_WATTS: f64 = 2_000.0;

/// A shorter time between two readings counts as this time in the check of [`MAX_ZONE_WATTS`],
/// because counters advance in steps of a millisecond or more.
const LEAST_TIME: Duration = Duration::from_millis(50);

/// An energy counter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Zone {
    /// The name of the measured part: `package-0`, `dram`.
    pub name: String,
    /// The counter's value, uJ.
    pub energy_uj: u64,
    /// The value at which the counter wraps around, uJ.
    pub range_uj: u64,
}

/// Returns the counters to add up, by folder: the counters of processor packages, and those of
/// memory, because a package's counter does not include memory. Left out are parts of a package
/// (`core`, `uncore`), the whole platform (`psys`) and a second interface to the same counters
/// (`intel-rapl-mmio`): their energy would be counted twice.
///
/// # Errors
/// [`Cause::Nonsense`] if the value or the range of a counter is not an integer from 0 to 2^62.
pub fn zones(files: &Files) -> Result<BTreeMap<String, Zone>, Cause> {
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
            number.map(Some).ok_or_else(|| Cause::Nonsense(format!("{path}: {text:?}")))
        };
        // The counter is skipped if it does not exist, or if only root may read it.
        let Some(energy_uj) = number("energy_uj")? else { continue };
        let range_uj = number("max_energy_range_uj")?.unwrap_or(MAX_UJ).max(energy_uj);
        zones.insert(folder.to_owned(), Zone { name: name.clone(), energy_uj, range_uj });
    }
    Ok(zones)
}

/// Returns the energy between two readings of a counter, uJ. The counter is taken to wrap around at
/// most once: at 200 W, most counters take more than ten minutes to do so. `None` means that the
/// power would exceed [`MAX_ZONE_WATTS`], so the counter has restarted.
#[must_use]
pub fn used(before: &Zone, now: &Zone, elapsed: Duration) -> Option<u64> {
    let used = match now.energy_uj.checked_sub(before.energy_uj) {
        Some(used) => used,
        None => now.range_uj.saturating_sub(before.energy_uj) + now.energy_uj,
    };
    let most = MAX_ZONE_WATTS * 1e6 * elapsed.max(LEAST_TIME).as_secs_f64();
    Some(used).filter(|used| *used as f64 <= most)
}

/// A reading of all counters of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Counters {
    /// Time of the reading.
    pub at: Instant,
    /// The boot id of the server's kernel, if known.
    pub boot: Option<String>,
    /// The counters, by folder.
    pub zones: BTreeMap<String, Zone>,
}

/// Returns the sum of the energy that all counters measured between two readings, in uJ.
///
/// # Errors
/// [`Cause::Restarted`] if the server or a counter has restarted, or if the two readings have
/// different counters.
pub fn used_by_all(before: &Counters, now: &Counters) -> Result<u64, Cause> {
    if before.boot != now.boot {
        return Err(Cause::Restarted(
            "the server has restarted, which reset its counters".to_owned(),
        ));
    }
    if !before.zones.keys().eq(now.zones.keys()) {
        let names = |look: &Counters| look.zones.keys().cloned().collect::<Vec<_>>().join(", ");
        let why = format!("its counters were {}, and are {}", names(before), names(now));
        return Err(Cause::Restarted(why));
    }
    let elapsed = now.at.saturating_duration_since(before.at);
    let pairs = before.zones.values().zip(&now.zones);
    pairs
        .map(|(old, (folder, new))| {
            used(old, new, elapsed).ok_or_else(|| restarted(folder, old, new))
        })
        .sum()
}

fn restarted(folder: &str, old: &Zone, new: &Zone) -> Cause {
    let (from, to) = (old.energy_uj, new.energy_uj);
    Cause::Restarted(format!(
        "{folder} ({}) was reset: from {from} uJ to {to} uJ would be more than {MAX_ZONE_WATTS} W",
        new.name
    ))
}

/// The RAPL counters of a server.
#[derive(Debug)]
pub(crate) struct Rapl {
    sysfs: SysfsRoot,
    last: Option<Counters>,
    total_uj: u64,
}

impl Rapl {
    pub(crate) fn new(sysfs: SysfsRoot) -> Self {
        Self { sysfs, last: None, total_uj: 0 }
    }

    pub(crate) fn location(&self) -> String {
        self.sysfs.location(CLASS)
    }

    /// Returns the energy in joules since the first reading, or since the last restart of a
    /// counter.
    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Cause> {
        let at = Instant::now();
        let files = self.sysfs.files(CLASS, &["name", "energy_uj", "max_energy_range_uj"], time)?;
        let zones = zones(&files)?;
        if zones.is_empty() {
            let hidden = files
                .iter()
                .any(|(path, name)| path.starts_with("intel-rapl:") && name.starts_with("package"));
            return Err(Cause::Absent(match hidden {
                true => "only root can read its counters: run this as root".to_owned(),
                false => {
                    "the processor has no counters, or a virtual machine hides them".to_owned()
                }
            }));
        }
        let now = Counters { at, boot: files.get(BOOT_ID).cloned(), zones };
        let used = self.last.as_ref().map_or(Ok(0), |before| used_by_all(before, &now));
        self.last = Some(now);
        // After a restart the total also starts from 0.
        self.total_uj = used.as_ref().map_or(0, |used| self.total_uj.saturating_add(*used));
        used.map(|_| Reading::Joules(self.total_uj as f64 / 1e6))
    }
}
