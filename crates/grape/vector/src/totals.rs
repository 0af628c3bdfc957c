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
                of: program.type_of(result.contribution),
                gathered,
                values: vec![start(result.reduction); particles],
                places,
            }
        });
        total.collect()
    }

    /// Adds what a tile, which begins with the `first` of the particles, has of a block of j, which
    /// begins with j `base`. `sums` are its accumulators, each of `lanes` lanes.
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
                values.chunks_exact(4).map(|number| f64::from(get_f32(number, 0))),
                |k| f64::from(get_f32(places.expect("told beside"), 4 * k)),
            ),
            _ => self.add(
                first,
                count,
                base,
                values.chunks_exact(8).map(|number| get_f64(number, 0)),
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
                for (k, best) in self.values.iter_mut().enumerate() {
                    extreme(
                        self.reduction,
                        (best, &mut self.places[k]),
                        other.values[k],
                        other.places[k],
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
        place: impl Fn(usize) -> f64,
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
                    let place = base + place(k) as i64;
                    extreme(self.reduction, (best, &mut self.places[first + k]), value, place);
                }
            }
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

/// Takes a value and its place, if it is better than the best so far.
fn extreme(reduction: Reduction, best: (&mut f64, &mut i64), value: f64, place: i64) {
    if reduction.prefers(value, *best.0) {
        (*best.0, *best.1) = (value, place);
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
