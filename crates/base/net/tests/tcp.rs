//! Tests the TCP driver over loopback.

use crate::common;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use common::{LOOPBACKS, at, echo, exchange, frame, send, take, until};
use proptest::prelude::*;
use sprat_net::{Driver, MAX_FRAME, SMALL_FRAME, Tcp, Transmit};

fn pair(address: &str) -> (Tcp, Tcp, SocketAddr) {
    let server = Tcp::listen(at(address)).expect("listens");
    let to = server.local_addr();
    (Tcp::connect_only().expect("opens"), server, to)
}

/// Returns a frame with its length prefix, as it is in the stream.
fn framed(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).expect("short").to_le_bytes(), frame].concat()
}

#[test]
fn frames_of_all_sizes_come_back() {
    for address in LOOPBACKS {
        let (mut client, mut server, to) = pair(address);
        assert!(client.tx().reliable());
        assert_eq!(client.tx().mtu(to), MAX_FRAME);
        let sizes = [1, 2, 100, 1472, SMALL_FRAME, SMALL_FRAME + 1, 9000, 65_535, MAX_FRAME];
        for size in sizes {
            exchange(&mut client, &mut server, to, &[size]);
        }
        exchange(&mut client, &mut server, to, &sizes);
        assert_eq!(client.counters().dropped(), 0);
        assert_eq!((client.counters().connected, server.counters().accepted), (1, 1));
    }
}

#[test]
fn small_frames_leave_together() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    exchange(&mut client, &mut server, to, &[64]);
    let before = client.counters().sends;
    exchange(&mut client, &mut server, to, &[64; 32]);
    assert_eq!(client.counters().sends, before + 1);
    // Small frames are also sent together with the long frame that follows them.
    exchange(&mut client, &mut server, to, &[64, 64, 64, 15_000]);
    assert_eq!(client.counters().sends, before + 2);
}

#[test]
fn what_the_peer_does_not_take_waits_and_then_goes_on() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    exchange(&mut client, &mut server, to, &[64]);
    // Send more than loopback's socket buffers hold, until frames are dropped.
    let mut accepted = Vec::new();
    let mut number = 0;
    while client.counters().dropped_full == 0 {
        number += 1;
        assert!(number < 10_000, "no limit");
        let before = client.counters().dropped();
        send(client.tx(), to, &frame(number, 50_000));
        if client.counters().dropped() == before {
            accepted.push(number);
        }
    }
    client.tx().flush();
    let fd_ready = |client: &Tcp| {
        let fd = client.poll_fd().expect("has one");
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
            .expect("polls")
            == 1
    };
    assert!(!fd_ready(&client), "blocked");
    let mut got = Vec::new();
    let mut woken = false;
    until("all that was accepted is there", || {
        got.extend(take(&mut server).into_iter().map(|(_, frame)| frame));
        if fd_ready(&client) {
            woken = true;
            assert!(take(&mut client).is_empty());
        }
        got.len() >= accepted.len()
    });
    assert!(woken, "a blocked write that can go on wakes the node");
    for (number, got) in accepted.iter().zip(&got) {
        assert!(*got == frame(*number, 50_000), "frame {number}");
    }
    assert_eq!(got.len(), accepted.len());
    exchange(&mut client, &mut server, to, &[64]);
}

#[test]
fn frames_before_the_connection_stands_wait_within_bounds() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    for number in 0..200 {
        send(client.tx(), to, &frame(number, 30_000));
    }
    let dropped = client.counters().dropped_full;
    assert!((1..200).contains(&dropped), "{dropped}");
    client.tx().flush();
    let mut got = Vec::new();
    until("the rest is there", || {
        take(&mut client);
        got.extend(take(&mut server));
        got.len() as u64 == 200 - dropped
    });
    for (number, (_, got)) in (0..).zip(&got) {
        assert!(*got == frame(number, 30_000));
    }
}

