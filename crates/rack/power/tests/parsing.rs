//! Tests that each sensor's output is parsed into watts, or into an error that quotes the output.

use proptest::prelude::*;
use serde_json::json;
use sprat_power::{
    Cause, Channel, Files, Watts, command_watts, hwmon, ipmi, plug, rapl, redfish, sum,
};
use std::time::{Duration, Instant};

fn files(list: &[(&str, &str)]) -> Files {
    list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

const TWO_PACKAGES: [(&str, &str); 16] = [
    ("intel-rapl:0/name", "package-0"),
    ("intel-rapl:0/energy_uj", "1000"),
    ("intel-rapl:0/max_energy_range_uj", "5000"),
    ("intel-rapl:0:0/name", "core"),
    ("intel-rapl:0:0/energy_uj", "700"),
    ("intel-rapl:0:1/name", "dram"),
    ("intel-rapl:0:1/energy_uj", "50"),
    ("intel-rapl:0:1/max_energy_range_uj", "4000"),
    ("intel-rapl:1/name", "package-1"),
    ("intel-rapl:1/energy_uj", "2000"),
    ("intel-rapl:1/max_energy_range_uj", "5000"),
    ("intel-rapl:2/name", "psys"),
    ("intel-rapl:2/energy_uj", "9"),
    ("intel-rapl-mmio:0/name", "package-0"),
    ("intel-rapl-mmio:0/energy_uj", "1001"),
    ("dtpm/name", "dtpm"),
];

#[test]
fn counters_that_would_count_twice_are_left_out() {
    let zones = rapl::zones(&files(&TWO_PACKAGES)).expect("counters");
    let names: Vec<_> =
        zones.iter().map(|(folder, zone)| (folder.as_str(), zone.name.as_str())).collect();
    assert_eq!(
        names,
        [("intel-rapl:0", "package-0"), ("intel-rapl:0:1", "dram"), ("intel-rapl:1", "package-1")]
    );
    let odd = rapl::zones(&files(&[
        ("intel-rapl:0/name", "package-0"),
        ("intel-rapl:0/energy_uj", "-3"),
    ]));
    assert!(matches!(odd, Err(Cause::Nonsense(_))), "{odd:?}");
    let hidden = rapl::zones(&files(&[("intel-rapl:0/name", "package-0")]));
    assert_eq!(hidden.map(|zones| zones.len()), Ok(0), "what only root may read");
}

/// A reading of a server with one package, taken `seconds` after `from`. The counter wraps around
/// at 262 kJ.
fn counters(from: Instant, seconds: u64, energy_uj: u64, boot: &str) -> rapl::Counters {
    let zone = rapl::Zone { name: "package-0".to_owned(), energy_uj, range_uj: 262_143_328_850 };
    let zones = [("intel-rapl:0".to_owned(), zone)].into_iter().collect();
    rapl::Counters { at: from + Duration::from_secs(seconds), boot: Some(boot.to_owned()), zones }
}

#[test]
fn restarted_counters_are_not_wraparounds() {
    let from = Instant::now();
    let first = counters(from, 0, 100_000_000_000, "a");
    let used = |now: &rapl::Counters| rapl::used_by_all(&first, now);
    assert_eq!(used(&counters(from, 1, 100_200_000_000, "a")), Ok(200_000_000));
    let result = used(&counters(from, 1, 5_000, "a")).expect_err("162 kJ in a second");
    assert!(
        matches!(result, Cause::Restarted(_))
            && result.to_string().contains("intel-rapl:0 (package-0)"),
        "{result}"
    );
    assert!(used(&counters(from, 1, 200_000_000_000, "a")).is_err(), "100 kJ in a second, upwards");
    // After a pause that is long enough for a restart, the power would be plausible. Only the boot
    // id differs.
    assert!(used(&counters(from, 300, 5_000, "a")).is_ok(), "540 W for five minutes");
    let result =
        used(&counters(from, 300, 5_000, "b")).expect_err("another run of the kernel").to_string();
    assert!(result.contains("the server has restarted"), "{result}");
    let mut less = counters(from, 1, 100_200_000_000, "a");
    less.zones.clear();
    assert!(
        used(&less)
            .expect_err("a counter is gone")
            .to_string()
            .contains("its counters were intel-rapl:0, and are ")
    );
}

proptest! {
    #[test]
    fn wraparounds_lose_no_energy(
        range in 1_u64..1 << 40,
        start in 0_u64..1 << 40,
        steps in prop::collection::vec(0.0..1.0_f64, 1..20),
    ) {
        let zone = |energy_uj| {
            rapl::Zone { name: "package-0".to_owned(), energy_uj, range_uj: range }
        };
        let (mut at, mut total, mut seen) = (start % range, 0_u64, 0_u64);
        for step in steps {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the range")]
            let step = (step * range as f64) as u64 % range;
            let next = (at + step) % range;
            let elapsed = Duration::from_secs(600);
            seen += rapl::used(&zone(at), &zone(next), elapsed).expect("less than 2 kW");
            total += step;
            at = next;
        }
        prop_assert_eq!(seen, total);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}", lines in "(PSU1|Total)? *\\|? *[0-9a-z.]{0,6} *\\| \
        *Watts *\\| *ok") {
        let _ = command_watts(&text);
        let _ = ipmi::dcmi(&text);
        let _ = ipmi::channels(&text);
        let _ = ipmi::channels(&lines);
        let value = serde_json::from_str(&text).unwrap_or_else(|_| json!({ "Members": text }));
        let _ = (plug::shelly(&value), plug::tasmota(&value));
        let _ = (redfish::members(&value, "https://bmc"), redfish::power(&value));
    }
}

