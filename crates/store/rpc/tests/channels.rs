//! Channels: members can communicate over any network, and strangers get no answer at all.

use crate::net;
use net::{BEGINNING, REQUEST_HEADER, Want, Weather, World, address, connect_frame, request};
use proptest::prelude::*;
use sprat_key::{Grant, Identity, Rights, Role, Root, Terms};
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, Config, Counters, SessionId};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// When the identities of the tests expire, seconds after the beginning.
const LIFE: u64 = 3600;

const PATIENCE: Duration = Duration::from_secs(8);

fn terms(role: Role) -> Terms {
    Terms {
        role,
        name: "one".into(),
        grants: Vec::new(),
        valid: (BEGINNING - 10, BEGINNING + LIFE),
    }
}

fn issue(root: &Root, role: Role) -> Arc<Identity> {
    Arc::new(root.issue(&terms(role)).unwrap())
}

/// A root, and a server and a client of it. All tests share them, as making keys takes long.
fn members() -> &'static (Root, Arc<Identity>, Arc<Identity>) {
    static MEMBERS: OnceLock<(Root, Arc<Identity>, Arc<Identity>)> = OnceLock::new();
    MEMBERS.get_or_init(|| {
        let root = Root::generate().unwrap();
        let (server, client) = (issue(&root, Role::Server), issue(&root, Role::Client));
        (root, server, client)
    })
}

/// Node 0 is a client, node 1 a server.
fn world(seed: u64, weather: Weather) -> World {
    let (_, server, client) = members();
    let mut world = World::new(seed, 2, weather, &Config::default());
    world.secure(0, client);
    world.secure(1, server);
    world
}

fn counters(world: &World, node: usize) -> &Counters {
    world.nodes[node].endpoint.counters()
}

/// Calls once, and waits for the answer.
fn ask(world: &mut World, session: SessionId, op: u64) -> Result<Vec<u8>, CallFailure> {
    let call = world.call(0, session, &request(op, Want::Retain, 100, 50), PATIENCE);
    world.settle();
    world.result(0, call).unwrap().clone()
}

#[test]
fn the_requester_is_known_and_the_payload_is_encrypted() {
    let mut world = world(1, Weather::calm(1500));
    let session = world.connect(0, 1);
    let asked = request(7, Want::Retain, 100, 64);
    let call = world.call(0, session, &asked, PATIENCE);
    world.settle();
    let answer = world.result(0, call).unwrap().clone().unwrap();
    let heard = world.take_heard();
    assert!(heard.len() >= 6);
    for (_, frame) in heard {
        assert!(frame[0] > 0xc0, "a frame of kind {}", frame[0]);
        for secret in [
            &asked[REQUEST_HEADER..],
            &answer[..],
            members().2.certificate_bytes(),
            members().1.certificate_bytes(),
        ] {
            assert!(!frame.windows(8).any(|window| window == &secret[..8]));
        }
    }
    let app = &world.nodes[1].app;
    let [(requester, certificate)] = &app.admitted[..] else { panic!("{:?}", app.admitted) };
    assert_eq!(certificate, members().2.certificate());
    assert_eq!((app.asked.as_slice(), requester.role()), (&[*requester][..], Some(Role::Client)));
    assert!(!requester.serves() && !requester.administers());
    assert!(world.nodes[0].app.admitted.is_empty());
    assert_eq!((counters(&world, 1).channels_opened, counters(&world, 0).channels_opened), (1, 1));
}

#[test]
fn a_calm_handshake_takes_two_round_trips() {
    let mut world = world(2, Weather::calm(1500));
    let began = world.now;
    let session = world.connect(0, 1);
    ask(&mut world, session, 1).unwrap();
    // Hello, Answer; Proof and Connect, Accept; Request, Response.
    assert_eq!(world.now.since(began), Duration::from_micros(6 * 5));
}

#[test]
fn sessions_share_a_channel() {
    let mut world = world(3, Weather::calm(1500));
    for op in 0..10 {
        let session = world.connect(0, 1);
        ask(&mut world, session, op).unwrap();
    }
    assert_eq!((counters(&world, 1).handshakes, counters(&world, 1).sessions_opened), (1, 10));
}

