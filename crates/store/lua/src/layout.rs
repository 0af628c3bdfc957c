//! `struct`: values as bytes of a given layout.
//!
//! A layout is a string. `<` and `>` choose the order of bytes, `!` with a power of two the largest
//! alignment. `b h i l T` are integers of 1, 2, 4, 8 and 8 bytes, or `i` with a number of bytes;
//! without a sign if capital. `f` and `d` are floating-point numbers, `s` a string with a zero byte
//! behind it, `c` with a number that many bytes (with 0, as many as the number before says), and
//! `x` is a zero byte that stands for nothing.

use crate::functions::{Function, Given, Refusal, Returned};
use mlua::Value;

/// Limit on the bytes of an integer.
const MAX_INTEGER: usize = 32;

/// The largest alignment if `!` stands alone.
const MAX_ALIGNMENT: usize = 8;

pub(crate) const FUNCTIONS: &[Function] = &[("pack", pack), ("size", size), ("unpack", unpack)];

/// A part of a layout.
#[derive(Clone, Copy, Debug)]
enum Part {
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Single,
    Double,
    /// Ends with a zero byte.
    Text,
    Bytes(usize),
    Pad,
    /// It only says how others are laid out.
    Nothing,
}

impl Part {
    fn len(self) -> usize {
        match self {
            Self::Integer { bytes, .. } | Self::Bytes(bytes) => bytes,
            Self::Single => 4,
            Self::Double => 8,
            Self::Pad => 1,
            Self::Text | Self::Nothing => 0,
        }
    }

    /// Returns whether its place depends on the alignment.
    fn is_aligned(self) -> bool {
        matches!(self, Self::Integer { .. } | Self::Single | Self::Double)
    }
}

/// What the parts that were read have chosen.
struct Layout<'a> {
    rest: &'a [u8],
    is_little: bool,
    alignment: usize,
}

impl<'a> Layout<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { rest: text, is_little: cfg!(target_endian = "little"), alignment: 1 }
    }

    /// Takes the number that stands next.
    fn number(&mut self) -> Option<usize> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        match len {
            0 => None,
            _ => Some(std::str::from_utf8(digits).ok()?.parse().unwrap_or(usize::MAX)),
        }
    }

    /// Takes the next part; `None` at the end.
    fn next(&mut self, given: &Given<'_>) -> Result<Option<Part>, Refusal> {
        let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let integer = |bytes| Part::Integer { bytes, is_signed: option.is_ascii_lowercase() };
        Ok(Some(match option {
            b'b' | b'B' => integer(1),
            b'h' | b'H' => integer(2),
            b'l' | b'L' => integer(8),
            b'T' => integer(8),
            b'i' | b'I' => {
                let bytes = self.number().unwrap_or(4);
                if bytes > MAX_INTEGER {
                    let reason = format!("is larger than limit of {MAX_INTEGER}");
                    return Err(format!("integral size {bytes} {reason}").into());
                }
                integer(bytes)
            }
            b'f' => Part::Single,
            b'd' => Part::Double,
            b's' => Part::Text,
            b'c' => Part::Bytes(self.number().unwrap_or(1)),
            b'x' => Part::Pad,
            b' ' => Part::Nothing,
            b'<' | b'>' => {
                self.is_little = option == b'<';
                Part::Nothing
            }
            b'!' => {
                self.alignment = self.number().unwrap_or(MAX_ALIGNMENT);
                if !self.alignment.is_power_of_two() {
                    let alignment = self.alignment;
                    return Err(format!("alignment {alignment} is not a power of 2").into());
                }
                Part::Nothing
            }
            other => {
                let problem = format!("invalid format option '{}'", char::from(other));
                return Err(given.wrong(0, &problem));
            }
        }))
    }

    /// Returns the bytes before a part at `at` that only align it.
    fn padding(&self, part: Part, at: usize) -> usize {
        let alignment = part.len().min(self.alignment);
        match part.is_aligned() && alignment > 1 {
            true => at.next_multiple_of(alignment) - at,
            false => 0,
        }
    }
}

