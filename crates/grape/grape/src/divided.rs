//! Runs a kernel on several ranks. Each rank computes a part of the i or of the j. Afterwards every
//! rank has all results.

use crate::engine::{Engine, Kernel};
use crate::error::Error;
use sprat_formula::{Inputs, Output, Program, Reduction};
use sprat_ranks::Ranks;

/// Which particles are divided among the ranks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Divide {
    /// The i: each rank computes the results of its own i. They equal those of a single rank,
    /// except that a simulated GRAPE-DR adds in another order.
    #[default]
    I,
    /// The j: each rank computes a part of every result, and the parts are reduced. Sums are added
    /// in another order than on a single rank.
    J,
}

/// A kernel that all ranks run together. Every rank must create and run it, with the same inputs.
#[derive(Debug)]
pub struct DividedKernel<'r> {
    ranks: &'r Ranks,
    kernel: Kernel,
    by: Divide,
    /// The number of the program's own results. With [`Divide::J`], the kernel's results after them
    /// are the extremes that the reduction needs.
    results: usize,
}

impl<'r> DividedKernel<'r> {
    /// Compiles a program for this rank's engine.
    ///
    /// # Errors
    /// As for [`Kernel::of`].
    pub fn new(
        program: &Program,
        engine: &Engine,
        ranks: &'r Ranks,
        by: Divide,
    ) -> Result<Self, Error> {
        // A single rank computes all i and all j.
        let by = if ranks.count() == 1 { Divide::I } else { by };
        let compiled = match by {
            Divide::I => program.clone(),
            Divide::J => program.with_extremes(),
        };
        Ok(Self {
            ranks,
            kernel: Kernel::of(compiled, engine)?,
            by,
            results: program.results().len(),
        })
    }

    /// Runs the kernel, and returns the program's results for each i, in order, on every rank. All
    /// ranks must call this with the same inputs.
    ///
    /// # Errors
    /// [`Error::Stopped`] if another rank has stopped, or if there are too many results for
    /// [`Ranks::gather`].
    ///
    /// # Panics
    /// The inputs were checked against a program with other numbers of variables.
    pub fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, Error> {
        let ranks = self.ranks;
        let mine = match self.by {
            Divide::I => self.kernel.run_part(inputs, ranks.part(inputs.ni())),
            Divide::J => self.kernel.run(&inputs.of_j(ranks.part(inputs.nj()))),
        };
        if ranks.count() == 1 {
            return Ok(mine);
        }
        let all = ranks.gather(mine.iter().flat_map(words).collect())?;
        let mut parts = all.iter().zip(0..).map(|(words, rank)| {
            let len = match self.by {
                Divide::I => ranks.part_of(inputs.ni(), rank).len(),
                Divide::J => inputs.ni(),
            };
            let each = mine.iter().enumerate();
            let part = each
                .map(|(at, like)| output(like, &words[at * len..(at + 1) * len]))
                .collect::<Vec<_>>();
            (part, ranks.part_of(inputs.nj(), rank).start)
        });
        let (mut found, _) = parts.next().expect("there is a first rank");
        for (part, first_j) in parts {
            match self.by {
                Divide::I => {
                    found.iter_mut().zip(part).for_each(|(found, part)| append(found, part))
                }
                Divide::J => self.reduce(&mut found, part, first_j),
            }
        }
        found.truncate(self.results);
        Ok(found)
    }

    /// Reduces the results of a later part of the j into `found`. The part begins at j `first`.
    fn reduce(&self, found: &mut [Output], part: Vec<Output>, first: usize) {
        let first = i64::try_from(first).expect("bounded by MAX_PARTICLES");
        let results = &self.kernel.program().results()[..self.results];
        let (found, extremes) = found.split_at_mut(self.results);
        let mut part = part.into_iter();
        let own: Vec<Output> = part.by_ref().take(self.results).collect();
        // The index of the part with the better extreme is kept. Afterwards `extremes` holds the
        // extremes of both parts together.
        let mut pairs = extremes.iter_mut().zip(part);
        for ((found, own), result) in found.iter_mut().zip(own).zip(results) {
            match (found, own) {
                (Output::Index(found), Output::Index(own)) => {
                    let (extremes, others) = pairs.next().expect("one for each of these");
                    let (best, other) = (numbers(extremes), numbers(&others));
                    for at in 0..found.len() {
                        if result.reduction.prefers(other[at], best[at]) {
                            found[at] = own[at] + first;
                        }
                    }
                    reduce_pair(extremes, others, result.reduction);
                }
                (found, own) => reduce_pair(found, own, result.reduction),
            }
        }
    }
}

