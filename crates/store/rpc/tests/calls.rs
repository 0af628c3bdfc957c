//! What callers and servers can rely on, over networks that lose, repeat, reorder and delay frames.

use crate::net;
use std::collections::HashMap;
use std::time::Duration;

use net::{REQUEST_HEADER, Want, Weather, World, pattern, request};
use proptest::prelude::*;
use sprat_net::Nanos;
use sprat_rpc::{CallError, CallFailure, CallId, Config, GRANT_WINDOW, MAX_RTO, Refusal};
use sprat_wire::MAX_MESSAGE;

const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_call_is_two_frames() {
    let mut world = World::new(1, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    world.settle();
    world.run(Duration::from_millis(50));
    assert!(world.nodes[0].endpoint.is_open(session));
    let before = *world.nodes[0].endpoint.counters();
    let call = world.call(0, session, &request(7, Want::Retain, 40, 10), LONG);
    world.settle();
    assert_eq!(world.result(0, call), Some(&Ok(pattern(7 ^ 0xff, 40))));
    let after = world.nodes[0].endpoint.counters();
    assert_eq!((after.frames_out - before.frames_out, after.frames_in - before.frames_in), (1, 1));
    assert_eq!(
        (after.packets_out - before.packets_out, after.packets_in - before.packets_in),
        (1, 1)
    );
}

#[test]
fn small_packets_share_a_frame() {
    let mut world = World::new(1, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    world.run(Duration::from_millis(1));
    let before = *world.nodes[0].endpoint.counters();
    let calls: Vec<CallId> = (0..20)
        .map(|op| world.call(0, session, &request(op, Want::Reexecute, 30, 0), LONG))
        .collect();
    world.settle();
    assert!(calls.iter().all(|&call| world.result(0, call).is_some_and(Result::is_ok)));
    let after = world.nodes[0].endpoint.counters();
    assert_eq!((after.frames_out - before.frames_out, after.frames_in - before.frames_in), (1, 1));
}

#[test]
fn requests_of_one_frame_are_announced_a_few_ahead() {
    let mut world = World::new(1, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    world.run(Duration::from_millis(1));
    for op in 0..20 {
        world.call(0, session, &request(op, Want::Reexecute, 30, 0), LONG);
    }
    world.settle();
    let server = &world.nodes[1].app;
    assert_eq!(server.executed.len(), 20);
    // Each request but the first is announced once, in order: eight at the beginning, then one for
    // each request.
    let wanted: Vec<(u64, usize)> =
        (1..20).map(|op| (op, usize::try_from(op).unwrap().saturating_sub(8))).collect();
    assert_eq!(server.prefetched, wanted);
}

#[test]
fn every_length_arrives() {
    for mtu in [576, 1500, 65_000] {
        let mut world = World::new(1, 2, Weather::calm(mtu), &Config::default());
        let session = world.connect(0, 1);
        let edge = mtu - 24;
        for len in [
            0,
            1,
            64,
            65,
            edge - 1,
            edge,
            edge + 1,
            2 * edge,
            2 * edge + 1,
            65_536,
            1 << 20,
            MAX_MESSAGE - REQUEST_HEADER,
        ] {
            for want in [Want::Retain, Want::Reexecute] {
                let filler = len.saturating_sub(if len == edge || len == 2 * edge {
                    REQUEST_HEADER
                } else {
                    0
                });
                let op = len as u64;
                let call = world.call(0, session, &request(op, want, len, filler), LONG);
                world.settle();
                assert_eq!(
                    world.result(0, call),
                    Some(&Ok(pattern(op ^ 0xff, len))),
                    "{len} at {mtu}"
                );
            }
        }
        let endpoint = &mut world.nodes[0].endpoint;
        assert_eq!(endpoint.counters().retransmissions, 0);
        assert_eq!(endpoint.counters().resends + world.nodes[1].endpoint.counters().resends, 0);
        world.run(Duration::from_millis(50));
        let held = world.nodes[1].app.bodies.len();
        assert!(held <= 1, "{held} bodies are held after all acknowledgements");
    }
}

#[test]
fn too_long_late_and_too_many_calls_fail() {
    let mut world =
        World::new(1, 2, Weather::calm(1500), &Config { slots: 8, ..Config::default() });
    let session = world.connect(0, 1);
    let node = &mut world.nodes[0];
    let long = vec![0; MAX_MESSAGE + 1];
    let mut call = |bytes: &[u8], deadline| {
        node.endpoint.call(world.now, session, &[bytes], deadline, &mut node.wire)
    };
    assert_eq!(call(&long, Nanos::NEVER), Err(CallError::TooLong(MAX_MESSAGE + 1)));
    assert_eq!(call(b"", world.now), Err(CallError::Late));
    for op in 0..8 {
        call(&request(op, Want::Later, 1, 0), Nanos::NEVER).unwrap();
    }
    assert_eq!(call(b"", Nanos::NEVER), Err(CallError::NoSlot));
    assert_eq!(node.endpoint.free_slots(session), Some(0));
    world.settle();
    assert_eq!(world.nodes[0].endpoint.free_slots(session), Some(8));
}

#[test]
fn a_short_call_does_not_wait_for_a_long_one() {
    // 1 GB/s: 8 MB take 8 ms.
    let weather = Weather { rate: 1_000_000_000, ..Weather::calm(9000) };
    let mut world = World::new(1, 3, weather, &Config::default());
    let (long, short) = (world.connect(0, 1), world.connect(0, 2));
    world.run(Duration::from_millis(1));
    let call = world.call(0, long, &request(1, Want::Reexecute, MAX_MESSAGE, 0), LONG);
    world.run(Duration::from_millis(2));
    let mut slowest = Duration::ZERO;
    for op in 2..20 {
        // One short call is served by the node that sends the long response, one by another node.
        for session in [long, short] {
            let begun = world.now;
            let call = world.call(0, session, &request(op, Want::Reexecute, 100, 0), LONG);
            while world.result(0, call).is_none() {
                world.step();
            }
            slowest = slowest.max(world.now.since(begun));
        }
    }
    assert!(world.result(0, call).is_none(), "the long call ended too early to measure");
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
    // In virtual time this is exact: at most one window is in the sender's queue before the short
    // response.
    let window = Duration::from_nanos(GRANT_WINDOW as u64 + 20_000);
    assert!(slowest <= window, "{slowest:?} > {window:?}");
}

#[test]
fn shorter_messages_are_received_first() {
    let weather = Weather { rate: 1_000_000_000, ..Weather::calm(9000) };
    let mut world = World::new(1, 2, weather, &Config::default());
    let session = world.connect(0, 1);
    world.run(Duration::from_millis(1));
    let sizes = [8, 7, 6, 5, 4, 3, 2, 1].map(|size| size * 900_000);
    let calls = sizes.map(|size| {
        world.call(
            0,
            session,
            &request(size, Want::Reexecute, usize::try_from(size).unwrap(), 0),
            LONG,
        )
    });
    world.settle();
    let ends = calls.map(|call| world.nodes[0].app.results[&call].0);
    assert!(ends[7] < ends[3] && ends[3] < ends[1], "{ends:?}");
}

#[test]
fn pending_requests_keep_their_client_waiting_once() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    world.nodes[1].app.think = Duration::from_secs(20);
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(5, Want::Later, 500, 0), LONG);
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
    assert_eq!(world.nodes[1].app.executed[&5], 1);
    let asked = world.nodes[0].endpoint.counters().retransmissions;
    assert!((20..100).contains(&asked), "asked {asked} times in 20 s");
}

#[test]
fn turned_away_requests_are_asked_again() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    let short = world.call(0, session, &request(5, Want::Turned, 500, 0), LONG);
    let long = world.call(0, session, &request(6, Want::Turned, 5000, 100_000), LONG);
    let never = world.call(0, session, &request(7, Want::Never, 5000, 0), Duration::from_millis(3));
    world.settle();
    assert!(world.result(0, short).unwrap().is_ok());
    assert!(world.result(0, long).unwrap().is_ok());
    assert_eq!(world.result(0, never), Some(&Err(CallFailure::Overloaded { retry_micros: 500 })));
    assert_eq!(world.nodes[1].app.executed, HashMap::from([(5, 1), (6, 1)]));
}

