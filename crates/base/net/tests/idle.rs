//! Tests how a node waits: the decision in virtual time, and the bell with real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sprat_net::{Decider, Driver, Idle, IdleStep, Mode, Nanos, Policy, Sources, Transmit, Udp};

/// The duration of an iteration that finds nothing.
const ROUND: Duration = Duration::from_nanos(200);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A node in virtual time. A sleep advances time to the next arrival plus the wake-up time `wake`.
struct Node {
    decider: Decider,
    now: Nanos,
    wake: Duration,
    awake: Duration,
    sleeps: u32,
    yields: u32,
}

impl Node {
    fn new(mode: Mode) -> Self {
        let now = Nanos(1_000_000_000);
        let decider = Decider::new(Policy::of(mode), now);
        Self { decider, now, wake: micros(50), awake: Duration::ZERO, sleeps: 0, yields: 0 }
    }

    /// Waits for work that arrives at `arrival`, and then does the work. Returns how late it began.
    fn wait(&mut self, arrival: Nanos) -> Duration {
        while self.now < arrival {
            match self.decider.idle(self.now) {
                IdleStep::Sleep => {
                    self.sleeps += 1;
                    self.now = arrival + self.wake;
                }
                step => {
                    self.yields += u32::from(step == IdleStep::Yield);
                    self.now = self.now + ROUND;
                    self.awake += ROUND;
                }
            }
        }
        let late = self.now.since(arrival);
        self.decider.worked(self.now);
        late
    }
}

#[test]
fn under_load_an_adaptive_node_sleeps_at_most_once() {
    let mut node = Node::new(Mode::Adaptive);
    node.wait(node.now + micros(1_000_000));
    assert_eq!(node.sleeps, 1);
    // A peer that answers within microseconds.
    for _ in 0..1000 {
        assert!(node.wait(node.now + micros(8)) <= ROUND);
    }
    assert_eq!(node.sleeps, 1, "one sleep, before the node begins to spin");
}

#[test]
fn two_sleepers_wake_up_together() {
    // The peer also needs a wake-up to answer, so the gap is two wake-ups.
    let mut node = Node::new(Mode::Adaptive);
    node.wait(node.now + micros(1_000_000));
    for _ in 0..3 {
        node.wait(node.now + micros(110));
    }
    let sleeps = node.sleeps;
    for _ in 0..100 {
        node.wait(node.now + micros(110));
    }
    assert_eq!(node.sleeps, sleeps, "it stays awake from now on");
}

#[test]
fn an_idle_node_costs_next_to_nothing() {
    for mode in [Mode::Adaptive, Mode::Sleep] {
        let mut node = Node::new(mode);
        let start = node.now;
        // A thousand timers per second, and an arrival every tenth of a second.
        for _ in 0..100 {
            for _ in 0..100 {
                if node.decider.idle(node.now) != IdleStep::Sleep {
                    node.awake += ROUND;
                }
                node.now = node.now + micros(1000);
            }
            node.wait(node.now + micros(1));
        }
        assert!(node.awake * 100 < node.now.since(start), "{mode:?} {:?}", node.awake);
    }
}

#[test]
fn rare_arrivals_are_not_spun_for() {
    let mut node = Node::new(Mode::Adaptive);
    for _ in 0..100 {
        node.wait(node.now + micros(1000));
    }
    assert_eq!(node.sleeps, 100);
    assert!(node.awake <= (Policy::default().spin_least + ROUND * 2) * 101, "{:?}", node.awake);
}

#[test]
fn modes_that_never_do_never_do() {
    let mut spin = Node::new(Mode::Spin);
    let mut sleep = Node::new(Mode::Sleep);
    for gap in [1, 10, 100, 1000, 10_000, 1, 1, 1] {
        spin.wait(spin.now + micros(gap));
        sleep.wait(sleep.now + micros(gap));
    }
    assert_eq!(spin.sleeps, 0);
    assert!(spin.yields > 0, "a spinner yields now and then");
    assert_eq!((sleep.sleeps, sleep.awake), (8, Duration::ZERO));
}

#[test]
fn a_node_whose_core_is_taken_sleeps_instead() {
    let policy = Policy::default();
    let mut now = Nanos(1_000_000_000);
    let mut decider = Decider::new(policy, now);
    for _ in 0..10 {
        now = now + micros(5);
        decider.worked(now);
    }
    assert_eq!(decider.idle(now + micros(15)), IdleStep::Yield);
    // Three milliseconds later we have the core again.
    now = now + micros(3015);
    decider.idle(now);
    decider.worked(now);
    assert_eq!(decider.idle(now + micros(1)), IdleStep::Sleep);
    assert_eq!(
        decider.idle(now + micros(90_000)),
        IdleStep::Sleep,
        "the node does not spin for 32 times the gap"
    );
    // After a while it tries again.
    now = now + micros(3015 * 32) + policy.robbed_for;
    decider.worked(now);
    decider.worked(now + micros(5));
    assert_eq!(decider.idle(now + micros(20)), IdleStep::Yield);
}

