//! Classic BPF (McCanne and Jacobson, USENIX Winter 1993; the codes are those of `linux/filter.h`).
//! A program is verified once and can then be run.
//!
//! The machine has an accumulator A, an index X and 16 words of memory. Programs only jump forward,
//! so each program ends. A load beyond the end of the packet, or a division by an X of zero, ends
//! the program with 0, which means no match.

/// Limit on the instructions of a program: the kernel's limit. A longer program is rejected.
pub const MAX_INSTRUCTIONS: usize = 4_096;

/// Loads from this offset on use data that only Linux has. Some read what Linux knows of a packet,
/// such as its type and interface (`SKF_AD_OFF` of `linux/filter.h`). Others count from headers
/// that Linux has found (`SKF_NET_OFF`, `SKF_LL_OFF`).
const KERNEL: u32 = 0u32.wrapping_sub(0x20_0000);

/// Number of words of memory.
const WORDS: usize = 16;

/// A compiled instruction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Number of instructions to skip if the condition holds.
    pub on_true: u8,
    /// Number of instructions to skip if the condition does not hold.
    pub on_false: u8,
    /// A constant: a value, an offset, a memory slot or a jump distance.
    pub k: u32,
}

/// A program that is known to end, and to access only its packet and its memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    operations: Vec<Operation>,
    instructions: Vec<Instruction>,
}

/// Why a program does not pass verification.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unverified {
    /// The program has no instructions, or too many.
    #[error("{0} instructions; a program has 1 to {MAX_INSTRUCTIONS}")]
    Length(usize),
    /// An instruction is unknown.
    #[error("instruction {at}: no operation has the code {code:#06x}")]
    Code {
        /// The index of the instruction.
        at: usize,
        /// The code of the instruction.
        code: u16,
    },
    /// A jump past the end or backwards, as in programs for `protochain`.
    #[error("instruction {0}: a jump backwards, or past the end")]
    Jump(usize),
    /// An instruction uses a memory slot that does not exist.
    #[error("instruction {0}: no such memory; slots are 0 to 15")]
    Memory(usize),
    /// A division by a constant zero, or a shift by 32 bits or more.
    #[error("instruction {0}: a division by zero, or a shift by 32 bits or more")]
    Operand(usize),
    /// The last instruction does not return.
    #[error("the last instruction does not return")]
    End,
    /// A load reads what only a kernel knows of a packet, as for `inbound`. It would never match
    /// here.
    #[error(
        "instruction {0}: it uses what only a kernel knows about a packet (inbound, outbound, \
         ifindex, and such); name the port where packets arrive with --from, or `from` in a \
         topology"
    )]
    Kernel(usize),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Load(Size, u32),
    LoadIndexed(Size, u32),
    LoadConstant(u32),
    LoadLength,
    LoadMemory(usize),
    IndexConstant(u32),
    IndexLength,
    IndexMemory(usize),
    /// Loads X with four times the low half of a byte: the length of an IPv4 header.
    IndexHeader(u32),
    StoreA(usize),
    StoreX(usize),
    Compute(Arithmetic, Source),
    Negate,
    Jump(usize),
    Branch(Condition, Source, usize, usize),
    Return(u32),
    ReturnA,
    AToX,
    XToA,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Size {
    Word,
    Half,
    Byte,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    K(u32),
    X,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Modulo,
    Xor,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Condition {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

impl Program {
    /// Verifies a program.
    ///
    /// # Errors
    /// The program has no instructions or more than [`MAX_INSTRUCTIONS`], an instruction is
    /// invalid, or the last instruction does not return.
    pub fn verify(instructions: &[Instruction]) -> Result<Self, Unverified> {
        let count = instructions.len();
        if !(1..=MAX_INSTRUCTIONS).contains(&count) {
            return Err(Unverified::Length(count));
        }
        let decoded = instructions
            .iter()
            .enumerate()
            .map(|(at, &instruction)| decode(at, instruction, count));
        let operations: Vec<_> = decoded.collect::<Result<_, _>>()?;
        match operations.last() {
            Some(Operation::Return(_) | Operation::ReturnA) => {
                Ok(Self { operations, instructions: instructions.to_vec() })
            }
            _ => Err(Unverified::End),
        }
    }

    /// Returns the instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Runs the program on a packet of `length` bytes. `bytes` is the beginning of the packet.
    /// Returns 0 if the packet does not match.
    #[must_use]
    pub fn run(&self, bytes: &[u8], length: u32) -> u32 {
        self.execute(bytes, length).unwrap_or(0)
    }

    fn execute(&self, bytes: &[u8], length: u32) -> Option<u32> {
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; WORDS]);
        let mut at = 0;
        loop {
            let operation = self.operations[at];
            at += 1;
            match operation {
                Operation::Load(size, offset) => a = load(bytes, size, offset)?,
                Operation::LoadIndexed(size, offset) => {
                    a = load(bytes, size, offset.checked_add(x)?)?
                }
                Operation::LoadConstant(k) => a = k,
                Operation::LoadLength => a = length,
                Operation::LoadMemory(slot) => a = memory[slot],
                Operation::IndexConstant(k) => x = k,
                Operation::IndexLength => x = length,
                Operation::IndexMemory(slot) => x = memory[slot],
                Operation::IndexHeader(offset) => x = (load(bytes, Size::Byte, offset)? & 15) * 4,
                Operation::StoreA(slot) => memory[slot] = a,
                Operation::StoreX(slot) => memory[slot] = x,
                Operation::Compute(arithmetic, source) => a = arithmetic.of(a, source.value(x))?,
                Operation::Negate => a = a.wrapping_neg(),
                Operation::Jump(target) => at = target,
                Operation::Branch(condition, source, on_true, on_false) => {
                    at = if condition.holds(a, source.value(x)) { on_true } else { on_false };
                }
                Operation::Return(k) => return Some(k),
                Operation::ReturnA => return Some(a),
                Operation::AToX => x = a,
                Operation::XToA => a = x,
            }
        }
    }
}

