//! The plan of a copy: whatever the lanes do, every group is fetched, and no slow lane holds the
//! others up.

use proptest::prelude::*;
use sprat_flow::copy::plan::{Assignment, GROUP_ATTEMPTS, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// What a lane of the model does with its next group.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Right,
    Wrong,
    /// The connection breaks.
    Break,
    /// Nothing comes.
    Stall,
}

/// A lane of the model: its run, and the next group of it.
type Going = Option<std::ops::Range<u64>>;

fn begin(plan: &mut Plan, lane: usize, going: &mut [Going], now: Duration) -> Assignment {
    let turn = plan.take(lane, now);
    if let Assignment::Run(run) = &turn {
        assert!(!run.is_empty());
        going[lane] = Some(run.clone());
    }
    turn
}

/// One step of a lane; gives a group that came.
fn step(
    plan: &mut Plan,
    lane: usize,
    going: &mut [Going],
    step: Step,
    now: Duration,
) -> Option<u64> {
    let Some(mut run) = going[lane].take() else {
        begin(plan, lane, going, now);
        return None;
    };
    let group = run.start;
    match step {
        Step::Break => plan.give_back(lane),
        Step::Stall => going[lane] = Some(run),
        Step::Right | Step::Wrong => {
            if step == Step::Wrong {
                plan.wrong(lane, group);
            }
            run.start += 1;
            if plan.done(lane, group, now) {
                assert!(!run.is_empty(), "no lane is sent on beyond its run");
                going[lane] = Some(run);
            }
        }
    }
    (step == Step::Right).then_some(group)
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![6 => Just(Step::Right), 1 => Just(Step::Wrong), 1 => Just(Step::Break), 4 => Just(Step::Stall)]
}

proptest! {
    /// Lanes that break, stall and get things wrong, in any order, leave nothing out; "over" is said when everything is there, and not before.
    #[test]
    fn every_group_is_fetched_whatever_happens(
        count in 0u64..400,
        there in prop::collection::btree_set(0u64..400, 0..100),
        lanes in 1usize..6,
        moves in prop::collection::vec((0usize..6, steps(), 0u64..3000), 0..600),
        alike in any::<bool>(),
    ) {
        let there: BTreeMap<u64, [u8; 32]> = there.into_iter().filter(|group| *group < count).map(|group| (group, [0; 32])).collect();
        let plan = Plan::new(count, &there, lanes);
        let mut plan = if alike { plan.for_alike() } else { plan };
        let mut here: BTreeSet<u64> = there.keys().copied().collect();
        let mut fetched = 0u64;
        let (mut going, mut now) = (vec![None; lanes], Duration::ZERO);
        for (lane, what, millis) in moves {
            now += Duration::from_millis(millis);
            if let Some(group) = step(&mut plan, lane % lanes, &mut going, what, now) {
                fetched += 1;
                here.insert(group);
            }
        }
        // Then one lane alone is well, and the others never say another word: it must get everything.
        for turn in 0.. {
            prop_assert!(turn < 100_000, "it comes to an end");
            now += SECOND / 10;
            if going[0].is_none() {
                match begin(&mut plan, 0, &mut going, now) {
                    Assignment::Done => break,
                    Assignment::Run(_) | Assignment::Wait => {}
                }
            } else if let Some(group) = step(&mut plan, 0, &mut going, Step::Right, now) {
                fetched += 1;
                here.insert(group);
            }
        }
        prop_assert_eq!(here.len() as u64, count, "nothing is left out");
        prop_assert!(here.iter().all(|group| *group < count));
        let twice = fetched - (count - there.len() as u64);
        prop_assert!(twice <= 600 + count, "what is fetched twice is bounded");
    }

    /// A lane that is so many times slower than another gets so much less, and both end at about the same time.
    #[test]
    fn the_slower_one_gets_less(count in 200u64..3000, times in 2u32..60) {
        let mut plan = Plan::new(count, &BTreeMap::new(), 2);
        let paces = [SECOND / 20, SECOND / 20 * times];
        let mut going: Vec<Going> = vec![None; 2];
        let mut due = [Duration::ZERO; 2];
        let mut came = [0u64; 2];
        let mut now = Duration::ZERO;
        loop {
            let lane = usize::from(due[1] < due[0]);
            now = now.max(due[lane]);
            if going[lane].is_none() {
                match begin(&mut plan, lane, &mut going, now) {
                    Assignment::Done => break,
                    Assignment::Wait => due[lane] = now + SECOND / 20,
                    Assignment::Run(_) => due[lane] = now + paces[lane],
                }
            } else {
                came[lane] += u64::from(step(&mut plan, lane, &mut going, Step::Right, now).is_some());
                due[lane] = if going[lane].is_some() { now + paces[lane] } else { now };
            }
        }
        // Alone the faster one would take this long; together it is less, give or take what a tail is not worth.
        let alone = paces[0] * u32::try_from(count).unwrap();
        prop_assert!(now < alone + 3 * SECOND + paces[1], "{now:?} where one alone takes \
            {alone:?}");
        prop_assert!(came[1] <= came[0], "{came:?}");
        prop_assert!(came[0] + came[1] <= count + 4, "{came:?} of {count}: little is fetched \
            twice");
    }
}

