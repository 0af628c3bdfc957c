//! The meaning of a kernel: values in static single assignment form, each with a type, and the
//! results that they are reduced to.

/// The type of a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// The result of comparisons.
    Bool,
}

/// A value of a program: its index in [`Program::nodes`]. Operands come before their users.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Value(pub(crate) u16);

impl Value {
    /// Returns its index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unary {
    /// Negation.
    Neg,
    /// Absolute value.
    Abs,
    /// The square root, correctly rounded.
    Sqrt,
    /// The reciprocal square root, with a relative error of at most `2^-bits`, or 2 units in the
    /// last place if that is more. For a zero it is infinity with the zero's sign; for infinity it
    /// is 0, and for negative numbers NaN.
    Rsqrt {
        /// The accuracy: at most the type's digits, 24 or 53.
        bits: u8,
    },
    /// The exponential, within 2 units in the last place. It is infinity or 0 if the exact result
    /// exceeds the type's range.
    Exp,
    /// Negation of a bool.
    Not,
    /// Conversion from `F32` to `F64` or back, rounded to nearest.
    Convert,
}

/// An operation on two values of the same type, which is also the type of its result.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient, correctly rounded.
    Div,
    /// `if a < b { a } else { b }`, as processors compute it, also for NaN.
    Min,
    /// `if a > b { a } else { b }`.
    Max,
    /// Conjunction of bools.
    And,
    /// Disjunction of bools.
    Or,
}

/// A comparison of two numbers of the same type. With NaN it is false, except `Ne`, which is true.
/// `a > b` is written `b < a`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Compare {
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
}

/// The operation that computes a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Node {
    /// A variable of the held particle, by its index in [`Program::i`].
    I(u8),
    /// A variable of the broadcast particle, by its index in [`Program::j`].
    J(u8),
    /// A number that is the same for all pairs, by its index in [`Program::constants`].
    Constant(u8),
    /// A literal: the bits of an `f64`. A literal of type `F32` is exactly representable in `F32`.
    Number(u64),
    /// An operation on one value.
    Unary(Unary, Value),
    /// An operation on two values.
    Binary(Binary, Value, Value),
    /// A comparison.
    Compare(Compare, Value, Value),
    /// The second value if the first, a bool, is true; otherwise the third.
    Select(Value, Value, Value),
    /// `a * b + c` or `c - a * b`, rounded once. Only [`Program::contracted`] makes it.
    Fma {
        /// Whether the operation is `c - a * b` rather than `a * b + c`.
        negated: bool,
        /// A factor.
        a: Value,
        /// A factor.
        b: Value,
        /// The addend.
        c: Value,
    },
}

/// How the contributions of all j are reduced to a result, in an unspecified order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reduction {
    /// The sum of the contributions; 0 without contributions. The vector engine computes sums of
    /// `F32` in `F32` for up to 1,024 contributions at a time, and adds these sums in `F64`.
    Sum,
    /// The minimum; infinity without contributions. NaN is skipped.
    Min,
    /// The maximum; minus infinity without contributions. NaN is skipped.
    Max,
    /// Whether all are true; true without contributions.
    And,
    /// Whether any is true; false without contributions.
    Or,
    /// The index of the first j with the minimum; -1 if there is none, or all are infinity or NaN.
    ArgMin,
    /// The index of the first j with the maximum; -1 if there is none, or all are minus infinity or
    /// NaN.
    ArgMax,
}

impl Reduction {
    /// Returns whether a number replaces the best one so far. An equal number does not, because the
    /// first one counts; NaN does not, because it is skipped.
    ///
    /// # Panics
    /// If the reduction is `Sum`, `And` or `Or`, which have no best number.
    #[inline]
    #[must_use]
    pub fn prefers(self, number: f64, best: f64) -> bool {
        match self {
            Self::Min | Self::ArgMin => number < best,
            Self::Max | Self::ArgMax => number > best,
            Self::Sum | Self::And | Self::Or => unreachable!("these have no best"),
        }
    }
}

/// A variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Field {
    /// The variable's name.
    pub name: String,
    /// The variable's type, which is never `Bool`.
    pub of: Type,
}

/// A number that is the same for all pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// The constant's name.
    pub name: String,
    /// The constant's type, which is never `Bool`.
    pub of: Type,
    /// The value that is used if a run gives none. `None` if a run must give one.
    pub default: Option<f64>,
}

/// A result for each i.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResultField {
    /// The result's name.
    pub name: String,
    /// How contributions are reduced.
    pub reduction: Reduction,
    /// The contribution of each pair: of type `Bool` for `And` and `Or`, otherwise a number. The
    /// result has the contribution's type, except that `ArgMin` and `ArgMax` give an index.
    pub contribution: Value,
}

