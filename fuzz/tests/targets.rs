//! Every target, with inputs that are the same in each run.

use sprat_chance::Chance;
use sprat_fuzz::TARGETS;

/// Inputs for each target.
const INPUTS: u64 = 5000;
/// Limit on the bytes of an input. Most are much shorter.
const LENGTH: u64 = 4096;

/// Bytes that separate the parts of texts.
const SIGNS: &[u8] = b"\n,;:\"{}[]()=-+.0";

/// Draws an input: runs of any bytes, of one byte, of text, and of numbers of any width, because
/// parsers take most bytes for lengths, counts and signs of their formats.
fn input(chance: &mut Chance) -> Vec<u8> {
    let longest = 1 + chance.below(LENGTH);
    let length = chance.below(longest);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < length {
        let number = chance.draw();
        let [byte, ..] = number.to_le_bytes();
        match chance.below(6) {
            0 => bytes.extend(number.to_le_bytes()),
            1 => bytes.extend((number >> chance.below(64)).to_le_bytes()),
            2 => bytes.extend((chance.draw_u32() >> chance.below(32)).to_be_bytes()),
            3 => bytes.extend(vec![byte; 1 + chance.index(16)]),
            4 => bytes.extend(number.to_le_bytes().map(|byte| b' ' + byte % 95)),
            _ => bytes.push(SIGNS[chance.index(SIGNS.len())]),
        }
    }
    bytes
}

#[test]
fn no_target_panics() {
    for (stream, (name, run)) in (0..).zip(TARGETS) {
        let mut chance = Chance::stream(2026, stream);
        run(&[]);
        for number in 0..INPUTS {
            let bytes = input(&mut chance);
            let outcome = std::panic::catch_unwind(|| run(&bytes));
            assert!(outcome.is_ok(), "{name} fails on input {number}: {bytes:?}");
        }
    }
}
