//! Output of power sensors. Any bytes are an error, or watts that are plausible for a rack.

use crate::input;
use serde_json::Value;
use sprat_power::{Files, MAX_WATTS, Watts, command_watts, hwmon, ipmi, plug, rapl, redfish};
use std::time::Duration;

/// Address of the controller that would send these answers.
const URL: &str = "http://controller";

fn assert_plausible(watts: Watts) {
    assert!((0.0..=MAX_WATTS).contains(&watts.0), "{watts:?}");
}

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    command_watts(text).into_iter().for_each(assert_plausible);
    ipmi::dcmi(text).into_iter().flatten().for_each(assert_plausible);
    ipmi::channels(text).into_iter().flatten().for_each(|channel| assert_plausible(channel.watts));
    let files: Files = sprat_power::parse_files(text);
    if let Ok(zones) = rapl::zones(&files) {
        for (before, now) in zones.values().zip(zones.values().skip(1)) {
            if let Some(used) = rapl::used(before, now, Duration::from_secs(1)) {
                assert_plausible(Watts(used as f64 / 1e6));
            }
        }
    }
    hwmon::channels(&files)
        .into_iter()
        .flatten()
        .for_each(|channel| assert_plausible(channel.watts));
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let all = [plug::shelly(&value).map(Some), plug::tasmota(&value).map(Some)];
        let more = [redfish::power(&value), redfish::environment(&value), redfish::supply(&value)];
        all.into_iter().chain(more).flatten().flatten().for_each(assert_plausible);
        let paths = redfish::members(&value, URL)
            .into_iter()
            .flatten()
            .chain(redfish::link(&value, "Power", URL));
        assert!(
            paths
                .into_iter()
                .all(|path| path.starts_with("/redfish/") && !path.contains(['\r', '\n', ' ']))
        );
    }
}
