//! The controller on simulated paths of every kind, without a network. These tests check its
//! properties; benchmarks measure them with real kernels.

use crate::support;
use proptest::prelude::*;
use sprat_pace::weir::{Mode, Sample, Weir};
use std::time::Duration;
use support::{Control, World};

const GBIT: f64 = 1e9 / 8.0;

/// Rates in bytes a second, buffers in bytes, round trips in seconds, and the stalls of the
/// machine.
fn paths() -> impl Iterator<Item = (f64, f64, f64, Option<(f64, f64)>)> {
    let shapes = [
        (2.0, 50e6, 0.2),
        (2.0, 1e6, 0.2),
        (0.1, 1e6, 0.2),
        (10.0, 250e6, 0.2),
        (1.0, 5e6, 0.02),
        (5.0, 60e6, 0.5),
    ];
    let hiccups = [None, Some((0.37, 0.03))];
    shapes.into_iter().flat_map(move |(rate, buffer, rtt)| {
        hiccups.map(|hiccup| (rate * GBIT, buffer, rtt, hiccup))
    })
}

#[test]
fn alone_it_fills_the_path() {
    for (capacity, buffer, rtt, hiccup) in paths() {
        let mut world = World::new(capacity, buffer, rtt, vec![Control::weir()]);
        world.hiccup = hiccup;
        world.run((20.0 * rtt).max(3.0));
        let lost = world.flows[0].resent;
        let length = (100.0 * rtt).max(5.0);
        let share = world.run(length)[0] / length / capacity;
        let bar = if hiccup.is_some() { 0.94 } else { 0.97 };
        assert!(share > bar, "{share:.3} of {capacity} B/s over {rtt} s, {buffer} B, {hiccup:?}");
        let lost = (world.flows[0].resent - lost) / (length * capacity);
        assert!(
            lost < 0.004,
            "{lost:.5} lost of {capacity} B/s over {rtt} s, {buffer} B, {hiccup:?}"
        );
    }
}

#[test]
fn it_starts_fast_and_what_that_costs_is_bounded() {
    for (capacity, buffer, rtt, hiccup) in paths() {
        let mut world = World::new(capacity, buffer, rtt, vec![Control::weir()]);
        world.hiccup = hiccup;
        // The rate triples in each round trip, from 64 KiB. Five more round trips let the start
        // end.
        let rounds = (capacity * rtt / 65_536.0).log(3.0) + 5.0;
        let early = world.run(rounds * rtt)[0];
        let last = world.run(2.0 * rtt)[0] / (2.0 * rtt * capacity);
        assert!(
            last > 0.75,
            "{last:.3} of {capacity} B/s over {rtt} s, {buffer} B after {rounds:.1} rounds"
        );
        assert!(early > 0.5 * capacity * rtt, "{early} B before");
        let lost = world.flows[0].resent / (capacity * rtt);
        assert!(
            lost < 0.3,
            "{lost:.2} of what is under way was lost, of {capacity} B/s over {rtt} s, {buffer} B"
        );
    }
}

#[test]
fn accidents_do_not_slow_it_down() {
    for accident in [0.0001, 0.001, 0.003] {
        let mut world = World::new(2.0 * GBIT, 1e6, 0.2, vec![Control::weir()]);
        world.accident = accident;
        world.run(4.0);
        let share = world.run(20.0)[0] / 20.0 / world.capacity;
        assert!(share > 0.95, "{share:.3} with {accident} lost");
    }
}

#[test]
fn with_another_it_takes_its_share_and_takes_the_rest_back() {
    let mut world = World::new(2.0 * GBIT, 50e6, 0.2, vec![Control::weir(), Control::Gone]);
    world.run(5.0);
    world.flows[1].control = Control::cubic();
    world.run(8.0);
    let both = world.run(20.0);
    let shares: Vec<_> = both.iter().map(|bytes| bytes / 20.0 / world.capacity).collect();
    assert!((0.4..0.6).contains(&shares[0]), "{shares:?}");
    assert!(shares[1] > 0.4, "{shares:?}");
    assert!(
        matches!(world.flows[0].mode(), Some(Mode::Shared { .. })),
        "{:?}",
        world.flows[0].mode()
    );
    world.flows[1].control = Control::Gone;
    world.run(20.0 * world.rtt);
    let back = world.run(1.0)[0] / world.capacity;
    assert!(back > 0.9, "{back:.3} twenty round trips after the other has left");
}

#[test]
fn two_of_them_share() {
    let mut world = World::new(2.0 * GBIT, 50e6, 0.2, vec![Control::weir(), Control::Gone]);
    world.run(5.0);
    world.flows[1].control = Control::weir();
    world.run(10.0);
    let both = world.run(30.0);
    let (all, squares) =
        (both.iter().sum::<f64>(), both.iter().map(|bytes| bytes * bytes).sum::<f64>());
    let jain = all * all / (2.0 * squares);
    assert!(jain > 0.8, "Jain's index {jain:.3}: {both:?}");
    assert!(all / 30.0 / world.capacity > 0.8, "{both:?}");
}

#[test]
fn a_path_that_becomes_wider_is_found() {
    let mut world = World::new(0.5 * GBIT, 5e6, 0.1, vec![Control::weir()]);
    world.run(5.0);
    world.capacity = 2.0 * GBIT;
    world.run(10.0);
    let share = world.run(5.0)[0] / 5.0 / world.capacity;
    assert!(share > 0.9, "{share:.3} of the wider path");
}

#[test]
fn an_outage_is_soon_forgotten() {
    for (buffer, rtt, outage) in
        [(25e6, 0.2, 0.3), (25e6, 0.2, 0.8), (1e6, 0.2, 0.8), (25e6, 0.2, 3.0), (5e6, 0.02, 0.2)]
    {
        for known in [2.0, 30.0] {
            let mut world = World::new(GBIT, buffer, rtt, vec![Control::weir()]);
            world.run(known);
            world.stands_until = world.now + outage;
            world.run(outage + 20.0 * rtt);
            let share = world.run(1.0)[0] / world.capacity;
            assert!(
                share > 0.9,
                "{share:.3} after {outage} s without the path of {rtt} s, {buffer} B, known for \
                 {known} s"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_samples_give_a_rate(
        steps in prop::collection::vec(
            (
                0u64..2_000_000,
                0u64..1 << 32,
                0u64..1 << 32,
                0u64..1 << 20,
                0u64..3_000_000,
                any::<bool>(),
            ),
            1..400,
        ),
        mss in 0u32..70_000,
    ) {
        let mut weir = Weir::new();
        let mut sample = Sample { mss, ..Sample::default() };
        for (micros, sent, delivered, retransmitted, rtt, idle) in steps {
            sample.now += Duration::from_micros(micros);
            sample.sent += sent;
            sample.delivered += delivered;
            sample.retransmitted += retransmitted;
            sample.rtt = Duration::from_micros(rtt);
            sample.min_rtt = Duration::from_micros(rtt / 2);
            sample.idle = idle;
            let rate = weir.update(sample);
            prop_assert!(rate > 0 && rate <= 125_000_000_000, "{} of {:?}", rate, sample);
        }
    }
}
