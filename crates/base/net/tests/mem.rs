//! The network in memory: frames move only when the clock advances, and the same seed gives the
//! same history.

use crate::common;
use std::net::SocketAddr;
use std::time::Duration;

use common::{at, echo, frame, send, take};
use proptest::prelude::*;
use sprat_net::{AnyDriver, Delivery, Driver, Hub, HubOptions, Mem, Nanos, Transmit};

const A: &str = "10.0.0.1:1";
const B: &str = "10.0.0.2:1";

fn net() -> (Hub, Mem, Mem) {
    let hub = Hub::new(HubOptions::default());
    let (a, b) = (hub.port(at(A)).expect("free"), hub.port(at(B)).expect("free"));
    (hub, a, b)
}

fn post(from: &mut Mem, to: &str, bytes: &[u8]) {
    send(from.tx(), at(to), bytes);
    from.tx().flush();
}

#[test]
fn frames_arrive_when_their_time_has_come() {
    let (hub, mut a, mut b) = net();
    hub.set_policy(|flight| {
        assert_eq!((flight.from, flight.to), (at(A), at(B)));
        Delivery::Deliver(Duration::from_nanos(flight.frame.len() as u64 * 10))
    });
    send(a.tx(), at(B), &[3; 30]);
    assert_eq!(hub.next_delivery(), None, "not before the flush");
    a.tx().flush();
    post(&mut a, B, &[2; 20]);
    assert_eq!(hub.next_delivery(), Some(Nanos(200)));
    assert_eq!(hub.deliver_until(Nanos(199)), 0);
    assert!(take(&mut b).is_empty());
    assert_eq!(hub.deliver_until(Nanos(300)), 2);
    assert_eq!(
        take(&mut b),
        [(at(A), vec![2; 20]), (at(A), vec![3; 30])],
        "the shorter frame overtook the longer"
    );
    assert_eq!((hub.now(), hub.next_delivery()), (Nanos(300), None));
}

#[test]
fn the_policy_decides_deliveries() {
    let (hub, mut a, mut b) = net();
    hub.set_policy(|flight| match flight.frame[0] {
        0 => Delivery::Drop,
        1 => Delivery::Deliver(Duration::ZERO),
        _ => Delivery::Twice(Duration::ZERO, Duration::from_nanos(5)),
    });
    for first in 0..3u8 {
        post(&mut a, B, &[first; 4]);
    }
    assert_eq!(hub.deliver_until(hub.now()), 2);
    assert_eq!(hub.deliver_until(Nanos(5)), 1);
    let got: Vec<_> = take(&mut b).into_iter().map(|(_, frame)| frame[0]).collect();
    assert_eq!(got, [1, 2, 2]);
    assert_eq!((a.counters().frames_out, b.counters().frames_in), (3, 3));
}

#[test]
fn a_port_that_returns_gets_what_is_still_under_way() {
    let (hub, mut a, b) = net();
    assert!(hub.port(at(B)).is_err(), "taken");
    hub.set_policy(|_| Delivery::Deliver(Duration::from_nanos(10)));
    post(&mut a, B, b"one");
    drop(b);
    hub.deliver_until(Nanos(10));
    assert_eq!(hub.lost(), 1);
    post(&mut a, B, b"two");
    let mut b = hub.port(at(B)).expect("free again");
    hub.deliver_until(Nanos(20));
    assert_eq!(take(&mut b), [(at(A), b"two".to_vec())]);
}

#[test]
fn queues_are_bounded() {
    let (hub, mut a, mut b) = net();
    for _ in 0..3 {
        for _ in 0..sprat_net::QUEUE_LIMIT + 10 {
            send(a.tx(), at(B), b"x");
        }
        a.tx().flush();
    }
    assert_eq!(a.counters().dropped_full, 30 + sprat_net::QUEUE_LIMIT as u64);
    hub.deliver_until(Nanos(0));
    assert_eq!(hub.waiting(at(B)), sprat_net::QUEUE_LIMIT);
    assert_eq!(hub.lost(), sprat_net::QUEUE_LIMIT as u64);
    a.tx().send(at(B), &[std::io::IoSlice::new(&[0; 1473])]);
    assert_eq!(a.counters().dropped_size, 1);
    while !take(&mut b).is_empty() {}
}

#[test]
fn any_driver_over_memory_behaves_as_memory() {
    let (hub, mut a, b) = net();
    let mut b = AnyDriver::from(b);
    assert_eq!(b.local_addr(), at(B));
    assert!(b.poll_fd().is_none());
    post(&mut a, B, b"ping");
    hub.deliver_until(Nanos(0));
    assert_eq!(echo(&mut b), 1);
    hub.deliver_until(Nanos(0));
    assert_eq!(take(&mut a), [(at(B), b"ping".to_vec())]);
    assert_eq!(b.counters().frames_out, 1);
}

/// Returns all frames that arrive at any port, and the times at which they arrive.
fn history(seed: u64, posts: &[(bool, u64, usize)]) -> Vec<(u64, SocketAddr, Vec<u8>)> {
    let (hub, mut a, mut b) = net();
    let mut state = seed;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    hub.set_policy(move |_| match random() % 4 {
        0 => Delivery::Drop,
        1 => Delivery::Twice(
            Duration::from_nanos(random() % 100),
            Duration::from_nanos(random() % 100),
        ),
        _ => Delivery::Deliver(Duration::from_nanos(random() % 100)),
    });
    let mut history = Vec::new();
    let mut collect = |hub: &Hub, a: &mut Mem, b: &mut Mem| {
        for (to, port) in [(A, a), (B, b)] {
            history.extend(take(port).into_iter().map(|(_, frame)| (hub.now().0, at(to), frame)));
        }
    };
    for (number, &(to_b, pause, len)) in (0..).zip(posts) {
        if to_b {
            post(&mut a, B, &frame(number, len))
        } else {
            post(&mut b, A, &frame(number, len))
        }
        hub.deliver_until(hub.now() + Duration::from_nanos(pause));
        collect(&hub, &mut a, &mut b);
    }
    while let Some(next) = hub.next_delivery() {
        hub.deliver_until(next);
        collect(&hub, &mut a, &mut b);
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_seed_is_one_history(
        seed: u64,
        posts in proptest::collection::vec((any::<bool>(), 0..50u64, 1..100usize), 0..60),
    ) {
        let first = history(seed, &posts);
        prop_assert_eq!(&first, &history(seed, &posts));
        prop_assert!(first.len() <= posts.len() * 2);
        prop_assert!(first.is_sorted_by_key(|(when, ..)| *when));
        let sent: Vec<_> =
            (0..).zip(&posts).map(|(number, &(_, _, len))| frame(number, len)).collect();
        prop_assert!(first.iter().all(|(_, _, frame)| sent.contains(frame)), "all were sent");
    }
}
