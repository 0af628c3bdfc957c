//! LU decomposition with partial pivoting. The host decomposes panels, and the machine updates the
//! rest of the matrix.

use crate::board::Shape;
use crate::matrix::{MatrixError, Sides, dgemm};
use crate::timing::Timing;

/// Number of columns that the host decomposes at a time. It is the inner dimension of the machine's
/// products.
pub const PANEL: usize = 64;

/// A decomposed matrix: the product L U gives its rows in the order of `pivots`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lu {
    /// The factors, row by row: L below the diagonal, with an implied diagonal of ones, and U on
    /// and above the diagonal.
    pub factors: Vec<f64>,
    /// For each row of the factors, the index of the corresponding row of the matrix.
    pub pivots: Vec<usize>,
    /// The machine's time for its matrix products.
    pub timing: Timing,
    /// Floating-point operations of these products. A multiplication with an addition counts as
    /// two.
    pub operations: u64,
}

/// Decomposes an `n` x `n` matrix, which is stored row by row. The host computes panels of
/// [`PANEL`] columns, and the rows of U to the right of each panel, in `f64`. The machine subtracts
/// the products of these from the rest of the matrix.
///
/// # Errors
/// [`MatrixError`] if the slice has the wrong size, the matrix is too large for the machine's
/// products, or a column has no pivot.
pub fn lu(shape: Shape, n: usize, matrix: &[f64]) -> Result<Lu, MatrixError> {
    MatrixError::check("A", matrix.len(), n, n)?;
    let mut lu = Lu {
        factors: matrix.to_vec(),
        pivots: (0..n).collect(),
        timing: Timing::default(),
        operations: 0,
    };
    for first in (0..n).step_by(PANEL) {
        let last = (first + PANEL).min(n);
        lu.panel(n, first, last)?;
        lu.row(n, first, last);
        if last < n {
            lu.update(shape, n, first, last)?;
        }
    }
    Ok(lu)
}

impl Lu {
    /// Decomposes the columns of a panel below the finished rows. Exchanges rows so that each pivot
    /// has the largest magnitude in its column, from the diagonal down.
    fn panel(&mut self, n: usize, first: usize, last: usize) -> Result<(), MatrixError> {
        for column in first..last {
            let size = |&row: &usize| self.factors[row * n + column].abs();
            let pivot =
                (column..n).max_by(|a, b| size(a).total_cmp(&size(b))).expect("a row is left");
            let value = self.factors[pivot * n + column];
            if value == 0.0 || !value.is_finite() {
                return Err(MatrixError::Singular(column));
            }
            if pivot != column {
                self.pivots.swap(pivot, column);
                (0..n).for_each(|at| self.factors.swap(pivot * n + at, column * n + at));
            }
            for row in column + 1..n {
                let factor = self.factors[row * n + column] / value;
                self.factors[row * n + column] = factor;
                for at in column + 1..last {
                    self.factors[row * n + at] -= factor * self.factors[column * n + at];
                }
            }
        }
        Ok(())
    }

    /// Computes the rows of U to the right of a panel.
    fn row(&mut self, n: usize, first: usize, last: usize) {
        for column in first..last {
            for row in column + 1..last {
                let factor = self.factors[row * n + column];
                for at in last..n {
                    self.factors[row * n + at] -= factor * self.factors[column * n + at];
                }
            }
        }
    }

    /// Subtracts the product of the panel's L and the U to its right from the rest of the matrix.
    fn update(
        &mut self,
        shape: Shape,
        n: usize,
        first: usize,
        last: usize,
    ) -> Result<(), MatrixError> {
        let sides = Sides { m: n - last, n: n - last, k: last - first };
        let part = |rows: std::ops::Range<usize>,
                    columns: std::ops::Range<usize>,
                    factors: &[f64]|
         -> Vec<f64> {
            rows.flat_map(|row| factors[row * n + columns.start..row * n + columns.end].to_vec())
                .collect()
        };
        let below: Vec<f64> =
            part(last..n, first..last, &self.factors).iter().map(|number| -number).collect();
        let beside = part(first..last, last..n, &self.factors);
        let mut rest = part(last..n, last..n, &self.factors);
        let timing = dgemm(shape, sides, &below, &beside, &mut rest)?;
        for (row, numbers) in (last..n).zip(rest.chunks(sides.n)) {
            self.factors[row * n + last..(row + 1) * n].copy_from_slice(numbers);
        }
        self.timing = self.timing.then(timing);
        self.operations += u64::try_from(2 * sides.m * sides.n * sides.k).expect("no wider");
        Ok(())
    }
}
