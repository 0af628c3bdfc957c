//! Dense matrices on this processor, for comparison with the simulated machine. A library
//! (`matrixmultiply`, through `ndarray`) multiplies matrices. The LU decomposition divides its work
//! into such products.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis, s};
use sprat_grapedr::{MatrixError, Sides};
use sprat_vector::Threads;

/// The largest number of columns (or of equations) that is no longer divided into products: with
/// fewer, the library's preparation of a product takes longer than the product.
const NARROW: usize = 16;

/// The smallest number of rows or columns of a product that a thread computes, for the same reason.
const MIN_BAND: usize = 32;

/// Computes C += A B on these threads. All matrices are in row-major order.
///
/// # Errors
/// [`MatrixError::Size`] if the length of a slice does not match its sides.
pub fn dgemm(
    threads: &Threads,
    sides: Sides,
    a: &[f64],
    b: &[f64],
    c: &mut [f64],
) -> Result<(), MatrixError> {
    let Sides { m, n, k } = sides;
    for (name, given, rows, columns) in
        [("A", a.len(), m, k), ("B", b.len(), k, n), ("C", c.len(), m, n)]
    {
        MatrixError::check(name, given, rows, columns)?;
    }
    let sized = "the lengths are checked above";
    let a = ArrayView2::from_shape((m, k), a).expect(sized);
    let b = ArrayView2::from_shape((k, n), b).expect(sized);
    let c = ArrayViewMut2::from_shape((m, n), c).expect(sized);
    threads.run(|parallel| add_product(bands(threads, parallel), 1.0, a, b, c));
    Ok(())
}

/// An LU decomposition: L times U gives the rows of the matrix in the order of `pivots`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lu {
    /// L below the diagonal, with an implied diagonal of 1, and U on and above it, in row-major
    /// order.
    pub factors: Vec<f64>,
    /// For each row of the factors, the index of the corresponding row of the matrix.
    pub pivots: Vec<usize>,
}

/// Decomposes an `n` x `n` matrix in row-major order with partial pivoting, on these threads.
///
/// # Errors
/// [`MatrixError`] if the slice has the wrong size, or a column has no pivot.
pub fn lu(threads: &Threads, n: usize, matrix: &[f64]) -> Result<Lu, MatrixError> {
    MatrixError::check("A", matrix.len(), n, n)?;
    let mut factors = matrix.to_vec();
    let mut swaps = vec![0; n];
    let whole = ArrayViewMut2::from_shape((n, n), &mut factors).expect("the length is checked");
    threads.run(|parallel| decompose(bands(threads, parallel), whole, &mut swaps));
    let good = |at: &usize| factors[at * n + at] != 0.0 && factors[at * n + at].is_finite();
    if let Some(column) = (0..n).find(|at| !good(at)) {
        return Err(MatrixError::Singular(column));
    }
    let mut pivots: Vec<usize> = (0..n).collect();
    swaps.iter().enumerate().for_each(|(row, with)| pivots.swap(row, *with));
    Ok(Lu { factors, pivots })
}

/// Returns into how many bands a product is divided, each for one thread.
fn bands(threads: &Threads, parallel: bool) -> usize {
    if parallel { threads.count().get() } else { 1 }
}

/// Adds `scale` A B to C. Divides the longer side of C into at most `bands` bands, each computed by
/// one of the pool's threads.
fn add_product(
    bands: usize,
    scale: f64,
    a: ArrayView2<'_, f64>,
    b: ArrayView2<'_, f64>,
    mut c: ArrayViewMut2<'_, f64>,
) {
    let axis = if c.nrows() >= c.ncols() { Axis(0) } else { Axis(1) };
    let band = c.len_of(axis).div_ceil(bands).max(MIN_BAND);
    if band >= c.len_of(axis) {
        general_mat_mul(scale, &a, &b, 1.0, &mut c);
        return;
    }
    rayon::scope(|scope| {
        for (at, mut c) in c.axis_chunks_iter_mut(axis, band).enumerate() {
            scope.spawn(move |_| {
                let from = at * band;
                if axis == Axis(0) {
                    let a = a.slice(s![from..from + c.nrows(), ..]);
                    general_mat_mul(scale, &a, &b, 1.0, &mut c);
                } else {
                    let b = b.slice(s![.., from..from + c.ncols()]);
                    general_mat_mul(scale, &a, &b, 1.0, &mut c);
                }
            });
        }
    });
}

