//! Stray, forged, truncated and flipped bytes from outside: nothing panics, nothing grows without
//! bound, no forged request is executed, and honest calls go on.

use crate::net;
use std::time::Duration;

use net::{Dice, Want, Weather, World, address, connect_frame, packet, pattern, request};
use proptest::prelude::*;
use sprat_net::Nanos;
use sprat_rpc::{Config, Counters, NoHandler};
use sprat_wire::packet::{FROM_SERVER, Kind};

const LONG: Duration = Duration::from_secs(120);

fn counters_after(frames: &[Vec<u8>]) -> Counters {
    let mut world = World::new(1, 1, Weather::calm(1500), &Config::default());
    for frame in frames {
        world.inject(address(9), 0, frame);
    }
    *world.nodes[0].endpoint.counters()
}

#[test]
fn malformed_frames_are_counted_by_cause() {
    let count = counters_after(&[
        vec![1; 23],
        packet(Kind::Ping as u8, 0, [0; 5], &[1, 2, 3])[..26].to_vec(),
        packet(0, 0, [0; 5], &[]),
        packet(77, 0, [0; 5], &[]),
        packet(Kind::Connect as u8, 0, [0; 5], &[1, 2, 3]),
        packet(Kind::Accept as u8, FROM_SERVER, [0; 5], &[1, 2, 3]),
        packet(Kind::Refuse as u8, FROM_SERVER, [0, 0, 0, 99, 0], &[]),
        packet(Kind::Request as u8, 0, [3, 4, 5, 0, 0], &[]),
        packet(Kind::Response as u8, FROM_SERVER, [3, 4, 5, 0, 0], &[]),
    ]);
    assert_eq!(count.malformed_short, 1);
    assert_eq!(count.malformed_truncated, 1);
    assert_eq!(count.malformed_kind, 2);
    assert_eq!(count.malformed_meaning, 3);
    assert_eq!(count.unknown_session, 2);
    assert_eq!(count.refused, 1);
}

/// Makes a world with one open session; returns the session's index and token at the server, from
/// its `Accept`.
fn opened() -> (World, u32, u32) {
    let mut world =
        World::new(1, 1, Weather::calm(1500), &Config { slots: 8, ..Config::default() });
    world.inject(address(9), 0, &connect_frame(5));
    let node = &mut world.nodes[0];
    node.endpoint.flush(&mut node.wire);
    let (_, accept) = node.wire.sent.pop().expect("an answer");
    let field = |at: usize| u32::from_le_bytes(accept[at..at + 4].try_into().unwrap());
    (world, field(24 + 4), field(24 + 8))
}

#[test]
fn a_repeated_connect_finds_its_session() {
    let (mut world, ..) = opened();
    for _ in 0..10 {
        world.inject(address(9), 0, &connect_frame(5));
    }
    assert_eq!(world.nodes[0].endpoint.server_sessions(), 1);
    world.inject(address(9), 0, &connect_frame(6));
    assert_eq!(world.nodes[0].endpoint.server_sessions(), 2);
    world.run(Duration::from_secs(4));
    assert_eq!(world.nodes[0].endpoint.server_sessions(), 0, "unused sessions are forgotten early");
}

#[test]
fn only_the_owner_of_a_session_is_heard() {
    let (mut world, index, token) = opened();
    let body = request(1, Want::Retain, 10, 0);
    let total = u32::try_from(body.len()).unwrap();
    let ask = |token: u32| packet(Kind::Request as u8, 0, [index, token, 1, 0, total], &body);
    world.inject(address(8), 0, &ask(token));
    world.inject(address(9), 0, &ask(token ^ 1));
    world.inject(address(8), 0, &packet(Kind::Close as u8, 0, [index, token, 0, 0, 0], &[]));
    assert!(world.nodes[0].app.executed.is_empty());
    assert_eq!(world.nodes[0].endpoint.counters().unknown_session, 3);
    world.inject(address(9), 0, &ask(token));
    assert_eq!(world.nodes[0].app.executed[&1], 1);
    world.inject(address(9), 0, &ask(token));
    assert_eq!(world.nodes[0].app.executed[&1], 1);
    assert_eq!(world.nodes[0].endpoint.counters().repeats, 1);
    // An older request, and requests far behind, are dropped.
    for sequence in [0, u32::MAX, 0x8000_0001] {
        world.inject(
            address(9),
            0,
            &packet(Kind::Request as u8, 0, [index, token, sequence, 0, total], &body),
        );
    }
    assert_eq!(
        world.nodes[0].endpoint.counters().old_requests + world.nodes[0].endpoint.counters().busy,
        3
    );
}

