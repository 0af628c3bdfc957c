//! Encodes instructions one after the other.

use super::codes;
use crate::ir::{Kind, Op};
use crate::target::Target;
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

/// The registers of the function's arguments, in the order of the System V calling convention.
pub(super) const ROWS: Register = Register::RDI;
pub(super) const COUNT: Register = Register::RSI;
pub(super) const TILE: Register = Register::RDX;
pub(super) const SUMS: Register = Register::RCX;
pub(super) const POOL: Register = Register::R8;
pub(super) const SPILLS: Register = Register::R9;

/// An operand of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    /// A vector or mask register, by number.
    Register(u8),
    /// A location in memory, relative to a register.
    Memory {
        /// The base register.
        base: Register,
        /// The byte offset.
        at: usize,
        /// Whether the memory contains one number that the instruction broadcasts to all lanes,
        /// instead of a vector.
        spread: bool,
    },
}

/// Encodes instructions one after the other. [`Assembler::finish`] returns the first error.
pub(super) struct Assembler {
    encoder: Encoder,
    target: Target,
    wide: bool,
    pub(super) len: usize,
    pub(super) instructions: usize,
    error: Option<IcedError>,
}

/// Alignment of loops, in bytes.
const ALIGN: usize = 64;

impl Assembler {
    pub(super) fn new(target: Target, wide: bool) -> Self {
        Self { encoder: Encoder::new(64), target, wide, len: 0, instructions: 0, error: None }
    }