#[test]
fn one_lane_gets_what_is_missing_piece_by_piece() {
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
fn lanes_that_are_alike_begin_with_equal_parts_of_what_is_not_large() {
    let mut plan = Plan::new(64, &BTreeMap::new(), 4).for_alike();
    for lane in 0..4 {
        let start = 16 * lane as u64;
        assert_eq!(plan.take(lane, Duration::ZERO), Assignment::Run(start..start + 16));
    }
    // What comes back is for whoever is first, piece by piece.
    plan.give_back(2);
    assert_eq!(plan.take(2, Duration::ZERO), Assignment::Run(32..40));
    // Of less they have less; of more what they would have otherwise.
    let mut small = Plan::new(10, &BTreeMap::new(), 4).for_alike();
    assert_eq!(small.take(0, Duration::ZERO), Assignment::Run(0..3));
    assert_eq!(small.take(1, Duration::ZERO), Assignment::Run(3..6));
    assert_eq!(small.take(2, Duration::ZERO), Assignment::Run(6..8));
    assert_eq!(small.take(3, Duration::ZERO), Assignment::Run(8..10));
    let mut large = Plan::new(8000, &BTreeMap::new(), 4).for_alike();
    assert_eq!(large.take(0, Duration::ZERO), Assignment::Run(0..1000));
}

#[test]
fn the_tail_of_a_silent_lane_is_taken_over_and_its_last_group_twice() {
    let mut plan = Plan::new(8, &BTreeMap::new(), 3);
    assert_eq!(plan.take(0, Duration::ZERO), Assignment::Run(0..8));
    assert_eq!(plan.take(1, SECOND / 100), Assignment::Wait, "it has just begun");
    // What it is at is left to it; it is not known who of both is faster: half.
    assert_eq!(plan.take(1, 2 * SECOND), Assignment::Run(4..8));
    assert!(plan.has_cut());
    let mut now = 2 * SECOND;
    for group in 4..8 {
        now += SECOND / 10;
        assert_eq!(plan.done(1, group, now), group < 7);
    }
    assert_eq!(plan.take(1, now), Assignment::Run(1..4), "all that can be: it is much faster");
    for group in 1..4 {
        plan.done(1, group, now);
    }
    assert_eq!(plan.take(1, now), Assignment::Run(0..1));
    assert_eq!(
        plan.take(2, now + SECOND / 2),
        Assignment::Wait,
        "two are enough, while one has just begun"
    );
    // The second's connection breaks: the first still has it. And the other way round.
    plan.give_back(1);
    assert_eq!(plan.left(), 0);
    assert_eq!(plan.take(2, now + 9 * SECOND), Assignment::Run(0..1));
    plan.give_back(0);
    assert_eq!((plan.left(), plan.take(0, now)), (0, Assignment::Wait));
    assert!(!plan.done(2, 0, now + 10 * SECOND));
    for lane in 0..3 {
        assert_eq!(plan.take(lane, now + 10 * SECOND), Assignment::Done);
    }
}

#[test]
fn a_third_lane_fetches_what_two_silent_ones_hold() {
    let mut plan = Plan::new(1, &BTreeMap::new(), 4);
    for lane in 0..3 {
        let now = 2 * SECOND * u32::try_from(lane).unwrap();
        assert_eq!(plan.take(lane, now), Assignment::Run(0..1));
        assert_eq!(
            plan.take(lane + 1, now + SECOND / 2),
            Assignment::Wait,
            "the newest has just begun"
        );
    }
    // Whoever gives up leaves it to the others, down to the last of them.
    plan.give_back(0);
    plan.give_back(2);
    assert_eq!(
        (plan.left(), plan.take(2, 5 * SECOND)),
        (0, Assignment::Run(0..1)),
        "the one that is left is silent"
    );
    assert!(!plan.done(1, 0, 6 * SECOND));
    for lane in 0..4 {
        assert_eq!(plan.take(lane, 6 * SECOND), Assignment::Done);
    }
}

#[test]
fn whoever_comes_second_is_told_to_stop() {
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
        assert_eq!(plan.wrong(0, 1), times);
    }
    plan.again(0, 2);
    for group in 0..3 {
        plan.done(0, group, SECOND);
    }
    assert_eq!(plan.take(0, SECOND), Assignment::Run(1..3));
}

#[test]
fn what_was_asked_for_beforehand_is_the_first_lanes() {
    let mut plan = Plan::new(50, &BTreeMap::new(), 4).for_alike().with_beginning(8);
    let at = Duration::ZERO;
    // Whoever comes first: it is on its way to the first.
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
fn who_begins_slowly_is_left_alone_for_a_while() {
    let mut plan = Plan::new(32, &BTreeMap::new(), 2).for_alike();
    assert_eq!(
        [plan.take(0, Duration::ZERO), plan.take(1, Duration::ZERO)],
        [Assignment::Run(0..16), Assignment::Run(16..32)]
    );
    assert!(plan.done(0, 0, SECOND));
    (16..32).for_each(|group| assert_eq!(plan.done(1, group, SECOND * 3 / 2), group < 31));
    // By its first group it would take 15 seconds more.
    assert_eq!(plan.take(1, SECOND * 3 / 2), Assignment::Wait);
    (1..12).for_each(|group| assert!(plan.done(0, group, SECOND * 19 / 10)));
    assert_eq!(
        plan.take(1, 2 * SECOND),
        Assignment::Wait,
        "and takes none by those that came then"
    );
    assert!(matches!(plan.take(1, 4 * SECOND), Assignment::Run(_)), "it is silent");
}
