//! Results while they grow: what blocks of j and runs of them add up to.

use crate::buffer::{get_f32, get_f64};
use crate::ir::Kind;
use crate::shape::{Gathered, Shape};
use sprat_formula::{Output, Program, Reduction, Type};

/// A result of some particles.
#[derive(Debug)]
pub(crate) struct Total {
    reduction: Reduction,
    of: Type,
    gathered: Gathered,
    /// Sums, extremes, or for bools 1 and 0: all of these fit.
    values: Vec<f64>,
    /// Of which j the extreme is, where that is asked; -1 of none.
    places: Vec<i64>,
}

impl Total {
    /// Those of all results, of no j yet, for so many particles.
    pub(crate) fn all(program: &Program, shape: &Shape, particles: usize) -> Vec<Self> {
        let results = program.results().iter().zip(&shape.gathered);
        let total = results.map(|(result, &gathered)| {
            let places = if gathered.places.is_some() { vec![-1; particles] } else { Vec::new() };
            Self {
                reduction: result.reduction,
                of: program.of(result.contribution),
                gathered,
                values: vec![start(result.reduction); particles],
                places,
            }
        });
        total.collect()
    }

    /// Adds what a tile, which begins with the `first` of the particles, has of a block of j, which begins with j `base`. `sums` are
    /// its accumulators, each of `lanes` lanes.
    pub(crate) fn add_tile(&mut self, sums: &[u8], lanes: usize, first: usize, base: usize) {
        let count = lanes.min(self.values.len() - first);
        let base = i64::try_from(base).expect("bounded by MAX_PARTICLES");
        let kind = self.gathered.kind;
        let at = self.gathered.at * lanes;
        let sums_of = |at: usize| &sums[at..at + lanes * kind.bytes()];
        let (values, places) = (sums_of(at), self.gathered.places.map(|at| sums_of(at * lanes)));
        match kind {
            Kind::F32 => self.add(
                first,
                count,
                base,
                |k| f64::from(get_f32(values, 4 * k)),
                |k| f64::from(get_f32(places.expect("told beside"), 4 * k)),
            ),
            _ => self.add(
                first,
                count,
                base,
                |k| get_f64(values, 8 * k),
                |k| get_f64(places.expect("told beside"), 8 * k),
            ),
        }
    }

    /// Adds what a later run of j came to for the same particles.
    pub(crate) fn add_run(&mut self, other: &Self) {
        assert_eq!(self.values.len(), other.values.len(), "other particles");
        let count = self.values.len();
        match self.reduction {
            Reduction::ArgMin | Reduction::ArgMax => {
                for k in 0..count {
                    self.extreme(k, other.values[k], other.places[k]);
                }
            }
            _ => self.add(0, count, 0, |k| other.values[k], |_| unreachable!("told of extremes")),
        }
    }

    fn add(
        &mut self,
        first: usize,
        count: usize,
        base: i64,
        value: impl Fn(usize) -> f64,
        place: impl Fn(usize) -> f64,
    ) {
        let values = &mut self.values[first..first + count];
        match self.reduction {
            Reduction::Sum => values.iter_mut().enumerate().for_each(|(k, to)| *to += value(k)),
            Reduction::Min | Reduction::And => {
                values.iter_mut().enumerate().for_each(|(k, to)| *to = if value(k) < *to { value(k) } else { *to });
            }
            Reduction::Max | Reduction::Or => {
                values.iter_mut().enumerate().for_each(|(k, to)| *to = if value(k) > *to { value(k) } else { *to });
            }
            Reduction::ArgMin | Reduction::ArgMax => {
                for k in 0..count {
                    #[expect(clippy::cast_possible_truncation, reason = "a whole number, less than a block is long")]
                    self.extreme(first + k, value(k), base + place(k) as i64);
                }
            }
        }
    }

    fn extreme(&mut self, at: usize, value: f64, place: i64) {
        let best = self.values[at];
        let better = if self.reduction == Reduction::ArgMin { value < best } else { value > best };
        if better {
            (self.values[at], self.places[at]) = (value, place);
        }
    }

    /// The results of all particles, of whom these are runs one after the other.
    pub(crate) fn output(runs: &[Self]) -> Output {
        let first = &runs[0];
        let values = runs.iter().flat_map(|run| run.values.iter().copied());
        match (first.reduction, first.of) {
            (Reduction::ArgMin | Reduction::ArgMax, _) => {
                Output::Index(runs.iter().flat_map(|run| run.places.iter().copied()).collect())
            }
            (_, Type::Bool) => Output::Bool(values.map(|value| value != 0.0).collect()),
            #[expect(clippy::cast_possible_truncation, reason = "rounded to its type")]
            (_, Type::F32) => Output::F32(values.map(|value| value as f32).collect()),
            (_, Type::F64) => Output::F64(values.collect()),
        }
    }
}

/// What a result is of no j, and so what an accumulator begins with.
pub(crate) fn start(reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Sum | Reduction::Or => 0.0,
        Reduction::And => 1.0,
        Reduction::Min | Reduction::ArgMin => f64::INFINITY,
        Reduction::Max | Reduction::ArgMax => f64::NEG_INFINITY,
    }
}
