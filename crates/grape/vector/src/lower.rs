//! From a kernel's values to the body of its loop over j: several vectors of i side by side, each
//! with accumulators of its own.

use crate::ir::{Body, Home, Inst, Kind, Op, Pooled, Sum, Var};
use crate::shape::{Shape, carrier};
use crate::target::Target;
use sprat_formula::{Binary, Compare, Node, Program, Reduction, Scope, Unary, Value};
use std::collections::HashMap;

/// Makes bodies.
#[derive(Debug)]
pub(crate) struct Lower<'p> {
    program: &'p Program,
    shape: &'p Shape,
    pub(crate) target: Target,
    body: Body,
    lanes: usize,
    unroll: usize,
    pooled: HashMap<Pooled, Var>,
    rows: HashMap<(usize, Kind), Var>,
    /// The values of the copy that is being made.
    made: Vec<Option<Var>>,
    /// Which values may be several times what they are, and how many times less each then stands
    /// for.
    bare: Vec<bool>,
    scales: Vec<f64>,
}

/// The body for so many vectors of i, whose instructions take turns. `bare` are values that need no
/// care ([`crate::bare`]).
pub(crate) fn lower(
    program: &Program,
    shape: &Shape,
    target: Target,
    unroll: usize,
    bare: Vec<bool>,
) -> Body {
    let mut lower = Lower {
        program,
        shape,
        target,
        body: Body::default(),
        lanes: target.lanes(shape.wide),
        unroll,
        pooled: HashMap::new(),
        rows: HashMap::new(),
        made: Vec::new(),
        bare,
        scales: vec![1.0; program.nodes().len()],
    };
    let uses = uses(program);
    for copy in 0..unroll {
        lower.copy(copy, &uses);
    }
    lower.body.insts = in_turns(&lower.body.insts, unroll);
    lower.body
}

/// The instructions of copies, which are the same but for their values, one of each in turn: a
/// chain of operations that wait for each other goes on while another waits.
fn in_turns(insts: &[Inst], copies: usize) -> Vec<Inst> {
    let each = insts.len() / copies;
    (0..insts.len()).map(|at| insts[at % copies * each + at / copies]).collect()
}

/// By how many pairs' values and results each value is used.
fn uses(program: &Program) -> Vec<u32> {
    let mut uses = vec![0; program.nodes().len()];
    for (node, _) in program.nodes() {
        node.operands().for_each(|operand| uses[operand.index()] += 1);
    }
    program.results().iter().for_each(|result| uses[result.contribution.index()] += 1);
    uses
}

