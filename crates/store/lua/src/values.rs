//! Values of Lua, and the replies and arguments that they stand for.

use mlua::{BorrowedBytes, Lua, Table, Value};
use sprat_resp::{ReplyWriter, double_text};

/// Limit on the tables within tables of a reply.
const MAX_DEPTH: usize = 256;

/// Returns a table of strings.
pub(crate) fn strings(lua: &Lua, texts: &[&[u8]]) -> mlua::Result<Table> {
    let strings = texts.iter().map(|text| lua.create_string(text));
    lua.create_sequence_from(strings.collect::<mlua::Result<Vec<_>>>()?)
}

/// Returns the number that a value is.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// An argument of a command.
pub(crate) enum Argument {
    String(BorrowedBytes),
    Number(String),
}

impl Argument {
    /// Returns what a value is as an argument; `None` if it can be none.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::String(text.as_bytes())),
            _ => number(value).map(|number| Self::Number(double_text(number))),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::String(bytes) => bytes,
            Self::Number(text) => text.as_bytes(),
        }
    }
}

/// Returns whether the reply of a command is no error, the value that it is to a script, and
/// whether it is a status such as `OK`. The value of a status or an error is its text.
pub(crate) fn parse(lua: &Lua, reply: &[u8]) -> mlua::Result<(bool, Value, bool)> {
    let mut rest = reply;
    if let [mark @ (b'-' | b'+'), text @ ..] = reply {
        let text = lua.create_string(line(text).unwrap_or(text))?;
        return Ok((*mark == b'+', Value::String(text), *mark == b'+'));
    }
    Ok((true, next(lua, &mut rest)?, false))
}

fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some(&bytes[..end])
}

/// Takes the first value of a reply that this program has written.
fn next(lua: &Lua, rest: &mut &[u8]) -> mlua::Result<Value> {
    let (mark, head) = (rest[0], line(&rest[1..]).expect("a reply is complete"));
    *rest = &rest[1 + head.len() + 2..];
    let text = std::str::from_utf8(head).unwrap_or_default();
    let number = || text.parse::<i64>().expect("a number");
    let length = || usize::try_from(number()).ok();
    let fields = |lua: &Lua, name: &str, value: Value| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    Ok(match mark {
        b'+' => fields(lua, "ok", Value::String(lua.create_string(head)?))?,
        b'-' => fields(lua, "err", Value::String(lua.create_string(head)?))?,
        // Lua's numbers are doubles.
        b':' => Value::Number(number() as f64),
        b',' => fields(lua, "double", Value::Number(text.parse().unwrap_or(f64::NAN)))?,
        b'#' => Value::Boolean(head == b"t"),
        b'_' => Value::Nil,
        b'$' => match length() {
            Some(len) => {
                let string = lua.create_string(&rest[..len])?;
                *rest = &rest[len + 2..];
                Value::String(string)
            }
            None => Value::Boolean(false),
        },
        b'*' | b'>' => match length() {
            Some(len) => {
                let table = lua.create_table_with_capacity(len, 0)?;
                for at in 1..=len {
                    table.raw_set(at, next(lua, rest)?)?;
                }
                Value::Table(table)
            }
            None => Value::Boolean(false),
        },
        b'%' => {
            let table = lua.create_table()?;
            for _ in 0..length().unwrap_or_default() {
                let key = next(lua, rest)?;
                table.raw_set(key, next(lua, rest)?)?;
            }
            fields(lua, "map", Value::Table(table))?
        }
        b'~' => {
            let table = lua.create_table()?;
            for _ in 0..length().unwrap_or_default() {
                table.raw_set(next(lua, rest)?, true)?;
            }
            fields(lua, "set", Value::Table(table))?
        }
        other => unreachable!("no reply begins with {}", other.escape_ascii()),
    })
}

/// The reply has no more room.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Writes the reply that a value stands for, of up to `room` bytes. If the script `speaks_3`,
/// booleans are booleans.
pub(crate) fn write(
    value: &Value,
    reply: &mut ReplyWriter<'_>,
    speaks_3: bool,
    room: usize,
) -> Result<(), TooLong> {
    let end = reply.len() + room;
    Writer { reply, speaks_3, end }.write(value, 0)
}

struct Writer<'w, 'r> {
    reply: &'w mut ReplyWriter<'r>,
    speaks_3: bool,
    /// How long the buffer of replies may become.
    end: usize,
}

impl Writer<'_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), TooLong> {
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(truth) if self.speaks_3 => self.reply.boolean(*truth),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Table(_) if depth >= MAX_DEPTH => {
                self.reply.error("ERR reached lua stack limit");
            }
            Value::Table(table) => self.write_table(table, depth)?,
            _ => match number(value) {
                Some(number) => self.reply.integer(integer(number)),
                None => self.reply.null(),
            },
        }
        if self.reply.len() > self.end { Err(TooLong) } else { Ok(()) }
    }

    fn write_table(&mut self, table: &Table, depth: usize) -> Result<(), TooLong> {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            self.reply.error(&*text.as_bytes());
            return Ok(());
        }
        if let Value::String(text) = field("ok") {
            self.reply.simple(&text.to_string_lossy());
            return Ok(());
        }
        if let Some(number) = number(&field("double")) {
            self.reply.double(number);
            return Ok(());
        }
        if let Value::Table(map) = field("map") {
            let pairs: Vec<_> = map.pairs::<Value, Value>().flatten().collect();
            self.reply.map(pairs.len());
            for (key, value) in &pairs {
                self.write(key, depth + 1)?;
                self.write(value, depth + 1)?;
            }
            return Ok(());
        }
        if let Value::Table(set) = field("set") {
            let pairs: Vec<_> = set.pairs::<Value, Value>().flatten().collect();
            self.reply.set(pairs.len());
            return pairs.iter().try_for_each(|(key, _)| self.write(key, depth + 1));
        }
        if let Value::String(text) = field("big_number") {
            self.reply.big_number(&text.as_bytes());
            return Ok(());
        }
        if let Value::Table(verbatim) = field("verbatim_string") {
            let part = |name: &str| verbatim.raw_get::<Value>(name).unwrap_or(Value::Nil);
            if let (Value::String(format), Value::String(text)) = (part("format"), part("string")) {
                self.reply.verbatim(&format.as_bytes(), &text.as_bytes());
                return Ok(());
            }
        }
        // The elements are those before the first nil.
        let element = |at: usize| table.raw_get::<Value>(at).unwrap_or(Value::Nil);
        let mut len = table.raw_len();
        len = (1..=len).find(|at| element(*at).is_nil()).map_or(len, |first| first - 1);
        self.reply.array(len);
        (1..=len).try_for_each(|at| self.write(&element(at), depth + 1))
    }
}

/// Returns a number without its fraction, as C converts it on x86: what does not fit is the least
/// integer.
pub(crate) fn integer(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    match (-END..END).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}
