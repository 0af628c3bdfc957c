//! What a kernel means: values in single assignment, each with a type, and the results that they
//! are reduced to.

/// The type of a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// What comparisons give.
    Bool,
}

/// A value of a program: its place in [`Program::nodes`]. Operands come before what uses them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Value(pub(crate) u16);

impl Value {
    /// Its place.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unary {
    /// The sign turned.
    Neg,
    /// The sign dropped.
    Abs,
    /// The square root, correctly rounded.
    Sqrt,
    /// One over the square root: within a relative error of two to the power of minus `bits`, or
    /// within 2 units in the last place where that is more. Of 0 infinity with its sign, of
    /// infinity 0, of what is below 0 not a number.
    Rsqrt {
        /// The accuracy asked for: no more than the type's digits, 24 or 53.
        bits: u8,
    },
    /// e to the power of it, within 2 units in the last place; infinity and 0 beyond the range.
    Exp,
    /// Of a bool.
    Not,
    /// `F32` to `F64` or back, rounded to nearest.
    Convert,
}

/// An operation on two values of one type, which the result has too.
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
    /// `if a < b { a } else { b }`: what the processors' instruction does with numbers that are
    /// none, too.
    Min,
    /// `if a > b { a } else { b }`.
    Max,
    /// Of bools.
    And,
    /// Of bools.
    Or,
}

/// A comparison of two numbers of one type, false where one is not a number but for `Ne`. `a > b`
/// is `b < a`.
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

/// How a value comes to be.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Node {
    /// A variable of the particle that is held: its place in [`Program::i`].
    I(u8),
    /// A variable of the particle that is broadcast: its place in [`Program::j`].
    J(u8),
    /// A number that is the same for all pairs of a run: its place in [`Program::constants`].
    Constant(u8),
    /// A number of the text: the bits of an `f64`, which for `F32` is one of that type exactly.
    Number(u64),
    /// One operand.
    Unary(Unary, Value),
    /// Two operands.
    Binary(Binary, Value, Value),
    /// A comparison.
    Compare(Compare, Value, Value),
    /// The second where the first, a bool, holds; else the third.
    Select(Value, Value, Value),
    /// `a * b + c`, or `c - a * b`, rounded once. Only [`Program::contracted`] makes these.
    Fma {
        /// `c - a * b`.
        negated: bool,
        /// A factor.
        a: Value,
        /// A factor.
        b: Value,
        /// What it is added to.
        c: Value,
    },
}

/// How the contributions of all j become one result. In what order is not said.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reduction {
    /// Their sum; 0 of none. Sums of `F32` are taken in runs of about a thousand, and these added
    /// in `F64`.
    Sum,
    /// The least; infinity of none. What is not a number is passed over.
    Min,
    /// The greatest; minus infinity of none. What is not a number is passed over.
    Max,
    /// Whether all hold; true of none.
    And,
    /// Whether any holds; false of none.
    Or,
    /// Which j has the least, the first of several; -1 of none, and where all are infinity or not
    /// numbers.
    ArgMin,
    /// Which j has the greatest, the first of several; -1 of none, and where all are minus infinity
    /// or not numbers.
    ArgMax,
}

impl Reduction {
    /// Whether a number takes the place of the best so far. What is equal came later, and what is
    /// no number is passed over.
    ///
    /// # Panics
    /// A reduction that has no best.
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

/// A variable that is given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type: never `Bool`.
    pub of: Type,
}

/// A number that is the same for all pairs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its type: never `Bool`.
    pub of: Type,
    /// What it is unless given.
    pub default: Option<f64>,
}

/// A result for each i.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResultField {
    /// Its name.
    pub name: String,
    /// How contributions become one.
    pub reduction: Reduction,
    /// What each pair contributes: of type `Bool` for `And` and `Or`, a number for all else; the
    /// result's type too, but that of `ArgMin` and `ArgMax` is an index.
    pub contribution: Value,
}

/// On what a value depends, and so how often it must be computed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// On neither particle: once a run.
    Run,
    /// On the one held.
    I,
    /// On the one broadcast.
    J,
    /// On both: for each pair.
    Pair,
}

/// A kernel. Made by [`crate::Builder`], which checks types, and keeps each value once.
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
    /// The variables of the particles that are held.
    #[must_use]
    pub fn i(&self) -> &[Field] {
        &self.i
    }

    /// The variables of the particles that are broadcast.
    #[must_use]
    pub fn j(&self) -> &[Field] {
        &self.j
    }

    /// What is the same for all pairs.
    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// All values, operands before what uses them; none that no result needs.
    #[must_use]
    pub fn nodes(&self) -> &[(Node, Type)] {
        &self.nodes
    }

    /// All values with their nodes and types, in order.
    pub fn values(&self) -> impl Iterator<Item = (Value, Node, Type)> + '_ {
        self.nodes.iter().zip(0..).map(|(&(node, of), index)| (Value(index), node, of))
    }

    /// The same program with more results, after its own: for each `ArgMin` and `ArgMax`, in their
    /// order, the extreme itself. By these, results of parts of j can be made results of all.
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

    /// The results.
    #[must_use]
    pub fn results(&self) -> &[ResultField] {
        &self.results
    }

    /// How many floating-point operations a pair counts by convention, for reports, where the
    /// kernel says so. What is really computed is [`Program::counts`].
    #[must_use]
    pub fn flops(&self) -> Option<u32> {
        self.flops
    }

    /// How a value comes to be.
    #[must_use]
    pub fn node(&self, value: Value) -> Node {
        self.nodes[value.index()].0
    }

    /// The type of a value.
    #[must_use]
    pub fn of(&self, value: Value) -> Type {
        self.nodes[value.index()].1
    }

    /// On what each value depends, in the order of [`Program::nodes`].
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
    /// Its operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = Value> + use<> {
        let (operands, count) = match *self {
            Self::I(_) | Self::J(_) | Self::Constant(_) | Self::Number(_) => ([Value(0); 3], 0),
            Self::Unary(_, a) => ([a; 3], 1),
            Self::Binary(_, a, b) | Self::Compare(_, a, b) => ([a, b, b], 2),
            Self::Select(a, b, c) | Self::Fma { a, b, c, .. } => ([a, b, c], 3),
        };
        operands.into_iter().take(count)
    }

    /// The same with other operands.
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
