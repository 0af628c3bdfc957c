//! Tests the plan of a fetch. Whatever the streams do, every group is fetched, and no slow stream
//! delays the others.

use proptest::prelude::*;
use sprat_flow::copy::plan::{Assignment, GROUP_ATTEMPTS, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// What a stream of the model does with its next group.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Right,
    Wrong,
    /// The connection breaks.
    Break,
    /// Nothing arrives.
    Stall,
}

/// A stream of the model: its run, from the next group on.
type CurrentRun = Option<std::ops::Range<u64>>;

fn begin(plan: &mut Plan, stream: usize, runs: &mut [CurrentRun], now: Duration) -> Assignment {
    let assignment = plan.take(stream, now);
    if let Assignment::Run(run) = &assignment {
        assert!(!run.is_empty());
        runs[stream] = Some(run.clone());
    }
    assignment
}

/// Makes one step of a stream. Returns the group that arrived, if one did.
fn step(
    plan: &mut Plan,
    stream: usize,
    runs: &mut [CurrentRun],
    step: Step,
    now: Duration,
) -> Option<u64> {
    let Some(mut run) = runs[stream].take() else {
        begin(plan, stream, runs, now);
        return None;
    };
    let group = run.start;
    match step {
        Step::Break => plan.give_back(stream),
        Step::Stall => runs[stream] = Some(run),
        Step::Right | Step::Wrong => {
            if step == Step::Wrong {
                plan.mark_corrupt(stream, group);
            }
            run.start += 1;
            if plan.done(stream, group, now) {
                assert!(!run.is_empty(), "the stream has groups left");
                runs[stream] = Some(run);
            }
        }
    }
    (step == Step::Right).then_some(group)
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Right),
        1 => Just(Step::Wrong),
        1 => Just(Step::Break),
        4 => Just(Step::Stall),
    ]
}

proptest! {
    /// Streams that break, stall and receive corrupt groups, in any order, leave no group out. The
    /// plan returns `Done` only when all groups have arrived.
    #[test]
    fn every_group_is_fetched_despite_failures(
        count in 0u64..400,
        there in prop::collection::btree_set(0u64..400, 0..100),
        streams in 1usize..6,
        moves in prop::collection::vec((0usize..6, steps(), 0u64..3000), 0..600),
        alike in any::<bool>(),
    ) {
        let there = there.into_iter().filter(|group| *group < count);
        let there: BTreeMap<u64, [u8; 32]> = there.map(|group| (group, [0; 32])).collect();
        let plan = Plan::new(count, &there, streams);
        let mut plan = if alike { plan.for_alike() } else { plan };
        let mut here: BTreeSet<u64> = there.keys().copied().collect();
        let mut fetched = 0u64;
        let (mut runs, mut now) = (vec![None; streams], Duration::ZERO);
        for (stream, action, millis) in moves {
            now += Duration::from_millis(millis);
            if let Some(group) = step(&mut plan, stream % streams, &mut runs, action, now) {
                fetched += 1;
                here.insert(group);
            }
        }
        // Then only one stream works, and the others stay silent. It must get all remaining groups.
        for round in 0.. {
            prop_assert!(round < 100_000, "the transfer ends");
            now += SECOND / 10;
            if runs[0].is_none() {
                match begin(&mut plan, 0, &mut runs, now) {
                    Assignment::Done => break,
                    Assignment::Run(_) | Assignment::Wait => {}
                }
            } else if let Some(group) = step(&mut plan, 0, &mut runs, Step::Right, now) {
                fetched += 1;
                here.insert(group);
            }
        }
        prop_assert_eq!(here.len() as u64, count, "each group was fetched");
        prop_assert!(here.iter().all(|group| *group < count));
        let twice = fetched - (count - there.len() as u64);
        prop_assert!(twice <= 600 + count, "few groups are fetched twice");
    }

    /// If a stream is slower than another, it gets proportionally fewer groups, and both end at
    /// about the same time.
    #[test]
    fn the_slower_one_gets_less(count in 200u64..3000, times in 2u32..60) {
        let mut plan = Plan::new(count, &BTreeMap::new(), 2);
        let paces = [SECOND / 20, SECOND / 20 * times];
        let mut runs: Vec<CurrentRun> = vec![None; 2];
        let mut due = [Duration::ZERO; 2];
        let mut received = [0u64; 2];
        let mut now = Duration::ZERO;
        loop {
            let stream = usize::from(due[1] < due[0]);
            now = now.max(due[stream]);
            if runs[stream].is_none() {
                match begin(&mut plan, stream, &mut runs, now) {
                    Assignment::Done => break,
                    Assignment::Wait => due[stream] = now + SECOND / 20,
                    Assignment::Run(_) => due[stream] = now + paces[stream],
                }
            } else {
                let group = step(&mut plan, stream, &mut runs, Step::Right, now);
                received[stream] += u64::from(group.is_some());
                due[stream] = if runs[stream].is_some() { now + paces[stream] } else { now };
            }
        }
        // Together they take less time than the faster stream alone, apart from a tail that is too
        // short to share.
        let alone = paces[0] * u32::try_from(count).unwrap();
        let limit = alone + 3 * SECOND + paces[1];
        prop_assert!(now < limit, "{now:?}, but the faster stream alone takes {alone:?}");
        prop_assert!(received[1] <= received[0], "{received:?}");
        let all = received[0] + received[1];
        prop_assert!(all <= count + 4, "{received:?} of {count}: few groups came twice");
    }
}

