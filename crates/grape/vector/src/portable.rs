//! Computes pairs by loops over arrays, for processors for which there is no machine code.

use crate::buffer::{get_f32, get_f64, put_f32, put_f64};
use crate::ir::Kind;
use crate::lanes::{LANES, Lane, Lanes};
use crate::shape::{PairInput, Shape};
use crate::totals::identity;
use sprat_formula::{Node, Program, Reduction, Scope, Value};

/// Computes rows of j for tiles of i. Its buffers have the same layout as those of machine code.
#[derive(Debug)]
pub(crate) struct Portable {
    pairs: Vec<(Value, Node)>,
    results: Vec<(Reduction, Value)>,
}

impl Portable {
    pub(crate) fn new(program: &Program, shape: &Shape) -> Self {
        let pair = |value: Value| shape.scopes[value.index()] == Scope::Pair;
        let pairs = program
            .values()
            .filter(|&(value, ..)| pair(value))
            .map(|(value, node, _)| (value, node));
        let results =
            program.results().iter().map(|result| (result.reduction, result.contribution));
        Self { pairs: pairs.collect(), results: results.collect() }
    }

    /// Runs over the rows and leaves the accumulators in `sums`. `values` must contain the values
    /// that are the same for all particles. The call overwrites the values of i, of j and of pairs
    /// in it.
    pub(crate) fn call(
        &self,
        shape: &Shape,
        values: &mut Lanes,
        rows: &[u8],
        count: usize,
        tile: &[u8],
        sums: &mut [u8],
    ) {
        for input in &shape.i {
            (0..LANES)
                .for_each(|k| values.set(input.value, k, number(tile, input, input.at * LANES, k)));
        }
        for (&(reduction, _), accumulator) in self.results.iter().zip(&shape.accumulators) {
            let bytes = accumulator.kind.bytes();
            for k in 0..LANES {
                put(
                    sums,
                    accumulator.kind,
                    accumulator.at * LANES + k * bytes,
                    identity(reduction),
                );
                if let Some(index) = accumulator.index {
                    put(sums, accumulator.kind, index * LANES + k * bytes, -1.0);
                }
            }
        }
        for row in 0..count {
            for input in &shape.j {
                values.fill(input.value, number(rows, input, row * shape.row + input.at, 0));
            }
            self.pairs.iter().for_each(|&(value, node)| values.compute(value, node));
            for (&(reduction, contribution), accumulator) in
                self.results.iter().zip(&shape.accumulators)
            {
                let to = &mut sums[accumulator.at * LANES..];
                let value = values.get(contribution);
                match accumulator.index {
                    None => accumulate(reduction, value, accumulator.kind, to),
                    Some(index) => {
                        let better = keep_better(reduction, value, accumulator.kind, to);
                        let index = &mut sums[index * LANES..];
                        #[expect(clippy::cast_precision_loss, reason = "less than a block is long")]
                        let row = row as f64;
                        let lanes = (0..LANES).filter(|&k| better[k]);
                        lanes.for_each(|k| {
                            put(index, accumulator.kind, k * accumulator.kind.bytes(), row)
                        });
                    }
                }
            }
        }
    }
}

/// Adds a value to an accumulator.
fn accumulate(reduction: Reduction, value: &Lane, kind: Kind, to: &mut [u8]) {
    let next = |sum: f64, value: f64| match reduction {
        Reduction::Min | Reduction::ArgMin | Reduction::And => {
            if value < sum {
                value
            } else {
                sum
            }
        }
        Reduction::Max | Reduction::ArgMax | Reduction::Or => {
            if value > sum {
                value
            } else {
                sum
            }
        }
        Reduction::Sum => sum + value,
    };
    match (value, kind) {
        (Lane::F32(value), _) if reduction == Reduction::Sum => {
            (0..LANES).for_each(|k| put_f32(to, 4 * k, get_f32(to, 4 * k) + value[k]));
        }
        (Lane::F64(value), _) => {
            (0..LANES).for_each(|k| put_f64(to, 8 * k, next(get_f64(to, 8 * k), value[k])))
        }
        (value, Kind::F64) => {
            (0..LANES).for_each(|k| put_f64(to, 8 * k, next(get_f64(to, 8 * k), value.number(k))))
        }
        (value, _) => {
            for k in 0..LANES {
                let sum = next(f64::from(get_f32(to, 4 * k)), value.number(k));
                put(to, Kind::F32, 4 * k, sum);
            }
        }
    }
}

/// Adds a value to the accumulator of a minimum or maximum. Returns for each lane whether the value
/// was better than the accumulator.
fn keep_better(reduction: Reduction, value: &Lane, kind: Kind, to: &mut [u8]) -> [bool; LANES] {
    let mut better = [false; LANES];
    for (k, better) in better.iter_mut().enumerate() {
        let (at, value) = (k * kind.bytes(), value.number(k));
        let best = if kind == Kind::F64 { get_f64(to, at) } else { f64::from(get_f32(to, at)) };
        *better = reduction.prefers(value, best);
        if *better {
            put(to, kind, at, value);
        }
    }
    better
}

/// Reads the number with index `k`, counted from the number at byte `at`.
fn number(bytes: &[u8], input: &PairInput, at: usize, k: usize) -> f64 {
    match input.kind {
        Kind::F64 => get_f64(bytes, at + 8 * k),
        _ => f64::from(get_f32(bytes, at + 4 * k)),
    }
}

fn put(bytes: &mut [u8], kind: Kind, at: usize, number: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to its kind")]
    match kind {
        Kind::F64 => put_f64(bytes, at, number),
        _ => put_f32(bytes, at, number as f32),
    }
}
