//! Allocates registers while instructions are encoded. Values without a register are kept in
//! memory. When a register is needed and none is free, the value whose next use is furthest away is
//! spilled.

use super::assembler::{Assembler, Operand, POOL, ROWS, SPILLS, SUMS, TILE};
use crate::ir::{Body, Home, Inst, Kind, Op, SPILL, Var};
use crate::target::Target;
use iced_x86::IcedError;

/// The number of mask registers that can be used. The first of the eight means "no mask" where an
/// instruction takes a mask.
const MASKS: usize = 7;

/// Code, and figures about it.
#[derive(Debug)]
pub(crate) struct Emitted {
    pub(crate) code: Vec<u8>,
    /// Number of vector registers that the code uses.
    pub(crate) registers: usize,
    /// Number of spill slots, of [`SPILL`] bytes each, that the code needs.
    pub(crate) spills: usize,
    /// Number of instructions of one loop iteration.
    pub(crate) instructions: usize,
}

/// Returns the bytes that a constant of the loop takes in memory: those of a number if instructions
/// can broadcast it, otherwise those of a vector.
pub(crate) fn pool_bytes(target: Target) -> usize {
    if target == Target::Avx2 { 32 } else { 8 }
}

/// Encodes the loop with this body, over rows of `row` bytes.
pub(crate) fn emit(
    body: &Body,
    target: Target,
    wide: bool,
    row: usize,
) -> Result<Emitted, IcedError> {
    let mut emitter = Emitter::new(body, target, wide);
    emitter.pin(target);
    emitter.begin();
    emitter.asm.align();
    let (start, before) = (emitter.asm.len, emitter.asm.instructions);
    for (at, inst) in body.insts.iter().enumerate() {
        emitter.step(at, inst);
    }
    emitter.asm.next(row, start);
    let instructions = emitter.asm.instructions - before;
    emitter.end();
    let registers = emitter.vectors.used;
    Ok(Emitted { code: emitter.asm.finish()?, registers, spills: emitter.spills, instructions })
}

/// Returns whether all values that live through the loop have registers, in addition to the
/// registers that the body needs.
pub(crate) fn fits(body: &Body, target: Target) -> bool {
    let emitter = Emitter::new(body, target, false);
    let lasting = emitter.loop_values();
    lasting.len() + emitter.pressure() <= target.registers()
}

/// The registers of one class.
#[derive(Debug)]
struct RegisterClass {
    owners: Vec<Option<Var>>,
    used: usize,
}

struct Emitter<'b> {
    body: &'b Body,
    target: Target,
    asm: Assembler,
    /// For each value, the instructions that still use it, the latest first.
    uses: Vec<Vec<u32>>,
    held: Vec<Option<u8>>,
    /// For each value, whether it keeps its register through the loop.
    pinned: Vec<bool>,
    /// For each value, its spill slot; `None` if it was never spilled.
    slots: Vec<Option<usize>>,
    spills: usize,
    vectors: RegisterClass,
    masks: RegisterClass,
}

impl<'b> Emitter<'b> {
    fn new(body: &'b Body, target: Target, wide: bool) -> Self {
        let count = body.vars.len();
        let mut uses: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (at, inst) in (0..).zip(&body.insts) {
            for (k, var) in inst.operands().iter().enumerate() {
                if !inst.operands()[..k].contains(var) {
                    uses[var.index()].push(at);
                }
            }
        }
        uses.iter_mut().for_each(|uses| uses.reverse());
        let class = |registers| RegisterClass { owners: vec![None; registers], used: 0 };
        Self {
            body,
            target,
            asm: Assembler::new(target, wide),
            uses,
            held: vec![None; count],
            pinned: vec![false; count],
            slots: vec![None; count],
            spills: 0,
            vectors: class(target.registers()),
            masks: class(MASKS),
        }
    }