#[test]
fn a_restarted_server_loses_sent_calls_and_serves_later_ones() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    let sent = world.call(0, session, &request(5, Want::Later, 500, 0), LONG);
    world.run(Duration::from_millis(5));
    world.restart(1);
    let also_sent = world.call(0, session, &request(6, Want::Retain, 500, 0), LONG);
    world.settle();
    let lost = Err(CallFailure::Lost { maybe_executed: true });
    assert_eq!((world.result(0, sent), world.result(0, also_sent)), (Some(&lost), Some(&lost)));
    let next = world.call(0, session, &request(7, Want::Retain, 500, 0), LONG);
    world.settle();
    assert!(world.result(0, next).unwrap().is_ok());
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 1);
}

#[test]
fn a_call_after_a_long_silence_survives_the_loss_of_the_session() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(1, Want::Retain, 500, 0), LONG);
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
    world.run(LONG);
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 0);
    assert!(world.nodes[1].app.bodies.is_empty());
    world.now = world.now + LONG;
    let call = world.call(0, session, &request(2, Want::Retain, 500, 0), LONG);
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
}

#[test]
fn pings_keep_a_session() {
    let mut world = World::new(3, 2, Weather::rough(1500), &Config::default());
    let session = world.connect(0, 1);
    world.nodes[0].endpoint.keep_alive(session, true);
    world.run(LONG * 5);
    assert_eq!(world.nodes[1].endpoint.counters().sessions_opened, 1);
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 1);
    assert!(world.nodes[0].endpoint.counters().packets_out < 200);
}

