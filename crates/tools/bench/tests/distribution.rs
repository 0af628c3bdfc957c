//! Finds and explains steps in the tail of synthetic distributions.

use proptest::prelude::*;
use sprat_bench::distribution::causes::{
    Cause, EndObservation, Evidence, Exclusion, PathEnd, Tally, Verdict, judge,
};
use sprat_bench::distribution::cliffs::{Cliff, find};
use sprat_bench::distribution::sample::Samples;
use sprat_chance::Chance;
use sprat_measure::hist::Latencies;

const SAMPLES: u32 = 100_000;

/// Draws from the normal distribution.
fn normal(chance: &mut Chance) -> f64 {
    (-2.0 * chance.share().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * chance.share()).cos()
}

/// Shapes of distributions without a step.
#[derive(Clone, Copy, Debug)]
enum Smooth {
    LogNormal(f64),
    Exponential,
    Pareto(f64),
}

impl Smooth {
    fn draw(self, median: f64, random: &mut Chance) -> f64 {
        match self {
            Self::LogNormal(sigma) => median * (sigma * normal(random)).exp(),
            Self::Exponential => median * (0.5 - random.share().max(1e-300).ln()),
            Self::Pareto(steep) => median * random.share().max(1e-12).powf(-1.0 / steep),
        }
    }
}

fn smooth() -> impl Strategy<Value = Smooth> {
    prop_oneof![
        (0.03..0.9_f64).prop_map(Smooth::LogNormal),
        Just(Smooth::Exponential),
        (1.2..6.0_f64).prop_map(Smooth::Pareto),
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "drawn between 1 and some 1e12"
)]
fn whole(ns: f64) -> u64 {
    ns.max(1.0) as u64
}

