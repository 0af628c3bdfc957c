//! Commands on strings.

use crate::call::{Call, ENTRY, Failure, NOT_AN_INTEGER, SYNTAX, TOO_LONG, Unit, text};
use crate::collections::{collection_of, string};
use crate::extended::Extended;
use crate::objects::Access;
use sprat_log::Content;
use sprat_resp::integer;
use sprat_wire::MAX_VALUE;
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::value::{Number, ValueType};

/// What the options of `SET` and `GETEX` say about the expiry.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Expiry {
    /// Nothing: `SET` removes it, `GETEX` leaves it.
    #[default]
    Unsaid,
    Keep,
    Persist,
    /// The argument with the number, and what it counts.
    At(usize, Unit),
}

/// The options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    if_absent: bool,
    if_present: bool,
    /// The argument with the value that the key must have.
    if_equal: Option<usize>,
    get: bool,
    expiry: Expiry,
}

impl Options {
    /// Parses the arguments from `from` on.
    fn parse(call: &Call<'_>, from: usize, is_set: bool) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut at = from;
        while let Some(argument) = call.command.get(at) {
            let has_next = at + 1 < call.command.len();
            let expiry = options.expiry;
            let unit = |seconds, relative| Unit { seconds, relative };
            let unit = match &argument.to_ascii_lowercase()[..] {
                b"nx" if is_set && !options.if_present && options.if_equal.is_none() => {
                    options.if_absent = true;
                    None
                }
                b"xx" if is_set && !options.if_absent && options.if_equal.is_none() => {
                    options.if_present = true;
                    None
                }
                b"get" if is_set => {
                    options.get = true;
                    None
                }
                b"ifeq" if is_set && has_next && !options.if_absent && !options.if_present => {
                    options.if_equal = Some(at + 1);
                    at += 1;
                    None
                }
                b"keepttl" if is_set && matches!(expiry, Expiry::Unsaid | Expiry::Keep) => {
                    options.expiry = Expiry::Keep;
                    None
                }
                b"persist" if !is_set && matches!(expiry, Expiry::Unsaid | Expiry::Persist) => {
                    options.expiry = Expiry::Persist;
                    None
                }
                b"ex" if has_next => Some(unit(true, true)),
                b"px" if has_next => Some(unit(false, true)),
                b"exat" if has_next => Some(unit(true, false)),
                b"pxat" if has_next => Some(unit(false, false)),
                _ => return Err(SYNTAX.into()),
            };
            if let Some(unit) = unit {
                match expiry {
                    Expiry::Unsaid => {}
                    Expiry::At(_, before) if before == unit => {}
                    _ => return Err(SYNTAX.into()),
                }
                options.expiry = Expiry::At(at + 1, unit);
                at += 1;
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns the time of an expiry that must not be zero or negative.
fn positive_expiry(call: &mut Call<'_>, at: usize, unit: Unit) -> Result<i64, Failure> {
    let number = call.integer(at)?;
    if number <= 0 {
        return Err(call.invalid_expiry());
    }
    call.expiry(number, unit)
}

/// Writes a string, or removes the key if the string would expire at once.
fn put_until(call: &mut Call<'_>, key: &[u8], value: &[u8], until: i64) -> Result<(), Failure> {
    let until = Time::try_from(until).expect("it is positive");
    if value.len() <= MAX_VALUE && until <= call.objects.time() {
        if call.find(key, Access::Change)?.is_some() {
            call.objects.remove(call.table, key)?;
        }
        return Ok(());
    }
    call.put(key, value, until)
}

pub(super) fn get(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    match string(call.objects.find(call.table, key, Access::Read)?)? {
        Some(entry) => call.reply.bulk(&text(&entry)),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn set(call: &mut Call<'_>) -> Result<(), Failure> {
    let options = Options::parse(call, 3, true)?;
    let until = match options.expiry {
        Expiry::At(at, unit) => Some(positive_expiry(call, at, unit)?),
        _ => None,
    };
    let key = call.key(1)?;
    let value = call.argument(2);
    let mut entry = call.objects.find(call.table, key, Access::Change)?;
    if options.get || options.if_equal.is_some() {
        entry = string(entry)?;
    }
    let holds = match (&entry, options) {
        (Some(_), Options { if_absent: true, .. }) | (None, Options { if_present: true, .. }) => {
            false
        }
        (entry, Options { if_equal: Some(at), .. }) => entry
            .as_ref()
            .is_some_and(|entry| text(entry)[..] == *call.command.get(at).expect("it was found")),
        _ => true,
    };
    let before = if options.expiry == Expiry::Keep {
        entry.as_ref().map_or(NEVER, |entry| entry.expires)
    } else {
        NEVER
    };
    match entry {
        Some(entry) if options.get => call.reply.bulk(&text(&entry)),
        None if options.get => call.reply.null(),
        _ if !holds => call.reply.null(),
        _ => {}
    }
    if !holds {
        return Ok(());
    }
    match until {
        Some(until) => put_until(call, key, value, until)?,
        None => call.put(key, value, before)?,
    }
    if !options.get {
        call.reply.simple("OK");
    }
    Ok(())
}

/// Sets a string with the expiry of argument 2.
fn set_with_expiry(call: &mut Call<'_>, seconds: bool) -> Result<(), Failure> {
    let until = positive_expiry(call, 2, Unit { seconds, relative: true })?;
    let key = call.key(1)?;
    call.find(key, Access::Change)?;
    put_until(call, key, call.argument(3), until)?;
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn setex(call: &mut Call<'_>) -> Result<(), Failure> {
    set_with_expiry(call, true)
}

pub(super) fn psetex(call: &mut Call<'_>) -> Result<(), Failure> {
    set_with_expiry(call, false)
}

pub(super) fn setnx(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let is_absent = call.find(key, Access::Change)?.is_none();
    if is_absent {
        call.put(key, call.argument(2), NEVER)?;
    }
    call.reply.integer(is_absent.into());
    Ok(())
}

pub(super) fn getset(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    match string(call.objects.find(call.table, key, Access::Change)?)? {
        Some(entry) => call.reply.bulk(&text(&entry)),
        None => call.reply.null(),
    }
    call.put(key, call.argument(2), NEVER)
}

pub(super) fn getdel(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    match string(call.objects.find(call.table, key, Access::Change)?)? {
        Some(entry) => {
            call.reply.bulk(&text(&entry));
            call.objects.remove(call.table, key)?;
        }
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_>) -> Result<(), Failure> {
    let Options { expiry, .. } = Options::parse(call, 2, false)?;
    let key = call.key(1)?;
    let access = if expiry == Expiry::Unsaid { Access::Read } else { Access::Change };
    let Some(entry) = string(call.find(key, access)?)? else {
        call.reply.null();
        return Ok(());
    };
    let (value, value_type) = (entry.value.to_vec(), entry.value_type);
    let (shown, before) = (text(&entry).into_owned(), entry.expires);
    let until = match expiry {
        Expiry::At(at, unit) => {
            Time::try_from(positive_expiry(call, at, unit)?).expect("it is positive")
        }
        Expiry::Persist => NEVER,
        Expiry::Unsaid | Expiry::Keep => before,
    };
    if until != NEVER && until <= call.objects.time() {
        call.objects.remove(call.table, key)?;
    } else if until != before {
        call.objects.put(call.table, key, Content { value: &value, value_type, expires: until })?;
    }
    call.reply.bulk(&shown);
    Ok(())
}

pub(super) fn mget(call: &mut Call<'_>) -> Result<(), Failure> {
    if !std::mem::replace(&mut call.resume.keeps_reply, true) {
        call.reply.array(call.command.len() - 1);
    }
    call.each_key(|call, key| {
        let found = call.objects.find(call.table, key, Access::Read)?;
        match found.filter(|entry| collection_of(entry).is_none()) {
            Some(entry) => {
                let len = entry.value.len();
                call.reply.bulk(&text(&entry));
                call.add_to_reply(len)?;
            }
            None => call.reply.null(),
        }
        Ok(())
    })
}

/// Writes all keys at once, if `may` says so for each, given whether it exists. Returns whether it
/// did.
fn put_all(call: &mut Call<'_>, may: impl Fn(bool) -> bool) -> Result<bool, Failure> {
    if call.command.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{}' command", call.name).into());
    }
    let mut bytes = 0;
    for at in (1..call.command.len()).step_by(2) {
        let key = call.key(at)?;
        if !may(call.find(key, Access::Change)?.is_some()) {
            return Ok(false);
        }
        bytes += ENTRY + key.len() + call.argument(at + 1).len();
    }
    call.together((bytes, false), |call| {
        (1..call.command.len())
            .step_by(2)
            .try_for_each(|at| call.put(call.key(at)?, call.argument(at + 1), NEVER))
    })?;
    Ok(true)
}

pub(super) fn mset(call: &mut Call<'_>) -> Result<(), Failure> {
    put_all(call, |_| true)?;
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn msetnx(call: &mut Call<'_>) -> Result<(), Failure> {
    let is_done = put_all(call, |exists| !exists)?;
    call.reply.integer(is_done.into());
    Ok(())
}

pub(super) fn append(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let (mut value, until) = value_of(call, key)?;
    value.extend_from_slice(call.argument(2));
    call.put(key, &value, until)?;
    call.reply.integer(length(value.len()));
    Ok(())
}

/// Returns a copy of a string that is going to change, and when it expires.
fn value_of(call: &mut Call<'_>, key: &[u8]) -> Result<(Vec<u8>, Time), Failure> {
    let entry = string(call.find(key, Access::Change)?)?;
    Ok(entry.map_or((Vec::new(), NEVER), |entry| (text(&entry).into_owned(), entry.expires)))
}

/// Returns a length or number as replies have it.
pub(super) fn length(len: usize) -> i64 {
    i64::try_from(len).expect("lengths are limited")
}

pub(super) fn strlen(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let len = string(call.find(key, Access::Read)?)?.map_or(0, |entry| text(&entry).len());
    call.reply.integer(length(len));
    Ok(())
}

pub(super) fn getrange(call: &mut Call<'_>) -> Result<(), Failure> {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let key = call.key(1)?;
    match string(call.objects.find(call.table, key, Access::Read)?)? {
        Some(entry) => {
            let text = text(&entry);
            call.reply.bulk(slice(&text, start, end));
        }
        None => call.reply.bulk(b""),
    }
    Ok(())
}

/// Returns the bytes from `start` to `end`, both included, and counted from the end if negative.
fn slice(text: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let len = length(text.len());
    let from_begin = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (from_begin(start), from_begin(end).min(len - 1));
    if start > end {
        return b"";
    }
    let at = |position: i64| usize::try_from(position).expect("within the text");
    &text[at(start)..=at(end)]
}

pub(super) fn setrange(call: &mut Call<'_>) -> Result<(), Failure> {
    let offset = call.integer(2)?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err("ERR offset is out of range".into());
    };
    let (key, part) = (call.key(1)?, call.argument(3));
    let (mut value, until) = value_of(call, key)?;
    if !part.is_empty() {
        if offset.saturating_add(part.len()) > MAX_VALUE {
            return Err(TOO_LONG.into());
        }
        value.resize(value.len().max(offset + part.len()), 0);
        value[offset..][..part.len()].copy_from_slice(part);
        call.put(key, &value, until)?;
    }
    call.reply.integer(length(value.len()));
    Ok(())
}

/// Adds to the integer that a string is.
fn add(call: &mut Call<'_>, delta: i64) -> Result<(), Failure> {
    let key = call.key(1)?;
    let entry = string(call.find(key, Access::Change)?)?;
    let until = entry.as_ref().map_or(NEVER, |entry| entry.expires);
    // A counter of the store's own clients stays one.
    let is_counter = entry.as_ref().is_some_and(|entry| entry.value_type == ValueType::Integer);
    let present = entry.map_or(Some(0), |entry| integer(&text(&entry))).ok_or(NOT_AN_INTEGER)?;
    let sum = present.checked_add(delta).ok_or("ERR increment or decrement would overflow")?;
    if is_counter {
        let number = Number::Integer(sum);
        let (value, value_type) = (number.bytes(), number.value_type());
        call.objects.put(call.table, key, Content { value: &value, value_type, expires: until })?;
    } else {
        call.put(key, sum.to_string().as_bytes(), until)?;
    }
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn incr(call: &mut Call<'_>) -> Result<(), Failure> {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_>) -> Result<(), Failure> {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_>) -> Result<(), Failure> {
    add(call, call.integer(2)?)
}

/// The reply to an argument or a string that must be a number and is none.
pub(super) const NOT_A_FLOAT: &str = "ERR value is not a valid float";

pub(super) fn incrbyfloat(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let entry = string(call.find(key, Access::Change)?)?;
    let until = entry.as_ref().map_or(NEVER, |entry| entry.expires);
    let present = entry.map_or(Some(Extended::zero()), |entry| Extended::parse(&text(&entry)));
    let delta = present.and_then(|present| Some((present, Extended::parse(call.argument(2))?)));
    let (present, delta) = delta.ok_or(NOT_A_FLOAT)?;
    let sum = present.plus(&delta).text();
    let sum = sum.ok_or("ERR increment would produce NaN or Infinity")?;
    call.put(key, sum.as_bytes(), until)?;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}

pub(super) fn decrby(call: &mut Call<'_>) -> Result<(), Failure> {
    let delta = call.integer(2)?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(call, delta)
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn ranges_count_from_either_end() {
        let cases: &[(i64, i64, &[u8])] = &[
            (0, -1, b"abcde"),
            (0, 0, b"a"),
            (-3, -2, b"cd"),
            (-100, 1, b"ab"),
            (3, 100, b"de"),
            (5, 9, b""),
            (3, 1, b""),
            (-1, -3, b""),
            (i64::MIN, i64::MAX, b"abcde"),
        ];
        for (start, end, expected) in cases {
            assert_eq!(slice(b"abcde", *start, *end), *expected, "{start} {end}");
        }
        assert_eq!(slice(b"", 0, -1), b"");
    }
}