#[test]
fn lengths_that_no_frame_has_close_the_connection() {
    for address in LOOPBACKS {
        let mut server = Tcp::listen(at(address)).expect("listens");
        let too_long = u32::try_from(MAX_FRAME + 1).expect("short");
        for (count, length) in (1..).zip([0, too_long, u32::MAX, 0x4745_5420]) {
            let mut stream = TcpStream::connect(server.local_addr()).expect("connects");
            stream.write_all(&framed(b"good")).expect("writes");
            stream.write_all(&length.to_le_bytes()).expect("writes");
            let mut got = Vec::new();
            until("it is counted", || {
                got.extend(take(&mut server));
                server.counters().malformed == count
            });
            assert_eq!(got.len(), 1, "frames before the malformed one are received");
            assert_eq!(got[0].1, b"good");
            assert_eq!(server.connections(), 0);
            assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "closed");
        }
    }
}

#[test]
fn streams_cut_anywhere_give_whole_frames_only() {
    let mut server = Tcp::listen(at(LOOPBACKS[0])).expect("listens");
    let bytes = [framed(&frame(1, 10)), framed(&frame(2, 3000)), framed(&frame(3, 1))].concat();
    for cut in [1, 3, 4, 5, 13, 14, 15, 17, 18, 1000, 3017, 3018, 3021, 3022] {
        let mut stream = TcpStream::connect(server.local_addr()).expect("connects");
        stream.write_all(&bytes[..cut]).expect("writes");
        drop(stream);
        let closed = server.counters().closed;
        let mut got = Vec::new();
        until("the end is seen", || {
            got.extend(take(&mut server));
            server.counters().closed > closed
        });
        let whole = [14, 3018, 3023].iter().filter(|&&end| end <= cut).count();
        assert_eq!(got.len(), whole, "cut at {cut}");
        assert!(
            got.iter().zip([(1, 10), (2, 3000)]).all(|((_, got), (n, len))| *got == frame(n, len))
        );
    }
}

#[test]
fn frames_are_put_together_from_single_bytes() {
    let mut server = Tcp::listen(at(LOOPBACKS[0])).expect("listens");
    let mut stream = TcpStream::connect(server.local_addr()).expect("connects");
    stream.set_nodelay(true).expect("sets");
    let mut got = Vec::new();
    for byte in [framed(&frame(1, 20)), framed(&frame(2, 1))].concat() {
        stream.write_all(&[byte]).expect("writes");
        got.extend(take(&mut server));
    }
    until("both are there", || {
        got.extend(take(&mut server));
        got.len() == 2
    });
    assert_eq!(got[0].1, frame(1, 20));
    assert_eq!(got[1].1, frame(2, 1));
}

#[test]
fn many_connections_are_served_and_come_and_go() {
    let mut server = Tcp::listen(at(LOOPBACKS[0])).expect("listens");
    let to = server.local_addr();
    for round in 0..3 {
        let mut clients: Vec<_> = (0..40).map(|_| Tcp::connect_only().expect("opens")).collect();
        for (i, client) in (0..).zip(&mut clients) {
            send(client.tx(), to, &frame(i, 100));
            client.tx().flush();
        }
        let mut back = vec![Vec::new(); clients.len()];
        until("each has its answer", || {
            echo(&mut server);
            clients.iter_mut().zip(&mut back).for_each(|(client, back)| back.extend(take(client)));
            back.iter().all(|back| back.len() == 1)
        });
        for (i, back) in (0..).zip(&back) {
            assert_eq!(back[0], (to, frame(i, 100)));
        }
        assert_eq!(server.connections(), 40);
        drop(clients);
        until("all are gone", || {
            echo(&mut server);
            server.connections() == 0
        });
        assert_eq!(server.counters().closed, 40 * (round + 1));
    }
}

