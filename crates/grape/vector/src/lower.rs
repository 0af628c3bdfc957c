//! Lowers a kernel's values to the body of its loop over j. The body works on several vectors of i
//! in parallel, each with accumulators of its own.

use crate::ir::{Body, Home, Inst, Kind, Op, PoolConstant, Sum, Var};
use crate::shape::{Shape, carrier};
use crate::target::Target;
use sprat_formula::{Binary, Compare, Node, Program, Reduction, Scope, Unary, Value};
use std::collections::HashMap;

/// Builds the body of a loop.
#[derive(Debug)]
pub(crate) struct Lower<'p> {
    program: &'p Program,
    shape: &'p Shape,
    pub(crate) target: Target,
    body: Body,
    lanes: usize,
    unroll: usize,
    pooled: HashMap<PoolConstant, Var>,
    rows: HashMap<(usize, Kind), Var>,
    /// For each value, the variable that holds it in the copy that is being built.
    vars: Vec<Option<Var>>,
    /// For each value, whether it may be wrong by a constant factor ([`crate::bare`]).
    bare: Vec<bool>,
    scales: Vec<f64>,
}

/// Builds the body for `unroll` vectors of i, and interleaves their instructions. `bare` marks the
/// values that need no special cases ([`crate::bare`]).
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
        vars: Vec::new(),
        bare,
        scales: vec![1.0; program.nodes().len()],
    };
    let uses = uses(program);
    for copy in 0..unroll {
        lower.copy(copy, &uses);
    }
    lower.body.insts = interleave(&lower.body.insts, unroll);
    lower.body
}

/// Interleaves the instructions of the copies, which differ only in their variables. While one
/// chain of dependent operations waits, the other chains proceed.
fn interleave(insts: &[Inst], copies: usize) -> Vec<Inst> {
    let each = insts.len() / copies;
    (0..insts.len()).map(|at| insts[at % copies * each + at / copies]).collect()
}

