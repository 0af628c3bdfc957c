//! Tests faults under kernel bypass. A real server and a real client use DPDK devices, while the
//! network, the devices and the peers fail. Afterwards every answer must be right, lost frames must
//! be counted, and every frame must be back in its pool.
#![cfg(feature = "dpdk")]

mod garbage;
mod links;
mod load;
mod middle;
mod net;
mod pool;
mod sharing;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use load::{client, mixed};
use middle::Middle;
use net::{alone, cable, numbered_cable};
use nix::net::if_::if_nametoindex;
use sprat_client::{Client, Table};
use support::{COORDINATOR, PATIENCE, ServerProcess, ip};
use tempfile::TempDir;

/// Address of the tested server's metrics. Each server has its own network.
const METRICS: &str = "127.0.0.1:9100";

/// Starts a server on a device, with its data in `folder`.
fn serve(folder: &Path, device: &str, coordinator: &str) -> ServerProcess {
    let listen = format!("fast+dpdk:host=10.97.0.1,port=7,dev={device}");
    let flags = ["-L", &listen, "-C", coordinator, "--with-coordinator", "--metrics", METRICS];
    let small = ["--memory", "256M", "--disk", "1G"];
    ServerProcess::start(&folder.join("data"), &[&flags[..], &small].concat())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the locator of our end of the path to the server, for a client in this process.
fn local(device: &str) -> String {
    format!("fast+dpdk:host=10.97.0.2,port=0,dev={device}")
}

/// Starts a server at the end `s0` of a cable and a client at the end `c0`. Also returns the
/// server's folder, as the first element.
fn over_a_cable() -> (TempDir, ServerProcess, Client) {
    cable("s0", "c0").expect("a cable");
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve(folder.path(), "net_af_packet0,iface=s0", COORDINATOR);
    let client = client(&server.coordinator, &local("net_af_packet1,iface=c0"));
    (folder, server, client)
}

/// Returns the server's counters.
fn metrics() -> BTreeMap<String, u64> {
    let mut stream = TcpStream::connect(METRICS).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it can be asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    let figure = |line: &str| {
        let (name, value) = line.strip_prefix("sprat_")?.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

/// Calls `step` until it returns true.
#[track_caller]
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Waits until the server reports its device as up or down.
#[track_caller]
fn until_device_is(up: bool) {
    let device = "device_up{device=\"net_af_packet0\"}";
    until(&format!("the device's `up` is {up}"), || metrics()[device] == u64::from(up));
}

/// Waits until all frames of the server are back in their pool.
#[track_caller]
fn until_nothing_is_in_use() {
    until("all frames are back", || metrics()["frames_in_use"] == 0);
}

fn table(client: &mut Client, name: &str) -> Table {
    client.create_table(name).expect("the coordinator is there")
}

#[test]
fn loss_reordering_and_repetition_change_no_answer() {
    alone(|| {
        cable("s0", "s1").expect("a cable");
        cable("c0", "c1").expect("a cable");
        let folder = tempfile::tempdir().expect("a folder");
        let server = serve(folder.path(), "net_af_packet0,iface=s0", COORDINATOR);
        let mut client = client(&server.coordinator, &local("net_af_packet1,iface=c0"));
        for lost in [0, 1, 10] {
            let network = Middle::join("s1", "c1", lost, 7 + lost);
            let before = metrics();
            let table = table(&mut client, &format!("lost {lost}"));
            let load = mixed(&mut client, table, 6_000, lost);
            let counts = &network.counts;
            let [carried, gone, twice, late] =
                [&counts.carried, &counts.lost, &counts.repeated, &counts.reordered]
                    .map(|count| count.load(Ordering::Relaxed));
            let rate = load.operations as f64 / load.elapsed.as_secs_f64();
            eprintln!(
                "{} mixed operations exact, {rate:.0} op/s; of {carried} frames {gone} lost, \
                 {twice} repeated, {late} \
                 reordered",
                load.operations,
            );
            let after = metrics();
            let grown = |name: &str| after[name] - before[name];
            let kinds = ["reads_total", "writes_total", "removes_total", "increments_total"];
            assert!(kinds.into_iter().map(grown).sum::<u64>() >= 6_000);
            assert!(grown("network_frames_in_total") > 0 && grown("batches_total") > 0);
            if lost > 0 {
                assert!(
                    gone > 0 && twice > 0 && late > 0,
                    "of {carried} frames: {gone}, {twice}, {late}"
                );
                // The server received some requests more than once, but executed each only once:
                // the sums are right.
                assert!(
                    grown("rpc_repeats_total")
                        + grown("rpc_busy_total")
                        + grown("rpc_old_requests_total")
                        > 0
                );
            }
        }
        drop(client);
        until_nothing_is_in_use();
        assert!(server.stop().success());
    });
}

#[test]
fn a_link_that_goes_down_comes_back() {
    alone(|| {
        let (_folder, server, mut client) = over_a_cable();
        let table = table(&mut client, "t");
        mixed(&mut client, table, 500, 1);
        for (down, other) in [("s0", "our end"), ("c0", "the other end")] {
            let before = metrics();
            ip(&["link", "set", down, "down"]).expect("it is ours");
            until_device_is(false);
            // Requests that are made meanwhile are answered afterwards.
            let key = other.as_bytes();
            let ticket = client.submit(&write(table, key)).expect("it can be submitted");
            ip(&["link", "set", down, "up"]).expect("it is ours");
            until_device_is(true);
            client.wait(ticket, |_| ()).expect("it is answered when the link is back");
            assert_eq!(client.get(table, key).expect("it works").expect("written").value, b"value");
            let changes = "device_changes_total{device=\"net_af_packet0\"}";
            assert_eq!(metrics()[changes] - before[changes], 2, "{other} went and came");
        }
        until_nothing_is_in_use();
        assert!(server.stop().success());
    });
}

#[test]
fn a_device_that_is_removed_and_made_again_is_taken_up_again() {
    alone(|| {
        let (_folder, mut server, mut client) = over_a_cable();
        let table = table(&mut client, "t");
        for life in 0_u64..3 {
            let fresh = crate::table(&mut client, &format!("life {life}"));
            mixed(&mut client, fresh, 300, life);
            // In the middle of a burst, the devices of both ends are removed.
            let tickets: Vec<_> = (0..64_u64)
                .map(|number| {
                    client
                        .submit(&write(table, &number.to_le_bytes()))
                        .expect("it can be submitted")
                })
                .collect();
            ip(&["link", "delete", "s0"]).expect("it is ours");
            until_device_is(false);
            assert!(server.runs());
            cable("s0", "c0").expect("a cable");
            until_device_is(true);
            for ticket in tickets {
                client.wait(ticket, |_| ()).expect("it is answered when the device is back");
            }
        }
        until_nothing_is_in_use();
        assert!(server.stop().success());
    });
}

/// If the packet sockets of two processes have one id, the error of the second process says how to
/// avoid this.
#[test]
fn packet_sockets_that_meet_are_explained() {
    alone(|| {
        cable("s0", "c0").expect("a cable");
        let folder = tempfile::tempdir().expect("a folder");
        let server = serve(folder.path(), "net_af_packet0,iface=s0", COORDINATOR);
        let number = if_nametoindex("s0").expect("it is there");
        let server_id = server.pid().as_raw_nonzero().get().cast_unsigned();
        let meets = (server_id ^ number ^ std::process::id()) & 0xffff;
        numbered_cable(["e0", "e1"], [meets, meets ^ 0x8000]).expect("a cable");
        let mut client = client(&server.coordinator, &local("net_af_packet1,iface=e0"));
        let why = client.create_table("t").expect_err("refused").to_string();
        assert!(why.contains("restart one of the two processes"), "{why}");
        assert!(server.stop().success());
    });
}

#[test]
fn a_server_killed_in_the_middle_of_a_burst_is_met_again() {
    alone(|| {
        cable("s0", "c0").expect("a cable");
        survive_kills("net_af_packet0,iface=s0", "net_af_packet1,iface=c0");
    });
}

#[test]
fn a_paravirtual_server_killed_in_the_middle_of_a_burst_is_met_again() {
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("vhost.sock").display().to_string();
        survive_kills(
            &format!("net_vhost0,iface={socket}"),
            &format!("net_virtio_user0,path={socket}"),
        );
    });
}

/// Kills the server repeatedly under a client. The client must survive and find all acknowledged
/// writes.
fn survive_kills(servers: &str, clients: &str) {
    const BURST: u64 = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let coordinator = "tcp:host=127.0.0.1,port=11100";
    let mut server = serve(folder.path(), servers, coordinator);
    let mut client = client(coordinator, &local(clients));
    let table = table(&mut client, "t");
    for life in 0_u64..4 {
        let key = |number: u64| (life * BURST + number).to_le_bytes();
        let tickets: Vec<_> = (0..BURST)
            .map(|number| client.submit(&write(table, &key(number))).expect("it can be submitted"))
            .collect();
        let mut tickets = tickets.into_iter();
        // Some requests have been answered, and others have not.
        for ticket in tickets.by_ref().take(20) {
            client.wait(ticket, |_| ()).expect("it is answered");
        }
        server.kill();
        server = serve(folder.path(), servers, coordinator);
        // Writing twice is harmless: writes with an unknown outcome are repeated.
        for (number, ticket) in (20..).zip(tickets) {
            if client.wait(ticket, |_| ()).is_err() {
                until("the server is back", || client.put(table, &key(number), b"value").is_ok());
            }
        }
        for number in 0..BURST {
            let found = client.get(table, &key(number)).expect("the server is back");
            assert_eq!(found.expect("it was acknowledged").value, b"value");
        }
    }
    drop(client);
    until_nothing_is_in_use();
    assert!(server.stop().success());
}

fn write(table: Table, key: &[u8]) -> sprat_wire::op::Request<'_> {
    let Table(table) = table;
    sprat_wire::op::Request::Write {
        table,
        key,
        value: b"value",
        condition: sprat_client::Condition::None,
        ttl: None,
    }
}
