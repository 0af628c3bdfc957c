//! Compares windows with a model that keeps every operation. Tests which windows missed their rate,
//! how failures are counted, and acknowledged writes against a map.

use proptest::prelude::*;
use sprat_load::{
    AcknowledgedWrites, Completion, EDGE, Failures, KEPT_SHARE, LostWrite, MAX_EXAMPLE, MAX_KINDS,
    MAX_LOST, Quantiles, Verdict, Verification, Window, Windows, missed,
};
use std::collections::HashMap;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Length of a window, and of the run, which ends within its fifth window; both in ms.
const LENGTH: u64 = 1_000;
const TOTAL: u64 = 4_500;

fn windows() -> Windows {
    Windows::new(Duration::from_millis(LENGTH), Duration::from_millis(TOTAL))
}

/// An operation: its start, how late it was sent and how long it took, all in ms; then whether it
/// was sent and whether it succeeded.
#[derive(Clone, Copy, Debug)]
struct One {
    start: u64,
    late: u64,
    took: u64,
    sent: bool,
    done: bool,
}

fn one() -> impl Strategy<Value = One> {
    (0..TOTAL, 0_u64..50, 0_u64..3_000, prop::bool::weighted(0.9), prop::bool::weighted(0.8))
        .prop_map(|(start, late, took, sent, done)| One { start, late, took, sent, done })
}

fn longest(times: impl Iterator<Item = u64>) -> (u64, u64) {
    times.fold((0, 0), |(count, max), time| (count + 1, max.max(time)))
}

/// Checks quantiles against the exact count and maximum: histograms keep only three digits.
#[track_caller]
fn close(found: Quantiles, (count, max): (u64, u64)) {
    assert_eq!(found.count, count);
    assert!(found.max.abs_diff(max) <= max / 500, "{found:?} is not {max}");
    assert!(found.p50 <= found.p99 && found.p99 <= found.p999 && found.p999 <= found.max);
}

proptest! {
    #[test]
    fn windows_match_a_list_of_all_operations(mut all in prop::collection::vec(one(), 1..200)) {
        all.sort_by_key(|one| one.start);
        let mut found = windows();
        // Each operation is dispatched at its start, and completes at its end.
        let mut events: Vec<(u64, bool, One)> =
            all.iter().map(|one| (one.start, false, *one)).collect();
        events.extend(
            all.iter()
                .filter(|one| one.sent)
                .map(|one| (one.start + one.late + one.took, true, *one)),
        );
        events.sort_by_key(|(at, answer, _)| (*at, *answer));
        for (at, answer, one) in events {
            let window = found.at(one.start * MS);
            if answer {
                let (intended, sent, ended) =
                    (one.start * MS, (one.start + one.late) * MS, at * MS);
                found.complete(Completion { intended, sent, ended, done: one.done });
            } else {
                found.dispatched(window, u64::from(one.sent), u64::from(!one.sent), window);
            }
        }
        let (list, unanswered) = found.end(u64::MAX);
        prop_assert_eq!((list.len(), unanswered), (5, 0));
        for (number, window) in (0..).zip(&list) {
            let (from, to) = (number * LENGTH, (number + 1) * LENGTH);
            let own = || all.iter().filter(move |one| (from..to).contains(&one.start));
            let count =
                |which: &dyn Fn(&One) -> bool| own().filter(|one| which(one)).count() as u64;
            prop_assert_eq!(window.scheduled, count(&|_| true));
            prop_assert_eq!(
                (window.sent, window.not_sent),
                (count(&|one| one.sent), count(&|one| !one.sent))
            );
            prop_assert_eq!(window.done, count(&|one| one.sent && one.done));
            prop_assert_eq!(window.failed, count(&|one| one.sent && !one.done));
            let ended = |one: &&One| {
                one.sent && one.done && (from..to).contains(&(one.start + one.late + one.took))
            };
            prop_assert_eq!(window.delivered, all.iter().filter(ended).count() as u64);
            prop_assert_eq!(window.full, to <= TOTAL);
            let done = || own().filter(|one| one.sent && one.done);
            close(window.response, longest(done().map(|one| (one.late + one.took) * 1_000)));
            close(window.service, longest(done().map(|one| one.took * 1_000)));
            close(
                window.lateness,
                longest(own().filter(|one| one.sent).map(|one| one.late * 1_000)),
            );
        }
        let done = || all.iter().filter(|one| one.sent && one.done);
        close(found.times()[0], longest(done().map(|one| (one.late + one.took) * 1_000)));
        close(
            found.times()[2],
            longest(all.iter().filter(|one| one.sent).map(|one| one.late * 1_000)),
        );
        prop_assert_eq!(
            found.late() + list.iter().map(|window| window.delivered).sum::<u64>(),
            done().count() as u64
        );
    }

    #[test]
    fn acknowledged_writes_match_a_map(
        writes in prop::collection::vec((0_u64..20, 1_u64..1_000, any::<bool>()), 0..200),
        forgets in 0_u64..20,
    ) {
        let base = 1_000_000;
        let (acknowledged, mut noted, mut stored) =
            (AcknowledgedWrites::new(base, 20), HashMap::new(), HashMap::new());
        for (key, number, answered) in writes {
            let highest = |map: &mut HashMap<u64, u64>| {
                let known = map.entry(key).or_insert(0);
                *known = number.max(*known);
            };
            highest(&mut stored);
            if answered {
                acknowledged.note(key, base + number);
                highest(&mut noted);
            }
        }
        // One key loses its writes. Every second key without a write has a value of an earlier run.
        stored.remove(&forgets);
        let mut verified = Verification::default();
        for key in 0..20 {
            let found =
                stored.get(&key).map(|number| base + number).or((key % 2 == 0).then_some(base - 5));
            let verdict = acknowledged.compare(key, acknowledged.highest(key), found);
            let (has, wants) =
                (stored.get(&key).copied().unwrap_or(0), noted.get(&key).copied().unwrap_or(0));
            let right = match verdict {
                Verdict::Kept => has == wants,
                Verdict::Ahead => has > wants,
                Verdict::Lost(lost) => {
                    lost == LostWrite { key, acknowledged: wants, found: 0 } && key == forgets
                }
            };
            prop_assert!(right, "{verdict:?}: has {has}, acknowledged {wants}");
            verified.add(verdict);
        }
        prop_assert_eq!(verified.lost_keys, u64::from(noted.contains_key(&forgets)));
        prop_assert_eq!((verified.checked, verified.lost.len() as u64), (20, verified.lost_keys));
    }
}

