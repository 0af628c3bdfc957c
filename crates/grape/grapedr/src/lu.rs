//! LU decomposition with partial pivoting: panels by the host, what they change in the rest by the
//! machine.

use crate::board::Shape;
use crate::matrix::{MatrixError, Sides, dgemm};
use crate::timing::Timing;

/// Columns that are decomposed at a time, by the host: the inner dimension of the machine's
/// products.
pub const PANEL: usize = 64;

/// A decomposed matrix: rows of it, in the order of `pivots`, are L times U.
#[derive(Clone, Debug, PartialEq)]
pub struct Lu {
    /// Below the diagonal L, whose diagonal is 1; on it and above U. Row by row.
    pub factors: Vec<f64>,
    /// Which row of the matrix each row of the factors is.
    pub pivots: Vec<usize>,
    /// What the machine took for its products.
    pub timing: Timing,
    /// Operations of these products, counting a product and a sum as two.
    pub operations: u64,
}

/// Decomposes a matrix of `n` x `n`, row by row. Panels of [`PANEL`] columns, and the rows of U to
/// their right, are the host's, in `f64`; the machine subtracts the products of both from what is
/// left.
///
/// # Errors
/// [`MatrixError`]: another size, or a column without a pivot.
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
    /// Decomposes columns, below what is done, and changes rows so that each pivot is the greatest
    /// of its column.
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

    /// The rows of U to the right of a panel.
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

    /// What is left, less L of the panel times U beside it.
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
        self.timing = self.timing.with(timing);
        self.operations += u64::try_from(2 * sides.m * sides.n * sides.k).expect("no wider");
        Ok(())
    }
}
