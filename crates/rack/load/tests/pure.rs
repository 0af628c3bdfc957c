//! Tests schedules, operations, and the checks of a load.

use proptest::prelude::*;
use sprat_load::{
    Arrivals, Load, LoadError, MAX_RATE, Operation, Operations, Schedule, Step, Workload,
};
use std::collections::HashMap;
use std::time::Duration;

fn load(steps: Vec<Step>, arrivals: Arrivals, seed: u64) -> Load {
    let mut load = Load::new(["127.0.0.1:9042"], steps);
    (load.arrivals, load.seed) = (arrivals, seed);
    load
}

fn step(rate: f64, millis: u64) -> Step {
    Step { rate, duration: Duration::from_millis(millis) }
}

fn nanos(step: &Step) -> u64 {
    u64::try_from(step.duration.as_nanos()).expect("short")
}

#[test]
fn even_schedules_match_arithmetic() {
    let starts = |steps| Schedule::new(&load(steps, Arrivals::Even, 1)).collect::<Vec<u64>>();
    assert_eq!(starts(vec![step(4.0, 1_000)]), [0, 250_000_000, 500_000_000, 750_000_000]);
    // Half an operation in each step gives one operation in every two steps.
    assert_eq!(starts(vec![step(0.5, 1_000); 4]), [0, 2_000_000_000]);
    // Nothing starts in a pause, and no operation is lost by it.
    let paused = vec![step(2.0, 1_000), step(0.0, 1_000), step(2.0, 1_000)];
    assert_eq!(starts(paused), [0, 500_000_000, 2_000_000_000, 2_500_000_000]);
    assert!(starts(vec![step(0.0, 1_000)]).is_empty());
}

