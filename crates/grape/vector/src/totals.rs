//! Partial results: the sums and extremes over blocks and runs of j.

use crate::buffer::{get_f32, get_f64};
use crate::ir::Kind;
use crate::shape::{Accumulator, Shape};
use sprat_formula::{Output, Program, Reduction, Type};

/// The partial values of one result, for some particles.
#[derive(Debug)]
pub(crate) struct Total {
    reduction: Reduction,
    value_type: Type,
    accumulator: Accumulator,
    /// Sums or extremes. Bools are stored as 1 or 0. All of these fit into 64 bits.
    values: Vec<f64>,
    /// For `argmin` and `argmax`, the index of the j that has the extreme; -1 if there is none.
    indices: Vec<i64>,
}

impl Total {
    /// Creates the totals of all results for `particles` particles, before any j is counted.
    pub(crate) fn all(program: &Program, shape: &Shape, particles: usize) -> Vec<Self> {
        let results = program.results().iter().zip(&shape.accumulators);
        let total = results.map(|(result, &accumulator)| {
            let indices =
                if accumulator.index.is_some() { vec![-1; particles] } else { Vec::new() };
            Self {
                reduction: result.reduction,
                value_type: program.type_of(result.contribution),
                accumulator,
                values: vec![identity(result.reduction); particles],
                indices,
            }
        });
        total.collect()
    }

    /// Adds a tile's accumulators for one block of j. `first` is the first particle of the tile,
    /// and `base` the first j of the block. `sums` contains accumulators of `lanes` lanes each.
    pub(crate) fn add_tile(&mut self, sums: &[u8], lanes: usize, first: usize, base: usize) {
        let count = lanes.min(self.values.len() - first);
        let base = i64::try_from(base).expect("bounded by MAX_PARTICLES");
        let kind = self.accumulator.kind;
        let at = self.accumulator.at * lanes;
        let sums_of = |at: usize| &sums[at..at + lanes * kind.bytes()];
        let (values, indices) = (sums_of(at), self.accumulator.index.map(|at| sums_of(at * lanes)));
        match kind {
            Kind::F32 => self.add(
                first,
                count,
                base,
                values.chunks_exact(4).map(|number| f64::from(get_f32(number, 0))),
                |k| f64::from(get_f32(indices.expect("told beside"), 4 * k)),
            ),
            _ => self.add(
                first,
                count,
                base,
                values.chunks_exact(8).map(|number| get_f64(number, 0)),
                |k| get_f64(indices.expect("told beside"), 8 * k),
            ),
        }
    }

    /// Adds the total of a later run of j, for the same particles.
    pub(crate) fn add_run(&mut self, other: &Self) {
        assert_eq!(self.values.len(), other.values.len(), "other particles");
        let count = self.values.len();
        match self.reduction {
            Reduction::ArgMin | Reduction::ArgMax => {
                for (k, best) in self.values.iter_mut().enumerate() {
                    keep_better(
                        self.reduction,
                        (best, &mut self.indices[k]),
                        other.values[k],
                        other.indices[k],
                    );
                }
            }
            _ => self.add(0, count, 0, other.values.iter().copied(), |_| {
                unreachable!("told of extremes")
            }),
        }
    }

    fn add(
        &mut self,
        first: usize,
        count: usize,
        base: i64,
        from: impl Iterator<Item = f64>,
        index: impl Fn(usize) -> f64,
    ) {
        let pairs = self.values[first..first + count].iter_mut().zip(from);
        match self.reduction {
            Reduction::Sum => pairs.for_each(|(to, value)| *to += value),
            Reduction::Min | Reduction::And => {
                pairs.for_each(|(to, value)| *to = if value < *to { value } else { *to });
            }
            Reduction::Max | Reduction::Or => {
                pairs.for_each(|(to, value)| *to = if value > *to { value } else { *to });
            }
            Reduction::ArgMin | Reduction::ArgMax => {
                for (k, (best, value)) in pairs.enumerate() {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "a whole number, less than a block is long"
                    )]
                    let index = base + index(k) as i64;
                    keep_better(self.reduction, (best, &mut self.indices[first + k]), value, index);
                }
            }
        }
    }

    /// Joins the totals of consecutive ranges of particles into one output.
    pub(crate) fn output(runs: &[Self]) -> Output {
        let first = &runs[0];
        let values = runs.iter().flat_map(|run| run.values.iter().copied());
        match (first.reduction, first.value_type) {
            (Reduction::ArgMin | Reduction::ArgMax, _) => {
                Output::Index(runs.iter().flat_map(|run| run.indices.iter().copied()).collect())
            }
            (_, Type::Bool) => Output::Bool(values.map(|value| value != 0.0).collect()),
            #[expect(clippy::cast_possible_truncation, reason = "rounded to its type")]
            (_, Type::F32) => Output::F32(values.map(|value| value as f32).collect()),
            (_, Type::F64) => Output::F64(values.collect()),
        }
    }
}

/// Replaces the best value and its index if `value` is better.
fn keep_better(reduction: Reduction, best: (&mut f64, &mut i64), value: f64, index: i64) {
    if reduction.prefers(value, *best.0) {
        (*best.0, *best.1) = (value, index);
    }
}

/// Returns the identity of a reduction: its result without any j, with which accumulators start.
pub(crate) fn identity(reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Sum | Reduction::Or => 0.0,
        Reduction::And => 1.0,
        Reduction::Min | Reduction::ArgMin => f64::INFINITY,
        Reduction::Max | Reduction::ArgMax => f64::NEG_INFINITY,
    }
}
