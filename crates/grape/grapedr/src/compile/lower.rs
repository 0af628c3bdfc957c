//! Lowers a program's values to operations of the units.

use super::functions::number;
use super::micro::{Destination, MicroProgram, Operand};
use crate::instruction::{Code, Place};
use crate::word::{Width, Word};
use sprat_formula::{Binary, Compare, Node, Program, Reduction, Scope, Type, Unary, Value};

/// The addresses of a program's variables, constants, intermediate values and results.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Address in local memory of each i variable; `None` if nothing uses it.
    pub(crate) i: Vec<Option<Place>>,
    /// Address of each j variable within the words of a j in broadcast memory; `None` if nothing
    /// uses it.
    pub(crate) j: Vec<Option<Place>>,
    /// Address, within the words of a j, of the word that holds the index of the j.
    pub(crate) index: Option<Place>,
    /// Address in local memory of each constant.
    pub(crate) constants: Vec<Option<Place>>,
    /// Address in local memory of each value that is computed once, before the loop, and used
    /// later.
    pub(crate) precomputed: Vec<Option<Place>>,
    /// Address in local memory of each result; for `argmin` and `argmax`, also that of the index of
    /// its j.
    pub(crate) results: Vec<(Place, Option<Place>)>,
}

/// Returns whether the machine must compute a value, because it is neither an input nor a number.
pub(crate) fn computed(node: Node) -> bool {
    !matches!(node, Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_))
}

