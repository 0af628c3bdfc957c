//! Compares matrix operations with plain loops.
#![allow(missing_docs, reason = "a test is no library")]

use sprat_chance::Chance;
use sprat_grape::{MatrixError, Sides, Threads, matrix};
use std::num::NonZeroUsize;

fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut chance = Chance::new(seed);
    (0..count).map(|_| chance.share() - 0.5).collect()
}

fn threads(count: usize) -> Threads {
    Threads::new(NonZeroUsize::new(count).expect("some")).expect("a few threads")
}

#[test]
fn products_match_loops() {
    for (m, n, k) in
        [(1, 1, 1), (3, 5, 7), (64, 64, 64), (130, 70, 33), (0, 4, 4), (4, 0, 4), (4, 4, 0)]
    {
        for count in [1, 2] {
            let (a, b, begun) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
            let mut c = begun.clone();
            matrix::dgemm(&threads(count), Sides { m, n, k }, &a, &b, &mut c)
                .expect("sizes that fit");
            for i in 0..m {
                for j in 0..n {
                    let sum: f64 =
                        begun[i * n + j] + (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f64>();
                    assert!((c[i * n + j] - sum).abs() < 1e-13, "{m} {n} {k}: {i} {j}");
                }
            }
        }
    }
}

#[test]
fn factors_multiply_to_the_matrix() {
    for n in [0, 1, 2, 7, 64, 150, 300] {
        for count in [1, 2] {
            let a = numbers(n * n, 9);
            let found = matrix::lu(&threads(count), n, &a).expect("of full rank");
            let mut rows = found.pivots.clone();
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..n), "each row once");
            for i in 0..n {
                for j in 0..n {
                    let lower = |l: usize| if l == i { 1.0 } else { found.factors[i * n + l] };
                    let sum: f64 =
                        (0..=i.min(j)).map(|l| lower(l) * found.factors[l * n + j]).sum();
                    assert!((sum - a[found.pivots[i] * n + j]).abs() < 1e-12, "{n}: {i} {j}");
                    assert!(
                        i <= j || found.factors[i * n + j].abs() <= 1.0 + 1e-12,
                        "the pivot is the greatest"
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_of_wrong_size_are_refused() {
    let sides = Sides { m: 2, n: 2, k: 2 };
    let refused = matrix::dgemm(&threads(1), sides, &[0.0; 4], &[0.0; 3], &mut [0.0; 4]);
    assert_eq!(refused, Err(MatrixError::Size { name: "B", given: 3, rows: 2, columns: 2 }));
    assert!(matches!(
        matrix::lu(&threads(1), 2, &[0.0; 5]),
        Err(MatrixError::Size { name: "A", .. })
    ));
    assert_eq!(matrix::lu(&threads(1), 2, &[1.0, 2.0, 2.0, 4.0]), Err(MatrixError::Singular(1)));
    assert!(matches!(matrix::lu(&threads(1), 2, &[f64::NAN; 4]), Err(MatrixError::Singular(_))));
}