/// Which particles a value depends on, and therefore how often it is computed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// On neither: once per run.
    Run,
    /// On i.
    I,
    /// On j.
    J,
    /// On both: for each pair.
    Pair,
}

/// The program of a kernel. [`crate::Builder`] makes it, checks its types, and keeps each value
/// once.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub(crate) i: Vec<Field>,
    pub(crate) j: Vec<Field>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) nodes: Vec<(Node, Type)>,
    pub(crate) results: Vec<ResultField>,
    pub(crate) flops: Option<u32>,
}

impl Program {
    /// Returns the variables of the held particles.
    #[must_use]
    pub fn i(&self) -> &[Field] {
        &self.i
    }

    /// Returns the variables of the broadcast particles.
    #[must_use]
    pub fn j(&self) -> &[Field] {
        &self.j
    }

    /// Returns the constants.
    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// Returns all values, operands before their users. All of them are needed by a result.
    #[must_use]
    pub fn nodes(&self) -> &[(Node, Type)] {
        &self.nodes
    }

    /// Returns all values with their nodes and types, in order.
    pub fn values(&self) -> impl Iterator<Item = (Value, Node, Type)> + '_ {
        self.nodes.iter().zip(0..).map(|(&(node, of), index)| (Value(index), node, of))
    }

    /// Returns the program with additional results after its own: for each `ArgMin` and `ArgMax`,
    /// in order, the minimum or maximum itself. With them, an engine can combine the results of
    /// parts of j.
    #[must_use]
    pub fn with_extremes(&self) -> Self {
        let extremes = self.results.iter().filter_map(|result| {
            let reduction = match result.reduction {
                Reduction::ArgMin => Reduction::Min,
                Reduction::ArgMax => Reduction::Max,
                _ => return None,
            };
            Some(ResultField { reduction, ..result.clone() })
        });
        let mut all = self.clone();
        all.results.extend(extremes);
        all
    }

    /// Returns the results.
    #[must_use]
    pub fn results(&self) -> &[ResultField] {
        &self.results
    }

    /// Returns how many floating-point operations one pair counts by convention, if the kernel
    /// states it. [`Program::counts`] gives the actual number.
    #[must_use]
    pub fn flops(&self) -> Option<u32> {
        self.flops
    }

    /// Returns the node of a value.
    #[must_use]
    pub fn node(&self, value: Value) -> Node {
        self.nodes[value.index()].0
    }

    /// Returns the type of a value.
    #[must_use]
    pub fn type_of(&self, value: Value) -> Type {
        self.nodes[value.index()].1
    }

    /// Returns the scope of each value, in the order of [`Program::nodes`].
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = Vec::with_capacity(self.nodes.len());
        for (node, _) in &self.nodes {
            let own = match node {
                Node::I(_) => Scope::I,
                Node::J(_) => Scope::J,
                _ => Scope::Run,
            };
            let all =
                node.operands().fold(own, |scope, operand| scope.with(scopes[operand.index()]));
            scopes.push(all);
        }
        scopes
    }
}

impl Scope {
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Run, scope) | (scope, Self::Run) => scope,
            (a, b) if a == b => a,
            _ => Self::Pair,
        }
    }
}

impl Node {
    /// Returns its operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = Value> + use<> {
        let (operands, count) = match *self {
            Self::I(_) | Self::J(_) | Self::Constant(_) | Self::Number(_) => ([Value(0); 3], 0),
            Self::Unary(_, a) => ([a; 3], 1),
            Self::Binary(_, a, b) | Self::Compare(_, a, b) => ([a, b, b], 2),
            Self::Select(a, b, c) | Self::Fma { a, b, c, .. } => ([a, b, c], 3),
        };
        operands.into_iter().take(count)
    }

    /// Returns the node with other operands.
    #[must_use]
    pub(crate) fn map(self, mut other: impl FnMut(Value) -> Value) -> Self {
        match self {
            Self::I(_) | Self::J(_) | Self::Constant(_) | Self::Number(_) => self,
            Self::Unary(what, a) => Self::Unary(what, other(a)),
            Self::Binary(what, a, b) => Self::Binary(what, other(a), other(b)),
            Self::Compare(what, a, b) => Self::Compare(what, other(a), other(b)),
            Self::Select(a, b, c) => Self::Select(other(a), other(b), other(c)),
            Self::Fma { negated, a, b, c } => {
                Self::Fma { negated, a: other(a), b: other(b), c: other(c) }
            }
        }
    }
}
