//! Histories of whole clusters.

use sprat_sim::{cluster, run_seeds};

/// Number of histories in every test run, unless SPRAT_SIM_SEEDS gives it; `sprat sim --cluster`
/// runs more.
const SEEDS: u64 = 100;

/// Seeds that once found a fault. When the simulator changes, their histories change too.
const KEPT: [u64; 4] = [12, 36, 78, 106];

/// Seeds that found a fault after minutes, each with its number of operations.
const KEPT_LONG: [(u64, u64); 3] = [(2023, 10_000), (45, 3_000), (1_795_418_265_043, 3_000)];

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The histories have as many operations as each seed decides, or as SPRAT_SIM_OPERATIONS says.
#[test]
fn cluster_histories_are_linearizable() {
    let seeds = given("SPRAT_SIM_SEEDS").unwrap_or(SEEDS);
    let operations = given("SPRAT_SIM_OPERATIONS");
    let run = |seed| {
        operations
            .map_or_else(|| cluster::run(seed), |operations| cluster::run_long(seed, operations))
    };
    let (summary, failures) = run_seeds(run, 0..seeds, 2, |_, _| true);
    let failed: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(
        failures.is_empty(),
        "{} of {seeds} seeds failed:\n{}",
        failures.len(),
        failed.join("\n")
    );
    if seeds < SEEDS {
        return;
    }
    // A simulator that does nothing would find nothing.
    assert!(summary.answered * 3 > summary.operations * 2, "most calls end");
    assert!(summary.crashes > 2 * SEEDS && summary.frames_lost > SEEDS, "{summary}");
    assert!(summary.stops > SEEDS / 4, "live servers are declared dead: {summary}");
    assert!(summary.takeovers > SEEDS / 2, "coordinators take each other's place: {summary}");
    assert!(
        summary.disk_faults > SEEDS / 4 && summary.flips > 0,
        "disks fail, and bits flip: {summary}"
    );
    assert!(summary.alone > SEEDS, "servers answer without a coordinator: {summary}");
    assert!(summary.racks_lost > 0, "whole racks are lost: {summary}");
    eprintln!("{summary}");
}

#[test]
fn seeds_determine_histories() {
    for seed in 0..3 {
        let (first, diary) = cluster::run(seed).unwrap();
        let (second, again) = cluster::run(seed).unwrap();
        let differs = diary.lines().iter().zip(again.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first, diary.hash()), (second, again.hash()), "seed {seed}");
    }
}

/// The faults that these seeds found:
/// - The server confused two of its tasks.
/// - The server reported that a recovered part began later in the log than it did.
/// - Masters waited for replicas of a lost server.
/// - A new head was never reported to the coordinator.
/// - Sessions of recoveries were never closed, until there was no room for more.
/// - Crashes divided a table into more tablets than it may have.
/// - Versions of removed objects that were only in memory were taken for versions in a head.
#[test]
fn seeds_that_found_something() {
    for seed in KEPT {
        cluster::run(seed).unwrap();
    }
    for (seed, operations) in KEPT_LONG {
        cluster::run_long(seed, operations).unwrap();
    }
}