#[test]
fn impossible_fragments_and_slots_are_counted() {
    let (mut world, index, token) = opened();
    let piece = pattern(1, 1476);
    let mut send = |slot, offset, total, payload: &[u8]| {
        world.inject(
            address(9),
            0,
            &packet(Kind::Request as u8, slot, [index, token, 1, offset, total], payload),
        );
        *world.nodes[0].endpoint.counters()
    };
    assert_eq!(send(8, 0, 5000, &piece).malformed_slot, 1);
    for (number, (offset, total, payload)) in [
        (1, 5000, &piece[..]),
        (0, 5000, &piece[..100]),
        (5904, 5000, &piece[..]),
        (0, 9 << 20, &piece[..]),
        (0, u32::MAX, &piece[..]),
        (u32::MAX, 5000, &piece[..]),
        (0, 10, &piece[..11]),
        (4, 10, &piece[..6]),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            send(0, offset, total, payload).malformed_fragment,
            number as u64 + 1,
            "{offset} {total}"
        );
    }
    assert_eq!(world.nodes[0].endpoint.reassembly_bytes(), 0);
}

#[test]
fn a_partial_request_is_dropped() {
    let (mut world, index, token) = opened();
    let piece = pattern(1, 1476);
    for slot in 0..8 {
        world.inject(
            address(9),
            0,
            &packet(Kind::Request as u8, slot, [index, token, 1, 1476, 8 << 20], &piece),
        );
    }
    let held = world.nodes[0].endpoint.reassembly_bytes();
    assert_eq!(held, 64 << 20);
    world.inject(address(9), 0, &connect_frame(6));
    world.run(Duration::from_secs(10));
    assert_eq!(world.nodes[0].endpoint.reassembly_bytes(), 0);
    assert_eq!(world.nodes[0].endpoint.counters().abandoned, 8);
}

/// Some clients begin long requests in any number of sessions and do not continue them. Other
/// clients can send their long requests nevertheless.
#[test]
fn unfinished_long_requests_do_not_block_other_clients() {
    for sessions in [1, 16, 100] {
        let config = Config { slots: 8, max_reassembly: 4 << 20, ..Config::default() };
        let mut world = World::new(1, 2, Weather::calm(1500), &config);
        let piece = pattern(1, 1476);
        let hoarders: Vec<(u32, u32)> =
            (0..sessions).map(|nonce| open_session(&mut world, 1, 100 + nonce)).collect();
        let total = (4 << 20) / sessions;
        for &(index, token) in &hoarders {
            world.inject(
                address(9),
                1,
                &packet(Kind::Request as u8, 0, [index, token, 1, 1476, total], &piece),
            );
        }
        assert!(world.nodes[1].endpoint.reassembly_bytes() > (4 << 20) - 100_000, "all is taken");
        let session = world.connect(0, 1);
        for op in 0..4 {
            let call = world.call(0, session, &request(op, Want::Retain, 10, 30_000), LONG);
            let begun = world.now;
            while world.result(0, call).is_none() {
                assert!(world.step());
            }
            assert!(world.result(0, call).unwrap().is_ok());
            assert!(
                world.now.since(begun) < Duration::from_millis(500),
                "{:?}",
                world.now.since(begun)
            );
        }
        assert!(world.nodes[1].endpoint.counters().reassembly_ceded > 0);
    }
}

/// Opens a session at a node from address 9, and returns its index and token.
fn open_session(world: &mut World, node: usize, nonce: u32) -> (u32, u32) {
    let server = &mut world.nodes[node];
    server.endpoint.flush(&mut server.wire);
    server.wire.sent.clear();
    world.inject(address(9), node, &connect_frame(nonce));
    let node = &mut world.nodes[node];
    node.endpoint.flush(&mut node.wire);
    let (_, accept) = node.wire.sent.pop().expect("an answer");
    let field = |at: usize| u32::from_le_bytes(accept[at..at + 4].try_into().unwrap());
    (field(24 + 4), field(24 + 8))
}