    /// Returns the values that live through the loop. The values that gain most from a register are
    /// first.
    fn loop_values(&self) -> Vec<Var> {
        let mut all: Vec<(usize, Var)> = Vec::new();
        for (index, (&(_, home), uses)) in (0..).zip(self.body.vars.iter().zip(&self.uses)) {
            match home {
                Home::Sum(_) => all.push((usize::MAX, Var(index))),
                Home::Tile(_) | Home::Pool(_) if !uses.is_empty() => {
                    all.push((uses.len(), Var(index)))
                }
                _ => {}
            }
        }
        all.sort_by_key(|&(worth, var)| (std::cmp::Reverse(worth), var.index()));
        all.into_iter().map(|(_, var)| var).collect()
    }

    /// Returns how many vector registers the body needs at the same time, without those of values
    /// that live through the loop.
    fn pressure(&self) -> usize {
        let (mut live, mut most) = (0usize, 0);
        let mut counted = vec![false; self.body.vars.len()];
        for (at, inst) in (0u32..).zip(&self.body.insts) {
            let is_temporary = |var: Var| match self.body.vars[var.index()] {
                (Kind::Mask, _) => false,
                (_, Home::None) => true,
                (_, Home::Row(_)) => {
                    self.target != Target::Avx512 || self.uses[var.index()].len() > 1
                }
                _ => false,
            };
            for &var in inst.operands().iter().chain([&inst.to]).filter(|&&var| is_temporary(var)) {
                if !std::mem::replace(&mut counted[var.index()], true) {
                    live += 1;
                }
            }
            most = most.max(live);
            for &var in inst.operands().iter().chain([&inst.to]).filter(|&&var| is_temporary(var)) {
                let last = self.uses[var.index()].first().is_none_or(|&last| last <= at);
                if last && std::mem::replace(&mut counted[var.index()], false) {
                    live -= 1;
                }
            }
        }
        most
    }

    /// Assigns registers to values that then keep them through the loop.
    fn pin(&mut self, target: Target) {
        let all = target.registers();
        let budget = all.saturating_sub(self.pressure() + 1).max(all / 4);
        for var in self.loop_values().into_iter().take(budget) {
            let register = self.vectors.free().expect("fewer than there are");
            self.vectors.take(register, var);
            self.held[var.index()] = Some(register);
            self.pinned[var.index()] = true;
        }
    }

    /// Encodes the code before the loop.
    fn begin(&mut self) {
        for (index, &(kind, home)) in (0..).zip(&self.body.vars) {
            let var = Var(index);
            match (home, self.held[var.index()]) {
                (Home::Sum(at), held) => {
                    let start = self.home(self.body.sums[at].start).expect("a constant");
                    // If the accumulator has no register of its own, it is in memory. A register
                    // that is still free carries its start value there.
                    let register =
                        held.or_else(|| self.vectors.free()).expect("more than are pinned");
                    self.vectors.used = self.vectors.used.max(usize::from(register) + 1);
                    self.asm.load(kind, register, start);
                    if held.is_none() {
                        self.asm.store(kind, self.home(var).expect("an accumulator"), register);
                    }
                }
                (_, Some(register)) => {
                    self.asm.load(kind, register, self.home(var).expect("it has a home"))
                }
                _ => {}
            }
        }
    }

    /// Encodes the code after the loop.
    fn end(&mut self) {
        for sum in &self.body.sums {
            let (kind, _) = self.body.vars[sum.var.index()];
            let place = self.home(sum.var).expect("an accumulator");
            let register = match self.pinned_register(sum.var) {
                Some(register) => register,
                None if sum.scale.is_none() => continue,
                // The accumulator is in memory. It is loaded into a register that is no longer
                // needed.
                None => {
                    let spare = self.spare_register();
                    self.asm.load(kind, spare, place);
                    spare
                }
            };
            if let Some((_, scale)) = sum.scale {
                let constant = || self.home(scale).expect("a constant");
                let scale = self.pinned_register(scale).map_or_else(constant, Operand::Register);
                self.asm.two(Op::Mul, kind, register, register, scale);
            }
            self.asm.store(kind, place, register);
        }
        self.asm.leave();
    }