/// Decomposes a matrix that has at least as many rows as columns: first its left half, then, with
/// the left half's contribution subtracted, its right half (Toledo, SIAM J. Matrix Anal. Appl. 18,
/// 1997). Writes to `swaps`, for each column, the row that was swapped with the diagonal's row.
fn decompose(bands: usize, mut matrix: ArrayViewMut2<'_, f64>, swaps: &mut [usize]) {
    if matrix.ncols() <= NARROW {
        // A copy without gaps: the rows of a large matrix would compete for the same cache lines.
        let mut copy = matrix.to_owned();
        decompose_narrow(copy.as_slice_mut().expect("it has no gaps"), swaps);
        matrix.assign(&copy);
        return;
    }
    let half = matrix.ncols() / 2;
    let (mut left, mut right) = matrix.split_at(Axis(1), half);
    decompose(bands, left.view_mut(), &mut swaps[..half]);
    swap_rows(&mut right, &swaps[..half]);
    let (upper_left, mut lower_left) = left.split_at(Axis(0), half);
    let (mut upper, mut lower) = right.split_at(Axis(0), half);
    solve(bands, upper_left.view(), upper.view_mut());
    add_product(bands, -1.0, lower_left.view(), upper.view(), lower.view_mut());
    decompose(bands, lower, &mut swaps[half..]);
    swap_rows(&mut lower_left, &swaps[half..]);
    swaps[half..].iter_mut().for_each(|row| *row += half);
}

/// Decomposes a matrix of few columns in row-major order, one column after the other.
fn decompose_narrow(matrix: &mut [f64], swaps: &mut [usize]) {
    let columns = swaps.len();
    for (column, swap) in swaps.iter_mut().enumerate() {
        let (upper, lower) = matrix.split_at_mut((column + 1) * columns);
        let diagonal = &mut upper[column * columns..];
        let (mut pivot, mut from) = (diagonal[column], None);
        for (below, row) in lower.chunks_exact(columns).enumerate() {
            if row[column].abs() > pivot.abs() {
                (pivot, from) = (row[column], Some(below));
            }
        }
        *swap = from.map_or(column, |below| column + 1 + below);
        if let Some(below) = from {
            diagonal.swap_with_slice(&mut lower[below * columns..][..columns]);
        }
        let diagonal = &diagonal[column + 1..];
        for row in lower.chunks_exact_mut(columns) {
            let factor = row[column] / pivot;
            row[column] = factor;
            row[column + 1..].iter_mut().zip(diagonal).for_each(|(x, y)| *x -= factor * y);
        }
    }
}

/// Replaces B by X, where L X = B, for an L with zeroes above its diagonal of 1.
fn solve(bands: usize, l: ArrayView2<'_, f64>, mut b: ArrayViewMut2<'_, f64>) {
    if b.nrows() <= NARROW {
        for row in 1..b.nrows() {
            let (solved, mut rest) = b.view_mut().split_at(Axis(0), row);
            for (factor, solved) in l.row(row).iter().zip(solved.rows()) {
                rest.row_mut(0).scaled_add(-factor, &solved);
            }
        }
        return;
    }
    let half = b.nrows() / 2;
    let (mut upper, mut lower) = b.split_at(Axis(0), half);
    solve(bands, l.slice(s![..half, ..half]), upper.view_mut());
    add_product(bands, -1.0, l.slice(s![half.., ..half]), upper.view(), lower.view_mut());
    solve(bands, l.slice(s![half.., half..]), lower);
}

/// Swaps each row with the row that `swaps` has for it, in the order of the rows.
fn swap_rows(matrix: &mut ArrayViewMut2<'_, f64>, swaps: &[usize]) {
    for (row, with) in swaps.iter().enumerate().filter(|(row, with)| row < with) {
        let (mut upper, mut lower) = matrix.view_mut().split_at(Axis(0), *with);
        swap_values(upper.row_mut(row), lower.row_mut(0));
    }
}

fn swap_values(mut a: ArrayViewMut1<'_, f64>, mut b: ArrayViewMut1<'_, f64>) {
    a.iter_mut().zip(&mut b).for_each(|(a, b)| std::mem::swap(a, b));
}
