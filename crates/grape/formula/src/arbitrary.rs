//! Random programs and inputs, for tests of engines that run programs (feature `arbitrary`).

mod bounds;

use crate::data::{Column, Inputs};
use crate::program::{
    Binary, Compare, Constant, Field, Node, Program, Reduction, Type, Unary, Value,
};
use crate::scalar;
use crate::{Builder, Data};
use bounds::Bounds;
use proptest::prelude::*;
use sprat_chance::xorshift;

/// The kind of random programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CaseKind {
    /// Programs whose errors are bounded ([`Case::tolerances`]): divisors and radicands stay away
    /// from 0, values stay within limits, and only exact values are compared. All engines give the
    /// same `And`, `Or`, `ArgMin` and `ArgMax`.
    Tame,
    /// Programs of any operations on any numbers, including infinities, signed zeros and NaN.
    Wild,
}

/// A program with its inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The program, not contracted.
    pub program: Program,
    /// For each result, how far two computations of one contribution may differ. Two computations
    /// of a minimum or maximum differ by at most this tolerance. Two computations of a sum differ
    /// by at most the tolerance times the number of terms, plus the rounding of the summation. The
    /// tolerance is 0 for `And` and `Or`. With [`CaseKind::Wild`] all others are infinite.
    pub tolerances: Vec<f64>,
    i: Vec<Stored>,
    j: Vec<Stored>,
    constants: Vec<Option<f64>>,
}

/// A variable of all particles. A variable of type `F32` may be stored in either type.
#[derive(Clone, Debug)]
enum Stored {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Case {
    /// Returns the inputs.
    ///
    /// # Panics
    /// Never: the columns fit the program.
    #[must_use]
    pub fn inputs(&self) -> Inputs<'_> {
        let (i, j) = (self.i.iter().map(Stored::column), self.j.iter().map(Stored::column));
        Inputs::new(&self.program, i.collect(), j.collect(), &self.constants)
            .expect("made for this program")
    }
}

impl Stored {
    fn column(&self) -> Column<'_> {
        match self {
            Self::F32(data) => Column::strided(Data::F32(data), 1),
            Self::F64(data) => Column::strided(Data::F64(data), 1),
        }
    }
}

/// An operation, its operands, and an extra number. An operand is given by how many values back it
/// is.
type Step = (u8, [u16; 3], i8);

/// Generates programs whose variables have these types, with fewer than `ni` and `nj` particles.
pub fn cases(
    kind: CaseKind,
    types: &'static [Type],
    ni: usize,
    nj: usize,
) -> impl Strategy<Value = Case> {
    let fields = |most| prop::collection::vec(prop::sample::select(types), 1..most);
    let back = || prop_oneof![3 => 0..4_u16, 1 => 0..200_u16];
    let steps = prop::collection::vec((0..25_u8, [back(), back(), back()], -32..32_i8), 1..60);
    let results = prop::collection::vec((0..12_u8, back()), 1..5);
    let sizes = (0..ni, 0..nj, any::<u64>());
    (fields(5), fields(6), fields(3), steps, results, sizes).prop_map(
        move |(i, j, constants, steps, results, sizes)| {
            let (ni, nj, seed) = sizes;
            let mut maker = Maker::new(kind, &i, &j, &constants);
            steps.into_iter().for_each(|step| maker.step(step));
            results.into_iter().for_each(|result| maker.result(result));
            let mut chance = Chance(seed | 1);
            let mut stored = |fields: &[Type], count: usize| -> Vec<Stored> {
                fields.iter().map(|&of| chance.column(kind, of, count)).collect()
            };
            let (i, j) = (stored(&i, ni), stored(&j, nj));
            let constants = constants
                .iter()
                .map(|&of| (of == Type::F32).then(|| scalar::round(chance.number(kind), of)))
                .collect();
            Case { program: maker.builder.finish(), tolerances: maker.tolerances, i, j, constants }
        },
    )
}

struct Maker {
    kind: CaseKind,
    builder: Builder,
    /// Numbers with their bounds.
    numbers: Vec<(Value, Bounds)>,
    bools: Vec<Value>,
    tolerances: Vec<f64>,
}

impl Maker {
    fn new(kind: CaseKind, i: &[Type], j: &[Type], constants: &[Type]) -> Self {
        let fields = |letter: char, types: &[Type]| {
            types
                .iter()
                .enumerate()
                .map(|(at, &of)| Field { name: format!("{letter}{at}"), of })
                .collect()
        };
        let named =
            |(at, &of): (usize, &Type)| Constant { name: format!("c{at}"), of, default: Some(1.5) };
        let constants_named = constants.iter().enumerate().map(named).collect();
        let mut builder = Builder::new(fields('i', i), fields('j', j), constants_named);
        let places = |len: usize| 0..u8::try_from(len).expect("a few");
        let nodes = places(constants.len()).map(Node::Constant);
        let nodes = nodes.chain(places(i.len()).map(Node::I)).chain(places(j.len()).map(Node::J));
        let numbers = nodes.map(|node| (builder.value(node), Bounds::GIVEN)).collect();
        Self { kind, builder, numbers, bools: Vec::new(), tolerances: Vec::new() }
    }

    /// Returns the number that is `back` values back, among those of type `of` if one is given.
    fn number(&self, back: u16, of: Option<Type>) -> (Value, Bounds) {
        let fits =
            |(value, _): &&(Value, Bounds)| of.is_none_or(|of| self.builder.type_of(*value) == of);
        let fitting: Vec<_> = self.numbers.iter().rev().filter(fits).collect();
        *fitting[usize::from(back) % fitting.len()]
    }

