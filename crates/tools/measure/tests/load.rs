//! Loads against a fake target with a fake clock. Tests which operations are counted, and from
//! when.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use proptest::prelude::*;
use sprat_measure::load::{
    Arrivals, Clock, LoadPlan, Measured, PERIOD_NS, Pace, Workload, preload, run_by,
};
use sprat_measure::target::{Completion, LoadTarget, Op, Outcome, Wait};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A clock that advances only when the target is polled.
#[derive(Default)]
struct Time(Rc<Cell<u64>>);

impl Clock for Time {
    fn now(&self) -> u64 {
        self.0.get()
    }
}

/// Serves one operation after another, each in `service`. Serves none during `stall`.
struct Fake {
    time: Rc<Cell<u64>>,
    service: u64,
    stall: std::ops::Range<u64>,
    outcome: fn(u64) -> Outcome,
    queue: VecDeque<(u64, u64)>,
    free_at: u64,
    served: u64,
    window: usize,
    puts: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Fake {
    fn new(service: u64) -> Self {
        Self {
            time: Rc::default(),
            service,
            stall: 0..0,
            outcome: |_| Outcome::Ok { bytes: 100 },
            queue: VecDeque::new(),
            free_at: 0,
            served: 0,
            window: usize::MAX,
            puts: Rc::default(),
        }
    }

    fn run(&mut self, plan: &LoadPlan) -> Measured {
        let clock = Time(Rc::clone(&self.time));
        run_by(self, plan, &clock).expect("the fake never breaks")
    }
}

impl LoadTarget for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn failure(&self) -> Option<&str> {
        Some("out of luck")
    }

    fn transport(&self) -> &str {
        "none"
    }

    fn connections(&self) -> usize {
        3
    }

    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        assert!(connection < 3);
        if self.queue.len() >= self.window {
            return Ok(false);
        }
        if let Op::Put { key, .. } = op {
            self.puts.borrow_mut().push(key.to_vec());
        }
        let start = self.free_at.max(self.time.get());
        self.free_at = start + self.service;
        if self.stall.contains(&self.free_at) {
            self.free_at = self.stall.end + self.service;
        }
        self.queue.push_back((self.free_at, tag));
        Ok(true)
    }

    fn poll(&mut self, _patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        self.time.set(self.time.get() + US);
        while let Some(&(at, tag)) = self.queue.front().filter(|&&(at, _)| at <= self.time.get()) {
            assert!(at <= self.time.get());
            self.queue.pop_front();
            done.push(Completion { tag, outcome: (self.outcome)(self.served) });
            self.served += 1;
        }
        Ok(())
    }
}

fn plan(pace: Pace, clients: usize) -> LoadPlan {
    LoadPlan {
        pace,
        clients,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_secs(2),
        ..LoadPlan::one_client(Workload::reads(1000, 100), Wait::Spin)
    }
}

#[test]
fn an_open_load_sees_a_stall_that_a_closed_one_hides() {
    let stalled = || Fake { stall: 500 * MS..1500 * MS, ..Fake::new(10 * US) };
    let open = stalled().run(&plan(Pace::Open { rate: 1000.0, arrivals: Arrivals::Fixed }, 8));
    let closed = stalled().run(&plan(Pace::Closed, 1));
    // Half of the operations should have started during the stall. Their waits are spread evenly
    // over the second of the stall.
    let (median, upper) = (open.latencies.quantile(0.5), open.latencies.quantile(0.75));
    assert_eq!(open.latencies.count(), 2000);
    assert!(median < 40 * MS, "half is not touched by the stall: {median}");
    assert!(
        (450 * MS..550 * MS).contains(&upper),
        "a quarter waits half a second or more: {upper}"
    );
    assert!(closed.latencies.quantile(0.999) < 20 * US, "one client met the stall once only");
    assert!(closed.latencies.summary().max > 900 * MS);
}

#[test]
fn an_overload_is_given_up_on_but_counted() {
    // 1,000 operations a second are intended, 50 are served, and 8 are in flight. Operations that
    // are never sent count with their age.
    let measured =
        Fake::new(20 * MS).run(&plan(Pace::Open { rate: 1000.0, arrivals: Arrivals::Fixed }, 8));
    assert!(measured.unfinished > 1000, "{}", measured.unfinished);
    assert_eq!(measured.latencies.count(), 2000, "nothing that was intended is left out");
    assert!(measured.latencies.quantile(0.5) > 1000 * MS);
    assert_eq!(measured.failures(), measured.unfinished);
}

