//! `cjson`: values of Lua as JSON.
//!
//! It reads and writes what the library of this name does in Redis: bytes that are no UTF-8,
//! numbers such as `nan`, and tables as arrays if all their keys are positive integers.

use crate::functions::{Function, Given, Refusal, Returned};
use crate::values::number;
use mlua::{Lua, Table, Value};

/// Limit on the tables within tables.
const MAX_DEPTH: usize = 1000;

/// An array may have this many times as many places as elements, unless it is short.
const SPARSE: usize = 2;
const SHORT: usize = 10;

pub(crate) const FUNCTIONS: &[Function] = &[("decode", decode), ("encode", encode)];

fn check_one(given: &Given<'_>) -> Result<(), Refusal> {
    match given.values.len() {
        1 => Ok(()),
        _ => Err(given.wrong(0, "expected 1 argument")),
    }
}

fn encode(given: &Given<'_>) -> Returned {
    check_one(given)?;
    let mut out = Vec::new();
    write(given, &given.value(0), 0, &mut out)?;
    Ok(vec![given.text(out)?])
}

fn write(given: &Given<'_>, value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if out.len() > crate::MAX_MEMORY {
        return Err("not enough memory".into());
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(it) if it.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::String(text) => write_string(&text.as_bytes(), out),
        Value::Integer(_) | Value::Number(_) => {
            if !number(value).is_some_and(f64::is_finite) {
                return Err("Cannot serialise number: must not be NaN or Inf".into());
            }
            let text = given.lua.coerce_string(value.clone())?.expect("a number has a text");
            out.extend_from_slice(&text.as_bytes());
        }
        Value::Table(_) if depth == MAX_DEPTH => {
            let depth = depth + 1;
            return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
        }
        Value::Table(table) => return write_table(given, table, depth + 1, out),
        other => {
            let kind = other.type_name();
            return Err(format!("Cannot serialise {kind}: type not supported").into());
        }
    }
    Ok(())
}