fn near(a: f64, b: f64, by: f64) -> bool {
    (a / b - 1.0).abs() <= by
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_smooth_tail_has_no_cliff(shape in smooth(), median in 300.0..60_000.0_f64, seed: u64) {
        let (mut all, mut random) = (Latencies::new(), Chance::new(seed));
        (0..SAMPLES).for_each(|_| all.record(whole(shape.draw(median, &mut random))));
        prop_assert_eq!(find(&all), vec![]);
    }

    /// In a distribution with a body, a thin heavy tail and two steps, `find` returns the two steps
    /// with their positions and sizes, and no other step.
    #[test]
    fn steps_are_found_where_they_are(
        median in 500.0..20_000.0_f64,
        sigma in 0.03..0.25_f64,
        first in 8.0..40.0_f64,
        apart in 5.0..50.0_f64,
        shares in (0.003..0.03_f64, 0.003..0.03_f64),
        seed: u64,
    ) {
        let (mut all, mut random) = (Latencies::new(), Chance::new(seed));
        let steps = [(median * first, shares.0), (median * first * apart, shares.1)];
        let mut made = [0_u32; 2];
        for _ in 0..SAMPLES {
            let chosen = random.share();
            let ns = if chosen < shares.0 {
                made[0] += 1;
                steps[0].0 * (1.0 + 0.04 * normal(&mut random))
            } else if chosen < shares.0 + shares.1 {
                made[1] += 1;
                steps[1].0 * (1.0 + 0.04 * normal(&mut random))
            } else if chosen > 0.998 {
                Smooth::Pareto(2.0).draw(median, &mut random)
            } else {
                Smooth::LogNormal(sigma).draw(median, &mut random)
            };
            all.record(whole(ns));
        }
        let found = find(&all);
        prop_assert_eq!(found.len(), 2, "{:?} of {:?}", found, steps);
        for ((cliff, (at, _)), made) in found.iter().zip(steps).zip(made) {
            prop_assert!(near(cliff.at_ns as f64, at, 0.05), "{:?} at {}", cliff, at);
            let count = cliff.count as f64;
            prop_assert!(near(count, f64::from(made), 0.15), "{:?} of {}", cliff, made);
            prop_assert!(near(cliff.share, count / f64::from(SAMPLES), 1e-9));
            prop_assert!(cliff.from_ns <= cliff.at_ns && cliff.at_ns <= cliff.to_ns);
        }
    }

    /// A handful of operations is not a step.
    #[test]
    fn a_few_operations_are_none(at in 20_000_u64..20_000_000, count in 1_u64..15, seed: u64) {
        let (mut all, mut random) = (Latencies::new(), Chance::new(seed));
        let shape = Smooth::LogNormal(0.1);
        (0..SAMPLES).for_each(|_| all.record(whole(shape.draw(1_000.0, &mut random))));
        (0..count).for_each(|_| all.record(at));
        prop_assert_eq!(find(&all), vec![]);
    }

    #[test]
    fn the_curves_are_those_of_the_samples(
        mut samples in prop::collection::vec(1_u64..5_000_000, 1..400),
        at_ns in 1_u64..5_000_000,
    ) {
        let mut all = Latencies::new();
        samples.iter().for_each(|&ns| all.record(ns));
        samples.sort_unstable();
        // Latencies have three digits: one within 1/1000 of the limit may count on either side.
        let share = |ns: f64| {
            let longer = samples.iter().filter(|&&one| one as f64 > ns).count();
            longer as f64 / samples.len() as f64
        };
        let beyond = all.beyond(at_ns);
        prop_assert!(beyond <= share(at_ns as f64 * 0.998) + 1e-9);
        prop_assert!(beyond >= share(at_ns as f64 * 1.002) - 1e-9);
        prop_assert!(all.beyond(0) == 1.0 && all.beyond(u64::MAX) == 0.0);
        let counts = all.counts();
        prop_assert!(counts.is_sorted_by_key(|one| one.0));
        prop_assert_eq!(counts.iter().map(|one| one.1).sum::<u64>(), samples.len() as u64);
        let again = Latencies::from_counts(&counts);
        prop_assert_eq!(again.counts(), counts);
        for quantile in [0.5, 0.9, 0.999] {
            prop_assert_eq!(again.quantile(quantile), all.quantile(quantile));
            prop_assert!(all.beyond(all.quantile(quantile)) <= 1.0 - quantile + 1e-9);
        }
    }

    /// A cause is attributed to an end only if that end was held up for at least half of the excess
    /// time. Only causes that take the core away exclude an operation.
    #[test]
    fn every_cause_has_evidence(evidence in evidence()) {
        let cause = evidence.cause();
        let most = |end: EndObservation| end.held_ns as f64 >= evidence.excess_ns as f64 / 2.0;
        let server = evidence.server.unwrap_or_default();
        match cause {
            Cause::Retransmission => {
                let held = most(evidence.client) || most(server);
                prop_assert!(evidence.resent > 0 && !held);
            }
            Cause::Preemption(PathEnd::Client) => {
                prop_assert!(most(evidence.client) && evidence.client.preempted > 0);
                prop_assert!(evidence.client.missing_ns >= evidence.client.held_ns / 2);
            }
            Cause::Preemption(PathEnd::Server) => {
                prop_assert!(most(server) && server.preempted > 0);
                prop_assert!(server.missing_ns >= server.held_ns / 2);
            }
            Cause::Steal(PathEnd::Client) => {
                prop_assert!(evidence.client.missing_ns >= evidence.client.held_ns / 2);
            }
            Cause::Steal(PathEnd::Server) => prop_assert!(server.missing_ns >= server.held_ns / 2),
            Cause::Cleaner => prop_assert!(most(server) && evidence.cleaned_bytes > 0),
            Cause::Fault(_) => prop_assert!(evidence.client.faults + server.faults > 0),
            Cause::Interrupt(PathEnd::Client) => {
                prop_assert!(evidence.client.interrupts.is_some_and(|count| count > 0));
            }
            Cause::Interrupt(PathEnd::Server) => {
                prop_assert!(server.interrupts.is_some_and(|count| count > 0));
            }
            Cause::Unknown(_) | Cause::LongIteration => {
                prop_assert!(most(evidence.client) || most(server));
            }
            Cause::NeitherEnd => prop_assert!(!most(evidence.client) && !most(server)),
        }
        // Each exclusion excludes what the previous one does. None excludes operations that the
        // store or the network delayed.
        let excluded = Exclusion::ALL.map(|exclusion| exclusion.excludes(cause));
        prop_assert!(excluded.is_sorted() && !excluded[0]);
        if excluded[2] {
            prop_assert!(matches!(cause.verdict(), Verdict::Machine | Verdict::Kernel));
        }
    }

    #[test]
    fn a_verdict_is_of_the_most(
        causes in prop::collection::vec(evidence().prop_map(|one| one.cause()), 0..60),
        beyond in 0.0..0.1_f64,
        alone in 0.0..0.1_f64,
    ) {
        let mut tally = Tally::default();
        causes.iter().for_each(|&cause| tally.add(cause));
        prop_assert_eq!(tally.count(), causes.len() as u64);
        let (verdict, share) = judge(&tally, beyond, alone);
        prop_assert!((0.0..=1.0 + 1e-9).contains(&share));
        let of = |verdict| causes.iter().filter(|cause| cause.verdict() == verdict).count();
        let all = [
            Verdict::Machine,
            Verdict::Kernel,
            Verdict::Network,
            Verdict::Store,
            Verdict::Unexplained,
        ];
        let most = all.into_iter().map(of).max().unwrap_or(0);
        let by_meter = alone >= beyond / 2.0 && beyond > 0.0;
        prop_assert!(of(verdict) == most || (by_meter && verdict == Verdict::Machine));
    }
}

