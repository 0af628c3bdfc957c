//! Values of a kernel for [`LANES`] particles together, computed by loops over arrays. On all
//! targets this computes the values that are needed once for each i or once for each j. On the
//! portable target it also computes pairs.

use sprat_formula::{Binary, Column, Compare, Data, Node, Program, Type, Unary, Value};
use std::ops::Range;

/// The number of particles that one array holds.
pub(crate) const LANES: usize = 64;

/// The unary operations, written once for both number types.
macro_rules! unary {
    ($op:expr, $to:expr, $a:expr) => {{
        let a = $a;
        match $op {
            Unary::Neg => each($to, |k| -a[k]),
            Unary::Abs => each($to, |k| a[k].abs()),
            Unary::Sqrt => each($to, |k| a[k].sqrt()),
            Unary::Rsqrt { .. } => each($to, |k| 1.0 / a[k].sqrt()),
            Unary::Exp => each($to, |k| a[k].exp()),
            Unary::Not | Unary::Convert => unreachable!("of other types"),
        }
    }};
}

macro_rules! binary {
    ($op:expr, $to:expr, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        match $op {
            Binary::Add => each($to, |k| a[k] + b[k]),
            Binary::Sub => each($to, |k| a[k] - b[k]),
            Binary::Mul => each($to, |k| a[k] * b[k]),
            Binary::Div => each($to, |k| a[k] / b[k]),
            Binary::Min => each($to, |k| if a[k] < b[k] { a[k] } else { b[k] }),
            Binary::Max => each($to, |k| if a[k] > b[k] { a[k] } else { b[k] }),
            Binary::And | Binary::Or => unreachable!("of bools"),
        }
    }};
}

macro_rules! fused {
    ($negated:expr, $to:expr, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, c, sign) = ($a, $b, $c, if $negated { -1.0 } else { 1.0 });
        each($to, |k| (sign * a[k]).mul_add(b[k], c[k]));
    }};
}

/// All values of a kernel, each for [`LANES`] particles.
#[derive(Debug)]
pub(crate) struct Lanes {
    values: Vec<Lane>,
}

/// One value for [`LANES`] particles.
#[derive(Clone, Debug)]
pub(crate) enum Lane {
    F32(Box<[f32; LANES]>),
    F64(Box<[f64; LANES]>),
    Bool(Box<[bool; LANES]>),
}

impl Lanes {
    /// Allocates all values as zeros.
    pub(crate) fn new(program: &Program) -> Self {
        let lane = |of| match of {
            Type::F32 => Lane::F32(Box::new([0.0; LANES])),
            Type::F64 => Lane::F64(Box::new([0.0; LANES])),
            Type::Bool => Lane::Bool(Box::new([false; LANES])),
        };
        Self { values: program.nodes().iter().map(|&(_, of)| lane(of)).collect() }
    }

    pub(crate) fn get(&self, value: Value) -> &Lane {
        &self.values[value.index()]
    }

    /// Sets one lane to a number, rounded to the value's type. A bool is set to true if the number
    /// is not 0.
    pub(crate) fn set(&mut self, value: Value, lane: usize, number: f64) {
        match &mut self.values[value.index()] {
            #[expect(clippy::cast_possible_truncation, reason = "rounded to its type")]
            Lane::F32(lanes) => lanes[lane] = number as f32,
            Lane::F64(lanes) => lanes[lane] = number,
            Lane::Bool(lanes) => lanes[lane] = number != 0.0,
        }
    }

    /// Sets all lanes to a number.
    pub(crate) fn fill(&mut self, value: Value, number: f64) {
        match &mut self.values[value.index()] {
            #[expect(clippy::cast_possible_truncation, reason = "rounded to its type")]
            Lane::F32(lanes) => lanes.fill(number as f32),
            Lane::F64(lanes) => lanes.fill(number),
            Lane::Bool(lanes) => lanes.fill(number != 0.0),
        }
    }

