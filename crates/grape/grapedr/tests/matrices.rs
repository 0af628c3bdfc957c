//! Compares matrices on the simulated machine with plain loops.

use proptest::prelude::*;
use sprat_grapedr::{MatrixError, Shape, Sides, dgemm, gflops, lu};

fn numbers(count: usize, mut seed: u64) -> Vec<f64> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(seed >> 32).unwrap()) / f64::from(u32::MAX) - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn check(sides: Sides, chips: usize) -> f64 {
    let Sides { m, n, k } = sides;
    let (a, b, begun) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
    let mut c = begun.clone();
    dgemm(Shape::new(chips, 5e8).unwrap(), sides, &a, &b, &mut c).unwrap();
    let mut most: f64 = 0.0;
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
            let size: f64 = (0..k).map(|l| (a[i * k + l] * b[l * n + j]).abs()).sum::<f64>()
                + begun[i * n + j].abs();
            most = most.max((c[i * n + j] - sum - begun[i * n + j]).abs() / size);
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_match_loops(
        m in 0usize..300,
        n in 0usize..6,
        k in 0usize..150,
        chips in 1usize..5,
    ) {
        let error = check(Sides { m, n, k }, chips);
        prop_assert!(error <= 1e-14, "{error:e}");
    }
}

/// The machine cannot hold the whole product, so rows and the inner dimension are divided.
#[test]
fn products_larger_than_the_machine() {
    assert!(check(Sides { m: 140, n: 2, k: 2100 }, 1) <= 1e-14);
    assert!(check(Sides { m: 2500, n: 1, k: 70 }, 1) <= 1e-14);
}

#[test]
fn a_full_machine_nears_its_peak() {
    let sides = Sides { m: 128, n: 16, k: 1024 };
    let (a, b, mut c) = (numbers(128 * 1024, 1), numbers(1024 * 16, 2), vec![0.0; 128 * 16]);
    let timing = dgemm(Shape::DESIGN, sides, &a, &b, &mut c).unwrap();
    // Two steps for each product, one for the last sum, and one to initialize the sum.
    assert_eq!(timing.loop_cycles, 16 * (64 * 8 + 8));
    let products = gflops(2 * 128 * 16 * 1024, timing.loop_cycles as f64 / 5e8);
    assert!(products > 250.0 && products <= 256.0);
}

#[test]
fn factors_multiply_to_the_matrix() {
    for n in [0, 1, 7, 64, 150] {
        let matrix = numbers(n * n, 5);
        let found = lu(Shape::DESIGN, n, &matrix).unwrap();
        let mut pivots = found.pivots.clone();
        pivots.sort_unstable();
        assert_eq!(pivots, (0..n).collect::<Vec<_>>());
        for i in 0..n {
            for j in 0..n {
                let below = |l: usize| if l == i { 1.0 } else { found.factors[i * n + l] };
                let sum: f64 = (0..=i.min(j)).map(|l| below(l) * found.factors[l * n + j]).sum();
                let error = (sum - matrix[found.pivots[i] * n + j]).abs();
                assert!(error < 1e-13, "{n}: {i}, {j}: {error:e}");
            }
            assert!(
                (0..i).all(|l| found.factors[i * n + l].abs() <= 1.0),
                "pivots are the greatest"
            );
        }
    }
}

#[test]
fn errors_of_matrices_are_named() {
    let sides = Sides { m: 2, n: 2, k: 2 };
    let error = dgemm(Shape::DESIGN, sides, &[0.0; 4], &[0.0; 3], &mut [0.0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "matrix B has 3 numbers, 2 x 2 of them are needed");
    assert_eq!(lu(Shape::DESIGN, 2, &[1.0, 2.0, 2.0, 4.0]).unwrap_err(), MatrixError::Singular(1));
    assert_eq!(lu(Shape::DESIGN, 1, &[f64::NAN]).unwrap_err(), MatrixError::Singular(0));
}