#[test]
fn a_peer_that_dies_and_returns_is_reached_again() {
    let (mut client, server, to) = pair(LOOPBACKS[0]);
    drop(server);
    // No server listens: frames are dropped, and not every frame makes an attempt to connect.
    for _ in 0..100 {
        send(client.tx(), to, b"anybody?");
        client.tx().flush();
        take(&mut client);
    }
    let counters = *client.counters();
    assert!(counters.connect_failed >= 1 && counters.connect_failed < 50, "{counters:?}");
    assert!(counters.dropped() >= 50, "{counters:?}");
    let mut server = Tcp::listen(to).expect("the address is free");
    let mut got = Vec::new();
    until("it is reached", || {
        send(client.tx(), to, b"again");
        client.tx().flush();
        take(&mut client);
        got.extend(take(&mut server));
        !got.is_empty()
    });
    // The server dies with the connection open, and returns at once.
    drop(server);
    let mut server = Tcp::listen(to).expect("the address is free");
    let mut got = Vec::new();
    until("it is reached again", || {
        send(client.tx(), to, b"again");
        client.tx().flush();
        take(&mut client);
        got.extend(take(&mut server));
        !got.is_empty()
    });
}

#[test]
fn replies_to_a_client_that_has_left_do_not_connect_to_it() {
    // A client that also listens at its port, to see whether the server connects to it.
    let mut server = Tcp::listen(at(LOOPBACKS[0])).expect("listens");
    let mut stream = TcpStream::connect(server.local_addr()).expect("connects");
    stream.write_all(&framed(b"request")).expect("writes");
    let peer = stream.local_addr().expect("has one");
    until("the request is there", || !take(&mut server).is_empty());
    drop(stream);
    until("its end is seen", || {
        take(&mut server);
        server.connections() == 0
    });
    let listener = TcpListener::bind(peer);
    server.tx().send(peer, &[IoSlice::new(b"late answer")]);
    server.tx().flush();
    assert_eq!(server.connections(), 0);
    assert_eq!(server.counters().dropped_unreachable, 1);
    drop(listener);
}

#[test]
fn idle_connections_are_closed_used_ones_stay() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    let mut other = Tcp::connect_only().expect("opens");
    exchange(&mut client, &mut server, to, &[10]);
    exchange(&mut other, &mut server, to, &[10]);
    assert_eq!(server.close_idle(), 0, "both connections were used");
    exchange(&mut client, &mut server, to, &[10]);
    assert_eq!(server.close_idle(), 1);
    until("the idle one sees it", || {
        take(&mut other);
        other.connections() == 0
    });
    exchange(&mut client, &mut server, to, &[10]);
    exchange(&mut other, &mut server, to, &[10]);
    assert_eq!(server.connections(), 2);
}

#[test]
fn frames_that_cannot_go_are_counted() {
    let (mut client, _server, to) = pair(LOOPBACKS[0]);
    client.tx().send(to, &[]);
    client.tx().send(to, &[IoSlice::new(&vec![0; MAX_FRAME + 1])]);
    assert_eq!(client.counters().dropped_size, 2);
    assert_eq!(client.connections(), 0);
}

#[test]
fn frames_of_many_parts_arrive_whole() {
    let (mut client, mut server, to) = pair(LOOPBACKS[0]);
    exchange(&mut client, &mut server, to, &[1]);
    let whole = frame(7, 40_000);
    let parts: Vec<_> = whole.chunks(100).map(IoSlice::new).collect();
    client.tx().send(to, &parts);
    client.tx().flush();
    let mut got = Vec::new();
    until("it is there", || {
        got.extend(take(&mut server));
        got.len() == 1
    });
    assert!(got[0].1 == whole);
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
            2 => 1..12_000usize,
            1 => 1..=MAX_FRAME,
        ],
        1..32,
    ))
    {
        let (mut client, mut server, to) = pair(LOOPBACKS[0]);
        exchange(&mut client, &mut server, to, &sizes);
    }
}