#[test]
fn a_dead_server_is_noticed() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    world.run(Duration::from_millis(1));
    world.cut[1] = true;
    let begun = world.now;
    let soon = world.call(0, session, &request(1, Want::Retain, 500, 0), Duration::from_secs(1));
    let late = world.call(0, session, &request(2, Want::Retain, 500, 0), LONG);
    world.settle();
    let ended = |world: &World, call| world.nodes[0].app.results[&call].0.since(begun);
    assert_eq!(world.result(0, soon), Some(&Err(CallFailure::Deadline { maybe_executed: true })));
    assert_eq!(ended(&world, soon), Duration::from_secs(1));
    assert_eq!(
        world.result(0, late),
        Some(&Err(CallFailure::Unreachable { maybe_executed: true }))
    );
    assert!(ended(&world, late) <= Duration::from_secs(5) + MAX_RTO);
    let unsent = world.call(0, session, &request(3, Want::Retain, 500, 0), LONG);
    world.settle();
    assert_eq!(
        world.result(0, unsent),
        Some(&Err(CallFailure::Unreachable { maybe_executed: false }))
    );
    world.cut[1] = false;
    let healed = world.call(0, session, &request(4, Want::Retain, 500, 0), LONG);
    world.settle();
    assert!(world.result(0, healed).unwrap().is_ok());
}

#[test]
fn a_full_server_refuses_and_unused_sessions_give_way() {
    let config = Config { max_sessions: 3, ..Config::default() };
    let mut world = World::new(3, 2, Weather::calm(1500), &config);
    // Two strangers open sessions and never use them.
    for stranger in [50, 51] {
        world.inject(net::address(stranger), 1, &net::connect_frame(7));
    }
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 2);
    let sessions: Vec<_> = (0..3).map(|_| world.connect(0, 1)).collect();
    for (op, &session) in (10..).zip(&sessions) {
        let call = world.call(0, session, &request(op, Want::Retain, 1, 0), LONG);
        world.settle();
        assert!(world.result(0, call).unwrap().is_ok());
    }
    // Now all three sessions are used, so a fourth is refused.
    let fourth = world.connect(0, 1);
    let call = world.call(0, fourth, &request(21, Want::Retain, 1, 0), LONG);
    world.settle();
    assert_eq!(world.result(0, call), Some(&Err(CallFailure::Refused(Refusal::Full))));
    let node = &mut world.nodes[0];
    node.endpoint.close(world.now, sessions[0], &mut node.wire);
    world.run(Duration::from_millis(10));
    let call = world.call(0, fourth, &request(22, Want::Retain, 1, 0), LONG);
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 3);
}

