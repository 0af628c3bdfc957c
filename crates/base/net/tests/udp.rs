//! Tests the UDP driver over loopback.

use crate::common;
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};

use common::{LOOPBACKS, at, exchange, frame, send, take, until};
use proptest::prelude::*;
use sprat_net::{AnyDriver, Driver, DriverRole, Locator, SMALL_FRAME, Transmit, Udp};

fn pair(address: &str) -> (Udp, Udp, SocketAddr) {
    let server = Udp::bind(at(address)).expect("binds");
    let to = server.local_addr();
    (Udp::bind(at(address)).expect("binds"), server, to)
}

#[test]
fn frames_of_all_sizes_come_back() {
    for address in LOOPBACKS {
        let (mut client, mut server, to) = pair(address);
        let most = client.tx().mtu(to);
        assert!((60_000..=65_507).contains(&most), "{most}");
        let sizes =
            [1, 2, 100, 1471, 1472, 1473, 9000, SMALL_FRAME, SMALL_FRAME + 1, 32_768, 60_000, most];
        for size in sizes {
            exchange(&mut client, &mut server, to, &[size]);
        }
        exchange(&mut client, &mut server, to, &sizes);
        assert_eq!(client.counters().dropped(), 0);
    }
}

#[test]
fn equal_frames_leave_and_arrive_as_runs() {
    for address in LOOPBACKS {
        let (mut client, mut server, to) = pair(address);
        exchange(&mut client, &mut server, to, &[1472; 32]);
        exchange(&mut client, &mut server, to, &[100; 32]);
        let counters = *client.counters();
        assert_eq!((counters.sends, counters.segmented), (2, 2), "one call for each burst");
        assert_eq!((counters.frames_out, counters.frames_in), (64, 64));
        // The last frame of a run may be shorter than the others, but not longer.
        exchange(&mut client, &mut server, to, &[100, 100, 100, 50]);
        assert_eq!(client.counters().sends, 3);
        exchange(&mut client, &mut server, to, &[100, 100, 100, 150]);
        assert_eq!(client.counters().sends, 5);
    }
}

#[test]
fn a_burst_beyond_the_stage_is_sent_before_the_flush() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    let count = 2000;
    for number in 0..count {
        send(client.tx(), to, &frame(number, 200));
    }
    client.tx().flush();
    let mut got = Vec::new();
    until("the burst is there", || {
        got.extend(take(&mut server));
        got.len() as u64 >= count
    });
    for (number, (_, got)) in got.iter().enumerate() {
        assert_eq!(*got, frame(number as u64, 200));
    }
}

#[test]
fn peers_get_their_own_frames_in_order() {
    let mut client = Udp::bind(at(LOOPBACKS[0])).expect("binds");
    let mut servers: Vec<_> = (0..5).map(|_| Udp::bind(at(LOOPBACKS[0])).expect("binds")).collect();
    let peers: Vec<_> = servers.iter().map(Udp::local_addr).collect();
    let count = 100u64;
    for number in 0..count {
        for (i, &peer) in peers.iter().enumerate() {
            // Long frames between short ones must not overtake them.
            let len = if number % 17 == 3 { 15_000 + i } else { 60 };
            send(client.tx(), peer, &frame(number, len));
        }
    }
    client.tx().flush();
    for (i, server) in servers.iter_mut().enumerate() {
        let mut got = Vec::new();
        until("all are there", || {
            got.extend(take(server));
            got.len() as u64 == count
        });
        for (number, (_, got)) in (0..).zip(got) {
            let len = if number % 17 == 3 { 15_000 + i } else { 60 };
            assert!(got == frame(number, len), "frame {number} to peer {i}");
        }
    }
    assert!(client.counters().sends < count * 5 / 2, "{:?}", client.counters());
}

