//! Dense matrix products on the machine. The inner dimension is divided among blocks, and the tree
//! adds their sums.

use crate::block::Block;
use crate::board::{Board, Shape, TreeOperation};
use crate::compile::HALF;
use crate::instruction::{
    BLOCKS, Code, Condition, ELEMENTS, Instruction, LOCAL_WORDS, Operation, Place, Source, Target,
    VECTOR,
};
use crate::run::SLOTS;
use crate::timing::{Timing, real};
use crate::word::{Width, Word};
use thiserror::Error;

/// Length of the part of the inner dimension that a block can hold for each of its rows. A part of
/// this length fills the local memory.
pub const DEPTH: usize = LOCAL_WORDS / VECTOR;

/// Limit on the rows and on the columns of a matrix. Larger matrices would take hours to simulate.
pub const MAX_SIDE: usize = 1 << 14;

/// Errors of computing with matrices.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum MatrixError {
    /// The number of elements of a matrix does not match its sides.
    #[error("matrix {name} has {given} numbers, {rows} x {columns} of them are needed")]
    Size {
        /// The name of the matrix.
        name: &'static str,
        /// The number of elements that it has.
        given: usize,
        /// The rows that it should have.
        rows: usize,
        /// The columns that it should have.
        columns: usize,
    },
    /// A matrix has too many rows or columns.
    #[error("a matrix of {0} rows or columns: {MAX_SIDE} is the limit")]
    Large(usize),
    /// A matrix has no inverse: this column has no pivot.
    #[error("the matrix is singular: no pivot in column {0}, counted from 0")]
    Singular(usize),
}

impl MatrixError {
    /// Checks that a matrix has as many elements as its sides require.
    ///
    /// # Errors
    /// [`MatrixError::Size`] if `given` is not `rows` times `columns`, or that product overflows.
    pub fn check(
        name: &'static str,
        given: usize,
        rows: usize,
        columns: usize,
    ) -> Result<(), Self> {
        match rows.checked_mul(columns) {
            Some(needed) if needed == given => Ok(()),
            _ => Err(Self::Size { name, given, rows, columns }),
        }
    }
}

/// The sides of a product: C is `m` x `n`, A is `m` x `k`, and B is `k` x `n`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sides {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
}

/// Computes C += A B in long words. All matrices are stored row by row. Returns the machine's time.
///
/// Each processing element holds a part of four rows of A. The blocks of a group hold different
/// columns of these rows, and receive the corresponding rows of B. For each number of C, the tree
/// adds the partial sums of these blocks. If the machine cannot hold the whole inner dimension, it
/// computes part after part, and the host adds the parts to C in `f64`.
///
/// # Errors
/// [`MatrixError`] if a matrix does not match its sides, or has more than [`MAX_SIDE`] rows or
/// columns.
pub fn dgemm(
    shape: Shape,
    sides: Sides,
    a: &[f64],
    b: &[f64],
    c: &mut [f64],
) -> Result<Timing, MatrixError> {
    let Sides { m, n, k } = sides;
    for (name, given, rows, columns) in
        [("A", a.len(), m, k), ("B", b.len(), k, n), ("C", c.len(), m, n)]
    {
        if let Some(&side) = [rows, columns].iter().find(|&&side| side > MAX_SIDE) {
            return Err(MatrixError::Large(side));
        }
        MatrixError::check(name, given, rows, columns)?;
    }
    let mut timing = Timing::default();
    if m == 0 || n == 0 || k == 0 {
        return Ok(timing);
    }
    let layout = Layout::of(sides, shape);
    let mut board = Board::new(shape);
    for from in (0..k).step_by(layout.deep()) {
        for row in (0..m).step_by(layout.rows(shape)) {
            let part = Part {
                layout,
                sides,
                row,
                from,
                depth: layout.depth.min((k - from).div_ceil(layout.slices)),
            };
            part.multiply(&mut board, a, b, c, &mut timing);
        }
    }
    Ok(timing)
}

/// Returns the rate in Gflop/s of `operations` in `seconds`.
#[must_use]
pub fn gflops(operations: u64, seconds: f64) -> f64 {
    real(operations) / seconds / 1e9
}

/// How A is divided among blocks.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Number of blocks that share the inner dimension: a group within one chip.
    slices: usize,
    /// Length of the part of the inner dimension that each block holds.
    depth: usize,
}

impl Layout {
    /// Divides the inner dimension among all blocks that the rows leave free. The parts are no
    /// longer than necessary.
    fn of(sides: Sides, shape: Shape) -> Self {
        let rows = sides.m.div_ceil(SLOTS);
        let wide = (shape.blocks() / rows.min(shape.blocks())).min(BLOCKS);
        // If the inner dimension does not fit into these blocks, more blocks are used, so that
        // parts of C are read fewer times.
        let deep = sides.k.div_ceil(DEPTH).next_power_of_two().min(BLOCKS);
        let slices = (1 << wide.ilog2()).max(deep);
        Self { slices, depth: sides.k.div_ceil(slices).min(DEPTH) }
    }

    fn deep(self) -> usize {
        self.slices * self.depth
    }

    fn rows(self, shape: Shape) -> usize {
        shape.blocks() / self.slices * SLOTS
    }
}

/// The part of a product that the machine holds at the same time.
#[derive(Clone, Copy, Debug)]
struct Part {
    layout: Layout,
    sides: Sides,
    row: usize,
    from: usize,
    depth: usize,
}

