//! Histories of the real store, faults included.

use sprat_sim::{run, run_seeds};

/// Histories that every test run goes through.
const SEEDS: u64 = 1000;

/// Seeds that found something once; what they say changes when the simulator does.
const SEALED_TOO_EARLY: u64 = 358;
const EXECUTED_LATER: u64 = 144;

#[test]
fn a_thousand_histories_can_be() {
    let (summary, failures) = run_seeds(run, 0..SEEDS, 2, |_, _| true);
    let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(
        failures.is_empty(),
        "{} of {SEEDS} seeds failed:\n{}",
        failures.len(),
        told.join("\n")
    );
    assert_eq!(summary.histories, SEEDS);
    // A simulator that does nothing finds nothing.
    assert!(summary.told * 2 > summary.operations, "most calls end");
    assert!(summary.crashes > SEEDS && summary.replays > SEEDS && summary.cuts > 0, "{summary}");
    assert!(summary.cleaned > SEEDS && summary.retransmissions > SEEDS, "{summary}");
    // The search gives up on an object now and then: 4 in 10,000 histories.
    assert!(summary.undecided * 200 < SEEDS, "{} objects were not decided on", summary.undecided);
}

#[test]
fn a_seed_is_a_history() {
    for seed in 0..8 {
        let (first, diary) = run(seed).unwrap();
        let (second, again) = run(seed).unwrap();
        let differs = diary.lines().iter().zip(again.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first, diary.hash()), (second, again.hash()), "seed {seed}");
    }
}

#[test]
fn seeds_differ() {
    let (one, other) = (run(1).unwrap().1, run(2).unwrap().1);
    assert_ne!(one.hash(), other.hash());
}

/// A start sealed the log in the name of bytes that only the kernel had, and the power failed
/// before the sync.
#[test]
fn a_seal_vouches_only_for_what_is_on_the_medium() {
    run(SEALED_TOO_EARLY).unwrap();
}

/// A write was told that its table is not served, and a copy of it was executed when it was.
#[test]
fn what_was_not_executed_never_is() {
    run(EXECUTED_LATER).unwrap();
}
