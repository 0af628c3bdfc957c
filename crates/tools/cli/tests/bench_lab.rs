//! Tests `sprat bench lab` by its binary. The command makes its hosts itself.

use crate::support;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use support::{run, skip, sprat};

/// Returns the arguments for some chapters. Results are written to `folder`.
fn arguments(folder: &Path, only: &str) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let flags = [
        "--only",
        only,
        "--seconds",
        "0.05",
        "--out",
        &file("rows.json"),
        "--html",
        &file("report.html"),
    ];
    ["bench", "lab"].iter().chain(&flags).map(ToString::to_string).collect()
}

fn rows(folder: &Path) -> Vec<Value> {
    let text = fs::read(folder.join("rows.json")).expect("rows");
    serde_json::from_slice::<Value>(&text).expect("JSON").as_array().expect("rows").clone()
}

#[track_caller]
fn ours(rows: &[Value], name: &str) -> f64 {
    let row = rows
        .iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no {name:?} in {rows:?}"));
    row["ours"].as_f64().unwrap_or_else(|| panic!("{row} was not measured"))
}

/// Returns why the benchmark cannot run on this machine, if it cannot.
fn refused(rows: &[Value]) -> Option<&str> {
    let name = rows.first()?["name"].as_str()?;
    ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "/dev/net/tun", "iproute2"]
        .iter()
        .any(|word| name.contains(word))
        .then_some(name)
}

#[test]
fn delays_are_measured_between_hosts_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = arguments(folder.path(), "delay");
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    let rows = rows(folder.path());
    if let Some(why) = refused(&rows) {
        return skip(&format!("sprat bench lab: {why}"));
    }
    for round_trip in [0, 1, 50, 200, 500] {
        let off = |what: &str| {
            ours(&rows, &format!("{round_trip} ms round trip: {what} of pings off by"))
        };
        // The size of the errors depends on the machine.
        assert!((0.0..=off("mean")).contains(&off("minimum")), "{rows:?}");
    }
    assert!(ours(&rows, "pings that overtook others").abs() < 1e-9, "{rows:?}");
    let html = fs::read_to_string(folder.path().join("report.html")).expect("a report");
    assert!(html.contains("Round trips by ICMP echo"), "{html}");
}

#[test]
fn the_switch_departs_as_computed() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = arguments(folder.path(), "switch");
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    let rows = rows(folder.path());
    for how in ["store-and-forward", "cut-through"] {
        let name = format!("switch, {how}, 64 to 9018 B at 10 Gb/s: off the model by at most");
        assert!(ours(&rows, &name) <= 1.0, "{rows:?}");
    }
    let last = rows.last().expect("rows");
    if ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "/dev/net/tun", "iproute2"]
        .iter()
        .any(|word| last.to_string().contains(word))
    {
        return skip(&format!("sprat bench lab: {}", last["name"]));
    }
    assert!(
        (ours(&rows, "5 ports of 0.2 Gb/s, all to all: streams that flow") - 20.0).abs() < 1e-9,
        "{rows:?}"
    );
}

#[test]
fn missing_privileges_are_named_in_a_row() {
    const UNPRIVILEGED: u32 = 65_534;
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    let ran = sprat()
        .args(arguments(folder.path(), "delay"))
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED)
        .output();
    match ran {
        Ok(ran) if ran.status.success() => {
            let rows = rows(folder.path());
            assert!(refused(&rows).is_some(), "{rows:?}");
            assert_eq!(rows[0]["met"], false, "{rows:?}");
        }
        other => skip(&format!("sprat bench lab without rights: {other:?}")),
    }
}
