//! Pairs by loops over arrays, for processors that we have no machine code for.

use crate::buffer::{get_f32, get_f64, put_f32, put_f64};
use crate::ir::Kind;
use crate::lanes::{LANES, Lane, Lanes};
use crate::shape::{Given, Shape};
use crate::totals::start;
use sprat_formula::{Node, Program, Reduction, Scope, Value};

/// Computes rows of j for tiles of i. Buffers lie as they do for machine code.
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

    /// Runs over the rows, and leaves the accumulators in `sums`. `values` have those of the run,
    /// and are left as they come.
    pub(crate) fn call(
        &self,
        shape: &Shape,
        values: &mut Lanes,
        rows: &[u8],
        count: usize,
        tile: &[u8],
        sums: &mut [u8],
    ) {
        for given in &shape.i {
            (0..LANES)
                .for_each(|k| values.set(given.value, k, number(tile, given, given.at * LANES, k)));
        }
        for (&(reduction, _), gathered) in self.results.iter().zip(&shape.gathered) {
            let bytes = gathered.kind.bytes();
            for k in 0..LANES {
                put(sums, gathered.kind, gathered.at * LANES + k * bytes, start(reduction));
                if let Some(places) = gathered.places {
                    put(sums, gathered.kind, places * LANES + k * bytes, -1.0);
                }
            }
        }
        for row in 0..count {
            for given in &shape.j {
                values.fill(given.value, number(rows, given, row * shape.row + given.at, 0));
            }
            self.pairs.iter().for_each(|&(value, node)| values.compute(value, node));
            for (&(reduction, contribution), gathered) in self.results.iter().zip(&shape.gathered) {
                let to = &mut sums[gathered.at * LANES..];
                let value = values.get(contribution);
                match gathered.places {
                    None => gather(reduction, value, gathered.kind, to),
                    Some(places) => {
                        let better = better(reduction, value, gathered.kind, to);
                        let places = &mut sums[places * LANES..];
                        #[expect(clippy::cast_precision_loss, reason = "less than a block is long")]
                        let row = row as f64;
                        let lanes = (0..LANES).filter(|&k| better[k]);
                        lanes.for_each(|k| {
                            put(places, gathered.kind, k * gathered.kind.bytes(), row)
                        });
                    }
                }
            }
        }
    }
}

/// Takes a value into an accumulator.
fn gather(reduction: Reduction, value: &Lane, kind: Kind, to: &mut [u8]) {
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

/// Takes a value into the accumulator of extremes, and tells where it was one.
fn better(reduction: Reduction, value: &Lane, kind: Kind, to: &mut [u8]) -> [bool; LANES] {
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

/// A number of a buffer, the `k`-th from some bytes on.
fn number(bytes: &[u8], given: &Given, at: usize, k: usize) -> f64 {
    match given.kind {
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