/// Counts, for each value, how often other values and results use it.
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
        self.vars = vec![None; self.program.nodes().len()];
        let fused: Vec<bool> =
            self.program.values().map(|(value, ..)| self.is_fused(value, uses)).collect();
        for (value, node, _) in self.program.values() {
            if self.shape.scopes[value.index()] == Scope::Pair && !fused[value.index()] {
                let var = self.node(value, node, copy);
                self.vars[value.index()] = Some(var);
            }
        }
        for at in 0..self.program.results().len() {
            self.result(at, copy, &fused);
        }
    }

    /// Returns whether a value is fused with the addition to its accumulator. This holds for a
    /// product or a negation that nothing else uses.
    fn is_fused(&self, value: Value, uses: &[u32]) -> bool {
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
        self.scales[value.index()] = self.correction(node);
        match node {
            Node::I(_) | Node::J(_) | Node::Constant(_) | Node::Number(_) => {
                unreachable!("not of a pair")
            }
            Node::Unary(op, _) => {
                let a = operands[0];
                match op {
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
            Node::Binary(op, ..) => {
                let mask = kind == Kind::Mask;
                let op = match op {
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
            Node::Compare(op, ..) => {
                self.compare(op, carrier(self.program.type_of(first), self.shape.wide), &operands)
            }
            Node::Select(..) if of == sprat_formula::Type::Bool => {
                self.select_mask(kind, &operands)
            }
            Node::Select(..) => self.blend(kind, operands[0], operands[1], operands[2]),
            Node::Fma { negated, .. } => {
                self.inst(if negated { Op::Fnma } else { Op::Fma }, kind, &operands)
            }
        }
    }

    /// Returns the factor by which a product or a negation must be multiplied to be right.
    fn correction(&self, node: Node) -> f64 {
        match node {
            Node::Unary(Unary::Neg, _) | Node::Binary(Binary::Mul, ..) => {
                node.operands().map(|operand| self.scales[operand.index()]).product()
            }
            _ => 1.0,
        }
    }

    fn result(&mut self, at: usize, copy: usize, fused: &[bool]) {
        let (result, accumulator) = (&self.program.results()[at], self.shape.accumulators[at]);
        let (contribution, reduction) = (result.contribution, result.reduction);
        let kind = accumulator.kind;
        let start = crate::totals::identity(reduction);
        let is_fused = fused[contribution.index()];
        let scale = if is_fused {
            self.correction(self.program.node(contribution))
        } else {
            self.scales[contribution.index()]
        };
        let sum = self.sum(kind, accumulator.at, start, scale, copy);
        if is_fused {
            let node = self.program.node(contribution);
            let operands: Vec<Var> =
                node.operands().map(|operand| self.operand(operand, copy)).collect();
            return match operands[..] {
                [a, b] => self.accumulate(sum, Op::Fma, kind, &[a, b, sum]),
                _ => self.accumulate(sum, Op::Sub, kind, &[sum, operands[0]]),
            };
        }
        let a = self.operand(contribution, copy);
        match reduction {
            Reduction::Sum => self.accumulate(sum, Op::Add, kind, &[sum, a]),
            Reduction::Min => self.accumulate(sum, Op::Min, kind, &[a, sum]),
            Reduction::Max => self.accumulate(sum, Op::Max, kind, &[a, sum]),
            Reduction::Or => {
                let one = self.number(kind, 1.0);
                self.accumulate(sum, Op::Blend, kind, &[a, one, sum]);
            }
            Reduction::And => {
                let zero = self.number(kind, 0.0);
                self.accumulate(sum, Op::Blend, kind, &[a, sum, zero]);
            }
            Reduction::ArgMin | Reduction::ArgMax => {
                let index =
                    self.sum(kind, accumulator.index.expect("laid for it"), -1.0, 1.0, copy);
                let row = self.shape.row_index(kind).expect("laid for it");
                let row_index = self.row(row, kind);
                let (less, op) = if reduction == Reduction::ArgMin {
                    ([a, sum], Op::Min)
                } else {
                    ([sum, a], Op::Max)
                };
                let mask = self.compare(Compare::Lt, kind, &less);
                self.accumulate(sum, op, kind, &[a, sum]);
                self.accumulate(index, Op::Blend, kind, &[mask, row_index, index]);
            }
        }
    }

    /// Returns an operand of a pair's value or of a result, wherever the operand was computed. A
    /// bool is returned as a mask.
    fn operand(&mut self, value: Value, copy: usize) -> Var {
        if let Some(var) = self.vars[value.index()] {
            return var;
        }
        let find = |all: &[crate::shape::PairInput]| {
            all.iter().find(|input| input.value == value).copied()
        };
        let var = match self.shape.scopes[value.index()] {
            Scope::Pair => unreachable!("operands come first"),
            Scope::I => {
                let input = find(&self.shape.i).expect("needed by a pair");
                let at = self.vector(input.at, input.kind, copy);
                self.var(input.kind, Home::Tile(at))
            }
            Scope::J => {
                let input = find(&self.shape.j).expect("needed by a pair");
                self.row(input.at, input.kind)
            }
            Scope::Run => match self.program.node(value) {
                Node::Number(bits) => self.number(self.kind(value), f64::from_bits(bits)),
                _ => {
                    let kind = carrier(self.program.type_of(value), self.shape.wide);
                    self.pool(PoolConstant::Run(kind, value))
                }
            },
        };
        let var = if self.program.type_of(value) == sprat_formula::Type::Bool {
            self.mask_of(var)
        } else {
            var
        };
        self.vars[value.index()] = Some(var);
        var
    }

    /// Turns numbers that are 1 or 0 into a mask.
    fn mask_of(&mut self, var: Var) -> Var {
        let kind = self.body.vars[var.index()].0;
        let zero = self.number(kind, 0.0);
        self.compare(Compare::Ne, kind, &[var, zero])
    }

    /// Returns the type of the vectors that hold a value.
    fn kind(&self, value: Value) -> Kind {
        let of = self.program.type_of(value);
        if of == sprat_formula::Type::Bool {
            self.mask_kind()
        } else {
            carrier(of, self.shape.wide)
        }
    }

    /// Returns the type of masks on this target.
    fn mask_kind(&self) -> Kind {
        match self.target {
            Target::Avx512 => Kind::Mask,
            _ if self.shape.wide => Kind::F64,
            _ => Kind::F32,
        }
    }

    pub(crate) fn compare(&mut self, op: Compare, kind: Kind, operands: &[Var]) -> Var {
        // The predicates are ordered and quiet. The last one is unordered: it also holds if an
        // operand is not a number.
        let predicate = match op {
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
        // All bits of a mask are equal. If a mask is read as a number, only the sign matters, and
        // conversion preserves the sign.
        if mask == kind { narrow } else { self.inst(Op::Convert, mask, &[narrow]) }
    }

    fn not(&mut self, kind: Kind, a: Var) -> Var {
        if kind == Kind::Mask {
            return self.inst(Op::MaskNot, kind, &[a]);
        }
        let sign = self.sign(kind);
        self.inst(Op::Xor, kind, &[a, sign])
    }

    /// Selects between two bools.
    fn select_mask(&mut self, kind: Kind, operands: &[Var]) -> Var {
        if kind != Kind::Mask {
            return self.inst(Op::Blend, kind, operands);
        }
        let &[condition, yes, no] = operands else { unreachable!("three operands") };
        let yes = self.inst(Op::MaskAnd, kind, &[condition, yes]);
        let not = self.inst(Op::MaskNot, kind, &[condition]);
        let no = self.inst(Op::MaskAnd, kind, &[not, no]);
        self.inst(Op::MaskOr, kind, &[yes, no])
    }

    /// Selects between numbers. Converts the mask to the numbers' type first.
    pub(crate) fn blend(&mut self, kind: Kind, mask: Var, yes: Var, no: Var) -> Var {
        let mask = self.mask_for(kind, mask);
        self.inst(Op::Blend, kind, &[mask, yes, no])
    }

    fn mask_for(&mut self, kind: Kind, mask: Var) -> Var {
        let of = self.body.vars[mask.index()].0;
        if of == Kind::Mask || of == kind { mask } else { self.inst(Op::Convert, kind, &[mask]) }
    }

    /// Adds an accumulator, whose sum must be multiplied by `scale` to be right.
    fn sum(&mut self, kind: Kind, at: usize, start: f64, scale: f64, copy: usize) -> Var {
        let start = self.number(kind, start);
        let at = self.vector(at, kind, copy);
        let var = self.var(kind, Home::Sum(self.body.sums.len()));
        let scale = (scale != 1.0).then(|| (scale, self.number(kind, scale)));
        self.body.sums.push(Sum { var, at, start, scale });
        var
    }

    fn accumulate(&mut self, sum: Var, op: Op, kind: Kind, operands: &[Var]) {
        let mut operands = operands.to_vec();
        if op == Op::Blend {
            operands[0] = self.mask_for(kind, operands[0]);
        }
        self.push(op, kind, sum, &operands);
    }

    /// Returns the byte offset of one copy's vector. The vectors of one field are adjacent for all
    /// copies.
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

    /// Returns the constant `number`, rounded to its type.
    pub(crate) fn number(&mut self, kind: Kind, number: f64) -> Var {
        #[expect(clippy::cast_possible_truncation, reason = "rounded to its kind")]
        let bits =
            if kind == Kind::F32 { u64::from((number as f32).to_bits()) } else { number.to_bits() };
        self.bits(kind, bits)
    }

    fn bits(&mut self, kind: Kind, bits: u64) -> Var {
        let bits = if kind == Kind::F32 { bits & u64::from(u32::MAX) } else { bits };
        self.pool(PoolConstant::Bits(kind, bits))
    }

    fn pool(&mut self, pooled: PoolConstant) -> Var {
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

    /// Adds an instruction that computes a new value.
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