impl Lower<'_> {
    fn copy(&mut self, copy: usize, uses: &[u32]) {
        self.made = vec![None; self.program.nodes().len()];
        let fused: Vec<bool> =
            self.program.values().map(|(value, ..)| self.fuses(value, uses)).collect();
        for (value, node, _) in self.program.values() {
            if self.shape.scopes[value.index()] == Scope::Pair && !fused[value.index()] {
                let var = self.node(value, node, copy);
                self.made[value.index()] = Some(var);
            }
        }
        for at in 0..self.program.results().len() {
            self.result(at, copy, &fused);
        }
    }

    /// Whether a value becomes part of the addition to its accumulator: a product or a sign that
    /// nothing else needs.
    fn fuses(&self, value: Value, uses: &[u32]) -> bool {
        let sum = |result: &sprat_formula::ResultField| {
            result.reduction == Reduction::Sum && result.contribution == value
        };
        let node = self.program.node(value);
        let kind = matches!(node, Node::Binary(Binary::Mul, ..) | Node::Unary(Unary::Neg, _));
        let pair = self.shape.scopes[value.index()] == Scope::Pair;
        kind && pair && uses[value.index()] == 1 && self.program.results().iter().any(sum)
    }

    fn node(&mut self, value: Value, node: Node, copy: usize) -> Var {
        let of = self.program.type_of(value);
        let kind = self.kind(value);
        let operands: Vec<Var> =
            node.operands().map(|operand| self.operand(operand, copy)).collect();
        let first = node.operands().next().expect("a pair's value has operands");
        self.scales[value.index()] = self.stands_for(node);
        match node {
            Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_) => {
                unreachable!("not of a pair")
            }
            Node::Unary(what, _) => {
                let a = operands[0];
                match what {
                    Unary::Neg => {
                        let sign = self.sign(kind);
                        self.inst(Op::Xor, kind, &[a, sign])
                    }
                    Unary::Abs => {
                        let rest = self.bits(kind, !SIGN[usize::from(kind == Kind::F64)]);
                        self.inst(Op::And, kind, &[a, rest])
                    }
                    Unary::Sqrt => self.inst(Op::Sqrt, kind, &[a]),
                    Unary::Rsqrt { bits } if self.bare[value.index()] => {
                        let (var, scale) = self.bare_rsqrt(kind, a, bits);
                        self.scales[value.index()] = scale;
                        var
                    }
                    Unary::Rsqrt { bits } => self.rsqrt(kind, a, bits),
                    Unary::Exp => self.exp(kind, a),
                    Unary::Not => self.not(kind, a),
                    Unary::Convert => self.inst(Op::Convert, kind, &[a]),
                }
            }
            Node::Binary(what, ..) => {
                let mask = kind == Kind::Mask;
                let op = match what {
                    Binary::Add => Op::Add,
                    Binary::Sub => Op::Sub,
                    Binary::Mul => Op::Mul,
                    Binary::Div => Op::Div,
                    Binary::Min => Op::Min,
                    Binary::Max => Op::Max,
                    Binary::And if mask => Op::MaskAnd,
                    Binary::Or if mask => Op::MaskOr,
                    Binary::And => Op::And,
                    Binary::Or => Op::Or,
                };
                self.inst(op, kind, &operands)
            }
            Node::Compare(what, ..) => {
                self.compare(what, carrier(self.program.type_of(first), self.shape.wide), &operands)
            }
            Node::Select(..) if of == sprat_formula::Type::Bool => self.choose(kind, &operands),
            Node::Select(..) => self.blend(kind, operands[0], operands[1], operands[2]),
            Node::Fma { negated, .. } => {
                self.inst(if negated { Op::Fnma } else { Op::Fma }, kind, &operands)
            }
        }
    }

    /// How many times less a product or a sign stands for.
    fn stands_for(&self, node: Node) -> f64 {
        match node {
            Node::Unary(Unary::Neg, _) | Node::Binary(Binary::Mul, ..) => {
                node.operands().map(|operand| self.scales[operand.index()]).product()
            }
            _ => 1.0,
        }
    }

    fn result(&mut self, at: usize, copy: usize, fused: &[bool]) {
        let (result, gathered) = (&self.program.results()[at], self.shape.gathered[at]);
        let (contribution, reduction) = (result.contribution, result.reduction);
        let kind = gathered.kind;
        let start = crate::totals::start(reduction);
        let fuses = fused[contribution.index()];
        let scale = if fuses {
            self.stands_for(self.program.node(contribution))
        } else {
            self.scales[contribution.index()]
        };
        let sum = self.sum(kind, gathered.at, start, scale, copy);
        if fuses {
            let node = self.program.node(contribution);
            let operands: Vec<Var> =
                node.operands().map(|operand| self.operand(operand, copy)).collect();
            return match operands[..] {
                [a, b] => self.gather(sum, Op::Fma, kind, &[a, b, sum]),
                _ => self.gather(sum, Op::Sub, kind, &[sum, operands[0]]),
            };
        }
        let a = self.operand(contribution, copy);
        match reduction {
            Reduction::Sum => self.gather(sum, Op::Add, kind, &[sum, a]),
            Reduction::Min => self.gather(sum, Op::Min, kind, &[a, sum]),
            Reduction::Max => self.gather(sum, Op::Max, kind, &[a, sum]),
            Reduction::Or => {
                let one = self.number(kind, 1.0);
                self.gather(sum, Op::Blend, kind, &[a, one, sum]);
            }
            Reduction::And => {
                let zero = self.number(kind, 0.0);
                self.gather(sum, Op::Blend, kind, &[a, sum, zero]);
            }
            Reduction::ArgMin | Reduction::ArgMax => {
                let places = self.sum(kind, gathered.places.expect("laid for it"), -1.0, 1.0, copy);
                let row = self.shape.place(kind).expect("laid for it");
                let place = self.row(row, kind);
                let (less, op) = if reduction == Reduction::ArgMin {
                    ([a, sum], Op::Min)
                } else {
                    ([sum, a], Op::Max)
                };
                let mask = self.compare(Compare::Lt, kind, &less);
                self.gather(sum, op, kind, &[a, sum]);
                self.gather(places, Op::Blend, kind, &[mask, place, places]);
            }
        }
    }

    /// An operand of a pair's value or of a result, wherever it was computed; bools as masks.
    fn operand(&mut self, value: Value, copy: usize) -> Var {
        if let Some(var) = self.made[value.index()] {
            return var;
        }
        let find =
            |all: &[crate::shape::Given]| all.iter().find(|given| given.value == value).copied();
        let var = match self.shape.scopes[value.index()] {
            Scope::Pair => unreachable!("operands come first"),
            Scope::I => {
                let given = find(&self.shape.i).expect("needed by a pair");
                let at = self.vector(given.at, given.kind, copy);
                self.var(given.kind, Home::Tile(at))
            }
            Scope::J => {
                let given = find(&self.shape.j).expect("needed by a pair");
                self.row(given.at, given.kind)
            }
            Scope::Run => match self.program.node(value) {
                Node::Number(bits) => self.number(self.kind(value), f64::from_bits(bits)),
                _ => {
                    let kind = carrier(self.program.type_of(value), self.shape.wide);
                    self.pool(Pooled::Run(kind, value))
                }
            },
        };
        let var = if self.program.type_of(value) == sprat_formula::Type::Bool {
            self.mask_of(var)
        } else {
            var
        };
        self.made[value.index()] = Some(var);
        var
    }

    /// The mask of a number that is 1 or 0.
    fn mask_of(&mut self, var: Var) -> Var {
        let kind = self.body.vars[var.index()].0;
        let zero = self.number(kind, 0.0);
        self.compare(Compare::Ne, kind, &[var, zero])
    }

    /// Of which kind a value's vectors are.
    fn kind(&self, value: Value) -> Kind {
        let of = self.program.type_of(value);
        if of == sprat_formula::Type::Bool {
            self.mask_kind()
        } else {
            carrier(of, self.shape.wide)
        }
    }

    /// Of which kind masks are.
    fn mask_kind(&self) -> Kind {
        match self.target {
            Target::Avx512 => Kind::Mask,
            _ if self.shape.wide => Kind::F64,
            _ => Kind::F32,
        }
    }

    pub(crate) fn compare(&mut self, what: Compare, kind: Kind, operands: &[Var]) -> Var {
        // Ordered and quiet, but for the last, which holds for what is not a number.
        let predicate = match what {
            Compare::Lt => 17,
            Compare::Le => 18,
            Compare::Eq => 0,
            Compare::Ne => 4,
        };
        let mask = self.mask_kind();
        if mask == Kind::Mask {
            let to = self.var(Kind::Mask, Home::None);
            self.push(Op::Compare(predicate), kind, to, operands);
            return to;
        }
        let narrow = self.inst(Op::Compare(predicate), kind, operands);
        // A mask is all ones or none, and by its sign one among numbers, which conversion keeps.
        if mask == kind { narrow } else { self.inst(Op::Convert, mask, &[narrow]) }
    }

    fn not(&mut self, kind: Kind, a: Var) -> Var {
        if kind == Kind::Mask {
            return self.inst(Op::MaskNot, kind, &[a]);
        }
        let sign = self.sign(kind);
        self.inst(Op::Xor, kind, &[a, sign])
    }

    /// A bool by a bool.
    fn choose(&mut self, kind: Kind, operands: &[Var]) -> Var {
        if kind != Kind::Mask {
            return self.inst(Op::Blend, kind, operands);
        }
        let &[condition, yes, no] = operands else { unreachable!("three operands") };
        let yes = self.inst(Op::MaskAnd, kind, &[condition, yes]);
        let not = self.inst(Op::MaskNot, kind, &[condition]);
        let no = self.inst(Op::MaskAnd, kind, &[not, no]);
        self.inst(Op::MaskOr, kind, &[yes, no])
    }

    /// By a mask, which is brought to the kind of the numbers first.
    pub(crate) fn blend(&mut self, kind: Kind, mask: Var, yes: Var, no: Var) -> Var {
        let mask = self.mask_for(kind, mask);
        self.inst(Op::Blend, kind, &[mask, yes, no])
    }

    fn mask_for(&mut self, kind: Kind, mask: Var) -> Var {
        let of = self.body.vars[mask.index()].0;
        if of == Kind::Mask || of == kind { mask } else { self.inst(Op::Convert, kind, &[mask]) }
    }

    /// An accumulator of what stands for `scale` times itself.
    fn sum(&mut self, kind: Kind, at: usize, start: f64, scale: f64, copy: usize) -> Var {
        let start = self.number(kind, start);
        let at = self.vector(at, kind, copy);
        let var = self.var(kind, Home::Sum(self.body.sums.len()));
        let scale = (scale != 1.0).then(|| (scale, self.number(kind, scale)));
        self.body.sums.push(Sum { var, at, start, scale });
        var
    }

    fn gather(&mut self, sum: Var, op: Op, kind: Kind, operands: &[Var]) {
        let mut operands = operands.to_vec();
        if op == Op::Blend {
            operands[0] = self.mask_for(kind, operands[0]);
        }
        self.push(op, kind, sum, &operands);
    }

    /// Where a copy's vector lies: vectors of all copies of one field lie side by side.
    fn vector(&self, at: usize, kind: Kind, copy: usize) -> usize {
        (at * self.unroll + kind.bytes() * copy) * self.lanes
    }

    fn row(&mut self, at: usize, kind: Kind) -> Var {
        if let Some(&var) = self.rows.get(&(at, kind)) {
            return var;
        }
        let var = self.var(kind, Home::Row(at));
        self.rows.insert((at, kind), var);
        var
    }

    fn sign(&mut self, kind: Kind) -> Var {
        self.bits(kind, SIGN[usize::from(kind == Kind::F64)])
    }

    /// A number, rounded to its kind.
    pub(crate) fn number(&mut self, kind: Kind, number: f64) -> Var {
        #[expect(clippy::cast_possible_truncation, reason = "rounded to its kind")]
        let bits =
            if kind == Kind::F32 { u64::from((number as f32).to_bits()) } else { number.to_bits() };
        self.bits(kind, bits)
    }

    fn bits(&mut self, kind: Kind, bits: u64) -> Var {
        let bits = if kind == Kind::F32 { bits & u64::from(u32::MAX) } else { bits };
        self.pool(Pooled::Bits(kind, bits))
    }

    fn pool(&mut self, pooled: Pooled) -> Var {
        if let Some(&var) = self.pooled.get(&pooled) {
            return var;
        }
        let var = self.var(pooled.kind(), Home::Pool(self.body.pool.len()));
        self.body.pool.push(pooled);
        self.pooled.insert(pooled, var);
        var
    }

    fn var(&mut self, kind: Kind, home: Home) -> Var {
        let var =
            Var(u32::try_from(self.body.vars.len()).expect("bounded by the length of a program"));
        self.body.vars.push((kind, home));
        var
    }

    /// An instruction that makes a value.
    pub(crate) fn inst(&mut self, op: Op, kind: Kind, operands: &[Var]) -> Var {
        let to = self.var(kind, Home::None);
        self.push(op, kind, to, operands);
        to
    }

    fn push(&mut self, op: Op, kind: Kind, to: Var, operands: &[Var]) {
        let mut all = [operands[0]; 3];
        all[..operands.len()].copy_from_slice(operands);
        let count = u8::try_from(operands.len()).expect("three at most");
        self.body.insts.push(Inst { op, kind, to, operands: all, count });
    }
}

const SIGN: [u64; 2] = [1 << 31, 1 << 63];