fn window(asked: u64, delivered: u64, failed: u64) -> Window {
    let mut found = windows();
    found.dispatched(0, asked, 0, 0);
    let (intended, sent) = (0, 0);
    (0..delivered)
        .for_each(|_| found.complete(Completion { intended, sent, ended: MS, done: true }));
    (0..failed).for_each(|_| found.complete(Completion { intended, sent, ended: MS, done: false }));
    found.window(0, u64::MAX)
}

#[test]
fn a_window_below_its_rate_is_missed() {
    assert_eq!((KEPT_SHARE, EDGE), (0.95, 1));
    let case = |windows: &[(u64, u64)]| {
        missed(
            &windows
                .iter()
                .map(|(asked, delivered)| window(*asked, *delivered, 0))
                .collect::<Vec<_>>(),
        )
    };
    assert!(case(&[(100, 100), (100, 95), (100, 105)]).is_empty());
    assert_eq!(case(&[(100, 100), (100, 94), (100, 106)]), [1]);
    assert_eq!(
        case(&[(100, 0), (100, 0), (100, 300)]),
        [0, 1],
        "later answers do not make up for it"
    );
    // A window may lack one operation. Windows that together lack two operations missed their rate.
    assert!(case(&[(1, 0), (1, 2), (1, 1)]).is_empty());
    assert_eq!(case(&[(1, 0), (1, 0), (1, 0)]), [1, 2]);
    assert!(case(&[(0, 0)]).is_empty());
    assert_eq!(missed(&[window(10, 8, 2)]), [0], "failed operations are not delivered");
    let mut last = window(100, 0, 0);
    last.full = false;
    assert!(missed(&[last]).is_empty(), "an incomplete window cannot miss its rate");
}

#[test]
fn a_stall_shows_as_windows_without_deliveries() {
    let mut found = windows();
    for start in 0..450_u64 {
        let intended = start * 10 * MS;
        found.dispatched(found.at(intended), 1, 0, found.at(intended));
        // From 1 s to 3 s nothing completes.
        let ended =
            if (MS * 1_000..MS * 3_000).contains(&intended) { 3_000 * MS } else { intended + MS };
        found.complete(Completion { intended, sent: intended, ended, done: true });
    }
    let (list, _) = found.end(u64::MAX);
    assert_eq!(
        list.iter().map(|window| window.delivered).collect::<Vec<_>>(),
        [100, 0, 0, 300, 50]
    );
    assert_eq!(missed(&list), [1, 2]);
    assert!(found.times()[0].p99 > 1_900_000, "{:?}", found.times());
}

#[test]
fn unanswered_operations_have_failed() {
    let mut found = windows();
    found.dispatched(0, 3, 1, 0);
    found.complete(Completion { intended: 0, sent: 0, ended: MS, done: true });
    let (list, unanswered) = found.end(1_500 * MS);
    assert_eq!((list.len(), unanswered), (2, 2));
    assert_eq!((list[0].scheduled, list[0].done, list[0].failed, list[0].full), (4, 1, 2, true));
    assert!(!list[1].full, "the load stopped within the window");
    assert_eq!(found.ended(), (1, 2));
}

#[test]
fn failures_are_bounded() {
    let mut failures = Failures::default();
    for kind in 0..MAX_KINDS + 4 {
        failures.count(&format!("kind {kind}"), 2, &"ü".repeat(MAX_EXAMPLE));
    }
    failures.count("kind 0", 0, "");
    assert_eq!((failures.kinds.len(), failures.others), (MAX_KINDS, 8));
    assert_eq!(failures.total(), 2 * (MAX_KINDS as u64 + 4));
    assert!(failures.kinds.iter().all(|kind| kind.example.len() <= MAX_EXAMPLE && kind.count == 2));
}

#[test]
fn listed_lost_writes_are_bounded() {
    let lost = |key| Verdict::Lost(LostWrite { key, acknowledged: 2, found: 1 });
    let mut sum = Verification::default();
    for part in 0..3 {
        let mut one = Verification::default();
        (0..80).for_each(|key| one.add(lost(part * 80 + key)));
        sum.merge(one);
    }
    assert_eq!((sum.checked, sum.lost_keys, sum.lost.len()), (240, 240, MAX_LOST));
}