#[test]
fn ramps_have_both_ends() {
    let rates: Vec<f64> =
        Step::ramp(100.0, 500.0, 5, Duration::from_secs(1)).iter().map(|step| step.rate).collect();
    assert_eq!(rates, [100.0, 200.0, 300.0, 400.0, 500.0]);
    assert_eq!(Step::ramp(100.0, 500.0, 1, Duration::from_secs(1))[0].rate, 100.0);
    assert!(Step::ramp(100.0, 500.0, 0, Duration::from_secs(1)).is_empty());
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(
        (0.0..5_000.0, 1_u64..2_000).prop_map(|(rate, millis)| step(rate, millis)),
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn even_schedules_have_the_right_count_in_each_step(steps in steps(), seed: u64) {
        let load = load(steps.clone(), Arrivals::Even, seed);
        let starts: Vec<u64> = Schedule::new(&load).collect();
        let asked: f64 = steps.iter().map(|step| step.rate * step.duration.as_secs_f64()).sum();
        prop_assert!(
            (starts.len() as f64 - asked.ceil()).abs() <= 1.0,
            "{} of {asked}",
            starts.len()
        );
        prop_assert!(starts.is_sorted());
        let mut begins = 0;
        for step in &steps {
            let ends = begins + nanos(step);
            let within =
                starts.iter().filter(|start| (begins..ends).contains(*start)).count() as f64;
            prop_assert!(
                (within - step.rate * step.duration.as_secs_f64()).abs() <= 2.0,
                "{within} in {step:?}"
            );
            begins = ends;
        }
        prop_assert!(starts.last().is_none_or(|last| *last <= begins));
    }

    #[test]
    fn poisson_schedules_keep_the_rate_and_follow_the_seed(rate in 100.0..5_000.0, seed: u64) {
        let load = load(vec![step(rate, 4_000)], Arrivals::Poisson, seed);
        let starts: Vec<u64> = Schedule::new(&load).collect();
        let mean = rate * 4.0;
        // Six standard deviations: exceeded once in a billion cases.
        prop_assert!(
            (starts.len() as f64 - mean).abs() < 6.0 * mean.sqrt(),
            "{} of {mean}",
            starts.len()
        );
        prop_assert!(starts.is_sorted() && starts.iter().all(|start| *start <= 4_000_000_000));
        prop_assert_eq!(&starts, &Schedule::new(&load).collect::<Vec<_>>());
        let mut other = load;
        other.seed = seed.wrapping_add(1);
        prop_assert_ne!(&starts, &Schedule::new(&other).collect::<Vec<_>>());
        // Gaps of a Poisson process have a standard deviation equal to their mean.
        let gaps: Vec<f64> =
            starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 * rate / 1e9).collect();
        let variance = gaps.iter().map(|gap| (gap - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        prop_assert!((0.3..3.0).contains(&variance), "{variance}");
    }

    #[test]
    fn operations_are_within_bounds_and_follow_the_seed(
        seed: u64,
        reads in 0.0..=1.0,
        count in 1_u64..50,
    ) {
        for workload in [
            Workload::KeyValue { keys: count },
            Workload::Series { sensors: count },
            Workload::Wide { partitions: count },
        ] {
            let mut load = load(vec![step(1.0, 1)], Arrivals::Even, seed);
            (load.workload, load.reads) = (workload, reads);
            let take = || {
                let mut operations = Operations::new(&load, 1_000, vec![7]);
                (0..500).map(|offset| operations.next(offset)).collect::<Vec<_>>()
            };
            let operations = take();
            prop_assert_eq!(&operations, &take());
            let mut rows = HashMap::from([(0, 7)]);
            let mut found = 0;
            for (number, operation) in (1..).zip(operations) {
                found += u32::from(matches!(
                    operation,
                    Operation::Get { .. } | Operation::Newest { .. } | Operation::Slice { .. }
                ));
                match operation {
                    Operation::Put { key, stamp } => {
                        prop_assert!(key < count && stamp == 1_000 + number)
                    }
                    Operation::Get { key } => prop_assert!(key < count),
                    Operation::Append { sensor, at } | Operation::Newest { sensor, at } => {
                        prop_assert!(sensor < count && at == 1_000_000 + number - 1);
                    }
                    Operation::Grow { partition, row } => {
                        let next = rows.entry(partition).or_insert(0);
                        prop_assert!(
                            partition < count && row == *next,
                            "rows have consecutive numbers"
                        );
                        *next += 1;
                    }
                    Operation::Slice { partition, row } => {
                        prop_assert!(
                            partition < count && row < (*rows.entry(partition).or_insert(0)).max(1)
                        );
                    }
                }
            }
            prop_assert!((f64::from(found) - 500.0 * reads).abs() < 6.0 * 500_f64.sqrt());
        }
    }
}

#[test]
fn invalid_loads_are_refused() {
    let good = || load(vec![step(100.0, 1_000)], Arrivals::Even, 1);
    good().check().expect("the load is valid");
    type Break = fn(&mut Load);
    let cases: [(&str, Break); 20] = [
        ("contacts", |load| load.contacts.clear()),
        ("contact", |load| load.contacts = vec!["10.0.0.3".to_owned()]),
        ("contact", |load| load.contacts = vec![":9042".to_owned()]),
        ("contact", |load| load.contacts = vec!["host:0".to_owned()]),
        ("steps", |load| load.steps.clear()),
        ("rate", |load| load.steps[0].rate = f64::NAN),
        ("rate", |load| load.steps[0].rate = -1.0),
        ("rate", |load| load.steps[0].rate = MAX_RATE * 2.0),
        ("duration of a step", |load| load.steps[0].duration = Duration::ZERO),
        ("duration", |load| load.steps[0].duration = Duration::MAX),
        ("keys", |load| load.workload = Workload::KeyValue { keys: 0 }),
        ("keys that are remembered", |load| {
            (load.workload, load.remember) = (Workload::KeyValue { keys: 1 << 30 }, true);
        }),
        ("sensors", |load| load.workload = Workload::Series { sensors: 0 }),
        ("partitions", |load| load.workload = Workload::Wide { partitions: 1 << 20 }),
        ("remember", |load| {
            (load.workload, load.remember) = (Workload::Wide { partitions: 1 }, true)
        }),
        ("reads", |load| load.reads = f64::NAN),
        ("value bytes", |load| load.value_bytes = 7),
        ("keyspace", |load| load.keyspace = "a; DROP KEYSPACE b".to_owned()),
        ("datacenter", |load| load.datacenter = "dc1'".to_owned()),
        ("timeout", |load| load.timeout = Duration::ZERO),
    ];
    for (wanted, break_it) in cases {
        let mut load = good();
        break_it(&mut load);
        match load.check() {
            Err(LoadError::Value { key, want, .. }) => {
                assert!(key == wanted && !want.is_empty(), "{key}, not {wanted}")
            }
            other => panic!("{wanted}: {other:?}"),
        }
    }
}