#[test]
fn many_peers_get_one_frame_each_in_one_call() {
    let mut client = Udp::bind(at(LOOPBACKS[0])).expect("binds");
    let mut servers: Vec<_> =
        (0..20).map(|_| Udp::bind(at(LOOPBACKS[0])).expect("binds")).collect();
    // The kernel refuses broadcasts from a socket that has not enabled them. The call ends at such
    // a frame, and the driver must continue after it.
    let refused = [(7, at("255.255.255.255:9")), (13, at("255.255.255.255:10"))];
    for (number, server) in (0..).zip(&servers) {
        for (_, broadcast) in refused.iter().filter(|(before, _)| *before == number) {
            send(client.tx(), *broadcast, &frame(number, 100));
        }
        send(client.tx(), server.local_addr(), &frame(number, 100));
    }
    client.tx().flush();
    for (number, server) in (0..).zip(&mut servers) {
        let mut got = Vec::new();
        until("the frame is there", || {
            got.extend(take(server));
            !got.is_empty()
        });
        assert_eq!(got, [(client.local_addr(), frame(number, 100))]);
    }
    let counters = client.counters();
    assert_eq!((counters.frames_out, counters.dropped_unreachable, counters.dropped()), (20, 2, 2));
    assert_eq!(
        counters.sends, 5,
        "two calls up to a refusal, two refused ones, one for the last frames"
    );
}

#[test]
fn frames_that_cannot_go_are_counted() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    client.tx().send(to, &[]);
    client.tx().send(to, &[IoSlice::new(&[0; 65_508])]);
    assert_eq!(client.counters().dropped_size, 2);
    client.tx().send(at("[::1]:9"), &[IoSlice::new(b"x")]);
    assert_eq!(client.counters().dropped_unreachable, 1);
    assert_eq!(client.counters().frames_out, 0);
    assert!(take(&mut server).is_empty());
    let _ = take(&mut client);
}

#[test]
fn empty_datagrams_are_counted_and_passed_over() {
    let (client, mut server, to) = pair(LOOPBACKS[0]);
    drop(client);
    let socket = UdpSocket::bind(LOOPBACKS[0]).expect("binds");
    socket.send_to(&[], to).expect("sends");
    socket.send_to(b"frame", to).expect("sends");
    let mut got = Vec::new();
    until("the frame is there", || {
        got.extend(take(&mut server));
        !got.is_empty()
    });
    assert_eq!(got[0].1, b"frame");
    assert_eq!(server.counters().malformed, 1);
}

#[test]
fn a_dead_peer_does_not_disturb_others() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    let dead = Udp::bind(at(LOOPBACKS[0])).expect("binds").local_addr();
    for _ in 0..10 {
        client.tx().send(dead, &[IoSlice::new(b"anybody?")]);
        client.tx().flush();
        exchange(&mut client, &mut server, to, &[64]);
    }
}

#[test]
fn a_socket_of_ipv6_reaches_both_families() {
    let mut server = Udp::bind(at("[::]:0")).expect("binds");
    let port = server.local_addr().port();
    for host in ["127.0.0.1", "::1"] {
        let locator: Locator = format!("fast+udp:host={host},port={port}").parse().expect("parses");
        let mut client = AnyDriver::open(&locator, DriverRole::Connect(None)).expect("opens");
        let to = locator.resolve().expect("an address")[0];
        exchange(&mut client, &mut server, to, &[64, 64, 3000]);
    }
}

#[test]
fn the_descriptor_polls_readable_when_a_frame_is_there() {
    let (mut client, server, to) = pair(LOOPBACKS[0]);
    let readable = |server: &Udp| {
        let fd = server.poll_fd().expect("has one");
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
            .expect("polls")
            == 1
    };
    assert!(!readable(&server));
    send(client.tx(), to, b"hello");
    assert!(!readable(&server), "not before the flush");
    client.tx().flush();
    until("it is readable", || readable(&server));
}

proptest! {
    // A failing case waits for a timeout, so proptest may shrink only a little.
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_sequence_of_sizes_comes_back(sizes in proptest::collection::vec(
        prop_oneof![
            4 => Just(64usize),
            2 => 1..200usize,
            2 => Just(1472),
            2 => 1..12_000usize,
            1 => 1..65_507usize,
        ],
        1..32,
    ))
    {
        let (mut client, mut server, to) = pair(LOOPBACKS[0]);
        exchange(&mut client, &mut server, to, &sizes);
    }
}
