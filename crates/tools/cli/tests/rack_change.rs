//! Tests that a running rack can be inspected and changed, and that each fault is explained. The
//! hosts are network namespaces made by the test, each with a real Cassandra.

use crate::support;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::process::Command;
use support::racks::{Rack, text};

fn describe(rack: &Rack, yaml: &str) {
    let more = format!(
        "[cassandra]\nreplication = 2\ntokens = 2\nyaml = {{ {yaml} }}\n\
         java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
         \"-Dcassandra.ring_delay_ms=2000\"]\n"
    );
    rack.describe(2, &more);
}

/// Returns the exit code of `status`, and the process state and ring state of each instance.
fn statuses(rack: &Rack) -> (Option<i32>, Vec<(String, String)>) {
    let (code, all) = rack.statuses();
    (code, all.into_iter().map(|[_, process, state]| (process, state)).collect())
}

fn both(process: &str, state: &str) -> (String, String) {
    (process.to_owned(), state.to_owned())
}

#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn a_rack_is_changed_one_by_one_and_its_faults_have_names() {
    let Some(rack) = Rack::new("changing a real rack", 'c') else { return };
    describe(&rack, "");

    // The error names a process that listens on an instance's address, and the process is not
    // disturbed. The hosts exist by then.
    let first = rack.run(&["up", "--limit", "c0-n9"]);
    assert!(!first.status.success(), "{}", text(&first.stdout));
    let taken = rack.within("c0-n1", || TcpListener::bind("0.0.0.0:9042").expect("a port"));
    let report = rack.refused(&["up"]);
    assert!(
        report.contains("c0-n1: ") && report.contains("port 9042 of 10.0.0.3 is taken by "),
        "{report}"
    );
    assert!(report.contains("stop who listens there"), "{report}");
    drop(taken);

    // The hosts refuse our SSH key.
    let (key, kept) = (rack.state("key"), rack.state("key-kept"));
    fs::rename(&key, &kept).expect("the key");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.expect("ssh-keygen").success());
    let report = rack.refused(&["up"]);
    assert!(
        report.contains("c0-n1: ssh: it rejected our ssh key: add your public key"),
        "{report}"
    );
    fs::rename(&kept, &key).expect("the key");
    fs::remove_file(rack.state("key.pub")).expect("its public key");

    // `up` is killed in the middle. The next run completes it.
    let mut half = rack.command(&["up"]).spawn().expect("the binary runs");
    while !rack.home("c0-n1").join("run/pid").exists() {
        assert!(
            half.try_wait().expect("a child").is_none(),
            "it ended before an instance had started"
        );
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&half), Signal::TERM).expect("it runs");
    assert_eq!(half.wait().expect("it ends").code(), Some(130), "and the play with it");
    rack.ok(&["up"]);
    assert_eq!(statuses(&rack), (Some(0), vec![both("running", "UN"), both("running", "UN")]));

    // An instance that has just died is reported at once, whatever the other instance still
    // believes. A rolling restart then stops no instance.
    rack.kill("c0-n2");
    let (code, all) = statuses(&rack);
    assert_eq!(
        (code, all[0].clone(), all[1].0.as_str()),
        (Some(6), both("running", "UN"), "stopped")
    );
    let report = rack.refused(&["rolling", "restart"]);
    assert!(
        report.contains("c0-n2-i1 does not run") && report.contains("nothing was changed"),
        "{report}"
    );
    rack.ok(&["up"]);

    // An instance that has lost its data is not started, because it would answer queries as if the
    // lost rows had never existed.
    rack.kill("c0-n2");
    let home = rack.home("c0-n2");
    let parts =
        ["data", "commitlog"].map(|part| (home.join(part), home.join(format!("{part}-kept"))));
    parts.iter().for_each(|(part, kept)| fs::rename(part, kept).expect("it had data"));
    let report = rack.refused(&["up"]);
    assert!(
        report.contains("c0-n2-i1 has been up as a member of the ring, and its data are gone"),
        "{report}"
    );
    assert!(report.contains("sprat rack replace FILE c0-n2-i1"), "{report}");
    assert_eq!(statuses(&rack).1[1].0, "stopped");
    parts.iter().for_each(|(part, kept)| fs::rename(kept, part).expect("it was not created again"));
    rack.ok(&["up"]);

    // New settings reach the running instances one by one, whether or not `up` ran before.
    describe(&rack, "concurrent_reads = 17");
    let before = [rack.pid("c0-n1"), rack.pid("c0-n2")];
    rack.ok(&["up"]);
    assert_eq!(
        [rack.pid("c0-n1"), rack.pid("c0-n2")],
        before,
        "running instances are not restarted"
    );
    let report = rack.ok(&["rolling", "config", "--check"]);
    assert!(report.contains("2 of 2 would be restarted"), "{report}");
    let report = rack.ok(&["rolling", "config", "--limit", "c0-n2"]);
    assert!(report.contains("c0-n2-i1 restarted\n1 of 1 restarted"), "{report}");
    assert!(rack.pid("c0-n1") == before[0] && rack.pid("c0-n2") != before[1]);
    let report = rack.ok(&["rolling", "config"]);
    assert!(
        report.contains("c0-n1-i1 restarted\nc0-n2-i1 is up to date\n1 of 2 restarted"),
        "{report}"
    );
    assert_eq!(statuses(&rack).0, Some(0));

    // Two commands at once would undo each other's changes.
    let lock = fs::File::open(rack.state("lock")).expect("a lock");
    lock.lock().expect("no command has the lock");
    assert!(rack.refused(&["up"]).contains("another run is changing this rack"));
    drop(lock);

    // A host's cable is pulled. The other hosts are still reported correctly.
    let netns = format!("{}-c0-n2", rack.name);
    let cut = Command::new("ip").args(["-n", &netns, "link", "set", "eth0", "down"]).status();
    assert!(cut.expect("iproute2").success());
    let (code, all) = statuses(&rack);
    assert_eq!((code, all[0].0.as_str(), all[1].0.as_str()), (Some(6), "running", "unreachable"));
    let report = rack.refused(&["up"]);
    assert!(
        report.contains(
            "c0-n2: ssh: it cannot be reached: check that it runs, and its cable and address"
        ),
        "{report}"
    );
}