    /// Returns the code, or the first encoding error.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, IcedError> {
        self.error.map_or_else(|| Ok(self.encoder.take_buffer()), Err)
    }

    pub(super) fn instruction(&mut self, instruction: Result<Instruction, IcedError>) {
        let encoded =
            instruction.and_then(|instruction| self.encoder.encode(&instruction, self.len as u64));
        match encoded {
            Ok(len) => (self.len, self.instructions) = (self.len + len, self.instructions + 1),
            Err(error) => self.error = self.error.take().or(Some(error)),
        }
    }

    /// Pads the code with no-ops up to an address at which a loop may begin.
    pub(super) fn align(&mut self) {
        const NOP: u8 = 0x90;
        while !self.len.is_multiple_of(ALIGN) {
            self.encoder.write_u8(NOP);
            self.len += 1;
        }
    }

    /// Loads a register from memory.
    pub(super) fn load(&mut self, kind: Kind, to: u8, from: Operand) {
        if kind == Kind::Mask {
            let memory = self.memory(from);
            return self.instruction(Instruction::with2(Code::VEX_Kmovw_kr_km16, mask(to), memory));
        }
        let form = self.form(kind);
        let spread = matches!(from, Operand::Memory { spread: true, .. });
        let code = if spread { codes::SPREAD[form] } else { codes::LOAD[form] };
        // The load instruction for one number has a plain memory operand. Only arithmetic
        // instructions encode a broadcast in their operand.
        let memory = match from {
            Operand::Memory { base, at, .. } => {
                self.memory(Operand::Memory { base, at, spread: false })
            }
            Operand::Register(_) => unreachable!("loads are from memory"),
        };
        self.instruction(Instruction::with2(code, self.register(kind, to), memory));
    }

    /// Stores a register to memory.
    pub(super) fn store(&mut self, kind: Kind, to: Operand, from: u8) {
        let memory = self.memory(to);
        let (code, register) = match kind {
            Kind::Mask => (Code::VEX_Kmovw_m16_kr, mask(from)),
            _ => (codes::STORE[self.form(kind)], self.register(kind, from)),
        };
        self.instruction(Instruction::with2(code, memory, register));
    }

    /// Copies a register.
    pub(super) fn copy(&mut self, kind: Kind, to: u8, from: u8) {
        let code = codes::LOAD[self.form(kind)];
        self.instruction(Instruction::with2(
            code,
            self.register(kind, to),
            self.register(kind, from),
        ));
    }

    /// Encodes a fused multiply-add. [`codes::fused`] defines the meaning of `second` and `third`.
    pub(super) fn fused(
        &mut self,
        negated: bool,
        order: usize,
        kind: Kind,
        to: u8,
        second: u8,
        third: Operand,
    ) {
        let code = codes::fused(negated, order, self.form(kind));
        let (to, second) = (self.register(kind, to), self.register(kind, second));
        let instruction = match third {
            Operand::Register(third) => {
                Instruction::with3(code, to, second, self.register(kind, third))
            }
            memory @ Operand::Memory { .. } => {
                Instruction::with3(code, to, second, self.memory(memory))
            }
        };
        self.instruction(instruction);
    }

    /// Encodes an operation with one operand.
    pub(super) fn one(&mut self, op: Op, kind: Kind, to: u8, a: Operand) {
        let code = codes::code(op, self.form(kind));
        let from = match (op, kind) {
            (Op::Convert, Kind::F32) => Kind::F64,
            (Op::Convert, _) => Kind::F32,
            _ => kind,
        };
        let to = self.register(kind, to);
        let immediate = match op {
            // Round to the nearest number, and do not signal inexact results.
            Op::Round => Some(8u32),
            Op::Shift(by) => Some(u32::from(by)),
            _ => None,
        };
        let instruction = match (a, immediate) {
            (Operand::Register(a), Some(immediate)) => {
                Instruction::with3(code, to, self.register(from, a), immediate)
            }
            (Operand::Register(a), None) => Instruction::with2(code, to, self.register(from, a)),
            (memory, Some(immediate)) => {
                Instruction::with3(code, to, self.memory(memory), immediate)
            }
            (memory, None) => Instruction::with2(code, to, self.memory(memory)),
        };
        self.instruction(instruction);
    }

    /// Encodes an operation with two operands.
    pub(super) fn two(&mut self, op: Op, kind: Kind, to: u8, a: u8, b: Operand) {
        let code = codes::code(op, self.form(kind));
        let (to, a) = (self.register(kind, to), self.register(kind, a));
        self.instruction(match b {
            Operand::Register(b) => Instruction::with3(code, to, a, self.register(kind, b)),
            memory @ Operand::Memory { .. } => Instruction::with3(code, to, a, self.memory(memory)),
        });
    }

    /// Encodes a comparison. The result is a mask of the target's type.
    pub(super) fn compare(&mut self, predicate: u8, kind: Kind, to: u8, a: u8, b: Operand) {
        let code = codes::code(Op::Compare(predicate), self.form(kind));
        let to = if self.target == Target::Avx512 { mask(to) } else { self.register(kind, to) };
        let (a, predicate) = (self.register(kind, a), u32::from(predicate));
        self.instruction(match b {
            Operand::Register(b) => {
                Instruction::with4(code, to, a, self.register(kind, b), predicate)
            }
            memory @ Operand::Memory { .. } => {
                Instruction::with4(code, to, a, self.memory(memory), predicate)
            }
        });
    }

    /// Encodes a selection: `yes` in the lanes that the mask selects, otherwise `no`.
    pub(super) fn blend(&mut self, kind: Kind, to: u8, by: u8, yes: Operand, no: u8) {
        let code = codes::code(Op::Blend, self.form(kind));
        let (to, no) = (self.register(kind, to), self.register(kind, no));
        let by = if self.target == Target::Avx512 { mask(by) } else { self.register(kind, by) };
        let instruction = match (self.target, yes) {
            (Target::Avx512, Operand::Register(yes)) => {
                Instruction::with3(code, to, no, self.register(kind, yes))
            }
            (Target::Avx512, memory) => Instruction::with3(code, to, no, self.memory(memory)),
            (_, Operand::Register(yes)) => {
                Instruction::with4(code, to, no, self.register(kind, yes), by)
            }
            (_, memory) => Instruction::with4(code, to, no, self.memory(memory), by),
        };
        self.instruction(instruction.map(|mut instruction| {
            if self.target == Target::Avx512 {
                instruction.set_op_mask(by);
            }
            instruction
        }));
    }

    /// Encodes the end of a loop that began at `start`. The loop advances to the next row as long
    /// as there is one.
    pub(super) fn next(&mut self, row: usize, start: usize) {
        let row = u32::try_from(row).expect("rows are short");
        self.instruction(Instruction::with2(
            Code::Add_rm64_imm32,
            ROWS,
            i32::try_from(row).expect("rows are short"),
        ));
        self.instruction(Instruction::with2(Code::Sub_rm64_imm8, COUNT, 1i32));
        self.instruction(Instruction::with_branch(Code::Jne_rel32_64, start as u64));
    }

    /// Encodes the function's return.
    pub(super) fn leave(&mut self) {
        self.instruction(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        self.instruction(Ok(Instruction::with(Code::Retnq)));
    }

    fn form(&self, kind: Kind) -> usize {
        codes::form(self.target, self.wide, kind)
    }

    fn register(&self, kind: Kind, number: u8) -> Register {
        let first = match (self.target, self.wide, kind) {
            (_, _, Kind::Mask) => return mask(number),
            (Target::Avx512, true, Kind::F32) => Register::YMM0,
            (Target::Avx512, ..) => Register::ZMM0,
            (_, true, Kind::F32) => Register::XMM0,
            _ => Register::YMM0,
        };
        first + u32::from(number)
    }

    fn memory(&self, operand: Operand) -> MemoryOperand {
        let Operand::Memory { base, at, spread } = operand else {
            unreachable!("a register is no memory")
        };
        let at = i64::try_from(at).expect("buffers are small");
        MemoryOperand::new(base, Register::None, 1, at, 1, spread, Register::None)
    }
}

/// Returns a mask register. Number 0 is the second register: an instruction that takes a mask reads
/// the first register as "no mask".
fn mask(number: u8) -> Register {
    Register::K1 + u32::from(number)
}
