//! Tests that keys and values are distinct, in range, and drawn from their distribution.

use std::collections::HashSet;

use proptest::prelude::*;
use sprat_chance::Chance;
use sprat_measure::load::KeyDistribution;
use sprat_measure::load::keys::{Chooser, Values, Zipf, write_key};

#[test]
fn zipf_follows_its_law() {
    const DRAWS: u32 = 200_000;
    for exponent in [0.5, 0.99, 1.0, 1.3] {
        let zipf = Zipf::new(50, exponent);
        let mut chance = Chance::new(7);
        let mut counts = [0_u32; 51];
        for _ in 0..DRAWS {
            counts[usize::try_from(zipf.rank(&mut chance)).expect("small")] += 1;
        }
        assert_eq!(counts[0], 0);
        let total: f64 = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).sum();
        for rank in 1..=50_u32 {
            let share = f64::from(rank).powf(-exponent) / total;
            let expected = share * f64::from(DRAWS);
            let found = f64::from(counts[rank as usize]);
            // The limit is six standard deviations; the seed is fixed.
            assert!(
                (found - expected).abs() < 6.0 * expected.sqrt(),
                "{exponent}: rank {rank} {found} not {expected:.0}"
            );
        }
    }
}

#[test]
fn uniform_reaches_every_key() {
    let mut chooser = Chooser::new(KeyDistribution::Uniform, 100, 1);
    let drawn: HashSet<u64> = (0..2000).map(|_| chooser.draw()).collect();
    assert_eq!(drawn.len(), 100);
}

#[test]
fn values_differ_between_keys_and_repeat_for_one() {
    let values = Values::new(100, 3);
    let distinct: HashSet<&[u8]> = (0..200).map(|number| values.of(number)).collect();
    assert!(distinct.len() > 150);
    assert_eq!(values.of(5), Values::new(100, 3).of(5));
}

proptest! {
    #[test]
    fn keys_are_distinct_and_printable(a: u64, b: u64, length in 20..=250_usize) {
        let (mut one, mut other) = (vec![0; length], vec![0; length]);
        write_key(a, &mut one);
        write_key(b, &mut other);
        prop_assert_eq!(a == b, one == other);
        prop_assert!(one.iter().all(u8::is_ascii_graphic));
    }

    #[test]
    fn draws_stay_in_range(count in 1..=u64::MAX / 2, seed: u64, exponent in 0.1..3.0_f64) {
        for distribution in [KeyDistribution::Uniform, KeyDistribution::Zipf(exponent)] {
            let mut chooser = Chooser::new(distribution, count, seed);
            for _ in 0..20 {
                prop_assert!(chooser.draw() < count);
            }
        }
    }
}