fn pack(given: &Given<'_>) -> Returned {
    let text = given.bytes(0)?;
    let mut layout = Layout::new(&text);
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(part) = layout.next(given)? {
        out.resize(out.len() + layout.padding(part, out.len()), 0);
        at += usize::from(!matches!(part, Part::Nothing | Part::Pad));
        let mut number = |little: &[u8]| {
            let begin = out.len();
            out.extend_from_slice(little);
            if !layout.is_little {
                out[begin..].reverse();
            }
        };
        match part {
            Part::Nothing => {}
            Part::Pad => out.push(0),
            Part::Integer { bytes, .. } => {
                let whole = whole(given.number(at)?);
                let mut wide = [if whole < 0 { 0xff } else { 0 }; MAX_INTEGER];
                wide[..8].copy_from_slice(&whole.to_le_bytes());
                number(&wide[..bytes]);
            }
            #[expect(clippy::cast_possible_truncation, reason = "the layout asks for it")]
            Part::Single => number(&(given.number(at)? as f32).to_le_bytes()),
            Part::Double => number(&given.number(at)?.to_le_bytes()),
            Part::Text => {
                out.extend_from_slice(&given.bytes(at)?);
                out.push(0);
            }
            Part::Bytes(count) => {
                let bytes = given.bytes(at)?;
                let count = if count == 0 { bytes.len() } else { count };
                // As in Redis, which counts one too many here.
                let wrong = || given.wrong(at + 1, "string too short");
                let taken = bytes.get(..count).ok_or_else(wrong)?;
                out.extend_from_slice(taken);
            }
        }
    }
    Ok(vec![given.text(out)?])
}

/// Returns an integer as C makes one of a number: those from 2^63 on keep their bits.
fn whole(number: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked, or numbers beyond it are limited"
    )]
    match number >= 9_223_372_036_854_775_808.0 {
        true => (number as u64).cast_signed(),
        false => number as i64,
    }
}

fn size(given: &Given<'_>) -> Returned {
    let text = given.bytes(0)?;
    let mut layout = Layout::new(&text);
    let mut size = 0_usize;
    while let Some(part) = layout.next(given)? {
        match part {
            Part::Text => return Err(given.wrong(0, "option 's' has no fixed size")),
            Part::Bytes(0) => return Err(given.wrong(0, "option 'c0' has no fixed size")),
            _ => {}
        }
        size = size.saturating_add(layout.padding(part, size)).saturating_add(part.len());
    }
    Ok(vec![Value::Number(size as f64)])
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the position is within the string"
)]
fn unpack(given: &Given<'_>) -> Returned {
    let (text, data) = (given.bytes(0)?, given.bytes(1)?);
    let first = given.optional_number(2)?.unwrap_or(1.0);
    if first < 1.0 {
        return Err(given.wrong(2, "offset must be 1 or greater"));
    }
    let too_short = || given.wrong(1, "data string too short");
    let mut at = (first.min(data.len() as f64 + 1.0) as usize).saturating_sub(1);
    if first > data.len() as f64 + 1.0 {
        return Err(too_short());
    }
    let mut layout = Layout::new(&text);
    let mut values: Vec<Value> = Vec::new();
    while let Some(part) = layout.next(given)? {
        at += layout.padding(part, at);
        let len = match part {
            Part::Bytes(0) => {
                let before = values.pop().and_then(|value| crate::values::number(&value));
                let before = before.ok_or("format 'c0' needs a previous size")?;
                usize::try_from(whole(before)).map_err(|_| too_short())?
            }
            Part::Text => {
                let rest = data.get(at..).ok_or_else(too_short)?;
                let len = rest.iter().position(|byte| *byte == 0);
                let len = len.ok_or("unfinished string in data")?;
                values.push(given.text(&rest[..len])?);
                at += len + 1;
                continue;
            }
            _ => part.len(),
        };
        let bytes = at.checked_add(len).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
        at += len;
        let mut little = bytes.to_vec();
        if !layout.is_little {
            little.reverse();
        }
        match part {
            Part::Integer { is_signed, .. } => {
                values.push(Value::Number(integer(&little, is_signed)))
            }
            Part::Single => {
                let bytes = little.try_into().expect("four bytes");
                values.push(Value::Number(f32::from_le_bytes(bytes).into()));
            }
            Part::Double => {
                let bytes = little.try_into().expect("eight bytes");
                values.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            Part::Bytes(_) => values.push(given.text(bytes)?),
            Part::Text | Part::Pad | Part::Nothing => {}
        }
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

/// Returns the integer of these bytes, of which only the lowest eight count.
fn integer(little: &[u8], is_signed: bool) -> f64 {
    let len = little.len().min(8);
    let is_negative = is_signed && little[..len].last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    wide[..len].copy_from_slice(&little[..len]);
    match is_signed {
        true => i64::from_le_bytes(wide) as f64,
        false => u64::from_le_bytes(wide) as f64,
    }
}