#[test]
fn long_and_short_come_through_a_bad_network_once_each() {
    for seed in 0..20 {
        let mut world = world(seed, Weather::rough(if seed % 2 == 0 { 1500 } else { 60_000 }));
        let session = world.connect(0, 1);
        let lengths = [10, 900, 5000, 300_000];
        for op in 0..60 {
            let (there, back) = (lengths[world.dice.index(4)], lengths[world.dice.index(4)]);
            while world.nodes[0].endpoint.free_slots(session) == Some(0) {
                world.step();
            }
            let want = [Want::Retain, Want::Later, Want::Turned][world.dice.index(3)];
            world.call(0, session, &request(op, want, back, there), Duration::from_secs(60));
        }
        world.settle();
        let (client, server) = (&world.nodes[0].app, &world.nodes[1].app);
        assert_eq!(
            client.results.values().filter(|(_, result)| result.is_ok()).count(),
            60,
            "seed {seed}"
        );
        assert!(server.executed.values().all(|&times| times == 1));
        assert_eq!(counters(&world, 1).malformed() + counters(&world, 0).malformed(), 0);
        assert!(counters(&world, 1).sealed_repeated > 0, "repeated frames are noticed");
    }
}

#[test]
fn strangers_get_no_answer() {
    let (root, server, _) = members();
    let stranger = Root::generate().unwrap();
    let expired = Terms { valid: (1, BEGINNING), ..terms(Role::Client) };
    let early = Terms { valid: (BEGINNING + 100, BEGINNING + LIFE), ..terms(Role::Client) };
    // The caller's identity, and whether the caller is a member whose Hello is answered. The Hello
    // of case 4 is answered too, because that caller has the cluster's door key.
    let cases = [
        (None, false),
        (Some(issue(&stranger, Role::Admin)), false),
        (Some(Arc::new(root.issue(&expired).unwrap())), true),
        (Some(Arc::new(root.issue(&early).unwrap())), true),
        (Some(other_root_same_door(root)), false),
    ];
    for (number, (identity, answered)) in cases.iter().enumerate() {
        let mut world = World::new(9, 2, Weather::calm(1500), &Config::default());
        world.secure(1, server);
        if let Some(identity) = identity {
            world.secure(0, identity);
        }
        let session = world.connect(0, 1);
        let result = ask(&mut world, session, 1);
        assert_eq!(
            result,
            Err(CallFailure::Unreachable { maybe_executed: false }),
            "case {number}"
        );
        let answers = world.take_heard().iter().filter(|(to, _)| *to == 0).count();
        assert_eq!(answers > 0, *answered || number == 4, "case {number}: {answers} frames");
        let counted = counters(&world, 1);
        assert_eq!(counted.sessions_opened + counted.channels_opened, 0);
        assert!(
            counted.unsealed
                + counted.strangers
                + counted.untrusted
                + counters(&world, 0).untrusted
                > 0
        );
        assert!(world.nodes[1].app.admitted.is_empty());
    }
}

/// Returns an identity of an attacker's own root, with the cluster's door key.
fn other_root_same_door(root: &Root) -> Arc<Identity> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let read = |at: &str| {
        let text = std::fs::read_to_string(path(at)).unwrap();
        let coded: String = text.lines().skip(1).collect();
        base64::Engine::decode(&base64::prelude::BASE64_STANDARD, coded).unwrap()
    };
    root.save(&path("ours")).unwrap();
    Root::generate().unwrap().save(&path("theirs")).unwrap();
    let mut bytes = read("theirs")[..32].to_vec();
    bytes.extend_from_slice(&read("ours")[32..64]);
    let sum = ring::digest::digest(&ring::digest::SHA256, &bytes);
    bytes.extend_from_slice(&sum.as_ref()[..8]);
    let text = format!(
        "sprat root 1\n{}\n",
        base64::Engine::encode(&base64::prelude::BASE64_STANDARD, bytes)
    );
    // Overwrites a file that has the right mode.
    std::fs::write(path("theirs"), text).unwrap();
    issue(&Root::load(&path("theirs")).unwrap(), Role::Server)
}

#[test]
fn a_called_peer_must_be_a_server_with_an_identity() {
    let (root, _, client) = members();
    for called in [Some(issue(root, Role::Client)), Some(issue(root, Role::Admin)), None] {
        let mut world = World::new(4, 2, Weather::calm(1500), &Config::default());
        world.secure(0, client);
        if let Some(called) = &called {
            world.secure(1, called);
        }
        let session = world.connect(0, 1);
        assert_eq!(
            ask(&mut world, session, 1),
            Err(CallFailure::Unreachable { maybe_executed: false })
        );
        assert_eq!(counters(&world, 0).untrusted > 0, called.is_some());
        assert_eq!(counters(&world, 0).channels_opened, 0);
    }
}

