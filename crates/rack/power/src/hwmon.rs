//! Reads the power sensors of a board from the kernel's hwmon class, in microwatts.

use crate::channel::{Channel, sum};
use crate::sysfs::{Files, SysfsRoot};
use crate::{Cause, Reading, plausible};
use std::time::Duration;

/// Name of the class in sysfs.
pub const CLASS: &str = "hwmon";

/// Returns all power channels, named by chip and label: `power_meter/power1`, `ina3221/VDD_IN`. If
/// a channel has a momentary and an average value, the momentary value is used.
///
/// # Errors
/// The value of a channel is not an integer, is negative, or is implausibly large.
pub fn channels(files: &Files) -> Result<Vec<Channel>, Cause> {
    let mut channels = Vec::new();
    for (path, text) in files {
        let Some((device, file)) = path.split_once('/') else { continue };
        let Some((stem, what)) = file.split_once('_').filter(|(stem, _)| is_power(stem)) else {
            continue;
        };
        let now = format!("{device}/{stem}_input");
        if what != "input" && (what != "average" || files.contains_key(&now)) {
            continue;
        }
        let micro =
            text.parse::<u64>().map_err(|_| Cause::Nonsense(format!("{path}: {text:?}")))?;
        let chip = files.get(&format!("{device}/name")).map_or(device, String::as_str);
        let label = files.get(&format!("{device}/{stem}_label")).map_or(stem, String::as_str);
        channels.push(Channel {
            name: format!("{chip}/{label}"),
            watts: plausible(micro as f64 / 1e6)?,
        });
    }
    Ok(channels)
}

/// Returns whether a stem is `power` and a number, such as `power1`.
fn is_power(stem: &str) -> bool {
    stem.strip_prefix("power").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The hwmon sensors of a server.
#[derive(Debug)]
pub(crate) struct Hwmon {
    sysfs: SysfsRoot,
    chosen: Vec<String>,
}

impl Hwmon {
    pub(crate) fn new(sysfs: SysfsRoot, chosen: Vec<String>) -> Self {
        Self { sysfs, chosen }
    }

    pub(crate) fn location(&self) -> String {
        self.sysfs.location(CLASS)
    }

    pub(crate) fn read(&self, time: Duration) -> Result<Reading, Cause> {
        let files = self.sysfs.files(CLASS, &["name", "power"], time)?;
        Ok(Reading::Watts(sum(
            &channels(&files)?,
            &self.chosen,
            "the board reports no power to the kernel",
        )?))
    }
}
