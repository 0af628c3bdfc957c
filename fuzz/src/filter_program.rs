//! Programs of the packet filter. A program that is verified ends, for any packet.

use crate::input;
use sprat_lab::filter::{Instruction, Program};

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = input::<(Vec<(u16, u8, u8, u32)>, u32, &[u8])>(bytes) else { return };
    let (raw, length, bytes) = input;
    let of = |(code, on_true, on_false, k)| Instruction { code, on_true, on_false, k };
    let instructions: Vec<_> = raw.into_iter().map(of).collect();
    if let Ok(program) = Program::verify(&instructions) {
        assert_eq!(program.instructions(), instructions);
        let _ = program.run(bytes, length);
    }
}