/// Lowers one part of a program.
pub(crate) struct Lowering<'a> {
    program: &'a Program,
    places: &'a Places,
    uses: Vec<usize>,
    operands: Vec<Option<Operand>>,
    micros: MicroProgram,
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
        Self { program, places, uses, operands: vec![None; count], micros: MicroProgram::default() }
    }

    /// Lowers what runs once: the initialization of results, and the values that do not depend on
    /// j.
    pub(crate) fn init(mut self) -> MicroProgram {
        for (result, &(place, index)) in self.program.results().iter().zip(&self.places.results) {
            self.micros.store(place, Operand::Immediate(identity(result.reduction)));
            index.into_iter().for_each(|index| self.micros.store(index, number(-1.0)));
        }
        let (program, places) = (self.program, self.places);
        for (value, ..) in program.values() {
            if let Some(place) = places.precomputed[value.index()] {
                let operand = self.operand(value);
                self.micros.store(place, operand);
            }
        }
        self.micros
    }

    /// Lowers what runs for each j.
    pub(crate) fn body(mut self) -> MicroProgram {
        for (value, ..) in self.program.values() {
            self.operands[value.index()] =
                self.places.precomputed[value.index()].map(Operand::Local);
        }
        for at in 0..self.program.results().len() {
            self.accumulate(at);
        }
        self.micros
    }

    fn accumulate(&mut self, at: usize) {
        let result = &self.program.results()[at];
        let (place, index) = self.places.results[at];
        let so_far = Operand::Local(place);
        let contribution = self.operand(result.contribution);
        let code = match result.reduction {
            Reduction::Sum => Code::Add(Width::Long),
            Reduction::And => Code::And,
            Reduction::Or => Code::Or,
            Reduction::Min | Reduction::ArgMin => {
                return self.update_extreme(contribution, so_far, contribution, place, index);
            }
            Reduction::Max | Reduction::ArgMax => {
                return self.update_extreme(so_far, contribution, contribution, place, index);
            }
        };
        let next = self.micros.compute(code, contribution, so_far);
        self.micros.store(place, next);
    }

    /// Stores a contribution to a minimum or maximum if `less` is less than `more`.
    fn update_extreme(
        &mut self,
        less: Operand,
        more: Operand,
        taken: Operand,
        place: Place,
        index: Option<Place>,
    ) {
        // Local memory has only one port, so the contribution is first copied to a value.
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
        self.micros.replace(mask, Destination::Local(place), taken);
        if let (Some(index), Some(number)) = (index, self.places.index) {
            self.micros.replace(mask, Destination::Local(index), Operand::Broadcast(number));
        }
    }

    /// Returns the operand of a value. If the value was not computed yet, computes it and
    /// everything that it needs.
    fn operand(&mut self, value: Value) -> Operand {
        // An explicit stack replaces recursion, because programs may be deep.
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

    /// Returns the values that must be computed before a node. If the node is fused with an
    /// operand, the values include the operands of that operand instead of the operand itself.
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

    /// Returns whether a node is computed together with its operand, which nothing else may use.
    /// This holds for a conversion that rounds an f64 sum or difference to f32. It also holds for a
    /// selection whose condition is a comparison, which then sets the mask directly, unless the
    /// selection gives zero otherwise.
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
                let Node::Binary(op, a, b) = self.program.node(a) else {
                    unreachable!("a sum or difference")
                };
                let code = if op == Binary::Add { Code::Add(width) } else { Code::Sub(width) };
                self.micros.compute(code, self.get(a), self.get(b))
            }
            Node::Unary(op, a) => self.unary(op, width, self.get(a)),
            Node::Binary(op, a, b) => self.binary(op, width, self.get(a), self.get(b)),
            Node::Compare(op, a, b) => {
                self.micros.compute(comparison(op), self.get(a), self.get(b))
            }
            Node::Select(condition, a, b) => self.select(node, condition, a, b),
            Node::Fma { negated, a, b, c } => {
                let product = self.micros.mul(width, self.get(a), self.get(b));
                let code = if negated { Code::Sub(width) } else { Code::Add(width) };
                self.micros.compute(code, self.get(c), product)
            }
        }
    }

    fn unary(&mut self, op: Unary, width: Width, a: Operand) -> Operand {
        let sign = 1 << (crate::word::LONG_BITS - 1);
        let word = |bits| Operand::Immediate(Word::from_bits(bits));
        match op {
            Unary::Neg => self.micros.compute(Code::Xor, a, word(sign)),
            Unary::Abs => self.micros.compute(Code::And, a, word(sign - 1)),
            Unary::Not => self.micros.compute(Code::Xor, a, Operand::Immediate(Word::ONES)),
            Unary::Sqrt => self.micros.sqrt(width, a),
            Unary::Rsqrt { bits } => self.micros.rsqrt(width, a, bits),
            Unary::Exp => self.micros.exp(width, a),
            // A short word is also a valid long word. Adding minus zero changes only the width;
            // even the sign of a zero stays.
            Unary::Convert if width == Width::Long => a,
            Unary::Convert => self.micros.add(width, a, number(-0.0)),
        }
    }

    fn binary(&mut self, op: Binary, width: Width, a: Operand, b: Operand) -> Operand {
        match op {
            Binary::Add => self.micros.add(width, a, b),
            Binary::Sub => self.micros.sub(width, a, b),
            Binary::Mul => self.micros.mul(width, a, b),
            Binary::Div => self.micros.div(width, a, b),
            Binary::And => self.micros.compute(Code::And, a, b),
            Binary::Or => self.micros.compute(Code::Or, a, b),
            Binary::Min => self.choose(Code::Less, a, b, a, b),
            Binary::Max => self.choose(Code::Less, b, a, a, b),
        }
    }

    fn select(&mut self, node: Node, condition: Value, a: Value, b: Value) -> Operand {
        let (yes, no) = (self.get(a), self.get(b));
        if self.fused(node) {
            let Node::Compare(op, left, right) = self.program.node(condition) else {
                unreachable!("a comparison")
            };
            return self.choose(comparison(op), self.get(left), self.get(right), yes, no);
        }
        let condition = self.get(condition);
        if self.is_zero(b) {
            return self.micros.compute(Code::And, yes, condition);
        }
        self.choose(Code::Pass, condition, condition, yes, no)
    }

    /// Selects `yes` if the result of an operation on two operands has any bit set, otherwise `no`.
    fn choose(&mut self, code: Code, a: Operand, b: Operand, yes: Operand, no: Operand) -> Operand {
        let value = self.micros.copy(no);
        let mask = self.micros.mask(code, a, b);
        self.micros.replace(mask, Destination::Value(value), yes);
        Operand::Value(value)
    }

    /// Returns for each value whether it is computed before the loop: it does not depend on j, and
    /// the loop or a result needs it.
    pub(crate) fn to_precompute(program: &Program) -> Vec<bool> {
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

fn comparison(op: Compare) -> Code {
    match op {
        Compare::Lt => Code::Less,
        Compare::Le => Code::LessEqual,
        Compare::Eq => Code::Equal,
        Compare::Ne => Code::NotEqual,
    }
}

/// Returns the word with which a result starts.
fn identity(reduction: Reduction) -> Word {
    match reduction {
        Reduction::Sum | Reduction::Or => Word::ZERO,
        Reduction::And => Word::ONES,
        Reduction::Min | Reduction::ArgMin => Word::INFINITY,
        Reduction::Max | Reduction::ArgMax => Word::INFINITY.negated(),
    }
}