    /// Loads a variable's numbers for a range of particles. If the range is shorter than the lanes,
    /// its last particle is repeated.
    pub(crate) fn load(&mut self, value: Value, column: &Column<'_>, particles: Range<usize>) {
        let stride = column.stride();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded, as columns are documented to be"
        )]
        match (&mut self.values[value.index()], column.data()) {
            (Lane::F32(to), Data::F32(from)) => take(to, from, stride, particles, |x| x),
            (Lane::F32(to), Data::F64(from)) => take(to, from, stride, particles, |x| x as f32),
            (Lane::F64(to), Data::F32(from)) => take(to, from, stride, particles, f64::from),
            (Lane::F64(to), Data::F64(from)) => take(to, from, stride, particles, |x| x),
            (Lane::Bool(_), _) => unreachable!("a variable is a number"),
        }
    }

    /// Computes a value from its operands, which precede it in the program. Does nothing for
    /// variables, constants and numbers, because the caller sets these.
    pub(crate) fn compute(&mut self, value: Value, node: Node) {
        let (before, rest) = self.values.split_at_mut(value.index());
        let of = |value: Value| &before[value.index()];
        match (node, &mut rest[0]) {
            (Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_), _) => {}
            (Node::Unary(Unary::Convert, a), Lane::F64(to)) => {
                each(to, |k| f64::from(of(a).f32()[k]));
            }
            #[expect(clippy::cast_possible_truncation, reason = "what conversion is")]
            (Node::Unary(Unary::Convert, a), Lane::F32(to)) => each(to, |k| of(a).f64()[k] as f32),
            (Node::Unary(_, a), Lane::Bool(to)) => each(to, |k| !of(a).bool()[k]),
            (Node::Unary(op, a), Lane::F32(to)) => unary!(op, to, of(a).f32()),
            (Node::Unary(op, a), Lane::F64(to)) => unary!(op, to, of(a).f64()),
            (Node::Binary(op, a, b), Lane::F32(to)) => {
                binary!(op, to, of(a).f32(), of(b).f32())
            }
            (Node::Binary(op, a, b), Lane::F64(to)) => {
                binary!(op, to, of(a).f64(), of(b).f64())
            }
            (Node::Binary(op, a, b), Lane::Bool(to)) => {
                let (a, b) = (of(a).bool(), of(b).bool());
                if op == Binary::And {
                    each(to, |k| a[k] & b[k])
                } else {
                    each(to, |k| a[k] | b[k])
                }
            }
            (Node::Compare(op, a, b), Lane::Bool(to)) => match (of(a), of(b)) {
                (Lane::F32(a), Lane::F32(b)) => compare(op, to, a, b),
                (Lane::F64(a), Lane::F64(b)) => compare(op, to, a, b),
                _ => unreachable!("numbers of one type"),
            },
            (Node::Select(by, a, b), to) => {
                let by = of(by).bool();
                match (to, of(a), of(b)) {
                    (Lane::F32(to), Lane::F32(a), Lane::F32(b)) => {
                        each(to, |k| if by[k] { a[k] } else { b[k] })
                    }
                    (Lane::F64(to), Lane::F64(a), Lane::F64(b)) => {
                        each(to, |k| if by[k] { a[k] } else { b[k] })
                    }
                    (Lane::Bool(to), Lane::Bool(a), Lane::Bool(b)) => {
                        each(to, |k| if by[k] { a[k] } else { b[k] })
                    }
                    _ => unreachable!("of one type"),
                }
            }
            (Node::Fma { negated, a, b, c }, Lane::F32(to)) => {
                fused!(negated, to, of(a).f32(), of(b).f32(), of(c).f32());
            }
            (Node::Fma { negated, a, b, c }, Lane::F64(to)) => {
                fused!(negated, to, of(a).f64(), of(b).f64(), of(c).f64());
            }
            (node, _) => unreachable!("{node:?}: of another type"),
        }
    }
}

/// Loads the numbers of a range of particles, which are `stride` apart. If the range is shorter
/// than the lanes, its last number is repeated.
fn take<T, F: Copy>(
    to: &mut [T; LANES],
    from: &[F],
    stride: usize,
    particles: Range<usize>,
    op: impl Fn(F) -> T,
) {
    // Most columns are contiguous. The compiler vectorizes this case.
    match from.get(particles.start..particles.start + LANES) {
        Some(run) if stride == 1 && particles.len() >= LANES => {
            to.iter_mut().zip(run).for_each(|(to, &x)| *to = op(x))
        }
        _ => each(to, |k| op(from[(particles.start + k).min(particles.end - 1) * stride])),
    }
}

fn each<T>(to: &mut [T; LANES], op: impl Fn(usize) -> T) {
    to.iter_mut().enumerate().for_each(|(k, to)| *to = op(k));
}

fn compare<T: PartialOrd>(op: Compare, to: &mut [bool; LANES], a: &[T; LANES], b: &[T; LANES]) {
    match op {
        Compare::Lt => each(to, |k| a[k] < b[k]),
        Compare::Le => each(to, |k| a[k] <= b[k]),
        Compare::Eq => each(to, |k| a[k] == b[k]),
        Compare::Ne => each(to, |k| a[k] != b[k]),
    }
}

impl Lane {
    /// Returns the number in a lane. A bool counts as 1 or 0.
    pub(crate) fn number(&self, lane: usize) -> f64 {
        match self {
            Self::F32(lanes) => f64::from(lanes[lane]),
            Self::F64(lanes) => lanes[lane],
            Self::Bool(lanes) => f64::from(u8::from(lanes[lane])),
        }
    }

    fn f32(&self) -> &[f32; LANES] {
        let Self::F32(lanes) = self else { unreachable!("of 32 bits, as its type says") };
        lanes
    }

    fn f64(&self) -> &[f64; LANES] {
        let Self::F64(lanes) = self else { unreachable!("of 64 bits, as its type says") };
        lanes
    }

    fn bool(&self) -> &[bool; LANES] {
        let Self::Bool(lanes) = self else { unreachable!("a bool, as its type says") };
        lanes
    }
}