#[test]
fn replayed_frames_are_rejected() {
    let mut world = world(5, Weather::calm(1500));
    let session = world.connect(0, 1);
    for op in 0..20 {
        ask(&mut world, session, op).unwrap();
    }
    let heard = world.take_heard();
    for from in [address(0), address(7)] {
        for (to, frame) in &heard {
            world.inject(from, *to, frame);
        }
        world.run(Duration::from_millis(100));
    }
    let server = counters(&world, 1);
    assert_eq!((server.channels_opened, server.sessions_opened, server.requests), (1, 1, 20));
    assert_eq!(world.nodes[1].app.admitted.len(), 1);
    assert!(server.sealed_repeated >= 20 && server.sealed_forged >= 20);
    // After a restart there are no channels, so these frames belong to none.
    world.restart(1);
    for (to, frame) in &heard {
        world.inject(address(0), *to, frame);
    }
    world.iterate();
    assert_eq!((counters(&world, 1).channels_opened, counters(&world, 1).requests), (0, 0));
}

#[test]
fn a_server_that_starts_again_is_found_again() {
    let mut world = world(6, Weather::calm(1500));
    let session = world.connect(0, 1);
    ask(&mut world, session, 1).unwrap();
    world.restart(1);
    let began = world.now;
    assert_eq!(ask(&mut world, session, 2), Err(CallFailure::Lost { maybe_executed: true }));
    ask(&mut world, session, 3).unwrap();
    assert!(world.now.since(began) < Duration::from_millis(200), "{:?}", world.now.since(began));
    // After a long silence the client verifies the session before it sends, and so finds that it is
    // lost.
    world.run(Duration::from_secs(1));
    world.now = world.now + Duration::from_secs(40);
    world.restart(1);
    ask(&mut world, session, 4).unwrap();
    assert_eq!((counters(&world, 0).channels_opened, world.nodes[0].endpoint.channels()), (3, 1));
}

#[test]
fn a_server_that_only_paused_keeps_its_channel() {
    let mut world = world(7, Weather::calm(1500));
    let session = world.connect(0, 1);
    ask(&mut world, session, 1).unwrap();
    world.cut[1] = true;
    let call = world.call(0, session, &request(2, Want::Retain, 10, 10), PATIENCE);
    world.run(Duration::from_millis(600));
    world.cut[1] = false;
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
    world.run(Duration::from_secs(1));
    assert_eq!((counters(&world, 1).handshakes, counters(&world, 1).sessions_opened), (1, 1));
    assert_eq!((world.nodes[0].endpoint.channels(), world.nodes[1].endpoint.channels()), (1, 1));
}

#[test]
fn a_client_that_starts_again_at_its_address_is_another() {
    let mut world = world(8, Weather::calm(1500));
    for life in 0..5 {
        let session = world.connect(0, 1);
        ask(&mut world, session, life).unwrap();
        world.restart(0);
    }
    assert_eq!(world.nodes[1].endpoint.channels(), 5);
    // Unused channels are forgotten.
    world.run(Duration::from_secs(200));
    assert_eq!(
        (world.nodes[1].endpoint.channels(), world.nodes[1].endpoint.server_sessions()),
        (0, 0)
    );
}

#[test]
fn a_channel_ends_with_the_certificate() {
    let mut world = world(10, Weather::calm(1500));
    let session = world.connect(0, 1);
    ask(&mut world, session, 1).unwrap();
    world.now = Nanos((LIFE - 1) * 1_000_000_000);
    ask(&mut world, session, 2).unwrap();
    world.now = Nanos(LIFE * 1_000_000_000);
    assert!(ask(&mut world, session, 3).is_err());
    assert!(!world.nodes[1].app.executed.contains_key(&3));
}

