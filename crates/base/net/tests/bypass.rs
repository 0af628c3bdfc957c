//! The driver that bypasses the kernel, over memory interfaces: two drivers in one process.

use crate::common;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use common::{at, echo, exchange, frame, send, take, until};
use sprat_net::bypass::{Address, BypassDriver};
use sprat_net::{Bypass, Driver, Idle, Locator, Mode, Nanos, Policy, Sources, Transmit, Transport};

/// The locator of one end of a memory interface.
fn end(folder: &Path, host: &str, role: &str, number: usize) -> Locator {
    let socket = folder.join(format!("memif{number}.sock"));
    let device =
        format!("net_memif{number},role={role},socket={},socket-abstract=no", socket.display());
    format!("fast+dpdk:host={host},port=7,dev={device}").parse().expect("a locator")
}

fn open(locator: &Locator) -> BypassDriver {
    let Transport::FastDpdk(bypass) = &locator.transport else { panic!("{locator}") };
    let address = locator.resolve().expect("an address")[0];
    BypassDriver::open(bypass, Address::Own(address))
        .unwrap_or_else(|error| panic!("{locator}: {error}"))
}

/// Two connected hosts, and the address of the second.
fn pair(folder: &Path, hosts: [&str; 2]) -> (BypassDriver, BypassDriver, SocketAddr) {
    let server = open(&end(folder, hosts[1], "server", 0));
    let client = open(&end(folder, hosts[0], "client", 0));
    let to = server.local_addr();
    (client, server, to)
}

/// Drives both ends until a ping is answered.
fn meet(client: &mut BypassDriver, server: &mut BypassDriver, peer: IpAddr) {
    until("a ping is answered", || {
        client.ping(peer, 1, 64);
        for _ in 0..100 {
            take(server);
            take(client);
        }
        client.take_pong() == Some(1)
    });
}

const FAMILIES: [[&str; 2]; 2] = [["10.9.0.1", "10.9.0.2"], ["fd00:9::1", "fd00:9::2"]];

#[test]
fn frames_of_all_sizes_come_back() {
    for hosts in FAMILIES {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut client, mut server, to) = pair(folder.path(), hosts);
        // The first frame waits for the neighbour's hardware address, and is not lost.
        exchange(&mut client, &mut server, to, &[100]);
        let most = client.tx().mtu(to);
        assert_eq!(most, 9000 - if to.is_ipv4() { 28 } else { 48 });
        let sizes = [1, 2, 100, 1471, 1472, 1473, 8000, most];
        for size in sizes {
            exchange(&mut client, &mut server, to, &[size]);
        }
        exchange(&mut client, &mut server, to, &sizes);
        exchange(&mut client, &mut server, to, &[200; 200]);
        let counters = *client.counters();
        assert_eq!(
            (counters.dropped(), counters.malformed, counters.corrupt),
            (0, 0, 0),
            "{counters:?}"
        );
    }
}

#[test]
fn pings_are_answered_by_the_driver_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut client, mut server, to) = pair(folder.path(), FAMILIES[0]);
    meet(&mut client, &mut server, to.ip());
    for (number, len) in [(7, 4), (8, 100), (9, 8000)] {
        assert!(client.ping(to.ip(), number, len));
        let mut seen = 0;
        until("the ping is answered", || {
            seen += take(&mut server).len() + take(&mut client).len();
            client.take_pong() == Some(number)
        });
        assert_eq!(seen, 0, "nothing reaches the node");
    }
}

#[test]
fn the_first_to_start_and_its_frames_wait_for_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut client = open(&end(folder.path(), "10.9.0.1", "client", 0));
    let to = at("10.9.0.2:7");
    send(client.tx(), to, &frame(1, 100));
    client.tx().flush();
    assert!(!client.devices()[0].up);
    let mut server = open(&end(folder.path(), "10.9.0.2", "server", 0));
    let mut got = Vec::new();
    until("the frame arrives", || {
        take(&mut client);
        got.extend(take(&mut server));
        !got.is_empty()
    });
    assert_eq!(got, [(client.local_addr(), frame(1, 100))]);
    assert!(client.devices()[0].up);
}

#[test]
fn a_peer_that_goes_and_comes_back_is_met_again_and_nothing_leaks() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut client = open(&end(folder.path(), "10.9.0.1", "client", 0));
    for life in 1..=3 {
        let mut server = open(&end(folder.path(), "10.9.0.2", "server", 0));
        let to = server.local_addr();
        meet(&mut client, &mut server, to.ip());
        exchange(&mut client, &mut server, to, &[100; 50]);
        // The server exits in the middle of a burst.
        for number in 0..2000 {
            send(client.tx(), to, &frame(number, 1000));
        }
        client.tx().flush();
        drop(server);
        until("the loss of the link is noticed", || {
            take(&mut client);
            !client.devices()[0].up
        });
        for number in 0..2000 {
            send(client.tx(), to, &frame(number, 1000));
            client.tx().flush();
        }
        assert!(
            client.counters().dropped_full >= 1000 * life,
            "frames for nobody are dropped and counted"
        );
        assert!(client.frames_in_use() < 2048, "{} frames in use", client.frames_in_use());
    }
}

