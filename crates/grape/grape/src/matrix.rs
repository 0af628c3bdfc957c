//! Dense matrices on this processor, computed by a library (faer), for comparison with the
//! simulated machine.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::lu::partial_pivoting::factor::{lu_in_place, lu_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::mat::{MatMut, MatRef};
use faer::{Accum, Par};
use sprat_grapedr::{MatrixError, Sides};
use sprat_vector::Threads;

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
    let (a, b) = (MatRef::from_row_major_slice(a, m, k), MatRef::from_row_major_slice(b, k, n));
    let c = MatMut::from_row_major_slice_mut(c, m, n);
    threads.run(|parallel| matmul(c, Accum::Add, a, b, 1.0, par(threads, parallel)));
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
    let (mut pivots, mut back) = (vec![0_usize; n], vec![0_usize; n]);
    let whole = MatMut::from_row_major_slice_mut(&mut factors, n, n);
    threads.run(|parallel| {
        let (parallel, all) = (par(threads, parallel), Default::default());
        let mut memory = MemBuffer::new(lu_in_place_scratch::<usize, f64>(n, n, parallel, all));
        lu_in_place(whole, &mut pivots, &mut back, parallel, MemStack::new(&mut memory), all);
    });
    let good = |at: &usize| factors[at * n + at] != 0.0 && factors[at * n + at].is_finite();
    match (0..n).find(|at| !good(at)) {
        Some(column) => Err(MatrixError::Singular(column)),
        None => Ok(Lu { factors, pivots }),
    }
}

fn par(threads: &Threads, parallel: bool) -> Par {
    if parallel { Par::rayon(threads.count().get()) } else { Par::Seq }
}