impl Source {
    fn value(self, x: u32) -> u32 {
        match self {
            Self::K(k) => k,
            Self::X => x,
        }
    }
}

impl Arithmetic {
    fn of(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(b),
            Self::Subtract => a.wrapping_sub(b),
            Self::Multiply => a.wrapping_mul(b),
            Self::Divide => a.checked_div(b)?,
            Self::Modulo => a.checked_rem(b)?,
            Self::Or => a | b,
            Self::And => a & b,
            Self::Xor => a ^ b,
            // All bits are shifted out.
            Self::ShiftLeft => a.checked_shl(b).unwrap_or(0),
            Self::ShiftRight => a.checked_shr(b).unwrap_or(0),
        })
    }
}

impl Condition {
    fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
            Self::AnyBit => a & b != 0,
        }
    }
}

fn load(bytes: &[u8], size: Size, offset: u32) -> Option<u32> {
    let from = bytes.get(usize::try_from(offset).ok()?..)?;
    Some(match size {
        Size::Word => u32::from_be_bytes(*from.first_chunk()?),
        Size::Half => u32::from(u16::from_be_bytes(*from.first_chunk()?)),
        Size::Byte => u32::from(*from.first()?),
    })
}

/// Decodes the instruction at `at` of `count`. Its low three bits are its class, which determines
/// the meaning of all other bits.
fn decode(at: usize, instruction: Instruction, count: usize) -> Result<Operation, Unverified> {
    let Instruction { code, on_true, on_false, k } = instruction;
    let unknown = Unverified::Code { at, code };
    let slot =
        || usize::try_from(k).ok().filter(|&slot| slot < WORDS).ok_or(Unverified::Memory(at));
    let target = |distance: u32| {
        let target =
            usize::try_from(distance).ok().and_then(|distance| distance.checked_add(at + 1));
        target.filter(|&target| target < count).ok_or(Unverified::Jump(at))
    };
    let source = if code & 0x08 == 0 { Source::K(k) } else { Source::X };
    Ok(match code {
        0x00 => Operation::LoadConstant(k),
        0x01 => Operation::IndexConstant(k),
        0x20 | 0x28 | 0x30 | 0xb1 if k >= KERNEL => return Err(Unverified::Kernel(at)),
        0x20 => Operation::Load(Size::Word, k),
        0x28 => Operation::Load(Size::Half, k),
        0x30 => Operation::Load(Size::Byte, k),
        0x40 => Operation::LoadIndexed(Size::Word, k),
        0x48 => Operation::LoadIndexed(Size::Half, k),
        0x50 => Operation::LoadIndexed(Size::Byte, k),
        0x60 => Operation::LoadMemory(slot()?),
        0x61 => Operation::IndexMemory(slot()?),
        0x80 => Operation::LoadLength,
        0x81 => Operation::IndexLength,
        0xb1 => Operation::IndexHeader(k),
        0x02 => Operation::StoreA(slot()?),
        0x03 => Operation::StoreX(slot()?),
        0x84 => Operation::Negate,
        0x05 => Operation::Jump(target(k)?),
        0x06 => Operation::Return(k),
        0x16 => Operation::ReturnA,
        0x07 => Operation::AToX,
        0x87 => Operation::XToA,
        _ if code & !0xf8 == 4 => {
            let arithmetic = match code & 0xf0 {
                0x00 => Arithmetic::Add,
                0x10 => Arithmetic::Subtract,
                0x20 => Arithmetic::Multiply,
                0x30 => Arithmetic::Divide,
                0x40 => Arithmetic::Or,
                0x50 => Arithmetic::And,
                0x60 => Arithmetic::ShiftLeft,
                0x70 => Arithmetic::ShiftRight,
                0x90 => Arithmetic::Modulo,
                0xa0 => Arithmetic::Xor,
                _ => return Err(unknown),
            };
            let divides = matches!(arithmetic, Arithmetic::Divide | Arithmetic::Modulo);
            let shifts = matches!(arithmetic, Arithmetic::ShiftLeft | Arithmetic::ShiftRight);
            if source != Source::X && ((divides && k == 0) || (shifts && k >= u32::BITS)) {
                return Err(Unverified::Operand(at));
            }
            Operation::Compute(arithmetic, source)
        }
        _ if code & !0xf8 == 5 => {
            let condition = match code & 0xf0 {
                0x10 => Condition::Equal,
                0x20 => Condition::Greater,
                0x30 => Condition::GreaterOrEqual,
                0x40 => Condition::AnyBit,
                _ => return Err(unknown),
            };
            Operation::Branch(condition, source, target(on_true.into())?, target(on_false.into())?)
        }
        _ => return Err(unknown),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: Instruction = Instruction { code: 0x06, on_true: 0, on_false: 0, k: 1 };

    fn one(code: u16, on_true: u8, on_false: u8, k: u32) -> Result<Program, Unverified> {
        Program::verify(&[Instruction { code, on_true, on_false, k }, RETURN])
    }

    #[test]
    fn invalid_programs_are_refused() {
        assert_eq!(Program::verify(&[]), Err(Unverified::Length(0)));
        assert_eq!(
            Program::verify(&[RETURN; MAX_INSTRUCTIONS + 1]),
            Err(Unverified::Length(MAX_INSTRUCTIONS + 1))
        );
        assert_eq!(
            Program::verify(&[RETURN, Instruction { code: 0x07, ..RETURN }]),
            Err(Unverified::End)
        );
        assert_eq!(one(0x28, 0, 0, 0xffff_f004), Err(Unverified::Kernel(0)));
        assert_eq!(one(0x05, 0, 0, 1), Err(Unverified::Jump(0)));
        assert_eq!(one(0x05, 0, 0, u32::MAX), Err(Unverified::Jump(0)));
        assert_eq!(one(0x15, 1, 0, 0), Err(Unverified::Jump(0)));
        assert_eq!(one(0x15, 0, 1, 0), Err(Unverified::Jump(0)));
        assert_eq!(one(0x02, 0, 0, 16), Err(Unverified::Memory(0)));
        assert_eq!(one(0x61, 0, 0, 16), Err(Unverified::Memory(0)));
        assert_eq!(one(0x34, 0, 0, 0), Err(Unverified::Operand(0)));
        assert_eq!(one(0x64, 0, 0, 32), Err(Unverified::Operand(0)));
        assert_eq!(one(0xc4, 0, 0, 1), Err(Unverified::Code { at: 0, code: 0xc4 }));
        assert_eq!(one(0x55, 0, 0, 1), Err(Unverified::Code { at: 0, code: 0x55 }));
        assert_eq!(one(0xffff, 0, 0, 1), Err(Unverified::Code { at: 0, code: 0xffff }));
    }

    #[test]
    fn a_division_by_a_zero_in_x_is_no_match() {
        let divide = Instruction { code: 0x3c, ..Instruction::default() };
        assert_eq!(Program::verify(&[divide, RETURN]).unwrap().run(&[], 0), 0);
    }
}