    /// Returns the register that a value keeps through the loop.
    fn pinned_register(&self, var: Var) -> Option<u8> {
        self.held[var.index()].filter(|_| self.pinned[var.index()])
    }

    /// Returns a register that no value keeps through the loop.
    fn spare_register(&self) -> u8 {
        let pinned = |owner: &Option<Var>| owner.is_some_and(|var| self.pinned[var.index()]);
        let spare = self
            .vectors
            .owners
            .iter()
            .position(|owner| !pinned(owner))
            .expect("more than are pinned");
        u8::try_from(spare).expect("few registers")
    }

    fn step(&mut self, at: usize, inst: &Inst) {
        let operands = inst.operands();
        for var in operands {
            let uses = &mut self.uses[var.index()];
            uses.pop_if(|use_| *use_ as usize <= at);
        }
        let folded = self.fold(inst);
        for (k, &var) in operands.iter().enumerate() {
            if folded != Some(k) && self.held[var.index()].is_none() {
                self.load(var, operands);
            }
        }
        let sources: Vec<Operand> = operands
            .iter()
            .enumerate()
            .map(|(k, &var)| match self.held[var.index()] {
                Some(register) if folded != Some(k) => Operand::Register(register),
                _ => self.memory(var).expect("folded from memory"),
            })
            .collect();
        let accumulates = matches!(self.body.vars[inst.to.index()].1, Home::Sum(_));
        let dying: Vec<Var> = operands.iter().copied().filter(|&var| self.is_dead(var)).collect();
        if matches!(inst.op, Op::Fma | Op::Fnma) {
            self.fused(inst, &sources, &dying);
        } else {
            // An operand that is used for the last time frees its register for the result.
            dying.iter().filter(|&&var| var != inst.to).for_each(|&var| self.release(var));
            let to = self.held[inst.to.index()].unwrap_or_else(|| self.allocate(inst.to, operands));
            self.encode(inst, to, &sources);
        }
        if accumulates && !self.pinned[inst.to.index()] {
            let register = self.held[inst.to.index()].expect("just made");
            self.asm.store(inst.kind, self.home(inst.to).expect("an accumulator"), register);
        }
        // The value is an accumulator in memory, or nothing uses it.
        if self.is_dead(inst.to) {
            self.release(inst.to);
        }
    }

    /// Returns which operand the instruction reads directly from memory; `None` if it reads none.
    fn fold(&self, inst: &Inst) -> Option<usize> {
        let may: &[usize] = match inst.op {
            Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor | Op::Compare(_) => &[1, 0],
            Op::Sub | Op::Div | Op::Min | Op::Max | Op::Scale | Op::Blend => &[1],
            Op::Fma | Op::Fnma => &[0, 1, 2],
            Op::Sqrt | Op::Estimate | Op::Round | Op::Convert => &[0],
            Op::Shift(_) | Op::MaskAnd | Op::MaskOr | Op::MaskNot => &[],
        };
        let operands = inst.operands();
        let free = self.vectors.free().is_some();
        may.iter().copied().find(|&k| {
            let var = operands[k];
            let once = operands.iter().filter(|&&other| other == var).count() == 1;
            let memory = self.memory(var);
            let spread = matches!(memory, Some(Operand::Memory { spread: true, .. }));
            let worth = matches!(self.home(var), Some(Operand::Memory { base: ROWS, .. }))
                && !self.uses[var.index()].is_empty()
                && free;
            once && memory.is_some()
                && var != inst.to
                && self.held[var.index()].is_none()
                && !(spread && self.target != Target::Avx512)
                && !worth
        })
    }

