//! Tests the real binary with several nodes in one process, over the kernel's UDP, over
//! shared-memory interfaces, one for each node, and over a paravirtual device that the nodes share.

use crate::support;
use std::path::Path;

use sprat_client::{Client, Options, Table};
use sprat_wire::op::{Condition, Request};
use support::{COORDINATOR, PATIENCE, ServerProcess, UDP, run};

const SMALL: [&str; 4] = ["--memory", "256M", "--disk", "1G"];
const TABLES: u64 = 4;
const OBJECTS: u64 = 100;

fn start(data: &Path, flags: &[&str]) -> ServerProcess {
    ServerProcess::start(data, &[flags, &SMALL].concat()).unwrap_or_else(|error| panic!("{error}"))
}

fn client(coordinator: &str, local: Option<&str>) -> Client {
    let (coordinator, local) = (coordinator.to_owned(), local.map(str::to_owned));
    Client::connect(&Options { coordinator, local, timeout: PATIENCE / 2, ..Options::default() })
        .expect("a client")
}

/// Returns a value that is determined by its table, its object and the server's run.
fn value(table: u64, object: u64, life: u64) -> Vec<u8> {
    (0..1 + object * 50)
        .map(|at| (at * 7 + table * 31 + object + life * 3).to_le_bytes()[0])
        .collect()
}

/// Checks the objects that the previous run of the server left in tables of both nodes. Writes
/// other values, and kills the server while it writes more.
fn live(client: &mut Client, server: &mut ServerProcess, life: u64) {
    let tables: Vec<_> =
        (0..TABLES).map(|table| client.create_table(&format!("t{table}")).expect("made")).collect();
    let mut places: Vec<_> = client
        .list_tables()
        .expect("listed")
        .into_iter()
        .map(|table| table.tablets[0].server)
        .collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 2, "both nodes have tables");
    for (number, &table) in (0..).zip(&tables) {
        for object in 0..OBJECTS {
            let key = object.to_le_bytes();
            let found = client.get(table, &key).expect("read").map(|object| object.value);
            let want = life.checked_sub(1).map(|before| value(number, object, before));
            assert!(found == want, "table {number}, object {object}, after {life} lives");
            client.put(table, &key, &value(number, object, life)).expect("written");
        }
    }
    for number in 0..50_u64 {
        let Table(table) = tables[usize::try_from(number % TABLES).expect("few")];
        let key = (OBJECTS + number).to_le_bytes();
        let request = Request::Write {
            table,
            key: &key,
            value: b"perhaps",
            condition: Condition::None,
            ttl: None,
        };
        client.submit(&request).expect("submitted");
    }
    server.kill();
}

#[test]
fn nodes_keep_what_they_acknowledged_when_the_process_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["-L", UDP, "-C", COORDINATOR, "--with-coordinator", "--nodes", "2"];
    for life in 0..3 {
        let mut server = start(folder.path(), &flags);
        assert_eq!(server.listen.split(' ').count(), 2, "{}", server.listen);
        live(&mut client(&server.coordinator, None), &mut server, life);
    }
}

#[test]
fn nodes_past_the_kernel_have_a_device_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let end = |host: &str, number: u32, role: &str| {
        let socket = folder.path().join(format!("memif{number}.sock"));
        format!(
            "{host},dev=net_memif{number},role={role},socket={},socket-abstract=no",
            socket.display()
        )
    };
    let first = end("fast+dpdk:host=10.9.0.1,port=7", 0, "server");
    let second = end("fast+dpdk:host=10.9.0.2,port=7", 1, "server");
    // One client with a link to each node.
    let local = end("fast+dpdk:host=10.9.0.3,port=0", 0, "client") + &end("", 1, "client");
    let flags = ["-L", &first, "-L", &second, "-C", COORDINATOR, "--with-coordinator"];
    for life in 0..2 {
        let mut server = start(&folder.path().join("data"), &flags);
        live(&mut client(&server.coordinator, Some(&local)), &mut server, life);
    }
}

#[cfg(feature = "dpdk")]
#[test]
fn nodes_share_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vhost.sock").display().to_string();
    let listen = format!("fast+dpdk:host=10.9.0.1,port=7,dev=net_vhost0,iface={socket}");
    let local =
        format!("fast+dpdk:host=10.9.0.3,port=0,dev=net_virtio_user0,path={socket},queues=2");
    let flags = ["-L", &listen, "--nodes", "2", "-C", COORDINATOR, "--with-coordinator"];
    for life in 0..3 {
        let mut server = start(&folder.path().join("data"), &flags);
        let mut client = client(&server.coordinator, Some(&local));
        for node in server.listen.split(' ') {
            let counters = client.server_stats(node).expect("counters");
            let steers = counters.iter().find(|counter| counter.name.starts_with("device_steers{"));
            assert_eq!(
                steers.expect("the node has this counter").value,
                0,
                "by software: it takes no rules"
            );
        }
        live(&mut client, &mut server, life);
    }
}

#[test]
fn contradictory_settings_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("plain");
    let dpdk = "fast+dpdk:host=10.9.0.1,port=7,dev=net_memif0";
    let last = "fast+udp:host=127.0.0.1,port=65535";
    for (flags, want) in [
        (&["--nodes", "2", "-L", dpdk][..], "a device for each node"),
        (
            &["--nodes", "2", "-L", "fast+dpdk:host=10.9.0.1,port=0,dev=net_vhost0,iface=x"],
            "give the first port",
        ),
        (&["--nodes", "3", "-L", UDP, "-L", UDP], "once for each node"),
        (&["--nodes", "2", "-L", last], "choose a lower first port"),
        (&["--nodes", "2", "--core", "0,1,2"], "3 cores for 2 nodes"),
        (&["--nodes", "0"], "1..=64"),
    ] {
        let ran = run(&[&["server", "--data", data, "--metrics", "none"], flags].concat());
        assert!(ran.code != Some(0) && ran.stderr.contains(want), "{flags:?}: {}", ran.stderr);
    }
}

#[test]
fn an_idle_server_logs_no_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start(folder.path(), &["-L", UDP, "-C", COORDINATOR, "--with-coordinator"]);
    // The test waits longer than the server's requests to the coordinator may take.
    #[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
    std::thread::sleep(std::time::Duration::from_secs(3));
    server.signal(rustix::process::Signal::INT);
    let stderr = server.new_stderr();
    assert!(!stderr.contains("WARN"), "{stderr}");
}