fn observation() -> impl Strategy<Value = EndObservation> {
    (0_u64..200, 0_u64..200, 0_u64..2, 0_u64..2, prop::option::of(0_u64..2)).prop_map(
        |(held_ns, missing_ns, preempted, faults, interrupts)| EndObservation {
            held_ns,
            missing_ns,
            preempted,
            faults,
            interrupts,
        },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    (
        1_u64..200,
        observation(),
        prop::option::of(observation()),
        prop::bool::weighted(0.1),
        0_u64..2,
    )
        .prop_map(|(excess_ns, client, server, resent, cleaned_bytes)| Evidence {
            excess_ns,
            client,
            server,
            resent: u64::from(resent),
            cleaned_bytes,
        })
}

#[test]
fn examples_of_causes_of_a_hundred_microseconds() {
    let held =
        |held_ns| EndObservation { held_ns, interrupts: Some(1), ..EndObservation::default() };
    let at = |client, server| Evidence {
        excess_ns: 100_000,
        client,
        server: Some(server),
        ..Evidence::default()
    };
    let quiet = EndObservation { interrupts: Some(0), ..EndObservation::default() };
    let interrupted = held(90_000);
    let stolen = EndObservation { missing_ns: 80_000, ..interrupted };
    let preempted = EndObservation { preempted: 1, ..stolen };
    for (evidence, cause, verdict) in [
        (at(interrupted, quiet), Cause::Interrupt(PathEnd::Client), Verdict::Kernel),
        (at(stolen, quiet), Cause::Steal(PathEnd::Client), Verdict::Machine),
        (at(preempted, quiet), Cause::Preemption(PathEnd::Client), Verdict::Kernel),
        // The thread was switched out briefly, at another time, and lost no time by it.
        (
            at(EndObservation { preempted: 1, ..interrupted }, quiet),
            Cause::Interrupt(PathEnd::Client),
            Verdict::Kernel,
        ),
        (at(quiet, preempted), Cause::Preemption(PathEnd::Server), Verdict::Kernel),
        (at(quiet, stolen), Cause::Steal(PathEnd::Server), Verdict::Machine),
        (
            at(EndObservation { held_ns: 90_000, ..quiet }, quiet),
            Cause::Unknown(PathEnd::Client),
            Verdict::Machine,
        ),
        (
            at(quiet, EndObservation { held_ns: 90_000, interrupts: None, ..quiet }),
            Cause::LongIteration,
            Verdict::Unexplained,
        ),
        // The server waits for a lock that the client holds, and the client was interrupted.
        (
            at(
                EndObservation { held_ns: 60_000, ..interrupted },
                EndObservation { held_ns: 95_000, ..quiet },
            ),
            Cause::Interrupt(PathEnd::Client),
            Verdict::Kernel,
        ),
        (at(quiet, quiet), Cause::NeitherEnd, Verdict::Unexplained),
        (Evidence { cleaned_bytes: 1, ..at(quiet, interrupted) }, Cause::Cleaner, Verdict::Store),
        (Evidence { resent: 1, ..at(quiet, quiet) }, Cause::Retransmission, Verdict::Network),
        (
            Evidence { resent: 1, ..at(quiet, stolen) },
            Cause::Steal(PathEnd::Server),
            Verdict::Machine,
        ),
    ] {
        assert_eq!((evidence.cause(), cause.verdict()), (cause, verdict), "{evidence:?}");
    }
}

/// Ten ordinary operations, and one operation for each of five causes.
#[test]
fn exclusions_follow_the_causes() {
    let causes = [
        Cause::Preemption(PathEnd::Client),
        Cause::Steal(PathEnd::Server),
        Cause::Interrupt(PathEnd::Client),
        Cause::Interrupt(PathEnd::Server),
        Cause::Cleaner,
    ];
    let mut samples = Samples::default();
    (0..10).for_each(|_| samples.latencies.record(1_000));
    for (number, cause) in (1..).zip(causes) {
        samples.latencies.record(number * 10_000);
        samples.examined.push((number * 10_000, cause));
    }
    let left = |exclusion| {
        samples
            .without(exclusion)
            .counts()
            .into_iter()
            .map(|(ns, _)| ns / 10_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(left(Exclusion::Nothing), [0, 1, 2, 3, 4, 5]);
    assert_eq!(left(Exclusion::Core), [0, 3, 4, 5]);
    assert_eq!(left(Exclusion::Interrupts), [0, 5]);
    assert_eq!(Exclusion::ALL.map(|one| samples.share(one)), [0.0, 2.0 / 15.0, 4.0 / 15.0]);
    assert!(samples.is_sound());
    samples.examined.push((70_000, Cause::NeitherEnd));
    assert!(!samples.is_sound(), "an operation that was never counted");
}

/// If neither end was held up, a step is unexplained, unless the machine alone delays at least half
/// as many operations.
#[test]
fn jitter_explains_unknown_causes() {
    let mut tally = Tally::default();
    (0..10).for_each(|_| tally.add(Cause::NeitherEnd));
    assert_eq!(judge(&tally, 0.01, 0.001), (Verdict::Unexplained, 1.0));
    assert_eq!(judge(&tally, 0.01, 0.008).0, Verdict::Machine);
    (0..11).for_each(|_| tally.add(Cause::Cleaner));
    assert_eq!(
        judge(&tally, 0.01, 0.008).0,
        Verdict::Store,
        "what was seen outweighs what might have been"
    );
    assert_eq!(judge(&Tally::default(), 0.0, 0.0), (Verdict::Unexplained, 1.0));
}

#[test]
fn only_the_tail_has_cliffs() {
    // Two bodies, one of them a quarter slower than the other, have no tail.
    let (mut all, mut random) = (Latencies::new(), Chance::new(1));
    for number in 0..SAMPLES {
        let median = if number % 3 == 0 { 1_250.0 } else { 1_000.0 };
        all.record(whole(median * (1.0 + 0.01 * normal(&mut random))));
    }
    assert_eq!(find(&all), vec![]);
    assert_eq!(find(&Latencies::new()), vec![]);
    // The heavy tail after a step is not a second step.
    let (mut heavy, mut random) = (Latencies::new(), Chance::new(2));
    for number in 0..SAMPLES {
        heavy.record(whole(match number % 100 {
            0 | 1 => Smooth::Pareto(1.2).draw(1_000.0, &mut random),
            2 => 6_000.0 * (1.0 + 0.04 * normal(&mut random)),
            _ => Smooth::LogNormal(0.1).draw(1_000.0, &mut random),
        }));
    }
    assert_eq!(find(&heavy).len(), 1, "{:?}", find(&heavy));
    // A step far from the body is found even if it is the whole tail.
    (0..100).for_each(|_| all.record(1_000_000));
    let [Cliff { at_ns, count: 100, .. }] = find(&all)[..] else { panic!("{:?}", find(&all)) };
    assert!(near(at_ns as f64, 1e6, 0.002));
}