    /// Encodes an instruction. All its operands must be where the instruction can read them.
    fn encode(&mut self, inst: &Inst, to: u8, sources: &[Operand]) {
        let register = |operand: Operand| match operand {
            Operand::Register(register) => register,
            Operand::Memory { .. } => {
                unreachable!("one operand at most is in memory, where it may be")
            }
        };
        let first_in_memory = matches!(sources[0], Operand::Memory { .. });
        match (inst.op, sources) {
            (
                Op::Sqrt | Op::Estimate | Op::Round | Op::Shift(_) | Op::Convert | Op::MaskNot,
                &[a],
            ) => {
                self.asm.one(inst.op, inst.kind, to, a);
            }
            (Op::Compare(predicate), &[a, b]) if first_in_memory => {
                // The operands are exchanged, so "less" becomes "greater".
                let exchanged = match predicate {
                    17 => 30,
                    18 => 29,
                    same => same,
                };
                self.asm.compare(exchanged, inst.kind, to, register(b), a);
            }
            (Op::Compare(predicate), &[a, b]) => {
                self.asm.compare(predicate, inst.kind, to, register(a), b)
            }
            (Op::Blend, &[mask, yes, no]) => {
                self.asm.blend(inst.kind, to, register(mask), yes, register(no))
            }
            (op, &[a, b]) if first_in_memory => self.asm.two(op, inst.kind, to, register(b), a),
            (op, &[a, b]) => self.asm.two(op, inst.kind, to, register(a), b),
            _ => unreachable!("{inst:?}: another number of operands"),
        }
    }

    /// Encodes `c + a * b` in a form that overwrites an operand that is no longer needed.
    fn fused(&mut self, inst: &Inst, sources: &[Operand], dying: &[Var]) {
        let (negated, kind) = (inst.op == Op::Fnma, inst.kind);
        let [a, b, c] = [sources[0], sources[1], sources[2]];
        let operands = inst.operands();
        let may = |k: usize| match sources[k] {
            Operand::Register(register)
                if operands[k] == inst.to || dying.contains(&operands[k]) =>
            {
                Some(register)
            }
            _ => None,
        };
        let in_memory = |operand: Operand| matches!(operand, Operand::Memory { .. });
        let register = |operand: Operand| match operand {
            Operand::Register(register) => register,
            Operand::Memory { .. } => unreachable!("one operand at most is in memory"),
        };
        let order = [(2, may(2)), (0, may(0)), (1, may(1))]
            .into_iter()
            .find(|(_, register)| register.is_some());
        match order {
            Some((2, Some(to))) => {
                let (second, third) = if in_memory(a) { (b, a) } else { (a, b) };
                self.asm.fused(negated, 2, kind, to, register(second), third);
                self.transfer_register(inst.to, operands[2], dying);
            }
            Some((k, Some(to))) => {
                let other = if k == 0 { b } else { a };
                if in_memory(other) {
                    self.asm.fused(negated, 0, kind, to, register(c), other);
                } else {
                    self.asm.fused(negated, 1, kind, to, register(other), c);
                }
                self.transfer_register(inst.to, operands[k], dying);
            }
            _ => {
                let to = self.allocate(inst.to, operands);
                match c {
                    Operand::Register(c) => self.asm.copy(kind, to, c),
                    memory @ Operand::Memory { .. } => self.asm.load(kind, to, memory),
                }
                let (second, third) = if in_memory(a) { (b, a) } else { (a, b) };
                self.asm.fused(negated, 2, kind, to, register(second), third);
                dying.iter().for_each(|&var| self.release(var));
            }
        }
    }

    /// Records that a result took the register of an operand that is used for the last time. Frees
    /// the registers of the other operands that are used for the last time.
    fn transfer_register(&mut self, to: Var, from: Var, dying: &[Var]) {
        if to != from {
            let register = self.held[from.index()].take().expect("it was held");
            self.held[to.index()] = Some(register);
            let class = if self.is_mask(to) { &mut self.masks } else { &mut self.vectors };
            class.take(register, to);
        }
        dying.iter().filter(|&&var| var != from && var != to).for_each(|&var| self.release(var));
    }