/// Reduces one result of two parts into `found`.
fn reduce_pair(found: &mut Output, part: Output, reduction: Reduction) {
    let one = |a: f64, b: f64| match reduction {
        Reduction::Sum => a + b,
        _ if reduction.prefers(b, a) => b,
        _ => a,
    };
    match (found, part) {
        #[expect(clippy::cast_possible_truncation, reason = "rounded to its type")]
        (Output::F32(found), Output::F32(part)) => {
            found
                .iter_mut()
                .zip(part)
                .for_each(|(a, b)| *a = one(f64::from(*a), f64::from(b)) as f32);
        }
        (Output::F64(found), Output::F64(part)) => {
            found.iter_mut().zip(part).for_each(|(a, b)| *a = one(*a, b))
        }
        (Output::Bool(found), Output::Bool(part)) => {
            let and = reduction == Reduction::And;
            found.iter_mut().zip(part).for_each(|(a, b)| *a = if and { *a && b } else { *a || b });
        }
        _ => unreachable!("places have extremes, and a result has one type"),
    }
}

fn numbers(output: &Output) -> Vec<f64> {
    output.clone().into_numbers().expect("an extreme is a number")
}

fn append(found: &mut Output, part: Output) {
    match (found, part) {
        (Output::F32(found), Output::F32(part)) => found.extend(part),
        (Output::F64(found), Output::F64(part)) => found.extend(part),
        (Output::Bool(found), Output::Bool(part)) => found.extend(part),
        (Output::Index(found), Output::Index(part)) => found.extend(part),
        _ => unreachable!("a result has one type"),
    }
}

/// Encodes a result for other ranks.
fn words(output: &Output) -> Vec<u64> {
    match output {
        Output::F32(numbers) => numbers.iter().map(|number| u64::from(number.to_bits())).collect(),
        Output::F64(numbers) => numbers.iter().map(|number| number.to_bits()).collect(),
        Output::Bool(all) => all.iter().map(|holds| u64::from(*holds)).collect(),
        Output::Index(places) => places.iter().map(|place| place.cast_unsigned()).collect(),
    }
}

/// Decodes the words that [`words`] made of a result. The result has the type of `like`.
fn output(like: &Output, words: &[u64]) -> Output {
    let words = words.iter().copied();
    match like {
        Output::F32(_) => Output::F32(words.map(|word| f32::from_bits(low_word(word))).collect()),
        Output::F64(_) => Output::F64(words.map(f64::from_bits).collect()),
        Output::Bool(_) => Output::Bool(words.map(|word| word != 0).collect()),
        Output::Index(_) => Output::Index(words.map(u64::cast_signed).collect()),
    }
}

pub(crate) fn low_word(word: u64) -> u32 {
    u32::try_from(word).expect("32 bits went in")
}

#[cfg(test)]
mod tests {
    use super::{Divide, DividedKernel, output, words};
    use crate::engine::{Engine, Kernel};
    use sprat_formula::{Column, Inputs, Output, Precision};
    use sprat_grapedr::Shape;
    use sprat_ranks::ALONE;

    const KERNEL: &str = "VARI xi; VARJ xj; VARF sum, least, most, near, far, all, any
sum += xj * xi + 0.5; least min= abs(xj - xi); most max= xj * xi
near argmin= abs(xj - xi); far argmax= abs(xj - xi)
all and= xj > xi - 9; any or= xj == xi";

    #[test]
    fn parts_of_j_reduce_to_the_whole() {
        // Some equal numbers are in both parts. One part has a NaN.
        let j = [3.0, 1.0, 4.0, 1.0, 5.0, f64::NAN, 9.0, 2.0, 6.0, 5.0, 3.0];
        let i = [1.0, 5.0, 4.5, -3.0, 100.0, f64::INFINITY];
        for engine in [Engine::default(), Engine::Reference, Engine::GrapeDr(Shape::DESIGN)] {
            for precision in [Precision::F32, Precision::F64] {
                let program = sprat_formula::Kernel::parse(KERNEL, precision).unwrap().program;
                let inputs = Inputs::new(
                    &program,
                    vec![Column::from(&i[..])],
                    vec![Column::from(&j[..])],
                    &[],
                )
                .unwrap();
                let whole = Kernel::of(program.clone(), &engine).unwrap().run(&inputs);
                let kernel = Kernel::of(program.with_extremes(), &engine).unwrap();
                let divided =
                    DividedKernel { ranks: &ALONE, kernel, by: Divide::J, results: whole.len() };
                for (first, second) in [(0, 5), (4, 4), (3, 7), (6, 11), (11, 11), (0, 11)] {
                    let mut found = divided.kernel.run(&inputs.of_j(0..first));
                    for part in [first..second, second..j.len()] {
                        divided.reduce(
                            &mut found,
                            divided.kernel.run(&inputs.of_j(part.clone())),
                            part.start,
                        );
                    }
                    found.truncate(whole.len());
                    // These numbers are few and have few digits, so even sums are exact. They are
                    // compared as text, because NaN is not equal to itself.
                    assert_eq!(
                        format!("{found:?}"),
                        format!("{whole:?}"),
                        "{engine:?} {precision:?} {first} {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn results_round_trip() {
        let all = [
            Output::F32(vec![1.5, -0.0, f32::MIN_POSITIVE, f32::NEG_INFINITY]),
            Output::F64(vec![0.1, f64::MAX]),
            Output::Bool(vec![true, false]),
            Output::Index(vec![-1, 0, i64::from(i32::MAX)]),
        ];
        for one in all {
            assert_eq!(output(&one, &words(&one)), one);
        }
    }
}