    fn bool(&self, back: u16) -> Option<Value> {
        let index = usize::from(back).checked_rem(self.bools.len())?;
        self.bools.iter().rev().nth(index).copied()
    }

    fn step(&mut self, (what, [first, second, third], extra): Step) {
        let (a, x) = self.number(first, None);
        let of = self.builder.type_of(a);
        let (b, y) = self.number(second, Some(of));
        let unary = |what| Some(Node::Unary(what, a));
        let binary = |what| Some(Node::Binary(what, a, b));
        let (node, bounds) = match what {
            0..=2 => (binary(Binary::Add), x.add(y, of)),
            3..=5 => (binary(Binary::Sub), x.sub(y, of)),
            6..=8 => (binary(Binary::Mul), x.mul(y, of)),
            9 => (binary(Binary::Div), x.div(y, of)),
            10 => (unary(Unary::Neg), Some(x.neg())),
            11 => (unary(Unary::Abs), Some(x.abs())),
            12 => (unary(Unary::Sqrt), x.sqrt(of)),
            13 => {
                // Some values of `bits` exceed the type's digits. They ask for the accuracy of the
                // type.
                let bits = 10 + extra.unsigned_abs() * 2;
                (unary(Unary::Rsqrt { bits }), x.rsqrt(bits, of))
            }
            14 => (unary(Unary::Exp), x.exp(of)),
            15 => (binary(Binary::Min), Some(x.join(y))),
            16 => (binary(Binary::Max), Some(x.join(y))),
            17 => (
                unary(Unary::Convert),
                x.convert(if of == Type::F32 { Type::F64 } else { Type::F32 }),
            ),
            18..=20 => return self.compare(third, extra, (a, x), (b, y)),
            21 => {
                let number = f64::from(extra) / 8.0;
                let value = self.builder.number(number, of);
                return self.numbers.push((value, Bounds::number(number)));
            }
            _ => (self.bool(third).map(|condition| Node::Select(condition, a, b)), Some(x.join(y))),
        };
        let Some(node) = node else { return };
        let Some(bounds) = bounds.or((self.kind == CaseKind::Wild).then_some(Bounds::GIVEN)) else {
            return;
        };
        let value = self.builder.value(node);
        self.numbers.push((value, bounds));
    }

    /// Adds a comparison of numbers, or a logical operation on bools.
    fn compare(&mut self, third: u16, extra: i8, (a, x): (Value, Bounds), (b, y): (Value, Bounds)) {
        let exact = x.is_exact() && y.is_exact() || self.kind == CaseKind::Wild;
        let what = [Compare::Lt, Compare::Le, Compare::Eq, Compare::Ne]
            [usize::from(extra.unsigned_abs() % 4)];
        let node = match (self.bool(third), self.bool(third / 3)) {
            (Some(c), _) if extra % 5 == 0 => Node::Unary(Unary::Not, c),
            (Some(c), Some(d)) if extra % 5 == 1 => Node::Binary(Binary::And, c, d),
            (Some(c), Some(d)) if extra % 5 == 2 => Node::Binary(Binary::Or, c, d),
            _ if exact => Node::Compare(what, a, b),
            _ => return,
        };
        let value = self.builder.value(node);
        self.bools.push(value);
    }

    fn result(&mut self, (what, back): (u8, u16)) {
        let reduction = match what {
            0..=4 => Reduction::Sum,
            5 => Reduction::Min,
            6 => Reduction::Max,
            7 => Reduction::ArgMin,
            8 => Reduction::ArgMax,
            9 | 10 => Reduction::And,
            _ => Reduction::Or,
        };
        let name = format!("r{}", self.tolerances.len());
        if let (Reduction::And | Reduction::Or, Some(value)) = (reduction, self.bool(back)) {
            self.builder.result(&name, reduction, value);
            return self.tolerances.push(0.0);
        }
        let (value, bounds) = self.number(back, None);
        let inexact = self.kind == CaseKind::Tame && !bounds.is_exact();
        let reduction = match reduction {
            Reduction::And | Reduction::Or => Reduction::Sum,
            Reduction::ArgMin if inexact => Reduction::Min,
            Reduction::ArgMax if inexact => Reduction::Max,
            reduction => reduction,
        };
        self.builder.result(&name, reduction, value);
        self.tolerances.push(if self.kind == CaseKind::Wild {
            f64::INFINITY
        } else {
            2.0 * bounds.error()
        });
    }
}

/// A source of random numbers.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u16) -> u16 {
        u16::try_from((xorshift(&mut self.0) >> 32) % u64::from(below))
            .expect("below a number of 16 bits")
    }

    /// Returns an input. For tame programs it is within [`Bounds::GIVEN`].
    fn number(&mut self, kind: CaseKind) -> f64 {
        const SPECIAL: &[f64] = &[
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            1.0,
            -1.0,
            1e-310,
            1e-45,
            1e38,
            -1e200,
        ];
        let small = 0.5 + f64::from(self.next(385)) / 256.0;
        match kind {
            CaseKind::Tame => small,
            CaseKind::Wild => match self.next(4) {
                0 => SPECIAL[usize::from(self.next(11))],
                1 => -small,
                2 => (small - 1.0) * 2.0_f64.powi(i32::from(self.next(80)) - 40),
                _ => small,
            },
        }
    }

    fn column(&mut self, kind: CaseKind, of: Type, count: usize) -> Stored {
        let numbers = (0..count).map(|_| self.number(kind)).collect::<Vec<f64>>();
        if of == Type::F32 && self.next(2) == 0 {
            Stored::F32(numbers.into_iter().map(crate::scalar::narrow).collect())
        } else {
            Stored::F64(numbers)
        }
    }
}
