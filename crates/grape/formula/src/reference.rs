//! The reference: computes a program one pair after another, slowly, in `f64`. Other back ends are
//! tested against it.

use crate::data::{Column, Inputs, Output};
use crate::program::{Binary, Node, Program, Reduction, Scope, Type, Unary};
use crate::scalar;

/// The arithmetic of the reference.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Arithmetic {
    /// `f64` for all types, which approximates exact arithmetic. Only inputs, literals, `f32(...)`
    /// and results are rounded to their type.
    #[default]
    Wide,
    /// Each value rounded to its type, as on a processor.
    Typed,
}

/// The result of the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceOutput {
    /// The results, in the program's order.
    pub outputs: Vec<Output>,
    /// For each result that is a sum, and each i: the sum of the contributions' magnitudes. Judge
    /// errors relative to this sum, since the contributions can cancel. Empty for other results.
    pub magnitudes: Vec<Vec<f64>>,
}

/// Computes a program for these inputs.
#[must_use]
pub fn reference(
    program: &Program,
    inputs: &Inputs<'_>,
    arithmetic: Arithmetic,
) -> ReferenceOutput {
    let scopes = program.scopes();
    let of_scope = |wanted: &[Scope]| -> Vec<usize> {
        (0..scopes.len()).filter(|&index| wanted.contains(&scopes[index])).collect()
    };
    let (run, held, pair) =
        (of_scope(&[Scope::Run]), of_scope(&[Scope::I]), of_scope(&[Scope::J, Scope::Pair]));
    let mut machine =
        Machine { program, inputs, arithmetic, values: vec![0.0; program.nodes().len()] };
    let mut found: Vec<Vec<Sum>> = vec![Vec::with_capacity(inputs.ni()); program.results().len()];
    machine.compute(&run, 0, 0);
    for i in 0..inputs.ni() {
        machine.compute(&held, i, 0);
        let mut sums: Vec<Sum> =
            program.results().iter().map(|result| Sum::new(result.reduction)).collect();
        for j in 0..inputs.nj() {
            machine.compute(&pair, i, j);
            for (sum, result) in sums.iter_mut().zip(program.results()) {
                sum.take(result.reduction, machine.values[result.contribution.index()], j);
            }
        }
        sums.into_iter().zip(&mut found).for_each(|(sum, found)| found.push(sum));
    }
    let results = program.results().iter();
    let (outputs, magnitudes) = results
        .zip(&found)
        .map(|(result, found)| {
            let sums = found.iter();
            let magnitudes = if result.reduction == Reduction::Sum {
                sums.map(|sum| sum.magnitude).collect()
            } else {
                vec![]
            };
            (output(result.reduction, program.type_of(result.contribution), found), magnitudes)
        })
        .unzip();
    ReferenceOutput { outputs, magnitudes }
}

struct Machine<'p> {
    program: &'p Program,
    inputs: &'p Inputs<'p>,
    arithmetic: Arithmetic,
    /// Bools are 1 and 0.
    values: Vec<f64>,
}

impl Machine<'_> {
    fn compute(&mut self, nodes: &[usize], i: usize, j: usize) {
        for &index in nodes {
            let (node, of) = self.program.nodes()[index];
            let value = self.value(node, i, j);
            let given = matches!(
                node,
                Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Unary(Unary::Convert, _)
            );
            let rounds = of != Type::Bool && (given || self.arithmetic == Arithmetic::Typed);
            self.values[index] = if rounds { scalar::round(value, of) } else { value };
        }
    }

    fn value(&self, node: Node, i: usize, j: usize) -> f64 {
        let get = |value: crate::Value| self.values[value.index()];
        let holds = |value: crate::Value| get(value) != 0.0;
        let given =
            |columns: &[Column<'_>], at: u8, particle| columns[usize::from(at)].get(particle);
        let bool = |holds: bool| f64::from(u8::from(holds));
        match node {
            Node::I(at) => given(self.inputs.i(), at, i),
            Node::J(at) => given(self.inputs.j(), at, j),
            Node::Constant(at) => self.inputs.constants()[usize::from(at)],
            Node::Number(bits) => f64::from_bits(bits),
            Node::Unary(Unary::Not, a) => bool(!holds(a)),
            Node::Unary(what, a) => scalar::unary(what, get(a)),
            Node::Binary(Binary::And, a, b) => bool(holds(a) && holds(b)),
            Node::Binary(Binary::Or, a, b) => bool(holds(a) || holds(b)),
            Node::Binary(what, a, b) => scalar::binary(what, get(a), get(b)),
            Node::Compare(what, a, b) => bool(scalar::compare(what, get(a), get(b))),
            Node::Select(condition, a, b) => get(if holds(condition) { a } else { b }),
            Node::Fma { negated, a, b, c } => {
                let factor = if negated { -get(a) } else { get(a) };
                factor.mul_add(get(b), get(c))
            }
        }
    }
}

/// A result while it is reduced.
#[derive(Clone, Debug)]
struct Sum {
    /// The sum, minimum or maximum; 1 or 0 for bools.
    so_far: f64,
    /// The accumulated rounding error of the sum (Neumaier's method).
    lost: f64,
    magnitude: f64,
    place: Option<usize>,
}

impl Sum {
    fn new(reduction: Reduction) -> Self {
        let so_far = match reduction {
            Reduction::Sum | Reduction::Or => 0.0,
            Reduction::And => 1.0,
            Reduction::Min | Reduction::ArgMin => f64::INFINITY,
            Reduction::Max | Reduction::ArgMax => f64::NEG_INFINITY,
        };
        Self { so_far, lost: 0.0, magnitude: 0.0, place: None }
    }

    fn take(&mut self, reduction: Reduction, value: f64, j: usize) {
        let takes = match reduction {
            Reduction::Sum => {
                let sum = self.so_far + value;
                let (more, less) = if self.so_far.abs() >= value.abs() {
                    (self.so_far, value)
                } else {
                    (value, self.so_far)
                };
                self.lost += (more - sum) + less;
                self.magnitude += value.abs();
                self.so_far = sum;
                return;
            }
            Reduction::Min | Reduction::Max | Reduction::ArgMin | Reduction::ArgMax => {
                reduction.prefers(value, self.so_far)
            }
            Reduction::And => value == 0.0,
            Reduction::Or => value != 0.0,
        };
        if takes {
            self.so_far = value;
            self.place = Some(j);
        }
    }

    /// Returns the result: a sum is corrected by its rounding error, unless it is infinite or NaN.
    fn found(&self) -> f64 {
        let exact = self.lost == 0.0 || !self.so_far.is_finite();
        if exact { self.so_far } else { self.so_far + self.lost }
    }
}

fn output(reduction: Reduction, of: Type, found: &[Sum]) -> Output {
    let numbers = found.iter();
    match (reduction, of) {
        (Reduction::And | Reduction::Or, _) => {
            Output::Bool(numbers.map(|sum| sum.so_far != 0.0).collect())
        }
        (Reduction::ArgMin | Reduction::ArgMax, _) => {
            let place = |sum: &Sum| {
                sum.place.map_or(-1, |j| i64::try_from(j).expect("bounded by MAX_PARTICLES"))
            };
            Output::Index(numbers.map(place).collect())
        }
        (_, Type::F32) => Output::F32(numbers.map(|sum| scalar::narrow(sum.found())).collect()),
        _ => Output::F64(numbers.map(Sum::found).collect()),
    }
}