    /// Returns whether a value is no longer needed and has a register that it can free.
    fn is_dead(&self, var: Var) -> bool {
        !self.pinned[var.index()]
            && self.held[var.index()].is_some()
            && self.uses[var.index()].is_empty()
    }

    fn release(&mut self, var: Var) {
        if let Some(register) = self.held[var.index()].take() {
            let class = if self.is_mask(var) { &mut self.masks } else { &mut self.vectors };
            class.owners[usize::from(register)] = None;
        }
    }

    /// Loads a value into a register.
    fn load(&mut self, var: Var, needed: &[Var]) {
        let memory = self.memory(var).expect("what is in no register lies in memory");
        let register = self.allocate(var, needed);
        self.asm.load(self.body.vars[var.index()].0, register, memory);
    }

    /// Returns a register for a value: a free one if there is one. Otherwise spills the value whose
    /// next use is furthest away, and returns its register.
    fn allocate(&mut self, var: Var, needed: &[Var]) -> u8 {
        let class = if self.is_mask(var) { &self.masks } else { &self.vectors };
        let register = class.free().unwrap_or_else(|| {
            let may = |owner: Var| !self.pinned[owner.index()] && !needed.contains(&owner);
            let owners = (0u8..)
                .zip(&class.owners)
                .filter_map(|(register, owner)| Some((register, (*owner)?)));
            let latest = owners.filter(|&(_, owner)| may(owner)).max_by_key(|&(_, owner)| {
                self.uses[owner.index()].last().copied().unwrap_or(u32::MAX)
            });
            latest.expect("more registers than an instruction has operands").0
        });
        self.evict(register, self.is_mask(var));
        let class = if self.is_mask(var) { &mut self.masks } else { &mut self.vectors };
        class.take(register, var);
        self.held[var.index()] = Some(register);
        register
    }

    fn evict(&mut self, register: u8, mask: bool) {
        let class = if mask { &self.masks } else { &self.vectors };
        let Some(owner) = class.owners[usize::from(register)] else { return };
        if self.memory(owner).is_none() {
            self.slots[owner.index()] = Some(self.spills);
            self.spills += 1;
            let to = self.memory(owner).expect("just given");
            self.asm.store(self.body.vars[owner.index()].0, to, register);
        }
        self.held[owner.index()] = None;
    }

    fn is_mask(&self, var: Var) -> bool {
        self.body.vars[var.index()].0 == Kind::Mask
    }

    /// Returns where a value is in memory; `None` if it is not in memory.
    fn memory(&self, var: Var) -> Option<Operand> {
        let slot = self.slots[var.index()];
        self.home(var).or_else(|| {
            slot.map(|slot| Operand::Memory { base: SPILLS, at: slot * SPILL, spread: false })
        })
    }

    fn home(&self, var: Var) -> Option<Operand> {
        let avx512 = self.target == Target::Avx512;
        let (base, at, spread) = match self.body.vars[var.index()].1 {
            Home::None => return None,
            Home::Tile(at) => (TILE, at, false),
            Home::Row(at) => (ROWS, at, true),
            // If arithmetic instructions cannot broadcast an operand, constants are stored as
            // vectors.
            Home::Pool(at) => (POOL, at * pool_bytes(self.target), avx512),
            Home::Sum(at) => (SUMS, self.body.sums[at].at, false),
        };
        Some(Operand::Memory { base, at, spread })
    }
}

impl RegisterClass {
    fn free(&self) -> Option<u8> {
        self.owners
            .iter()
            .position(Option::is_none)
            .map(|at| u8::try_from(at).expect("few registers"))
    }

    fn take(&mut self, register: u8, var: Var) {
        self.owners[usize::from(register)] = Some(var);
        self.used = self.used.max(usize::from(register) + 1);
    }
}