#[test]
fn hwmon_channels_are_chosen_by_name() {
    let board = files(&[
        ("hwmon0/name", "acpi"),
        ("hwmon0/temp1_input", "40000"),
        ("hwmon1/name", "ina3221"),
        ("hwmon1/power1_input", "36250000"),
        ("hwmon1/power1_average", "36000000"),
        ("hwmon1/power1_label", "VDD_IN"),
        ("hwmon1/power2_average", "8000000"),
        ("hwmon1/power2_cap", "9000000"),
        ("hwmon1/powerx_input", "1"),
    ]);
    let channels = hwmon::channels(&board).expect("a board");
    let result: Vec<_> =
        channels.iter().map(|channel| (channel.name.as_str(), channel.watts.0)).collect();
    assert_eq!(result, [("ina3221/VDD_IN", 36.25), ("ina3221/power2", 8.0)]);
    let sum_of = |names: &[&str]| {
        sum(&channels, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), "none")
    };
    assert_eq!(sum_of(&["ina3221/power2", "ina3221/VDD_IN"]), Ok(Watts(44.25)));
    let several = Cause::Several {
        key: "channels",
        all: vec!["ina3221/VDD_IN".to_owned(), "ina3221/power2".to_owned()],
    };
    assert_eq!(sum_of(&[]), Err(several.clone()), "one may be a part of the other");
    assert_eq!(sum_of(&["VDD"]), Err(several));
    assert_eq!(sum(&channels[..1], &[], "none"), Ok(Watts(36.25)));
    assert_eq!(sum(&[], &[], "none"), Err(Cause::Absent("none".to_owned())));
}

#[test]
fn ipmi_power_by_dcmi_or_sensors() {
    let text = "\n    Instantaneous power reading:                   212 Watts\n    Minimum during \
                sampling period:                  4 Watts\n    \
                IPMI timestamp:                           Thu Jan  1 00:00:00 1970\n    Power \
                reading state is:                   activated\n";
    assert_eq!(ipmi::dcmi(text), Ok(Some(Watts(212.0))));
    assert_eq!(ipmi::dcmi(&text.replace("activated", "deactivated")), Ok(None));
    assert_eq!(ipmi::dcmi("DCMI request failed because: Invalid command (c1)"), Ok(None));
    assert!(matches!(
        ipmi::dcmi("Instantaneous power reading: many Watts"),
        Err(Cause::Nonsense(_))
    ));
    let sensors = "Inlet Temp       | 23.000     | degrees C  | ok    | na\n\
                   Pwr Consumption  | 168.000    | Watts      | ok    | na        | na\n\
                   PSU2 Input       | na         | Watts      | na    | na\nnothing\n";
    let expected = Channel { name: "Pwr Consumption".to_owned(), watts: Watts(168.0) };
    assert_eq!(ipmi::channels(sensors), Ok(vec![expected]));
    assert!(matches!(ipmi::channels("x | 0x80 | Watts | ok"), Err(Cause::Nonsense(_))));
}