/// One address has all sessions. Another address can still open a session, in place of the session
/// that was silent for longest. The first address can open another session once one of its own is
/// idle.
#[test]
fn sessions_of_one_address_do_not_block_other_addresses() {
    let config = Config { slots: 8, max_sessions: 20, ..Config::default() };
    let mut world = World::new(1, 2, Weather::calm(1500), &config);
    let body = request(1, Want::Retain, 10, 0);
    let total = u32::try_from(body.len()).unwrap();
    let mut all = Vec::new();
    for nonce in 0..20 {
        let (index, token) = open_session(&mut world, 1, 100 + nonce);
        world.inject(
            address(9),
            1,
            &packet(Kind::Request as u8, 0, [index, token, 1, 0, total], &body),
        );
        world.now = world.now + Duration::from_millis(1);
        all.push((index, token));
    }
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 20);
    let ask = |world: &mut World, (index, token): (u32, u32)| {
        let unknown = world.nodes[1].endpoint.counters().unknown_session;
        world.inject(address(9), 1, &packet(Kind::Ping as u8, 0, [index, token, 0, 0, 0], &[]));
        world.nodes[1].endpoint.counters().unknown_session == unknown
    };
    // Here one address has all sessions, and none of them has been silent for long enough.
    let refused = world.nodes[1].endpoint.counters().refused;
    world.inject(address(9), 1, &connect_frame(500));
    assert_eq!(world.nodes[1].endpoint.counters().refused, refused + 1);
    world.now = world.now + Duration::from_secs(2);
    (1..20).for_each(|at| assert!(ask(&mut world, all[at])));
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(7, Want::Retain, 10, 0), LONG);
    world.run(Duration::from_millis(100));
    assert!(world.result(0, call).is_some_and(Result::is_ok));
    assert_eq!(world.nodes[1].endpoint.counters().sessions_ceded, 1);
    assert!(!ask(&mut world, all[0]), "the session that was silent is gone");
    assert!((1..20).all(|at| ask(&mut world, all[at])));
}

/// The server drops responses that it holds for a silent client long before the session would end.
#[test]
fn unacknowledged_responses_are_dropped() {
    let mut world =
        World::new(1, 1, Weather::calm(1500), &Config { slots: 8, ..Config::default() });
    let (index, token) = open_session(&mut world, 0, 5);
    for (slot, want, len) in
        [(0, Want::Reexecute, 100_000), (1, Want::Retain, 1000), (2, Want::Retain, 10)]
    {
        let body = request(slot.into(), want, len, 0);
        let total = u32::try_from(body.len()).unwrap();
        world.inject(
            address(9),
            0,
            &packet(Kind::Request as u8, slot, [index, token, 1, 0, total], &body),
        );
    }
    assert_eq!(world.nodes[0].app.bodies.len(), 2);
    world.run(Duration::from_secs(3));
    // A ping shows that the client is only slow, so its responses are kept.
    world.inject(address(9), 0, &packet(Kind::Ping as u8, 0, [index, token, 0, 0, 0], &[]));
    world.run(Duration::from_secs(3));
    assert_eq!(world.nodes[0].app.bodies.len(), 2);
    world.run(Duration::from_secs(3));
    assert_eq!(
        (world.nodes[0].app.bodies.len(), world.nodes[0].endpoint.server_sessions()),
        (0, 1)
    );
    assert_eq!(world.nodes[0].endpoint.counters().answers_dropped, 2);
    // The session goes on unless its client waits for a dropped response: that request was
    // executed, and must not be executed again.
    let ask = |world: &mut World, slot: u8, sequence: u32| {
        let body = request(7, Want::Retain, 10, 0);
        let total = u32::try_from(body.len()).unwrap();
        world.inject(
            address(9),
            0,
            &packet(Kind::Request as u8, slot, [index, token, sequence, 0, total], &body),
        );
        world.nodes[0].endpoint.server_sessions()
    };
    assert_eq!((ask(&mut world, 0, 2), ask(&mut world, 3, 1)), (1, 1));
    assert_eq!(world.nodes[0].app.executed[&7], 2);
    assert_eq!((ask(&mut world, 1, 1), world.nodes[0].app.executed[&7]), (0, 2));
}