#[test]
fn closing_waits_for_calls() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(1, Want::Later, 500, 0), LONG);
    world.run(Duration::from_millis(1));
    let node = &mut world.nodes[0];
    node.endpoint.close(world.now, session, &mut node.wire);
    let refused = node.endpoint.call(world.now, session, &[], Nanos::NEVER, &mut node.wire);
    assert_eq!(refused, Err(CallError::Closed));
    world.run(Duration::from_millis(100));
    assert!(world.result(0, call).unwrap().is_ok());
    assert_eq!(world.nodes[0].endpoint.client_sessions(), 0);
    assert_eq!(world.nodes[1].endpoint.server_sessions(), 0);
    assert!(world.nodes[1].app.bodies.is_empty());
}

#[test]
fn a_draining_server_finishes_running_requests() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    let session = world.connect(0, 1);
    let begun = world.call(0, session, &request(1, Want::Later, 500, 0), LONG);
    world.run(Duration::from_millis(1));
    world.nodes[1].endpoint.drain();
    let after = world.call(0, session, &request(2, Want::Retain, 500, 0), Duration::from_secs(1));
    while !world.nodes[1].endpoint.is_idle() {
        world.step();
    }
    world.run(Duration::from_millis(20));
    assert!(world.result(0, begun).unwrap().is_ok());
    let node = &mut world.nodes[1];
    node.endpoint.close_clients(world.now, &mut node.app, &mut node.wire);
    world.settle();
    assert_eq!(world.result(0, after), Some(&Err(CallFailure::Lost { maybe_executed: true })));
    let later = world.call(0, session, &request(3, Want::Retain, 500, 0), LONG);
    world.settle();
    assert_eq!(world.result(0, later), Some(&Err(CallFailure::Refused(Refusal::Draining))));
    assert_eq!(world.nodes[1].app.executed, HashMap::from([(1, 1)]));
    assert!(world.nodes[1].app.bodies.is_empty());
}

#[test]
fn an_answer_to_a_forgotten_request_does_nothing() {
    let mut world = World::new(3, 2, Weather::calm(1500), &Config::default());
    world.nodes[1].app.think = Duration::from_secs(1);
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(1, Want::Later, 500, 0), Duration::from_millis(100));
    world.run(Duration::from_millis(1));
    let node = &mut world.nodes[0];
    node.endpoint.close(world.now, session, &mut node.wire);
    world.run(Duration::from_secs(2));
    assert_eq!(world.result(0, call), Some(&Err(CallFailure::Deadline { maybe_executed: true })));
    assert_eq!(world.nodes[1].endpoint.counters().stale_answers, 1);
    assert!(world.nodes[1].app.bodies.is_empty());
}

#[test]
fn reassembly_memory_is_bounded() {
    let config = Config { max_reassembly: 3 << 20, ..Config::default() };
    let mut world = World::new(3, 3, Weather::rough(9000), &config);
    let sessions = [world.connect(0, 2), world.connect(1, 2)];
    let mut calls = Vec::new();
    for op in 0..16u64 {
        let node = usize::from(op % 2 == 1);
        calls.push((
            node,
            world.call(node, sessions[node], &request(op, Want::Retain, 1 << 20, 1 << 20), LONG),
        ));
    }
    let mut most = 0;
    while !world.nodes.iter().all(|node| node.endpoint.is_idle()) {
        world.step();
        most = most
            .max(world.nodes.iter().map(|node| node.endpoint.reassembly_bytes()).max().unwrap());
    }
    assert!(most <= 3 << 20);
    assert!(most > 1 << 20);
    for (node, call) in calls {
        assert!(world.result(node, call).unwrap().is_ok());
    }
    assert_eq!(world.nodes[2].endpoint.reassembly_bytes(), 0);
}

