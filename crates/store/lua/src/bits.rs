//! `bit`: numbers as 32 bits.

use crate::functions::{Function, Given, Refusal, Returned};
use mlua::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    ("tobit", |given| signed(bits(given, 0)?)),
    ("bnot", |given| signed(!bits(given, 0)?)),
    ("bswap", |given| signed(bits(given, 0)?.swap_bytes())),
    ("band", |given| fold(given, |one, other| one & other)),
    ("bor", |given| fold(given, |one, other| one | other)),
    ("bxor", |given| fold(given, |one, other| one ^ other)),
    ("lshift", |given| shift(given, |it, by| it << by)),
    ("rshift", |given| shift(given, |it, by| it >> by)),
    ("arshift", |given| shift(given, |it, by| (it.cast_signed() >> by).cast_unsigned())),
    ("rol", |given| shift(given, u32::rotate_left)),
    ("ror", |given| shift(given, u32::rotate_right)),
    ("tohex", tohex),
];

/// Returns the lowest 32 bits of an argument, rounded to an integer.
fn bits(given: &Given<'_>, at: usize) -> Result<u32, Refusal> {
    // In the sum, the bits of the integer are the lowest ones of the mantissa.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
    Ok((given.number(at)? + SHIFT).to_bits() as u32)
}

fn signed(bits: u32) -> Returned {
    Ok(vec![Value::Number(bits.cast_signed().into())])
}

fn fold(given: &Given<'_>, join: fn(u32, u32) -> u32) -> Returned {
    let mut all = bits(given, 0)?;
    for at in 1..given.values.len() {
        all = join(all, bits(given, at)?);
    }
    signed(all)
}

fn shift(given: &Given<'_>, act: fn(u32, u32) -> u32) -> Returned {
    signed(act(bits(given, 0)?, bits(given, 1)? % u32::BITS))
}

/// Returns the last digits of a number; capital ones if their number is negative.
fn tohex(given: &Given<'_>) -> Returned {
    let number = bits(given, 0)?;
    let digits = match given.values.len() {
        ..=1 => 8,
        _ => bits(given, 1)?.cast_signed(),
    };
    let text = if digits < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    let left_out = text.len().saturating_sub(digits.unsigned_abs() as usize);
    Ok(vec![given.text(&text[left_out..])?])
}