#[test]
fn more_frames_than_there_is_room_for_are_dropped_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut client, mut server, to) = pair(folder.path(), FAMILIES[0]);
    meet(&mut client, &mut server, to.ip());
    // The server does not read while far more than its ring holds arrives.
    let sent = 20_000;
    for number in 0..sent {
        send(client.tx(), to, &frame(number, 500));
        client.tx().flush();
    }
    let mut got = 0;
    until("what was not dropped arrives", || {
        got += take(&mut server).len() as u64;
        take(&mut client);
        got + client.counters().dropped_full >= sent
    });
    let dropped = client.counters().dropped_full;
    assert!(dropped > 0 && got + dropped == sent, "{got} arrived, {dropped} dropped");
    exchange(&mut client, &mut server, to, &[100; 100]);
}

#[test]
fn frames_that_cannot_go_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut client, mut server, to) = pair(folder.path(), FAMILIES[0]);
    meet(&mut client, &mut server, to.ip());
    let long = vec![1; client.tx().mtu(to) + 1];
    client.tx().send(to, &[IoSlice::new(&long)]);
    client.tx().send(to, &[]);
    client.tx().send(at("[fd00::1]:7"), &[IoSlice::new(&[1])]);
    for number in 0..100 {
        send(client.tx(), at("10.9.0.99:7"), &frame(number, 100));
    }
    let counters = client.counters();
    assert_eq!(
        (counters.dropped_size, counters.dropped_unreachable),
        (2, 1 + 36),
        "64 wait for an absent neighbour"
    );
}

#[test]
fn opening_says_what_is_in_the_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let failure = |device: &str| {
        let bypass = Bypass { devices: vec![device.to_owned()], ..Bypass::default() };
        match BypassDriver::open(&bypass, Address::Own(at("10.9.0.1:7"))) {
            Ok(_) => panic!("{device} opened"),
            Err(error) => error.to_string(),
        }
    };
    let unknown = failure("net_nothing0");
    assert!(unknown.contains("net_nothing0"), "{unknown}");
    let locator = end(folder.path(), "10.9.0.1", "server", 0);
    let _first = open(&locator);
    let Transport::FastDpdk(bypass) = &locator.transport else { panic!("{locator}") };
    let again = failure(&bypass.devices[0]);
    assert!(again.contains("in use"), "{again}");
    let role = failure("net_memif9,role=spectator");
    assert!(role.contains("net_memif9"), "{role}");
}

#[test]
fn two_links_carry_more_than_either_and_stand_in_for_one_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let both = |host: &str, role: &str| -> Locator {
        let second = end(folder.path(), host, role, 1).to_string();
        let device = second.split_once("dev=").expect("a device").1;
        format!("{},dev={device}", end(folder.path(), host, role, 0)).parse().expect("a locator")
    };
    let mut server = open(&both("10.9.0.2", "server"));
    let mut client = open(&both("10.9.0.1", "client"));
    let to = server.local_addr();
    meet(&mut client, &mut server, to.ip());
    until("both links are up", || {
        take(&mut server);
        take(&mut client);
        client.devices().iter().all(|device| device.up)
    });
    exchange(&mut client, &mut server, to, &[1000; 100]);
}

/// Runs one end on a thread of its own, which sleeps whenever there is nothing to do: only the peer
/// wakes it.
fn sleeper(locator: &Locator, mut work: impl FnMut(&mut BypassDriver) -> bool) {
    let start = Instant::now();
    let clock = || Nanos(0) + start.elapsed();
    let mut driver = open(locator);
    let mut idle = Idle::new(Policy::of(Mode::Sleep), clock()).expect("a bell");
    while work(&mut driver) {
        assert!(start.elapsed() < common::PATIENCE, "{:?}", driver.devices());
        let until = || {
            let mut sources = Sources::default();
            driver.sources(&mut sources);
            (clock() + common::PATIENCE, sources)
        };
        idle.rest(clock(), until).expect("polls");
    }
}

#[test]
fn sleepers_are_woken() {
    let folder = tempfile::tempdir().expect("a folder");
    let [server, client] = [("10.9.0.2", "server"), ("10.9.0.1", "client")]
        .map(|(host, role)| end(folder.path(), host, role, 0));
    const ROUNDS: u64 = 3000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            sleeper(&server, |driver| {
                while {
                    let frames = echo(driver);
                    seen += frames as u64;
                    frames > 0
                } {}
                seen < ROUNDS
            });
        });
        scope.spawn(|| {
            let (to, mut sent, mut back) = (at("10.9.0.2:7"), 0, 0);
            sleeper(&client, |driver| {
                loop {
                    let frames = take(driver);
                    back += frames.len() as u64;
                    if sent == back && sent < ROUNDS {
                        sent += 1;
                        send(driver.tx(), to, &frame(sent, 100));
                        driver.tx().flush();
                    } else if frames.is_empty() {
                        return back < ROUNDS;
                    }
                }
            });
        });
    });
}

#[test]
fn more_interfaces_than_a_sleeper_can_wait_for_are_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let many = |host: &str, role: &str| -> BypassDriver {
        let devices = (1..8).map(|number| end(folder.path(), host, role, number).to_string());
        let devices: String = devices
            .map(|locator| format!(",dev={}", locator.split_once("dev=").expect("one").1))
            .collect();
        open(&format!("{}{devices}", end(folder.path(), host, role, 0)).parse().expect("a locator"))
    };
    let (mut server, mut client) = (many("10.9.0.2", "server"), many("10.9.0.1", "client"));
    until("all are up", || {
        take(&mut server);
        take(&mut client);
        client.devices().iter().all(|device| device.up)
    });
    let mut sources = Sources::default();
    server.sources(&mut sources);
    assert!(sources.room() > 0 && sources.longest().is_some());
}
