//! Tests etcd and Sprat's servers on a rack, with the roles that Cassandra has. The hosts are
//! network namespaces made by the test. A client writes and reads while services die.

use crate::support;
use serde_json::Value;
use std::process::Command;
use support::racks::{Rack, text};

/// Extends the description. Each log has one replica, because two replicas would need three
/// servers: after a death no write would be acknowledged and no recovery would end.
const MORE: &str = "[etcd]\n[store]\ncoordinators = [\"c0-n1\", \"c0-n2\"]\nmemory = \
    \"128MB\"\ndisk = \"512MB\"\nreplicas = 1\n\
    arguments = [\"--idle\", \"sleep\"]\n";

/// Runs a client command as the rack's operator, in the control namespace, which reaches the hosts.
#[track_caller]
fn client(rack: &Rack, words: &[&str]) -> String {
    let control = format!("{}-ctl", rack.name);
    let at = "tcp:host=10.0.0.2,port=11100,tcp:host=10.0.0.3,port=11100";
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &control, env!("CARGO_BIN_EXE_sprat")])
        .args(words)
        .args(["-C", at]);
    let ran =
        command.env("SPRAT_IDENTITY", rack.state("keys/admin.id")).output().expect("iproute2");
    assert!(ran.status.success(), "{words:?}: {}\n{}", text(&ran.stdout), text(&ran.stderr));
    text(&ran.stdout)
}

/// Number of keys: enough that every server has some, since a hash decides each key's tablet.
const USERS: usize = 12;

fn put_all(rack: &Rack, drink: &str) {
    (0..USERS).for_each(|user| drop(client(rack, &["put", "users", &user.to_string(), drink])));
}

#[track_caller]
fn assert_all(rack: &Rack, drink: &str) {
    for user in 0..USERS {
        assert_eq!(client(rack, &["get", "users", &user.to_string()]), drink, "user {user}");
    }
}

/// Returns the exit code of `status`, and whether each service runs.
fn services(rack: &Rack) -> (Option<i32>, Vec<(String, bool)>) {
    let ran = rack.run(&["status", "--json"]);
    let report: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let one = |one: &Value| {
        (one["name"].as_str().expect("a name").to_owned(), one["process"] == "running")
    };
    (ran.status.code(), report["services"].as_array().expect("all").iter().map(one).collect())
}

fn kill(rack: &Rack, kind: &str, name: &str) {
    let host = &name[..5];
    let pid =
        std::fs::read_to_string(rack.state(&format!("hosts/{host}/srv/{kind}/{name}/run/pid")))
            .expect("it runs");
    let pid =
        rustix::process::Pid::from_raw(pid.trim().parse().expect("a number")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
}

#[test]
#[ignore = "starts etcd and Sprat on three hosts: make test-rack"]
fn the_store_is_on_a_rack() {
    let Some(rack) = Rack::new("the store on a rack", 's') else { return };
    if Command::new("etcd").arg("--version").output().is_err() {
        return support::skip("the store on a rack: there is no etcd here (scripts/setup)");
    }
    rack.describe(3, MORE);
    let first = rack.changes(&["up"]);
    assert!(first.iter().all(|changed| *changed > 0), "{first:?}");
    let all = [
        "c0-n1-etcd",
        "c0-n1-coordinator",
        "c0-n1-store",
        "c0-n2-etcd",
        "c0-n2-coordinator",
        "c0-n2-store",
        "c0-n3-etcd",
        "c0-n3-store",
    ];
    let run = |dead: &[&str]| all.map(|name| (name.to_owned(), !dead.contains(&name))).to_vec();
    assert_eq!(services(&rack), (Some(0), run(&[])));
    assert_eq!(rack.changes(&["up"]), [0, 0, 0], "a correct service is not changed");

    client(&rack, &["table", "create", "users"]);
    put_all(&rack, "tea");
    assert_all(&rack, "tea");
    let report: Value = serde_json::from_str(&client(&rack, &["status", "--json"])).expect("JSON");
    assert_eq!(report["servers"].as_array().expect("servers").len(), 3, "{report}");
    // A client without an identity of this cluster gets no answer.
    let control = format!("{}-ctl", rack.name);
    let mut stranger = Command::new("ip");
    let sprat = env!("CARGO_BIN_EXE_sprat");
    stranger.args(["netns", "exec", &control, sprat, "get", "users", "1", "--timeout", "1500ms"]);
    let answer = stranger
        .args(["-C", "tcp:host=10.0.0.2,port=11100"])
        .env_remove("SPRAT_IDENTITY")
        .output()
        .expect("iproute2");
    assert!(answer.status.code() == Some(5) && answer.stdout.is_empty(), "{answer:?}");

    // A service of each kind dies. All objects still exist, and `up` starts the services again.
    kill(&rack, "etcd", "c0-n1-etcd");
    kill(&rack, "coordinator", "c0-n1-coordinator");
    assert_all(&rack, "tea");
    put_all(&rack, "milk");
    assert_eq!(services(&rack), (Some(6), run(&["c0-n1-etcd", "c0-n1-coordinator"])));
    assert_eq!(rack.changes(&["up"]), [2, 0, 0]);
    assert_eq!(services(&rack), (Some(0), run(&[])));
    kill(&rack, "store", "c0-n2-store");
    // The other servers have recovered the objects of the dead server.
    assert_all(&rack, "milk");
    assert_eq!(rack.changes(&["up"]), [0, 1, 0]);
    assert_all(&rack, "milk");
}