#[test]
fn redfish_resources_are_parsed() {
    let old = json!({ "PowerControl": [{ "Name": "Chassis", "PowerConsumedWatts": null }, { "PowerConsumedWatts": 344.5 }, { "PowerConsumedWatts": 90 }] });
    assert_eq!(redfish::power(&old), Ok(None), "those after the first are parts of it");
    let whole =
        json!({ "PowerControl": [{ "PowerConsumedWatts": 344.5 }, { "PowerConsumedWatts": 90 }] });
    assert_eq!(redfish::power(&whole), Ok(Some(Watts(344.5))));
    assert_eq!(
        redfish::power(&json!({ "PowerControl": [{ "PowerConsumedWatts": "123" }] })),
        Ok(Some(Watts(123.0)))
    );
    let supplies = |second| json!({ "PowerControl": [{}], "PowerSupplies": [{ "PowerInputWatts": 80.0 }, second] });
    assert_eq!(redfish::power(&supplies(json!({ "PowerInputWatts": 40 }))), Ok(Some(Watts(120.0))));
    let absent = json!({ "PowerInputWatts": null, "Status": { "State": "Absent" } });
    assert_eq!(redfish::power(&supplies(absent)), Ok(Some(Watts(80.0))));
    let result = redfish::power(&supplies(json!({ "Name": "PSU2" })))
        .expect_err("a part is not the whole")
        .to_string();
    assert!(result.contains("\"PSU2\" reports no power"), "{result}");
    assert_eq!(redfish::power(&json!({ "PowerControl": [] })), Ok(None));
    assert!(redfish::power(&json!({ "PowerControl": [{ "PowerConsumedWatts": -4 }] })).is_err());
    assert_eq!(
        redfish::environment(&json!({ "PowerWatts": { "Reading": 36 } })),
        Ok(Some(Watts(36.0)))
    );
    assert_eq!(redfish::supply(&json!({ "InputPowerWatts": { "Reading": null } })), Ok(None));
    let list = json!({ "Members": [{ "@odata.id": "/redfish/v1/Chassis/1U" }] });
    let at = "https://bmc";
    assert_eq!(redfish::members(&list, at), Ok(vec!["/redfish/v1/Chassis/1U".to_owned()]));
    for path in [
        "http://elsewhere/redfish/v1",
        "/redfish/v1/a b",
        "/etc/passwd",
        "https://bmc.evil/redfish/v1",
    ] {
        assert!(
            redfish::members(&json!({ "Members": [{ "@odata.id": path }] }), at).is_err(),
            "{path}"
        );
    }
    for link in ["/redfish/v1/p", "https://bmc/redfish/v1/p"] {
        let value = json!({ "Power": { "@odata.id": link } });
        assert_eq!(redfish::link(&value, "Power", at).as_deref(), Some("/redfish/v1/p"));
    }
}

#[test]
fn plugs_and_programs_are_parsed() {
    assert_eq!(
        plug::shelly(&json!({ "id": 0, "output": true, "apower": -8.9, "voltage": 230 })),
        Ok(Watts(8.9))
    );
    assert!(matches!(plug::shelly(&json!({ "id": 0, "output": true })), Err(Cause::Absent(_))));
    let energy = |power| json!({ "StatusSNS": { "ENERGY": { "Total": 3.2, "Power": power } } });
    assert_eq!(plug::tasmota(&energy(json!(13))), Ok(Watts(13.0)));
    assert_eq!(plug::tasmota(&energy(json!([13, 4.5]))), Ok(Watts(17.5)));
    assert!(plug::tasmota(&energy(json!([13, "x"]))).is_err());
    for (text, watts) in
        [("36.2\n", 36.2), ("\n 36200 mW\nmore", 36.2), ("0.0362kW", 36.2), ("36 W", 36.0)]
    {
        assert!((command_watts(text).expect(text).0 - watts).abs() < 1e-9, "{text:?}");
    }
    for text in ["", "watts", "-3", "3 dB", "1e9", "99999999", "nan", "1.2.3"] {
        assert!(command_watts(text).is_err(), "{text:?}");
    }
}