#[test]
fn one_stream_gets_missing_runs_in_order() {
    let there = [3, 4, 9].map(|group| (group, [0; 32]));
    let mut plan = Plan::new(12, &there.into(), 1);
    for run in [0..3, 5..9, 10..12] {
        assert_eq!(plan.take(0, SECOND), Assignment::Run(run.clone()));
        let last = run.end - 1;
        run.for_each(|group| assert_eq!(plan.done(0, group, SECOND), group != last));
    }
    assert_eq!(plan.take(0, SECOND), Assignment::Done);
    assert!(!plan.has_cut());
}

#[test]
fn equal_streams_begin_with_equal_parts_of_a_small_file() {
    let mut plan = Plan::new(64, &BTreeMap::new(), 4).for_alike();
    for stream in 0..4 {
        let start = 16 * stream as u64;
        assert_eq!(plan.take(stream, Duration::ZERO), Assignment::Run(start..start + 16));
    }
    // A run that is given back is available to all, in pieces.
    plan.give_back(2);
    assert_eq!(plan.take(2, Duration::ZERO), Assignment::Run(32..40));
    // Of a shorter file each stream gets fewer groups. Of a longer file each gets the usual run.
    let mut small = Plan::new(10, &BTreeMap::new(), 4).for_alike();
    assert_eq!(small.take(0, Duration::ZERO), Assignment::Run(0..3));
    assert_eq!(small.take(1, Duration::ZERO), Assignment::Run(3..6));
    assert_eq!(small.take(2, Duration::ZERO), Assignment::Run(6..8));
    assert_eq!(small.take(3, Duration::ZERO), Assignment::Run(8..10));
    let mut large = Plan::new(8000, &BTreeMap::new(), 4).for_alike();
    assert_eq!(large.take(0, Duration::ZERO), Assignment::Run(0..1000));
}

#[test]
fn the_tail_of_a_silent_stream_is_taken_over_and_its_last_group_twice() {
    let mut plan = Plan::new(8, &BTreeMap::new(), 3);
    assert_eq!(plan.take(0, Duration::ZERO), Assignment::Run(0..8));
    assert_eq!(plan.take(1, SECOND / 100), Assignment::Wait, "stream 0 has just begun");
    // The group in progress stays with stream 0. It is unknown which stream is faster, so stream 1
    // gets half of the others.
    assert_eq!(plan.take(1, 2 * SECOND), Assignment::Run(4..8));
    assert!(plan.has_cut());
    let mut now = 2 * SECOND;
    for group in 4..8 {
        now += SECOND / 10;
        assert_eq!(plan.done(1, group, now), group < 7);
    }
    assert_eq!(
        plan.take(1, now),
        Assignment::Run(1..4),
        "all but the group in progress: stream 1 is much faster"
    );
    for group in 1..4 {
        plan.done(1, group, now);
    }
    assert_eq!(plan.take(1, now), Assignment::Run(0..1));
    assert_eq!(
        plan.take(2, now + SECOND / 2),
        Assignment::Wait,
        "two streams fetch it, and one has just begun"
    );
    // The connection of stream 1 breaks, and stream 0 still has the group. Then stream 0 gives up,
    // and stream 2 has it.
    plan.give_back(1);
    assert_eq!(plan.left(), 0);
    assert_eq!(plan.take(2, now + 9 * SECOND), Assignment::Run(0..1));
    plan.give_back(0);
    assert_eq!((plan.left(), plan.take(0, now)), (0, Assignment::Wait));
    assert!(!plan.done(2, 0, now + 10 * SECOND));
    for stream in 0..3 {
        assert_eq!(plan.take(stream, now + 10 * SECOND), Assignment::Done);
    }
}

