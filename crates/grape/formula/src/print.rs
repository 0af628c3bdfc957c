//! Prints a program's listing: a kernel with one operation per line. The listing of a program that
//! is not contracted parses to the same program.

use crate::program::{Binary, Compare, Field, Node, Program, Reduction, Type, Unary, Value};
use crate::scalar;
use crate::simplify::digits;
use std::fmt;

/// Prints a kernel that parses to this program, except for [`Node::Fma`]: only
/// [`Program::contracted`] makes this node, and the language does not have it. `fma(a, b, c)` is
/// `a * b + c`, and `fnma(a, b, c)` is `c - a * b`.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = |fields: &[Field]| {
            fields.iter().map(|field| (field.name.clone(), Some(field.of))).collect()
        };
        declare(f, "VARI", types(&self.i))?;
        declare(f, "VARJ", types(&self.j))?;
        let results = self.results.iter().map(|result| {
            let numbers =
                matches!(result.reduction, Reduction::Sum | Reduction::Min | Reduction::Max);
            (result.name.clone(), numbers.then(|| self.type_of(result.contribution)))
        });
        declare(f, "VARF", results.collect())?;
        for constant in &self.constants {
            let default = constant
                .default
                .map_or_else(String::new, |number| format!(" = {}", number_text(number)));
            writeln!(f, "CONST {}{default}: {}", constant.name, type_name(constant.of))?;
        }
        if let Some(flops) = self.flops {
            writeln!(f, "FLOPS {flops}")?;
        }
        let listing = Listing { program: self, prefix: self.prefix() };
        for (value, node, _) in self.values() {
            if node.operands().next().is_some() {
                writeln!(f, "{} = {}", listing.name(value), listing.node(node))?;
            }
        }
        for result in &self.results {
            let reduced = match result.reduction {
                Reduction::Sum => "+=",
                Reduction::Min => "min=",
                Reduction::Max => "max=",
                Reduction::And => "and=",
                Reduction::Or => "or=",
                Reduction::ArgMin => "argmin=",
                Reduction::ArgMax => "argmax=",
            };
            writeln!(f, "{} {reduced} {}", result.name, listing.alone(result.contribution))?;
        }
        Ok(())
    }
}

impl Program {
    /// Returns a prefix for names of values; no name in the program begins with it.
    fn prefix(&self) -> String {
        let fields = self.i.iter().chain(&self.j).map(|field| &field.name);
        let constants = self.constants.iter().map(|constant| &constant.name);
        let names: Vec<&String> =
            fields.chain(constants).chain(self.results.iter().map(|result| &result.name)).collect();
        let free = |prefix: &String| !names.iter().any(|name| name.starts_with(prefix.as_str()));
        let mut prefixes =
            std::iter::once("v".to_owned()).chain((0..).map(|number| format!("v{number}_")));
        prefixes
            .find(free)
            .expect("each name begins with two of these at most, and they have no end")
    }
}

struct Listing<'p> {
    program: &'p Program,
    prefix: String,
}

impl Listing<'_> {
    /// Returns a value as an operand.
    fn name(&self, value: Value) -> String {
        let program = self.program;
        match program.node(value) {
            Node::I(at) => program.i[usize::from(at)].name.clone(),
            Node::J(at) => program.j[usize::from(at)].name.clone(),
            Node::Constant(at) => program.constants[usize::from(at)].name.clone(),
            Node::Number(bits) if program.type_of(value) == Type::F32 => {
                short_text(f64::from_bits(bits))
            }
            Node::Number(bits) => number_text(f64::from_bits(bits)),
            _ => format!("{}{}", self.prefix, value.index()),
        }
    }

    /// Returns a value as an operand that cannot take its type from another operand.
    fn alone(&self, value: Value) -> String {
        let name = self.name(value);
        match self.program.node(value) {
            Node::Number(_) => format!("{}({name})", type_name(self.program.type_of(value))),
            _ => name,
        }
    }

    /// Returns two operands. If both are literals, each states its type.
    fn pair(&self, a: Value, b: Value) -> (String, String) {
        let number = |value| matches!(self.program.node(value), Node::Number(_));
        if number(a) && number(b) {
            (self.alone(a), self.alone(b))
        } else {
            (self.name(a), self.name(b))
        }
    }

    fn node(&self, node: Node) -> String {
        match node {
            Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_) => {
                unreachable!("these stand where they are used")
            }
            Node::Unary(what, a) => self.unary(what, a),
            Node::Binary(what, a, b) => {
                let (a, b) = self.pair(a, b);
                match what {
                    Binary::Add => format!("{a} + {b}"),
                    Binary::Sub => format!("{a} - {b}"),
                    Binary::Mul => format!("{a} * {b}"),
                    Binary::Div => format!("{a} / {b}"),
                    Binary::Min => format!("min({a}, {b})"),
                    Binary::Max => format!("max({a}, {b})"),
                    Binary::And => format!("{a} and {b}"),
                    Binary::Or => format!("{a} or {b}"),
                }
            }
            Node::Compare(what, a, b) => {
                let (a, b) = self.pair(a, b);
                let sign = match what {
                    Compare::Lt => "<",
                    Compare::Le => "<=",
                    Compare::Eq => "==",
                    Compare::Ne => "!=",
                };
                format!("{a} {sign} {b}")
            }
            Node::Select(condition, a, b) => {
                let (a, b) = self.pair(a, b);
                format!("select({}, {a}, {b})", self.name(condition))
            }
            Node::Fma { negated, a, b, c } => {
                let name = if negated { "fnma" } else { "fma" };
                format!("{name}({}, {}, {})", self.name(a), self.name(b), self.name(c))
            }
        }
    }

    fn unary(&self, what: Unary, a: Value) -> String {
        let of = self.program.type_of(a);
        let a = self.alone(a);
        match what {
            Unary::Neg => format!("-{a}"),
            Unary::Abs => format!("abs({a})"),
            Unary::Sqrt => format!("sqrt({a})"),
            Unary::Rsqrt { bits } if bits == digits(of) => format!("rsqrt({a})"),
            Unary::Rsqrt { bits } => format!("rsqrt({a}, {:?})", 2.0_f64.powi(-i32::from(bits))),
            Unary::Exp => format!("exp({a})"),
            Unary::Not => format!("not {a}"),
            Unary::Convert => {
                format!("{}({a})", type_name(if of == Type::F32 { Type::F64 } else { Type::F32 }))
            }
        }
    }
}

/// Prints declarations. Consecutive names of one type share a declaration.
fn declare(
    f: &mut fmt::Formatter<'_>,
    keyword: &str,
    names: Vec<(String, Option<Type>)>,
) -> fmt::Result {
    for run in names.chunk_by(|(_, a), (_, b)| a == b) {
        let joined = run.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let of = run[0].1.map_or_else(String::new, |of| format!(": {}", type_name(of)));
        writeln!(f, "{keyword} {joined}{of}")?;
    }
    Ok(())
}

fn type_name(of: Type) -> &'static str {
    match of {
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Bool => "bool",
    }
}

/// Formats a number with as few digits as distinguish it from all others.
fn number_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        format!("{number:?}")
    }
}

/// Formats an `f32` number with as few digits as distinguish it from other `f32` numbers, if those
/// digits give the same number when they are parsed as `f64` and rounded.
fn short_text(number: f64) -> String {
    let short = format!("{:?}", scalar::narrow(number));
    let read = short.parse::<f64>().map(scalar::narrow);
    if number.is_finite() && read.is_ok_and(|read| f64::from(read).to_bits() == number.to_bits()) {
        short
    } else {
        number_text(number)
    }
}
