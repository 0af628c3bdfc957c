//! `cmsgpack`: values of Lua as MessagePack.

use crate::functions::{Function, Given, Refusal, Returned};
use crate::values::number;
use mlua::{Table, Value};
use rmp::Marker;
use rmp::encode::{
    write_array_len, write_bool, write_f32, write_f64, write_map_len, write_nil, write_sint,
    write_str_len,
};

/// Limit on the tables within tables that are packed; deeper ones become nil.
const MAX_DEPTH: usize = 16;

/// Limit on the arrays and maps within others that are unpacked.
const MAX_UNPACKED_DEPTH: usize = 1000;

const MISSING: &str = "Missing bytes in input.";

pub(crate) const FUNCTIONS: &[Function] = &[
    ("pack", pack),
    ("unpack", unpack),
    ("unpack_limit", unpack_limit),
    ("unpack_one", unpack_one),
];

fn pack(given: &Given<'_>) -> Returned {
    if given.values.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut out = Vec::new();
    given.values.iter().try_for_each(|value| write(value, 0, &mut out))?;
    Ok(vec![given.text(out)?])
}

fn write(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), Refusal> {
    const FITS: &str = "a vector takes every write";
    if out.len() > crate::MAX_MEMORY {
        return Err("not enough memory".into());
    }
    let len = |len: usize| u32::try_from(len).map_err(|_| Refusal::from("not enough memory"));
    match value {
        Value::Boolean(truth) => write_bool(out, *truth).expect(FITS),
        Value::String(text) => {
            let bytes = text.as_bytes();
            write_str_len(out, len(bytes.len())?).expect(FITS);
            out.extend_from_slice(&bytes);
        }
        Value::Integer(_) | Value::Number(_) => {
            let number = number(value).expect("it is one");
            let whole = crate::values::integer(number);
            #[expect(clippy::cast_possible_truncation, reason = "it is checked that it is exact")]
            let short = number as f32;
            if whole as f64 == number && number < i64::MAX as f64 {
                write_sint(out, whole).expect(FITS);
            } else if f64::from(short) == number {
                write_f32(out, short).expect(FITS);
            } else {
                write_f64(out, number).expect(FITS);
            }
        }
        Value::Table(table) if depth < MAX_DEPTH => return write_table(table, depth + 1, out),
        _ => write_nil(out).expect(FITS),
    }
    Ok(())
}

fn write_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<(), Refusal> {
    const FITS: &str = "a vector takes every write";
    let (mut count, mut last) = (0_u32, 0.0_f64);
    let mut is_array = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        count += 1;
        let place = number(&key).filter(|place| *place >= 1.0 && place.fract() == 0.0);
        is_array &= place.is_some();
        last = last.max(place.unwrap_or_default());
    }
    if is_array && last == f64::from(count) {
        write_array_len(out, count).expect(FITS);
        return (1..=count).try_for_each(|at| write(&table.raw_get(at)?, depth, out));
    }
    write_map_len(out, count).expect(FITS);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        write(&key, depth, out)?;
        write(&value, depth, out)?;
    }
    Ok(())
}

/// Returns all values of a string.
fn unpack(given: &Given<'_>) -> Returned {
    let bytes = given.bytes(0)?;
    let mut reader = Reader { given, rest: &bytes };
    let mut values = Vec::new();
    while !reader.rest.is_empty() {
        values.push(reader.value(0)?);
    }
    Ok(values)
}

/// Returns one value from an offset on, and the offset behind it before it; -1 at the end.
fn unpack_one(given: &Given<'_>) -> Returned {
    let offset = given.optional_number(1)?.unwrap_or_default();
    unpack_some(given, 1.0, offset)
}