#[test]
fn a_third_stream_fetches_the_group_of_two_silent_ones() {
    let mut plan = Plan::new(1, &BTreeMap::new(), 4);
    for stream in 0..3 {
        let now = 2 * SECOND * u32::try_from(stream).unwrap();
        assert_eq!(plan.take(stream, now), Assignment::Run(0..1));
        assert_eq!(
            plan.take(stream + 1, now + SECOND / 2),
            Assignment::Wait,
            "the newest stream has just begun"
        );
    }
    // A stream that gives up leaves the group to the others, until only one is left.
    plan.give_back(0);
    plan.give_back(2);
    assert_eq!(
        (plan.left(), plan.take(2, 5 * SECOND)),
        (0, Assignment::Run(0..1)),
        "the only stream left is silent"
    );
    assert!(!plan.done(1, 0, 6 * SECOND));
    for stream in 0..4 {
        assert_eq!(plan.take(stream, 6 * SECOND), Assignment::Done);
    }
}

#[test]
fn the_second_to_fetch_a_group_stops() {
    let mut plan = Plan::new(1, &BTreeMap::new(), 2);
    assert_eq!(plan.take(0, Duration::ZERO), Assignment::Run(0..1));
    assert_eq!(plan.take(1, 5 * SECOND), Assignment::Run(0..1));
    assert!(!plan.done(1, 0, 6 * SECOND));
    assert_eq!(plan.take(1, 6 * SECOND), Assignment::Done);
    assert!(!plan.done(0, 0, 7 * SECOND));
    assert_eq!(plan.take(0, 7 * SECOND), Assignment::Done);
}

#[test]
fn groups_that_arrive_wrong_are_counted() {
    let mut plan = Plan::new(3, &BTreeMap::new(), 1);
    assert_eq!(plan.take(0, SECOND), Assignment::Run(0..3));
    for times in 1..=GROUP_ATTEMPTS {
        assert_eq!(plan.mark_corrupt(0, 1), times);
    }
    plan.retry(0, 2);
    for group in 0..3 {
        plan.done(0, group, SECOND);
    }
    assert_eq!(plan.take(0, SECOND), Assignment::Run(1..3));
}

#[test]
fn a_beginning_requested_beforehand_belongs_to_the_first_stream() {
    let mut plan = Plan::new(50, &BTreeMap::new(), 4).for_alike().with_beginning(8);
    let at = Duration::ZERO;
    // This holds also if another stream asks first, because the beginning is on its way to stream
    // 0.
    assert_eq!(plan.take(1, at), Assignment::Run(8..22));
    assert_eq!(plan.take(0, at), Assignment::Run(0..8));
    assert_eq!(
        [plan.take(2, at), plan.take(3, at)],
        [Assignment::Run(22..36), Assignment::Run(36..50)]
    );
    let mut whole = Plan::new(5, &BTreeMap::new(), 1).with_beginning(5);
    assert_eq!(whole.take(0, at), Assignment::Run(0..5));
    (0..5).for_each(|group| assert_eq!(whole.done(0, group, at), group < 4));
    assert_eq!(whole.take(0, at), Assignment::Done);
}

#[test]
fn a_stream_that_starts_slowly_keeps_its_run_for_a_while() {
    let mut plan = Plan::new(32, &BTreeMap::new(), 2).for_alike();
    assert_eq!(
        [plan.take(0, Duration::ZERO), plan.take(1, Duration::ZERO)],
        [Assignment::Run(0..16), Assignment::Run(16..32)]
    );
    assert!(plan.done(0, 0, SECOND));
    (16..32).for_each(|group| assert_eq!(plan.done(1, group, SECOND * 3 / 2), group < 31));
    // Judged by its first group, the run would take 15 seconds more.
    assert_eq!(plan.take(1, SECOND * 3 / 2), Assignment::Wait);
    (1..12).for_each(|group| assert!(plan.done(0, group, SECOND * 19 / 10)));
    assert_eq!(
        plan.take(1, 2 * SECOND),
        Assignment::Wait,
        "groups arrived just now, so none is taken over"
    );
    assert!(matches!(plan.take(1, 4 * SECOND), Assignment::Run(_)), "stream 0 is silent");
}