#[test]
fn answers_to_stray_packets_are_no_longer_than_those() {
    let mut world = World::new(1, 1, Weather::calm(1500), &Config::default());
    let mut dice = Dice::new(1);
    for kind in 1..=13 {
        for _ in 0..100 {
            let fields = [(); 5].map(|()| u32::try_from(dice.below(1 << 32)).unwrap());
            let slot = u8::try_from(dice.below(256)).unwrap();
            let frame = packet(kind, slot, fields, &[]);
            world.inject(address(9), 0, &frame);
            let node = &mut world.nodes[0];
            node.endpoint.flush(&mut node.wire);
            let answer: usize = node.wire.sent.drain(..).map(|(_, frame)| frame.len()).sum();
            assert!(answer <= frame.len());
        }
    }
}

#[test]
fn flipped_bytes_break_nothing() {
    for seed in 0..150 {
        let mut world =
            World::new(seed, 2, Weather::calm(1500), &Config { slots: 8, ..Config::default() });
        let session = world.connect(0, 1);
        let mut dice = Dice::new(seed);
        // Records the frames of an honest history, then sends them again with some bytes changed.
        let mut heard: Vec<(usize, Vec<u8>)> = Vec::new();
        for op in 0..30 {
            if world.nodes[0].endpoint.free_slots(session) != Some(0) {
                let (filler, response) = (dice.index(6000), dice.index(6000));
                world.call(0, session, &request(op, Want::Retain, response, filler), LONG);
            }
            world.step();
            heard.extend(world.take_heard());
            for _ in 0..20 {
                let Some((to, frame)) = heard.get(dice.index(1 + heard.len())) else {
                    continue;
                };
                // Changes headers only: the application checks payloads.
                let mut frame = frame.clone();
                for _ in 0..=dice.below(3) {
                    let at = dice.index(frame.len().min(24));
                    frame[at] ^= 1 << dice.below(8);
                }
                let from = address(1 - to);
                let node = &mut world.nodes[*to];
                // A perfect forgery reaches the handler, so the handler must not check its bytes.
                node.app.forged = true;
                node.endpoint.receive(world.now, from, &frame, &mut node.app, &mut node.wire);
                node.app.forged = false;
            }
        }
        world.settle();
        assert!(world.nodes.iter().all(|node| node.endpoint.is_idle() && node.app.doubles == 0));
        assert_eq!(world.nodes[0].endpoint.counters().calls, {
            let counters = world.nodes[0].endpoint.counters();
            counters.answered + counters.failed
        });
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..50)
    ) {
        let mut world = World::new(1, 1, Weather::calm(1500), &Config::default());
        for frame in &frames {
            let node = &mut world.nodes[0];
            node.endpoint.receive(world.now, address(9), frame, &mut node.app, &mut node.wire);
        }
        world.run(Duration::from_secs(1));
    }

    #[test]
    fn any_fields_are_survived(
        packets in prop::collection::vec(
            (1u8..=13, any::<u8>(), 0u32..3, any::<u32>(), any::<u32>(), 0usize..1500),
            0..60,
        )
    ) {
        let (mut world, index, token) = opened();
        for (kind, slot, sequence, offset, total, payload) in packets {
            let fields = [index, token, sequence, offset, total];
            let bytes = packet(kind, slot, fields, &vec![0; payload]);
            let node = &mut world.nodes[0];
            node.app.forged = true;
            node.endpoint.receive(world.now, address(9), &bytes, &mut node.app, &mut node.wire);
            node.endpoint.poll(world.now, &mut node.app, &mut node.wire);
        }
    }
}

#[test]
fn no_handler_answers_retry() {
    let mut world = World::new(1, 1, Weather::calm(1500), &Config::default());
    let mut endpoint = sprat_rpc::Endpoint::<()>::new(&Config::default(), 7);
    let wire = &mut world.nodes[0].wire;
    endpoint.receive(Nanos(1), address(9), &connect_frame(5), &mut NoHandler, wire);
    endpoint.flush(wire);
    assert_eq!(wire.sent.len(), 1);
}
