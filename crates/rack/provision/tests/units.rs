//! Tests that systemd keeps a rack's instances running, on a guest (a virtual machine) with a real
//! Cassandra.
#![allow(dead_code, reason = "of what there is of guests this uses a part")]

use crate::guest;
use guest::Rack;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a guest with one slow core may take.
const PATIENCE: Duration = Duration::from_secs(240);

const MORE: &str = "[cassandra]\ninstances = 1\nreplication = 1\ntokens = 2\nheap = \"256MiB\"\n\
    java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \"-Dcassandra.ring_delay_ms=2000\"]\n";

const UNIT: &str = "sprat-cassandra@c0-n1-i1.service";

/// Runs a command until it prints this answer.
#[track_caller]
fn becomes(rack: &Rack, command: &str, answer: &str) {
    let begun = Instant::now();
    loop {
        let output = rack.try_ask(0, command).unwrap_or_default();
        if output == answer {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{command}: {output:?} instead of {answer:?}");
        sleep(Duration::from_millis(500));
    }
}

#[test]
#[ignore = "starts a guest, and Cassandra in it: make test-rack"]
fn systemd_keeps_instances() {
    let Some(rack) = Rack::of(1, "1GiB", MORE) else { return };
    let home = rack.hosts[0].instances[0].home.display().to_string();
    assert!(rack.changed(&[])[0] > 0);
    assert_eq!(
        rack.ask(0, &format!("systemctl is-active {UNIT}; systemctl is-enabled {UNIT}")),
        "active\nenabled"
    );
    let pid = rack.ask(0, &format!("systemctl show --property MainPID --value {UNIT}"));
    assert_eq!(
        rack.ask(0, &format!("{home}/instance status")),
        format!("running: {pid}"),
        "systemd and the script agree"
    );
    let limits = rack.ask(
        0,
        &format!(
            "grep -E 'open files|locked memory' /proc/{pid}/limits | awk '{{print \
                          $(NF-2), $(NF-1)}}'"
        ),
    );
    assert_eq!(limits, "100000 100000\nunlimited unlimited");
    assert_eq!(rack.changed(&[]), [0], "nothing is left to change");
    assert!(rack.ask(0, &format!("{home}/nodetool status")).contains("UN  "));

    // systemd alone restarts an instance that died.
    rack.ask(0, &format!("kill -9 {pid}"));
    becomes(&rack, &format!("{home}/instance wait"), "answers");
    assert_ne!(rack.ask(0, &format!("cat {home}/run/pid")), pid);
    assert_eq!(rack.changed(&[]), [0], "systemd alone restarted it");

    // An instance starts with its host.
    rack.restart(0);
    becomes(&rack, &format!("{home}/instance wait"), "answers");

    // A stopped instance stays stopped, also when its host restarts.
    let (all, stopped) = rack.only("stop.yml", &[]);
    assert!(stopped.is_ok(), "{all}");
    let state = format!(
        "systemctl is-active {UNIT}; systemctl is-enabled {UNIT}; {home}/instance status || true"
    );
    assert_eq!(rack.ask(0, &format!("{state}; true")), "inactive\ndisabled\nnot running");
    rack.restart(0);
    assert_eq!(rack.ask(0, &format!("{state}; true")), "inactive\ndisabled\nnot running");
    assert_eq!(rack.changed(&[]), [1], "it is started again");
}
