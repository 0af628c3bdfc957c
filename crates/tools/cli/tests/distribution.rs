//! Tests `bench distribution` and `bench jitter` by their binary. A few samples suffice to show
//! that the commands work.

use crate::support;
use std::fs;

use serde_json::Value;
use support::run;

#[test]
fn a_distribution_is_measured_written_and_set_beside_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut files = Vec::new();
    for (label, op) in [("one host", "read"), ("another", "write")] {
        let out = path(&format!("{op}.json"));
        let args = [
            "--over",
            "fast+udp,tcp",
            "--samples",
            "3000",
            "--rounds",
            "2",
            "--label",
            label,
            "--op",
            op,
        ];
        let ran = run(&[&["bench", "distribution", "--out", &out][..], &args].concat());
        let stdout = ran.ok();
        for word in [
            "fast+udp",
            "tcp",
            "p99.9",
            "interrupts set apart too",
            label,
            "jitter meter",
            "3000 over each path",
        ] {
            assert!(stdout.contains(word), "no {word:?} in:\n{stdout}");
        }
        let json: Value =
            serde_json::from_str(&fs::read_to_string(&out).expect("results")).expect("JSON");
        assert_eq!(json["label"], label);
        let paths = json["paths"].as_array().expect("paths");
        assert_eq!(paths.len(), 2);
        for path in paths {
            let samples = &path["samples"];
            assert_eq!(samples["server_tells"], true, "a server of our own is timed");
            let count = |name: &str| -> u64 {
                let counts = samples[name].as_array().expect("counts");
                counts.iter().map(|pair| pair[1].as_u64().expect("a count")).sum()
            };
            assert_eq!(count("latencies"), 3000, "every operation counts once");
        }
        let html = fs::read_to_string(path(&format!("{op}.html"))).expect("a report");
        assert!(html.matches("<svg").count() >= 2 && html.contains("share that took longer"));
        files.push(out);
    }
    let (html, compare) = (path("both.html"), &files[..]);
    let ran =
        run(&["bench", "distribution", "--html", &html, "--compare", &compare[0], &compare[1]]);
    let stdout = ran.ok();
    for word in ["one host, fast+udp", "another, tcp", "100 B write"] {
        assert!(stdout.contains(word), "no {word:?} in:\n{stdout}");
    }
    assert!(fs::read_to_string(&html).expect("a report").contains("another, fast+udp"));
}

#[test]
fn unmeasurable_and_unreadable_targets_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.json").display().to_string();
    fs::write(&other, "{\"rows\": []}").expect("written");
    let odd = run(&["bench", "distribution", "--compare", &other]);
    assert!(odd.code != Some(0) && odd.stderr.contains("other.json"), "{}", odd.stderr);
    let (good, bad) = (folder.path().join("good.json"), folder.path().join("bad.json"));
    let [out, damaged] = [&good, &bad].map(|path| path.display().to_string());
    run(&[
        "bench",
        "distribution",
        "--over",
        "tcp",
        "--samples",
        "100",
        "--rounds",
        "1",
        "--out",
        &out,
    ])
    .ok();
    let mut json: Value =
        serde_json::from_str(&fs::read_to_string(&good).expect("results")).expect("JSON");
    json["paths"][0]["samples"]["examined"] = serde_json::json!([[77, "cleaner"]]);
    fs::write(&bad, json.to_string()).expect("written");
    let odd = run(&["bench", "distribution", "--compare", &damaged]);
    assert!(odd.code != Some(0) && odd.stderr.contains("never counted"), "{}", odd.stderr);
    let locator = "tcp:host=127.0.0.1,port=1";
    let unanswered = run(&["bench", "distribution", "-C", locator, "--out", &out]);
    assert!(
        unanswered.code != Some(0)
            && unanswered.stderr.contains(&format!("no cluster answers at {locator}")),
        "{}",
        unanswered.stderr
    );
    if cfg!(not(feature = "dpdk")) {
        let without = run(&["bench", "distribution", "--over", "virtio", "--out", &out]);
        assert!(
            without.code != Some(0) && without.stderr.contains("docs/bypass.md"),
            "{}",
            without.stderr
        );
    }
}

#[test]
fn the_jitter_of_a_core_is_reported() {
    let ran = run(&["bench", "jitter", "--cores", "0", "--seconds", "0.1", "--json"]);
    let json: Value = serde_json::from_str(ran.ok()).expect("JSON");
    let meters = json["meters"].as_array().expect("meters");
    assert_eq!(meters.len(), 1);
    assert_eq!(meters[0]["core"], 0);
    assert!(meters[0]["seconds"].as_f64().expect("a time") > 0.0);
    assert!(
        run(&["bench", "jitter", "--cores", "0", "--seconds", "0.05"])
            .ok()
            .contains("beyond 50 us")
    );
    let odd = run(&["bench", "jitter", "--cores", "100000"]);
    assert!(odd.code != Some(0) && odd.stderr.contains("core 100000"), "{}", odd.stderr);
}