#[test]
fn throughput_and_periods_are_those_of_the_window() {
    let measured = Fake::new(50 * US).run(&plan(Pace::Closed, 4));
    assert!(
        (19_000.0..=20_001.0).contains(&measured.ops_per_second()),
        "{}",
        measured.ops_per_second()
    );
    assert_eq!(measured.periods.len(), 20);
    let averages = measured.period_averages();
    let expected = 4.0 * 50.0 * US as f64;
    assert!((averages.avg / expected - 1.0).abs() < 0.05, "{averages:?}");
    assert!(averages.min <= averages.avg && averages.avg <= averages.max);
    assert_eq!(measured.failures(), 0);
}

#[test]
fn failures_are_counted_by_kind() {
    let outcome: fn(u64) -> Outcome = |served| match served % 4 {
        0 => Outcome::Miss,
        1 => Outcome::Error,
        2 => Outcome::Ok { bytes: 99 }, // not the stored length
        _ => Outcome::Ok { bytes: 100 },
    };
    let measured = Fake { outcome, ..Fake::new(100 * US) }.run(&plan(Pace::Closed, 1));
    let count = measured.latencies.count();
    assert!(measured.misses.abs_diff(count / 4) <= 1);
    assert!(measured.errors.abs_diff(count / 2) <= 1);
}

#[test]
fn a_count_ends_the_run_and_an_earlier_runs_answers_do_not_disturb_the_next() {
    let mut fake = Fake::new(100 * US);
    let counted = LoadPlan { max_ops: Some(50), ..plan(Pace::Closed, 1) };
    assert!((50..=51).contains(&fake.run(&counted).latencies.count()));
    // The run gives up after its drain time while the target stalls. The late completion arrives in
    // the next run.
    let now = fake.time.get();
    fake.stall = now + 1000 * MS..now + 20_000 * MS;
    let given_up = fake.run(&plan(Pace::Closed, 1));
    assert_eq!(given_up.unfinished, 1);
    fake.stall = 0..0;
    let next = fake.run(&LoadPlan { duration: Duration::from_secs(30), ..plan(Pace::Closed, 1) });
    assert_eq!(next.failures(), 0);
}

#[test]
fn preload_writes_every_key_once() {
    let mut fake = Fake { outcome: |_| Outcome::Ok { bytes: 0 }, window: 7, ..Fake::new(US) };
    let workload = Workload::writes(1234, 100);
    preload(&mut fake, &workload).expect("filled");
    let mut keys = fake.puts.take();
    assert_eq!(keys.len(), 1234);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 1234);
    let mut refusing = Fake { outcome: |_| Outcome::Error, ..Fake::new(US) };
    let error = preload(&mut refusing, &workload).expect_err("refused").to_string();
    assert_eq!(error, "fake refused to store key 0: out of luck");
}

#[test]
fn preload_waits_while_memory_is_full() {
    let outcome =
        |served: u64| if served % 7 == 3 { Outcome::Full } else { Outcome::Ok { bytes: 0 } };
    let mut fake = Fake { outcome, ..Fake::new(US) };
    preload(&mut fake, &Workload::writes(100, 100)).expect("filled in the end");
    let mut keys = fake.puts.take();
    assert!(keys.len() > 100, "what was refused is sent again");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// In any load, every operation that is intended in the window is counted once, whether or not
    /// it is served.
    #[test]
    fn nothing_is_left_out(
        service in 1..3000_u64,
        clients in 1..9_usize,
        depth in 1..4_usize,
        rate in 100..3000_u32,
        window in 1..20_usize,
    ) {
        let mut fake = Fake { window, ..Fake::new(service * US) };
        let pace = Pace::Open { rate: f64::from(rate), arrivals: Arrivals::Fixed };
        let plan = LoadPlan {
            depth,
            duration: Duration::from_millis(500),
            warm_up: Duration::ZERO,
            ..plan(pace, clients)
        };
        let measured = fake.run(&plan);
        let intended = u64::from(rate).div_ceil(2);
        let count = measured.latencies.count();
        prop_assert!(count.abs_diff(intended) <= 1, "{count} of {intended}");
        let ended: u64 = measured.periods.iter().map(|period| period.ops).sum();
        prop_assert!(ended <= measured.latencies.count());
        prop_assert_eq!(measured.periods.len() as u64, 500 * MS / PERIOD_NS);
    }
}