#[test]
fn a_flood_of_hellos_costs_little_and_delays_no_member_for_long() {
    let mut world = world(11, Weather::calm(1500));
    world.connect(0, 1);
    world.iterate();
    world.run(Duration::from_millis(1));
    let heard = world.take_heard();
    let (_, hello) =
        heard.iter().find(|(to, frame)| *to == 1 && frame[0] == 0xc1).expect("a first message");
    // The message is overheard, and sent from a thousand other addresses.
    for node in 100..1100 {
        world.inject(address(node), 1, hello);
        world.iterate();
    }
    let server = counters(&world, 1);
    assert!((60..=70).contains(&server.handshakes), "{}", server.handshakes);
    assert!(server.handshakes_late > 900);
    for round in 0..10 {
        world.run(Duration::from_millis(100));
        for node in 100..1100 {
            world.inject(address(node + 1000 * (round + 1)), 1, hello);
        }
        world.iterate();
    }
    assert!(
        world.nodes[1].endpoint.channels() <= 256 + 1,
        "{}",
        world.nodes[1].endpoint.channels()
    );
    world.run(Duration::from_millis(200));
    let session = world.connect(0, 1);
    ask(&mut world, session, 1).unwrap();
}

#[test]
fn narrow_paths_are_found_out_within_channels() {
    let mut world = world(12, Weather::calm(9000));
    world.narrow = vec![1400; 2];
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(1, Want::Retain, 50_000, 50_000), PATIENCE);
    world.settle();
    assert!(world.result(0, call).unwrap().is_ok());
}

#[test]
fn grants_reach_the_handler() {
    let (root, server, _) = members();
    let grants = (0..3)
        .map(|at| Grant { pattern: format!("{}{at}", "t".repeat(250)), rights: Rights::Read })
        .collect();
    let long = Arc::new(root.issue(&Terms { grants, ..terms(Role::Client) }).unwrap());
    let mut world = World::new(13, 2, Weather::rough(1500), &Config::default());
    world.secure(0, &long);
    world.secure(1, server);
    let session = world.connect(0, 1);
    ask(&mut world, session, 1).unwrap();
    assert_eq!(world.nodes[1].app.admitted[0].1, *long.certificate());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Sends frames of genuine ends, cut, changed, repeated and reordered, from right and wrong
    /// addresses, to either end; and random bytes.
    #[test]
    fn forged_and_damaged_frames_execute_nothing(
        seed in any::<u64>(),
        steps in proptest::collection::vec(
            (any::<u16>(), 0..6u8, any::<u16>(), any::<u8>()),
            1..200,
        ),
    ) {
        let mut world = world(seed, Weather::rough(1500));
        let session = world.connect(0, 1);
        let mut frames = Vec::new();
        let mut op = 0;
        for (which, kind, at, byte) in steps {
            frames.extend(world.take_heard());
            match kind {
                0 => {
                    op += 1;
                    if world.nodes[0].endpoint.free_slots(session) != Some(0) {
                        let response = usize::from(at) % 3000;
                        let filler = usize::from(which) % 3000;
                        let request = request(op, Want::Retain, response, filler);
                        world.call(0, session, &request, PATIENCE);
                    }
                    world.run(Duration::from_micros(u64::from(byte)));
                }
                1 => {
                    let filler = &[byte; 600][..usize::from(at) % 600];
                    let rubbish = [&[byte, 1][..], &which.to_le_bytes(), filler].concat();
                    world.inject(address(usize::from(byte) % 3), usize::from(which) % 2, &rubbish);
                }
                2 => world.inject(address(0), 1, &connect_frame(u32::from(which))),
                _ if frames.is_empty() => {}
                _ => {
                    let (to, mut frame) = frames[usize::from(which) % frames.len()].clone();
                    let place = usize::from(at) % frame.len();
                    match kind {
                        3 => frame.truncate(place),
                        4 => frame[place] ^= byte | 1,
                        _ => {}
                    }
                    let to = if byte < 200 { to } else { 1 - to };
                    world.inject(address(if byte % 4 == 0 { 2 } else { 1 - to }), to, &frame);
                }
            }
        }
        // The application checks every request's bytes, so nothing forged reached it. At the end,
        // calls succeed again.
        world.weather.loss = 0;
        world.settle();
        prop_assert!(world.nodes[1].app.executed.values().all(|&times| times == 1));
        let requesters = &world.nodes[1].app.asked;
        prop_assert!(requesters.iter().all(|peer| peer.role() == Some(Role::Client)));
        while world.nodes[0].endpoint.free_slots(session) == Some(0) {
            world.step();
        }
        prop_assert!(ask(&mut world, session, 1_000_000).is_ok());
        let parsed = counters(&world, 1).malformed_kind;
        prop_assert_eq!(parsed, 0, "an unsealed frame is not parsed");
    }
}
