//! Power sensors of the board, as the kernel's hwmon folder has them: microwatts.

use crate::channel::{Channel, sum};
use crate::sysfs::{Files, Place};
use crate::{Reading, Trouble, believed};
use std::time::Duration;

/// The class in sysfs.
pub const CLASS: &str = "hwmon";

/// All of them, by the chip's name and their own: `power_meter/power1`, `ina3221/VDD_IN`. One that
/// has both tells what is now, and not what was on average.
///
/// # Errors
/// One makes no sense.
pub fn channels(files: &Files) -> Result<Vec<Channel>, Trouble> {
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
            text.parse::<u64>().map_err(|_| Trouble::Nonsense(format!("{path}: {text:?}")))?;
        let chip = files.get(&format!("{device}/name")).map_or(device, String::as_str);
        let label = files.get(&format!("{device}/{stem}_label")).map_or(stem, String::as_str);
        channels.push(Channel {
            name: format!("{chip}/{label}"),
            watts: believed(micro as f64 / 1e6)?,
        });
    }
    Ok(channels)
}

/// `power1`.
fn is_power(stem: &str) -> bool {
    stem.strip_prefix("power").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// A server's board.
#[derive(Debug)]
pub(crate) struct Hwmon {
    place: Place,
    chosen: Vec<String>,
}

impl Hwmon {
    pub(crate) fn new(place: Place, chosen: Vec<String>) -> Self {
        Self { place, chosen }
    }

    pub(crate) fn told(&self) -> String {
        self.place.told(CLASS)
    }

    pub(crate) fn read(&self, time: Duration) -> Result<Reading, Trouble> {
        let files = self.place.files(CLASS, &["name", "power"], time)?;
        Ok(Reading::Watts(sum(
            &channels(&files)?,
            &self.chosen,
            "the board tells the kernel of no power",
        )?))
    }
}
