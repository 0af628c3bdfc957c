//! Tests that instances join a ring under load, and leave it cleanly or not. The hosts are network
//! namespaces made by the test, each with a real Cassandra.
#![allow(clippy::disallowed_methods, reason = "a test that waits for other processes")]

use crate::support;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::racks::{Rack, text};

/// Long enough for all instances to see a change.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of keys: few, so that each key is written many times.
const KEYS: &str = "300";

const MORE: &str = "[cassandra]\nreplication = 2\ntokens = 4\n\
    java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
    \"-Dcassandra.ring_delay_ms=4000\"]\n";

/// Returns the names of the instances. All must be up and normal.
fn ring(rack: &Rack) -> Vec<String> {
    let (code, all) = rack.statuses();
    assert_eq!(code, Some(0), "{all:?}");
    all.into_iter().map(|[name, ..]| name).collect()
}

fn tokens(rack: &Rack, host: &str) -> String {
    let yaml =
        fs::read_to_string(rack.home(host).join("conf/cassandra.yaml")).expect("its settings");
    yaml.lines().find(|line| line.starts_with("initial_token")).expect("it has tokens").to_owned()
}

/// Starts a command, and kills it as soon as `condition` holds.
fn cut_short(rack: &Rack, what: &[&str], condition: impl Fn() -> bool) {
    let mut half = rack.command(what).stdout(Stdio::null()).spawn().expect("the binary runs");
    while !condition() {
        assert!(
            half.try_wait().expect("a child").is_none(),
            "{what:?} ended before it was to be cut short"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    half.kill().expect("it runs");
    half.wait().expect("it ends");
}

/// Reads many keys, and returns the number of reads that found nothing.
fn not_found(rack: &Rack) -> u64 {
    let read = rack.run(&[
        "load",
        "--rate",
        "100",
        "--duration",
        "8s",
        "--keys",
        KEYS,
        "--reads",
        "100%",
        "--json",
    ]);
    let report: Value =
        serde_json::from_slice(&read.stdout).unwrap_or_else(|error| panic!("{error}: {read:?}"));
    assert!(report["report"]["done"].as_u64().expect("a number") > 300, "{report}");
    report["report"]["found_nothing"].as_u64().expect("a number")
}

fn end_load(mut load: Child) -> Value {
    let pid = Pid::from_raw(i32::try_from(load.id()).expect("a number")).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    let mut stdout = String::new();
    std::io::Read::read_to_string(&mut load.stdout.take().expect("piped"), &mut stdout)
        .expect("text");
    load.wait().expect("it ends");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn instances_come_and_go_and_no_row_is_lost() {
    let Some(rack) = Rack::new("a ring that grows", 'a') else { return };
    rack.describe(3, MORE);
    assert!(rack.refused(&["add"]).contains("`sprat rack up` creates it"));
    rack.ok(&["up"]);
    let before = ["c0-n1", "c0-n2", "c0-n3"].map(|host| (tokens(&rack, host), rack.pid(host)));
    let mut load = rack.command(&[
        "load",
        "--rate",
        "60",
        "--duration",
        "1h",
        "--keys",
        KEYS,
        "--reads",
        "20%",
        "--verify",
        "--json",
    ]);
    let load = load.stdout(Stdio::piped()).spawn().expect("the binary runs");

    // With a further server in the description, no instance starts with tokens of others, and
    // `--check` reports which instances would join.
    rack.describe(4, MORE);
    let up = rack.run(&["up"]);
    assert!(
        up.status.success()
            && text(&up.stderr).contains("c0-n4-i1 is not on the ring: run `sprat rack add`"),
        "{up:?}"
    );
    assert_eq!(ring(&rack), ["c0-n1-i1", "c0-n2-i1", "c0-n3-i1"]);
    let report = rack.ok(&["add", "--check"]);
    assert!(report.contains("c0-n4-i1 would join as 10.0.0.9, with 4 tokens and "), "{report}");
    assert!(!rack.state("hosts/c0-n4").exists(), "nothing is changed");

    // The next `add` continues one that was killed in the middle. Earlier instances keep their
    // tokens, and are never stopped.
    cut_short(&rack, &["add"], || rack.home("c0-n4").join("run/pid").exists());
    let report: Value = serde_json::from_str(&rack.ok(&["add", "--json"])).expect("JSON");
    assert_eq!(report["joined"][0]["name"], "c0-n4-i1", "{report}");
    assert_eq!(report["cleaned"], serde_json::json!(["c0-n1-i1", "c0-n2-i1", "c0-n3-i1"]));
    assert_eq!(ring(&rack), ["c0-n1-i1", "c0-n2-i1", "c0-n3-i1", "c0-n4-i1"]);
    assert_eq!(
        ["c0-n1", "c0-n2", "c0-n3"].map(|host| (tokens(&rack, host), rack.pid(host))),
        before
    );
    assert!(rack.ok(&["add"]).contains("nothing to add: every instance is on the ring"));
    assert_eq!(not_found(&rack), 0, "all rows are there");

    // An instance is removed cleanly. The first attempt is killed in the middle.
    assert!(rack.refused(&["remove", "c0-n9"]).contains("the ring has no such server or instance"));
    assert!(
        rack.refused(&["remove", "c0-n2", "--gone"]).contains("c0-n2-i1 runs: leave out --gone")
    );
    assert!(rack.ok(&["remove", "c0-n2", "--check"]).contains("c0-n2-i1 would leave the ring"));
    let leaves = || {
        fs::read_to_string(rack.state("members.json")).is_ok_and(|text| text.contains("leaving"))
    };
    cut_short(&rack, &["remove", "c0-n2-i1"], leaves);
    assert!(
        rack.refused(&["up"])
            .contains("c0-n2-i1 is leaving the ring: continue with `sprat rack remove`")
    );
    let report = rack.ok(&["remove", "c0-n2-i1"]);
    assert!(
        report.contains(
            "c0-n2-i1 has left the ring; its data is kept on its server\n1 removed, 3 remain"
        ),
        "{report}"
    );
    assert_eq!(ring(&rack), ["c0-n1-i1", "c0-n3-i1", "c0-n4-i1"]);
    let kept = fs::read_dir(rack.home("c0-n2"))
        .expect("its folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(
        kept.into_iter().any(|name| name.starts_with("kept-"))
            && !rack.home("c0-n2").join("data").exists()
    );
    assert_eq!(rack.changes(&["up"]), [0, 0, 0], "instances that have left are not changed");
    assert!(rack.ok(&["remove", "c0-n2"]).contains("c0-n2 has already left the ring"));
    assert_eq!(not_found(&rack), 0, "all rows are there");
    let report = end_load(load);
    assert_eq!(
        (&report["verified"]["lost_keys"], &report["verified"]["checked"]),
        (&0.into(), &300.into()),
        "{}",
        report["verified"]
    );

    // A removal that would leave too few instances is refused. The removal of a dead instance loses
    // no rows.
    assert!(
        rack.refused(&["remove", "c0-n1"])
            .contains("2 instances would stay, and Cassandra keeps 3 replicas of its own tables")
    );
    rack.kill("c0-n4");
    assert!(rack.refused(&["remove", "c0-n4"]).contains("if it is lost for good, give --gone"));
    let report = rack.refused(&["remove", "c0-n1", "--gone"]);
    assert!(
        report.contains("the instances that stay must be well")
            && report.contains("c0-n4-i1 does not run"),
        "{report}"
    );
    let begun = Instant::now();
    let report = loop {
        let gone = rack.run(&["remove", "c0-n4", "--gone", "--purge"]);
        if gone.status.success() {
            break text(&gone.stdout);
        }
        assert!(text(&gone.stderr).contains("the others see c0-n4-i1 up"), "{gone:?}");
        assert!(begun.elapsed() < PATIENCE, "{gone:?}");
        std::thread::sleep(Duration::from_secs(1));
    };
    assert!(
        report.contains("c0-n4-i1 has left the ring; its data is deleted\n1 removed, 2 remain"),
        "{report}"
    );
    assert!(!rack.home("c0-n4").exists());
    assert_eq!(ring(&rack), ["c0-n1-i1", "c0-n3-i1"]);
    assert_eq!(not_found(&rack), 0, "all rows are there");

    // An instance that has left rejoins only by name.
    assert!(rack.ok(&["add"]).contains("every instance is on the ring, or was removed from it"));
    assert!(rack.ok(&["add", "c0-n2"]).contains("c0-n2-i1 joined as 10.0.0.5, with 4 tokens"));
    assert_eq!(ring(&rack), ["c0-n1-i1", "c0-n2-i1", "c0-n3-i1"]);
    assert_eq!(not_found(&rack), 0, "all rows are there");
}