#[test]
fn two_peers_on_one_core_sleep_instead_of_spinning_at_each_other() {
    let policy = Policy::default();
    let mut now = Nanos(1_000_000_000);
    let mut decider = Decider::new(policy, now);
    decider.worked(now);
    let mut yield_for = |decider: &mut Decider, taken: Duration| {
        now = now + micros(15);
        assert_eq!(decider.idle(now), IdleStep::Yield);
        now = now + taken;
        decider.worked(now);
        now
    };
    // Other threads wanted the core rarely or never.
    for taken in [300, 300, 9000, 9000, 300, 9000].map(Duration::from_nanos) {
        let now = yield_for(&mut decider, taken);
        assert!(!decider.sleeps_at_once(now));
    }
    yield_for(&mut decider, micros(9));
    let now = yield_for(&mut decider, micros(9));
    assert!(decider.sleeps_at_once(now), "three yields in a row lost the core");
    assert_eq!(decider.idle(now), IdleStep::Sleep);
    let later = now + policy.robbed_for;
    decider.worked(later);
    assert_eq!(decider.idle(later + micros(1)), IdleStep::Spin, "then it tries again");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// However work arrives, an adaptive node spins only for a bounded time after the work.
    #[test]
    fn spinning_is_bounded(gaps in proptest::collection::vec(0..5000u64, 1..100)) {
        let mut node = Node::new(Mode::Adaptive);
        for gap in gaps {
            let before = node.awake;
            node.wait(node.now + micros(gap));
            prop_assert!(node.awake - before <= Policy::default().spin_most + ROUND * 2);
        }
    }
}

/// Real time for the tests with threads.
fn clock() -> impl Fn() -> Nanos + Copy {
    let start = Instant::now();
    move || Nanos(1) + start.elapsed()
}

#[test]
fn no_ring_is_lost() {
    let clock = clock();
    let mut idle = Idle::new(Policy::of(Mode::Sleep), clock()).expect("opens");
    let waker = idle.waker();
    let posted = Arc::new(AtomicU64::new(0));
    let taken = Arc::new(AtomicU64::new(0));
    let rounds = 20_000;
    let ringer = std::thread::spawn({
        let (posted, taken) = (Arc::clone(&posted), Arc::clone(&taken));
        move || {
            for number in 1..=rounds {
                posted.store(number, Ordering::SeqCst);
                waker.ring();
                // Every other time, do not wait until the node has seen the ring.
                while number % 2 == 0 && taken.load(Ordering::SeqCst) < number {
                    std::thread::yield_now();
                }
            }
        }
    });
    // The node rests without a deadline, so a lost ring would hang here, not only be slow.
    while taken.load(Ordering::SeqCst) < rounds {
        let seen = posted.load(Ordering::SeqCst);
        if seen > taken.swap(seen, Ordering::SeqCst) {
            idle.worked(clock());
        } else {
            idle.rest(clock(), || (Nanos::NEVER, Sources::default())).expect("rests");
        }
    }
    ringer.join().expect("ends");
}

#[test]
fn stale_rings_do_not_keep_it_awake() {
    let clock = clock();
    let mut idle = Idle::new(Policy::of(Mode::Sleep), clock()).expect("opens");
    for _ in 0..3 {
        idle.waker().ring();
    }
    // One iteration for the rings, then a sleep to the deadline.
    idle.rest(clock(), || (Nanos::NEVER, Sources::default())).expect("rests");
    let deadline = clock() + Duration::from_millis(30);
    let mut rounds = 0;
    while clock() < deadline {
        idle.rest(clock(), || (deadline, Sources::default())).expect("rests");
        rounds += 1;
    }
    assert!(rounds <= 5, "{rounds}");
}

#[test]
fn a_frame_wakes_a_sleeper() {
    let clock = clock();
    let mut idle = Idle::new(Policy::of(Mode::Adaptive), clock()).expect("opens");
    let mut driver = Udp::bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
    let to = driver.local_addr();
    let slept = Arc::new(AtomicBool::new(false));
    let sender = std::thread::spawn({
        let slept = Arc::clone(&slept);
        move || {
            let mut driver = Udp::bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
            while !slept.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            driver.tx().send(to, &[std::io::IoSlice::new(b"wake up")]);
            driver.tx().flush();
        }
    });
    while driver.receive(&mut |_, _, frame| assert_eq!(frame, b"wake up")).expect("receives") == 0 {
        let now = clock();
        // The peer sends from the first iteration that may sleep, so that the frame arrives before,
        // during or after the sleep.
        slept.store(now.0 > 1_000_000, Ordering::SeqCst);
        let patience = Duration::from_millis(if now.0 > 1_000_000 { 60_000 } else { 1 });
        let mut sources = Sources::default();
        driver.sources(&mut sources);
        idle.rest(now, || (now + patience, sources)).expect("rests");
    }
    sender.join().expect("ends");
}
