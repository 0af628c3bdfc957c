//! From a program's values to operations of units.

use super::functions::number;
use super::micro::{Goal, Micros, Operand};
use crate::instruction::{Code, Place};
use crate::word::{Width, Word};
use sprat_formula::{Binary, Compare, Node, Program, Reduction, Scope, Type, Unary, Value};

/// Where the machine has what a program is given, and where its results gather.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Of each i variable, in local memory.
    pub(crate) i: Vec<Option<Place>>,
    /// Of each j variable, in a j's part of broadcast memory.
    pub(crate) j: Vec<Option<Place>>,
    /// Of the number of a j, there.
    pub(crate) index: Option<Place>,
    /// Of each constant, in local memory.
    pub(crate) constants: Vec<Option<Place>>,
    /// Of each value that does not depend on j and must be computed, in local memory.
    pub(crate) kept: Vec<Option<Place>>,
    /// Of each result, in local memory; of `argmin` and `argmax` the number of the j too.
    pub(crate) results: Vec<(Place, Option<Place>)>,
}

/// Whether a value is one that the machine must compute, rather than one that it is given.
pub(crate) fn computed(node: Node) -> bool {
    !matches!(node, Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_))
}

/// Lowers a part of a program.
pub(crate) struct Lowering<'a> {
    program: &'a Program,
    places: &'a Places,
    uses: Vec<usize>,
    operands: Vec<Option<Operand>>,
    micros: Micros,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(program: &'a Program, places: &'a Places) -> Self {
        let count = program.nodes().len();
        let mut uses = vec![0; count];
        program
            .nodes()
            .iter()
            .flat_map(|(node, _)| node.operands())
            .for_each(|operand| uses[operand.index()] += 1);
        program.results().iter().for_each(|result| uses[result.contribution.index()] += 1);
        Self { program, places, uses, operands: vec![None; count], micros: Micros::default() }
    }

    /// What is done once: results begin, and what does not depend on j is computed.
    pub(crate) fn init(mut self) -> Micros {
        for (result, &(place, index)) in self.program.results().iter().zip(&self.places.results) {
            self.micros.keep(place, Operand::Immediate(identity(result.reduction)));
            index.into_iter().for_each(|index| self.micros.keep(index, number(-1.0)));
        }
        let (program, places) = (self.program, self.places);
        for (value, ..) in program.values() {
            if let Some(place) = places.kept[value.index()] {
                let operand = self.operand(value);
                self.micros.keep(place, operand);
            }
        }
        self.micros
    }

    /// What is done for each j.
    pub(crate) fn body(mut self) -> Micros {
        for (value, ..) in self.program.values() {
            self.operands[value.index()] = self.places.kept[value.index()].map(Operand::Local);
        }
        for at in 0..self.program.results().len() {
            self.gather(at);
        }
        self.micros
    }

    fn gather(&mut self, at: usize) {
        let result = &self.program.results()[at];
        let (place, index) = self.places.results[at];
        let so_far = Operand::Local(place);
        let contribution = self.operand(result.contribution);
        let code = match result.reduction {
            Reduction::Sum => Code::Add(Width::Long),
            Reduction::And => Code::And,
            Reduction::Or => Code::Or,
            Reduction::Min | Reduction::ArgMin => {
                return self.better(contribution, so_far, contribution, place, index);
            }
            Reduction::Max | Reduction::ArgMax => {
                return self.better(so_far, contribution, contribution, place, index);
            }
        };
        let next = self.micros.compute(code, contribution, so_far);
        self.micros.keep(place, next);
    }

    /// Takes a contribution where `less` is less than `more`.
    fn better(
        &mut self,
        less: Operand,
        more: Operand,
        taken: Operand,
        place: Place,
        index: Option<Place>,
    ) {
        // A place of local memory is written from elsewhere, by way of a value.
        let taken = if let Operand::Local(_) = taken {
            Operand::Value(self.micros.copy(taken))
        } else {
            taken
        };
        let swap = |operand| {
            if let Operand::Local(at) = operand
                && at != place
            {
                taken
            } else {
                operand
            }
        };
        let mask = self.micros.mask(Code::Less, swap(less), swap(more));
        self.micros.replace(mask, Goal::Local(place), taken);
        if let (Some(index), Some(number)) = (index, self.places.index) {
            self.micros.replace(mask, Goal::Local(index), Operand::Broadcast(number));
        }
    }

    /// A value's operand, computed with all that it needs unless it was.
    fn operand(&mut self, value: Value) -> Operand {
        // What it needs comes first, without going as deep as the program may be.
        let mut open = vec![value];
        while let Some(&next) = open.last() {
            let node = self.program.node(next);
            let missing: Vec<Value> = match self.operands[next.index()] {
                Some(_) => Vec::new(),
                None => self
                    .needs(node)
                    .into_iter()
                    .filter(|need| self.operands[need.index()].is_none())
                    .collect(),
            };
            if missing.is_empty() {
                open.pop();
                if self.operands[next.index()].is_none() {
                    let operand = self.lower(node, self.program.type_of(next));
                    self.operands[next.index()] = Some(operand);
                }
            }
            open.extend(missing);
        }
        self.operands[value.index()].expect("computed above")
    }

    /// What must be there before a node: for one that takes its operand's place, what that needs.
    fn needs(&self, node: Node) -> Vec<Value> {
        let inner = |value: Value| self.program.node(value).operands();
        match node {
            Node::Unary(Unary::Convert, a) if self.fused(node) => inner(a).collect(),
            Node::Select(condition, a, b) if self.fused(node) => {
                inner(condition).chain([a, b]).collect()
            }
            _ => node.operands().collect(),
        }
    }

    /// Whether a node does its operand's work with its own: a sum rounded to another width, a
    /// comparison that becomes a mask at once.
    fn fused(&self, node: Node) -> bool {
        let alone =
            |value: Value| self.uses[value.index()] == 1 && self.operands[value.index()].is_none();
        match node {
            Node::Unary(Unary::Convert, a) => {
                let sum =
                    matches!(self.program.node(a), Node::Binary(Binary::Add | Binary::Sub, ..));
                sum && alone(a) && self.program.type_of(a) == Type::F64
            }
            Node::Select(condition, _, other) => {
                let compared = matches!(self.program.node(condition), Node::Compare(..));
                compared && alone(condition) && !self.is_zero(other)
            }
            _ => false,
        }
    }

    fn is_zero(&self, value: Value) -> bool {
        self.program.node(value) == Node::Number(0)
    }

    fn get(&self, value: Value) -> Operand {
        self.operands[value.index()].expect("operands come first")
    }

    fn lower(&mut self, node: Node, of: Type) -> Operand {
        let width = if of == Type::F64 { Width::Long } else { Width::Short };
        match node {
            Node::I(at) => Operand::Local(self.places.i[usize::from(at)].expect("it is used")),
            Node::J(at) => Operand::Broadcast(self.places.j[usize::from(at)].expect("it is used")),
            Node::Constant(at) => {
                Operand::Local(self.places.constants[usize::from(at)].expect("it is used"))
            }
            Node::Number(bits) => number(f64::from_bits(bits)),
            Node::Unary(Unary::Convert, a) if self.fused(node) => {
                let Node::Binary(what, a, b) = self.program.node(a) else {
                    unreachable!("a sum or difference")
                };
                let code = if what == Binary::Add { Code::Add(width) } else { Code::Sub(width) };
                self.micros.compute(code, self.get(a), self.get(b))
            }
            Node::Unary(what, a) => self.unary(what, width, self.get(a)),
            Node::Binary(what, a, b) => self.binary(what, width, self.get(a), self.get(b)),
            Node::Compare(what, a, b) => {
                self.micros.compute(comparison(what), self.get(a), self.get(b))
            }
            Node::Select(condition, a, b) => self.select(node, condition, a, b),
            Node::Fma { negated, a, b, c } => {
                let product = self.micros.mul(width, self.get(a), self.get(b));
                let code = if negated { Code::Sub(width) } else { Code::Add(width) };
                self.micros.compute(code, self.get(c), product)
            }
        }
    }

    fn unary(&mut self, what: Unary, width: Width, a: Operand) -> Operand {
        let sign = 1 << (crate::word::LONG_BITS - 1);
        let word = |bits| Operand::Immediate(Word::from_bits(bits));
        match what {
            Unary::Neg => self.micros.compute(Code::Xor, a, word(sign)),
            Unary::Abs => self.micros.compute(Code::And, a, word(sign - 1)),
            Unary::Not => self.micros.compute(Code::Xor, a, Operand::Immediate(Word::ONES)),
            Unary::Sqrt => self.micros.sqrt(width, a),
            Unary::Rsqrt { bits } => self.micros.rsqrt(width, a, bits),
            Unary::Exp => self.micros.exp(width, a),
            // A short word is a long one too. Minus zero changes nothing, not even a zero's sign.
            Unary::Convert if width == Width::Long => a,
            Unary::Convert => self.micros.add(width, a, number(-0.0)),
        }
    }

    fn binary(&mut self, what: Binary, width: Width, a: Operand, b: Operand) -> Operand {
        match what {
            Binary::Add => self.micros.add(width, a, b),
            Binary::Sub => self.micros.sub(width, a, b),
            Binary::Mul => self.micros.mul(width, a, b),
            Binary::Div => self.micros.div(width, a, b),
            Binary::And => self.micros.compute(Code::And, a, b),
            Binary::Or => self.micros.compute(Code::Or, a, b),
            Binary::Min => self.chosen(Code::Less, a, b, a, b),
            Binary::Max => self.chosen(Code::Less, b, a, a, b),
        }
    }

    fn select(&mut self, node: Node, condition: Value, a: Value, b: Value) -> Operand {
        let (yes, no) = (self.get(a), self.get(b));
        if self.fused(node) {
            let Node::Compare(what, left, right) = self.program.node(condition) else {
                unreachable!("a comparison")
            };
            return self.chosen(comparison(what), self.get(left), self.get(right), yes, no);
        }
        let condition = self.get(condition);
        if self.is_zero(b) {
            return self.micros.compute(Code::And, yes, condition);
        }
        self.chosen(Code::Pass, condition, condition, yes, no)
    }

    /// `yes` where an operation on two operands gives any bit, else `no`.
    fn chosen(&mut self, code: Code, a: Operand, b: Operand, yes: Operand, no: Operand) -> Operand {
        let value = self.micros.copy(no);
        let mask = self.micros.mask(code, a, b);
        self.micros.replace(mask, Goal::Value(value), yes);
        Operand::Value(value)
    }

    /// Which values that do not depend on j must be kept for the loop, or for its results.
    pub(crate) fn to_keep(program: &Program) -> Vec<bool> {
        let scopes = program.scopes();
        let once = |value: Value| scopes[value.index()] <= Scope::I;
        let mut keep = vec![false; scopes.len()];
        let users = program
            .values()
            .filter(|&(value, ..)| !once(value))
            .flat_map(|(_, node, _)| node.operands());
        let results = program.results().iter().map(|result| result.contribution);
        for value in
            users.chain(results).filter(|&value| once(value) && computed(program.node(value)))
        {
            keep[value.index()] = true;
        }
        keep
    }
}

fn comparison(what: Compare) -> Code {
    match what {
        Compare::Lt => Code::Less,
        Compare::Le => Code::LessEqual,
        Compare::Eq => Code::Equal,
        Compare::Ne => Code::NotEqual,
    }
}

/// What a result begins with.
fn identity(reduction: Reduction) -> Word {
    match reduction {
        Reduction::Sum | Reduction::Or => Word::ZERO,
        Reduction::And => Word::ONES,
        Reduction::Min | Reduction::ArgMin => Word::INFINITY,
        Reduction::Max | Reduction::ArgMax => Word::INFINITY.negated(),
    }
}