/// Returns up to a number of values.
fn unpack_limit(given: &Given<'_>) -> Returned {
    let (limit, offset) = (given.number(1)?, given.optional_number(2)?.unwrap_or_default());
    unpack_some(given, limit, offset)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the offset is within the string"
)]
fn unpack_some(given: &Given<'_>, limit: f64, offset: f64) -> Returned {
    let bytes = given.bytes(0)?;
    if limit < 0.0 || offset < 0.0 {
        return Err(format!(
            "Invalid request to unpack with offset of {offset} and limit of {limit}."
        )
        .into());
    }
    if offset > bytes.len() as f64 {
        let len = bytes.len();
        let reason = format!("Start offset {offset} greater than input length {len}.");
        return Err(reason.into());
    }
    let mut reader = Reader { given, rest: &bytes[offset as usize..] };
    let mut values = vec![Value::Nil];
    while !reader.rest.is_empty() && ((values.len() - 1) as f64) < limit {
        values.push(reader.value(0)?);
    }
    values[0] = match reader.rest.len() {
        0 => Value::Number(-1.0),
        left => Value::Number((bytes.len() - left) as f64),
    };
    Ok(values)
}

struct Reader<'a> {
    given: &'a Given<'a>,
    rest: &'a [u8],
}

impl Reader<'_> {
    /// Takes the next bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(MISSING)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn text(&mut self, len: usize) -> Result<Value, Refusal> {
        let (text, rest) = self.rest.split_at_checked(len).ok_or(MISSING)?;
        self.rest = rest;
        self.given.text(text)
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<Value, Refusal> {
        let table = self.given.lua.create_table()?;
        for at in 1..=len {
            table.raw_set(at, self.value(depth)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value, Refusal> {
        let table = self.given.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth)?;
            let value = self.value(depth)?;
            let is_key = !matches!(key, Value::Nil) && number(&key).is_none_or(|it| !it.is_nan());
            if !is_key {
                return Err("Bad data format in input.".into());
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Refusal> {
        if depth > MAX_UNPACKED_DEPTH {
            return Err(format!("more than {MAX_UNPACKED_DEPTH} arrays within others").into());
        }
        let depth = depth + 1;
        let [marker] = self.take()?;
        let number = |number: f64| Ok(Value::Number(number));
        let short = |it: [u8; 2]| usize::from(u16::from_be_bytes(it));
        let long = |it: [u8; 4]| u32::from_be_bytes(it) as usize;
        match Marker::from_u8(marker) {
            Marker::FixPos(small) => number(small.into()),
            Marker::FixNeg(small) => number(small.into()),
            Marker::Null => Ok(Value::Nil),
            Marker::True => Ok(Value::Boolean(true)),
            Marker::False => Ok(Value::Boolean(false)),
            Marker::U8 => number(u8::from_be_bytes(self.take()?).into()),
            Marker::U16 => number(u16::from_be_bytes(self.take()?).into()),
            Marker::U32 => number(u32::from_be_bytes(self.take()?).into()),
            Marker::U64 => number(u64::from_be_bytes(self.take()?) as f64),
            Marker::I8 => number(i8::from_be_bytes(self.take()?).into()),
            Marker::I16 => number(i16::from_be_bytes(self.take()?).into()),
            Marker::I32 => number(i32::from_be_bytes(self.take()?).into()),
            Marker::I64 => number(i64::from_be_bytes(self.take()?) as f64),
            Marker::F32 => number(f32::from_be_bytes(self.take()?).into()),
            Marker::F64 => number(f64::from_be_bytes(self.take()?)),
            Marker::FixStr(len) => self.text(len.into()),
            Marker::Str8 | Marker::Bin8 => {
                let [len] = self.take()?;
                self.text(len.into())
            }
            Marker::Str16 | Marker::Bin16 => {
                let len = short(self.take()?);
                self.text(len)
            }
            Marker::Str32 | Marker::Bin32 => {
                let len = long(self.take()?);
                self.text(len)
            }
            Marker::FixArray(len) => self.array(len.into(), depth),
            Marker::Array16 => {
                let len = short(self.take()?);
                self.array(len, depth)
            }
            Marker::Array32 => {
                let len = long(self.take()?);
                self.array(len, depth)
            }
            Marker::FixMap(len) => self.map(len.into(), depth),
            Marker::Map16 => {
                let len = short(self.take()?);
                self.map(len, depth)
            }
            Marker::Map32 => {
                let len = long(self.take()?);
                self.map(len, depth)
            }
            _ => Err("Bad data format in input.".into()),
        }
    }
}
