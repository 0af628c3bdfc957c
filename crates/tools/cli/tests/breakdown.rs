//! Tests `bench breakdown` by its binary: it reports times and events by stage, or why there are
//! none.

use crate::support;
use std::fs;

use serde_json::Value;
use support::{run, skip};

/// Runs the breakdown over TCP, counting `events`. Returns its rows, its standard error and its
/// HTML report.
fn breakdown(events: &str) -> (Vec<Value>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let [out, html] =
        ["rows.json", "report.html"].map(|name| folder.path().join(name).display().to_string());
    let args = [
        "bench",
        "breakdown",
        "--only",
        "tcp",
        "--rounds",
        "1",
        "--seconds",
        "0.1",
        "--count",
        events,
    ];
    let ran = run(&[&args[..], &["--out", &out, "--html", &html]].concat());
    ran.ok();
    let rows: Value = serde_json::from_slice(&fs::read(&out).expect("rows")).expect("JSON");
    let html = fs::read_to_string(&html).expect("a report");
    (rows.as_array().expect("rows").clone(), ran.stderr, html)
}

#[track_caller]
fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name:?} in {rows:?}"))
}

#[test]
fn events_are_counted_by_stage() {
    let (rows, output, html) = breakdown("task-clock,page-faults");
    let time = row(&rows, "100 B read, tcp: server code")["ours"].as_f64();
    assert!(time.is_some_and(|us| us > 0.0), "{rows:?}");
    for end in ["client", "server"] {
        let clock = row(&rows, &format!("100 B read, tcp: {end} code, task-clock"));
        let faults = row(&rows, &format!("100 B read, tcp: {end} code, page-faults"));
        if let Some(why) = clock["missing"].as_str() {
            assert!(
                clock["ours"].is_null()
                    && why.contains("perf_event_open: ")
                    && output.contains(why),
                "{why}"
            );
            return skip(&format!("events by stage: {why}"));
        }
        assert!(clock["ours"].as_f64().is_some_and(|ns| ns > 0.0 || end == "client"), "{clock}");
        // Memory that has been used before causes no page faults.
        assert!(faults["ours"].as_f64().is_some_and(|faults| faults < 1.0), "{faults}");
    }
    for word in [
        "task-clock by stage over tcp",
        "page-faults by stage over tcp",
        "S: parse",
        "1048576 B write",
    ] {
        assert!(html.contains(word) && output.contains(word), "no {word:?} in:\n{output}");
    }
}

#[test]
fn hardware_events_are_counted_or_explained() {
    let (rows, output, html) = breakdown("instructions");
    let mut unavailable = None;
    for end in ["client", "server"] {
        let counted = row(&rows, &format!("100 B read, tcp: {end} code, instructions"));
        match counted["missing"].as_str() {
            // Any code takes dozens of instructions.
            None => assert!(
                counted["ours"].as_f64().is_some_and(|instructions| instructions > 50.0),
                "{counted}"
            ),
            Some(why) => {
                assert!(
                    counted["ours"].is_null() && why.contains("perf_event_open: "),
                    "{counted}"
                );
                assert!(output.contains(why) && html.contains("perf_event_open: "), "{output}");
                unavailable = Some(why);
            }
        }
    }
    if let Some(why) = unavailable {
        skip(&format!("instructions by stage: {why}"));
    }
}

#[test]
fn an_unknown_event_is_refused() {
    for command in
        [&["bench", "breakdown", "--count", "dirhams"][..], &["server", "--counted", "dirhams"]]
    {
        let odd = run(command);
        assert!(odd.code == Some(2) && odd.stderr.contains("task-clock"), "{}", odd.stderr);
    }
}