impl Part {
    fn multiply(self, board: &mut Board, a: &[f64], b: &[f64], c: &mut [f64], timing: &mut Timing) {
        let Sides { m, n, k } = self.sides;
        let slices = self.layout.slices;
        let rows = self.layout.rows(board.shape()).min(m - self.row);
        let deep = (self.depth * slices).min(k - self.from);
        let busy = rows.div_ceil(SLOTS) * slices;
        let cycles = |board: &Board| board.blocks()[0].cycles();
        let begun = cycles(board);
        // Load the block's part of A, which begins with row `row` and with `from` in the inner
        // dimension.
        board.for_each_block(|block| {
            if block.id() < busy {
                let (row, from) = self.begin(block.id());
                let number = |at: usize, slot: usize| {
                    let (i, l) = (row + slot, from + at);
                    if i < m && l < self.end(from) { a[i * k + l] } else { 0.0 }
                };
                hold(block, self.depth, number);
            }
        });
        timing.load_cycles += cycles(board) - begun;
        timing.held_words += count(rows * deep);
        let program = inner(self.depth);
        let collect = collect(HALF);
        for column in 0..n {
            let begun = cycles(board);
            board.for_each_block(|block| {
                if block.id() < busy {
                    let (_, from) = self.begin(block.id());
                    let end = self.end(from);
                    for at in 0..self.depth {
                        let l = from + at;
                        block.set_broadcast(
                            at,
                            Word::from_f64(if l < end { b[l * n + column] } else { 0.0 }),
                        );
                    }
                    block.run(&program, 0);
                }
            });
            let multiplied = cycles(board);
            board.for_each_block(|block| {
                if block.id() < busy {
                    block.run(&collect, 0);
                }
            });
            timing.loop_cycles += multiplied - begun;
            timing.store_cycles += cycles(board) - multiplied;
            for i in 0..rows {
                let group = i / SLOTS * slices;
                let sum = board.reduce(TreeOperation::Sum, group..group + slices, HALF + i % SLOTS);
                c[(self.row + i) * n + column] += sum.to_f64();
            }
            timing.broadcast_words += count(deep);
            timing.read_words += count(rows);
        }
    }

    /// Returns the first row of a block, and the first index of its inner dimension.
    fn begin(self, block: usize) -> (usize, usize) {
        let slices = self.layout.slices;
        (self.row + block / slices * SLOTS, self.from + block % slices * self.depth)
    }

    /// Returns the end of a block's inner dimension, which starts at `from`.
    fn end(self, from: usize) -> usize {
        (from + self.depth).min(self.sides.k)
    }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).expect("no wider")
}

fn place(at: usize) -> u16 {
    u16::try_from(at).expect("within a memory")
}

fn one(
    code: Code,
    sources: Vec<Source>,
    target: Target,
    condition: Option<Condition>,
) -> Operation {
    Operation { code, sources, targets: vec![target], condition }
}

fn instruction(operations: Vec<Operation>) -> Instruction {
    Instruction::new(operations).expect("operations that the ports allow")
}

/// Loads numbers into local memory. Vector `at` of an element holds the numbers of the element's
/// four slots.
fn hold(block: &mut Block, depth: usize, number: impl Fn(usize, usize) -> f64) {
    let others = Condition { mask: 0, set: false };
    // Half of broadcast memory has room for four vectors of all elements.
    for first in (0..depth).step_by(HALF / SLOTS) {
        let last = (first + HALF / SLOTS).min(depth);
        for at in first..last {
            for slot in 0..SLOTS {
                block.set_broadcast((at - first) * SLOTS + slot, Word::from_f64(number(at, slot)));
            }
        }
        for element in 0..ELEMENTS {
            let id = Source::Immediate(Word::from_bits(u128::from(place(element))));
            let mut program = vec![instruction(vec![one(
                Code::Xor,
                vec![Source::ElementId, id],
                Target::Mask(0),
                None,
            )])];
            for at in first..last {
                let from =
                    Source::Broadcast(Place::four(place((at - first) * SLOTS + element * VECTOR)));
                let to = Target::Local(Place::four(place(at * VECTOR)));
                program.push(instruction(vec![one(Code::Pass, vec![from], to, Some(others))]));
            }
            block.run(&program, 0);
        }
    }
}

/// Returns the program that multiplies four rows of A by a column of B, over the block's part of
/// the inner dimension. Each long product takes two passes. It is issued together with the addition
/// of the previous product.
fn inner(depth: usize) -> Vec<Instruction> {
    let sum = Place::four(0);
    let add = || {
        one(
            Code::Add(Width::Long),
            vec![Source::Register(sum), Source::Auxiliary],
            Target::Register(sum),
            None,
        )
    };
    let mut program = vec![instruction(vec![one(
        Code::Pass,
        vec![Source::Immediate(Word::ZERO)],
        Target::Register(sum),
        None,
    )])];
    for at in 0..depth {
        let factors = vec![
            Source::Local(Place::four(place(at * VECTOR))),
            Source::Broadcast(Place::one(place(at))),
        ];
        let mut operations = vec![one(Code::Mul(Width::Long), factors, Target::Auxiliary, None)];
        if at > 0 {
            operations.push(add());
        }
        program.push(instruction(operations));
    }
    program.push(instruction(vec![add()]));
    program
}

/// Returns the program by which each element writes its sums to broadcast memory.
fn collect(to: usize) -> Vec<Instruction> {
    let from = Source::Register(Place::four(0));
    let write = |element: usize| {
        let at = Place::four(place(to + element * VECTOR));
        let target =
            Target::Broadcast { place: at, element: u8::try_from(element).expect("a few") };
        instruction(vec![one(Code::Pass, vec![from], target, None)])
    };
    (0..ELEMENTS).map(write).collect()
}