/// Runs many calls of all kinds from two clients, with faults, and checks the result.
fn history(seed: u64, weather: Weather, longest: u32, restarts: bool) {
    let config = Config { slots: 8, ..Config::default() };
    let mut world = World::new(seed, 3, weather, &config);
    let mut sessions =
        vec![(0, world.connect(0, 2)), (1, world.connect(1, 2)), (0, world.connect(0, 2))];
    let mut calls: Vec<(usize, CallId, u64, Want, usize)> = Vec::new();
    let count = 40;
    for op in 0..count {
        let which = world.dice.index(sessions.len());
        let (node, session) = sessions[which];
        while world.nodes[node].endpoint.free_slots(session) == Some(0) {
            world.step();
        }
        let want = [Want::Retain, Want::Reexecute, Want::Later, Want::Turned][world.dice.index(4)];
        let size = |world: &mut World| {
            let bits = world.dice.below(u64::from(longest) + 1);
            world.dice.index(1 << bits)
        };
        let (filler, response) = (size(&mut world), size(&mut world));
        let call = world.call(node, session, &request(op, want, response, filler), LONG);
        calls.push((node, call, op, want, response));
        let pause = world.dice.below(3000);
        world.run(Duration::from_micros(pause));
        if restarts && world.dice.chance(50) {
            world.restart(2);
        }
        if world.dice.chance(30) {
            let owner = &mut world.nodes[node];
            owner.endpoint.close(world.now, session, &mut owner.wire);
            sessions[which].1 = world.connect(node, 2);
        }
    }
    world.settle();
    for (node, call, op, want, response) in calls {
        let times = world.nodes[2].app.executed.get(&op).copied().unwrap_or(0);
        match world.result(node, call) {
            Some(Ok(bytes)) => {
                assert_eq!(*bytes, pattern(op ^ 0xff, response), "seed {seed}: response {op}");
                assert!(times >= 1, "seed {seed}: {op} was answered, not executed");
            }
            Some(Err(CallFailure::Lost { maybe_executed: true })) if restarts => {}
            other => panic!("seed {seed}: {op} ended in {other:?}"),
        }
        assert!(
            want == Want::Reexecute || times <= 1,
            "seed {seed}: {op} was executed {times} times"
        );
    }
    assert_eq!(world.nodes.iter().map(|node| node.app.doubles).sum::<u32>(), 0);
    for (node, session) in sessions {
        let node = &mut world.nodes[node];
        node.endpoint.close(world.now, session, &mut node.wire);
    }
    world.weather = Weather::calm(world.weather.mtu);
    world.run(Duration::from_secs(130));
    let server = &world.nodes[2];
    assert_eq!((server.endpoint.server_sessions(), server.app.bodies.len()), (0, 0), "seed {seed}");
    for node in &world.nodes {
        assert_eq!(
            (node.endpoint.reassembly_bytes(), node.endpoint.client_sessions()),
            (0, 0),
            "seed {seed}"
        );
        assert!(node.endpoint.is_idle());
        let counters = node.endpoint.counters();
        let malformed = [
            counters.malformed_short,
            counters.malformed_truncated,
            counters.malformed_kind,
            counters.malformed_meaning,
            counters.malformed_fragment,
            counters.malformed_slot,
        ];
        assert_eq!(malformed, [0; 6], "seed {seed}");
    }
}

#[test]
fn a_thousand_histories_of_short_calls() {
    for seed in 0..1000 {
        history(seed, Weather::rough(1500), 10, seed % 4 == 0);
    }
}

#[test]
fn histories_of_long_calls() {
    for seed in 0..60 {
        history(seed, Weather::rough(if seed % 2 == 0 { 1500 } else { 9000 }), 18, seed % 4 == 0);
    }
}

#[test]
fn histories_over_a_broken_reliable_transport() {
    for seed in 0..50 {
        history(seed, Weather { loss: 100, reliable: true, ..Weather::calm(1500) }, 14, false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn histories_in_any_weather(
        seed: u64,
        loss in 0u64..250,
        repeat in 0u64..300,
        reorder in 0u64..800,
        mtu in 576usize..9000,
    ) {
        history(seed, Weather { loss, repeat, reorder, ..Weather::calm(mtu) }, 12, false);
    }
}
