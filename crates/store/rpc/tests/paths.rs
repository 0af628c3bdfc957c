//! Paths that carry only shorter frames than their ends could send. Ends discover this when a
//! session opens, or when a router reports it later.

use crate::net;
use std::time::Duration;

use net::{Want, Weather, World, request};
use sprat_rpc::{CallFailure, Config};
use sprat_wire::packet::Kind;

const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a long request and its answer.
const LONG: usize = 60_000;

fn ask(world: &mut World, op: u64) -> Vec<u8> {
    let session = world.connect(0, 1);
    let call = world.call(0, session, &request(op, Want::Retain, LONG, LONG), PATIENCE);
    world.settle();
    world.result(0, call).expect("an end").clone().expect("an answer")
}

#[test]
fn a_path_narrower_than_its_ends_is_found_out() {
    // A router on the path carries only Ethernet's common packets, or the shortest that IPv6
    // allows, one way or both ways.
    for (narrow, widest) in [
        ([1500, 1500], 1452),
        ([1500, usize::MAX], 1452),
        ([usize::MAX, 1500], 1452),
        ([1300, 1500], 1232),
        ([usize::MAX, usize::MAX], 8972),
    ] {
        let mut world = World::new(1, 2, Weather::calm(8972), &Config::default());
        world.narrow = narrow.to_vec();
        assert_eq!(ask(&mut world, 7).len(), LONG, "{narrow:?}");
        let heard = world.take_heard();
        let longest = heard
            .iter()
            .filter(|(_, frame)| frame[0] != Kind::Connect as u8)
            .map(|(_, frame)| frame.len())
            .max();
        assert_eq!(longest, Some(widest), "{narrow:?}");
        assert_eq!(world.nodes[1].app.executed[&7], 1);
    }
}

#[test]
fn a_server_that_was_away_gets_wide_frames_when_it_is_back() {
    let mut world = World::new(2, 2, Weather::calm(8972), &Config::default());
    world.cut[1] = true;
    let session = world.connect(0, 1);
    let call =
        world.call(0, session, &request(1, Want::Retain, LONG, LONG), Duration::from_secs(10));
    world.run(Duration::from_secs(1)); // narrow offers have been made by now
    world.cut[1] = false;
    world.settle();
    assert_eq!(world.result(0, call).unwrap().as_ref().map(Vec::len), Ok(LONG));
    assert!(
        world.take_heard().iter().filter(|(_, frame)| frame.len() == 8972).count() > 4,
        "only wide offers"
    );
}

#[test]
fn a_path_that_narrows_takes_another_session() {
    for side in [0, 1] {
        let mut world = World::new(3, 2, Weather::calm(8972), &Config::default());
        let session = world.connect(0, 1);
        let first = world.call(0, session, &request(1, Want::Retain, LONG, LONG), PATIENCE);
        world.settle();
        assert!(world.result(0, first).unwrap().is_ok());
        // From now on long frames are lost, and a router has reported that to one end.
        world.narrow = vec![1500; 2];
        world.nodes[side].wire.reported_mtu = 1452;
        let sizes = if side == 0 { (LONG, 0) } else { (0, LONG) };
        let lost = world.call(0, session, &request(2, Want::Retain, sizes.1, sizes.0), PATIENCE);
        world.settle();
        assert_eq!(
            world.result(0, lost),
            Some(&Err(CallFailure::Lost { maybe_executed: true })),
            "side {side}"
        );
        let after = world.call(0, session, &request(3, Want::Retain, LONG, LONG), PATIENCE);
        world.settle();
        assert_eq!(world.result(0, after).unwrap().as_ref().map(Vec::len), Ok(LONG), "side {side}");
    }
}

#[test]
fn no_answer_is_longer_than_its_cause() {
    let mut world = World::new(4, 1, Weather::calm(8972), &Config::default());
    for padding in [0, 1, 100, 1400, 5000] {
        let mut frame = net::connect_frame(u32::try_from(padding).unwrap() * 10);
        frame.resize(frame.len() + padding, 0);
        let payload = u16::try_from(frame.len() - sprat_wire::packet::HEADER_BYTES).unwrap();
        frame[2..4].copy_from_slice(&payload.to_le_bytes());
        world.inject(net::address(5), 0, &frame);
        let node = &mut world.nodes[0];
        node.endpoint.flush(&mut node.wire);
        let answers = std::mem::take(&mut node.wire.sent);
        assert_eq!(answers.len(), 1, "padding {padding}");
        // An `Accept` is four bytes longer than a bare `Connect`.
        let most = frame.len().max(net::connect_frame(0).len() + 4).min(1500);
        assert!(answers[0].1.len() <= most, "{} for {}", answers[0].1.len(), frame.len());
        if padding >= 100 {
            assert_eq!(answers[0].1.len(), most, "the answer probes the way back");
        }
    }
}