fn write_table(
    given: &Given<'_>,
    table: &Table,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    match array_len(table)? {
        Some(len) => {
            out.push(b'[');
            for at in 1..=len {
                if at > 1 {
                    out.push(b',');
                }
                write(given, &table.raw_get(at)?, depth, out)?;
            }
            out.push(b']');
        }
        None => {
            out.push(b'{');
            let mut separator: &[u8] = b"";
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                out.extend_from_slice(separator);
                separator = b",";
                let is_key = matches!(key, Value::String(_)) || number(&key).is_some();
                let text = if is_key { given.lua.coerce_string(key.clone())? } else { None };
                let text = text.ok_or_else(|| {
                    let (kind, reason) = (key.type_name(), "table key must be a number or string");
                    format!("Cannot serialise {kind}: {reason}")
                })?;
                write_string(&text.as_bytes(), out);
                out.push(b':');
                write(given, &value, depth, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// Returns the number of places of a table that is an array.
fn array_len(table: &Table) -> Result<Option<usize>, Refusal> {
    let (mut count, mut len) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        let place = number(&key).filter(|place| *place >= 1.0 && place.fract() == 0.0);
        let Some(place) = place else { return Ok(None) };
        count += 1;
        len = len.max(usize::try_from(crate::values::integer(place)).unwrap_or(usize::MAX));
    }
    if len > SHORT && len > SPARSE * count {
        return Err("Cannot serialise table: excessively sparse array".into());
    }
    Ok((len > 0).then_some(len))
}

fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        let escape = match byte {
            b'"' | b'\\' | b'/' => *byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            0..0x20 | 0x7f => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                continue;
            }
            _ => {
                out.push(*byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escape]);
    }
    out.push(b'"');
}

fn decode(given: &Given<'_>) -> Returned {
    check_one(given)?;
    let text = given.bytes(0)?;
    let mut parser = Parser { lua: given.lua, text: &text, at: 0, depth: 0 };
    let token = parser.next()?;
    let value = parser.value(token)?;
    let token = parser.next()?;
    match token.kind {
        Kind::End => Ok(vec![value]),
        _ => Err(token.refusal("the end")),
    }
}

/// The beginning of a value, or what stands between values.
enum Kind {
    Object,
    ObjectEnd,
    Array,
    ArrayEnd,
    Colon,
    Comma,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    /// None of these, for this reason.
    Wrong(&'static str),
}

struct Token {
    kind: Kind,
    /// Where it begins.
    at: usize,
}

impl Token {
    fn refusal(&self, expected: &str) -> Refusal {
        let found = match self.kind {
            Kind::Object => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::Array => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::String(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::End => "T_END",
            Kind::Wrong(reason) => reason,
        };
        format!("Expected {expected} but found {found} at character {}", self.at + 1).into()
    }
}

struct Parser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Result<Token, Refusal> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
        let at = self.at;
        let mut one = |kind| {
            self.at += 1;
            kind
        };
        let kind = match self.text.get(at) {
            None => Kind::End,
            Some(b'{') => one(Kind::Object),
            Some(b'}') => one(Kind::ObjectEnd),
            Some(b'[') => one(Kind::Array),
            Some(b']') => one(Kind::ArrayEnd),
            Some(b':') => one(Kind::Colon),
            Some(b',') => one(Kind::Comma),
            Some(b'"') => return Ok(self.string()),
            Some(_) => self.word(),
        };
        Ok(Token { kind, at })
    }

    /// Parses a number, or the name of a value.
    fn word(&mut self) -> Kind {
        let rest = &self.text[self.at..];
        for (name, kind) in
            [("true", Kind::Boolean(true)), ("false", Kind::Boolean(false)), ("null", Kind::Null)]
        {
            if rest.starts_with(name.as_bytes()) {
                self.at += name.len();
                return kind;
            }
        }
        let signed = usize::from(rest.first() == Some(&b'-'));
        let sign = if signed == 1 { -1.0 } else { 1.0 };
        for (name, number) in
            [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)]
        {
            let word = rest.get(signed..signed + name.len());
            if word.is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
                self.at += signed + name.len();
                return Kind::Number(sign * number);
            }
        }
        let digits = |from: usize| {
            rest[from.min(rest.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let mut end = signed + digits(signed);
        if end == signed {
            return Kind::Wrong(if signed == 1 { "invalid number" } else { "invalid token" });
        }
        if rest.get(end) == Some(&b'.') {
            end += 1 + digits(end + 1);
        }
        if let Some(b'e' | b'E') = rest.get(end) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let count = digits(end + 1 + sign);
            if count > 0 {
                end += 1 + sign + count;
            }
        }
        let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok());
        self.at += end;
        number.map_or(Kind::Wrong("invalid number"), Kind::Number)
    }

    fn string(&mut self) -> Token {
        let at = self.at;
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Token { kind: Kind::Wrong("unexpected end of string"), at: self.at };
            };
            match byte {
                b'"' => {
                    self.at += 1;
                    return Token { kind: Kind::String(bytes), at };
                }
                b'\\' => {
                    if let Err(reason) = self.escape(&mut bytes) {
                        return Token { kind: Kind::Wrong(reason), at: self.at };
                    }
                }
                _ => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// Parses an escape, which begins with a backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match self.text.get(self.at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                const WRONG: &str = "invalid unicode escape code";
                let first = self.unit(self.at).ok_or(WRONG)?;
                let (code, len) = match first {
                    0xd800..0xdc00 => {
                        let second =
                            self.unit(self.at + 6).filter(|it| (0xdc00..0xe000).contains(it));
                        let second = second.ok_or(WRONG)?;
                        (0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
                    }
                    _ => (first, 6),
                };
                let character = char::from_u32(code).ok_or(WRONG)?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        bytes.push(byte);
        self.at += 2;
        Ok(())
    }

    /// Returns the number of an escape such as `\u00e9`.
    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
        u32::from_str_radix(digits, 16).ok()
    }

    /// Parses the value that begins with a token.
    fn value(&mut self, token: Token) -> Result<Value, Refusal> {
        Ok(match token.kind {
            Kind::String(text) => Value::String(self.lua.create_string(text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Boolean(truth) => Value::Boolean(truth),
            Kind::Null => Value::NULL,
            Kind::Object | Kind::Array => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    let (depth, at) = (self.depth, token.at + 1);
                    let reason = format!("nested data structures ({depth}) at character {at}");
                    return Err(format!("Found too many {reason}").into());
                }
                let is_object = matches!(token.kind, Kind::Object);
                let table = if is_object { self.object() } else { self.array() }?;
                self.depth -= 1;
                Value::Table(table)
            }
            _ => return Err(token.refusal("value")),
        })
    }

    fn object(&mut self) -> Result<Table, Refusal> {
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.kind, Kind::ObjectEnd) {
            return Ok(table);
        }
        loop {
            let Kind::String(key) = token.kind else {
                return Err(token.refusal("object key string"));
            };
            let colon = self.next()?;
            if !matches!(colon.kind, Kind::Colon) {
                return Err(colon.refusal("colon"));
            }
            let first = self.next()?;
            table.raw_set(self.lua.create_string(key)?, self.value(first)?)?;
            let after = self.next()?;
            match after.kind {
                Kind::ObjectEnd => return Ok(table),
                Kind::Comma => token = self.next()?,
                _ => return Err(after.refusal("comma or object end")),
            }
        }
    }

    fn array(&mut self) -> Result<Table, Refusal> {
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.kind, Kind::ArrayEnd) {
            return Ok(table);
        }
        for at in 1.. {
            table.raw_set(at, self.value(token)?)?;
            let after = self.next()?;
            match after.kind {
                Kind::ArrayEnd => break,
                Kind::Comma => token = self.next()?,
                _ => return Err(after.refusal("comma or array end")),
            }
        }
        Ok(table)
    }
}
