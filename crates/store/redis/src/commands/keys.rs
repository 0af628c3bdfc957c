//! Commands on keys, whatever their values are.

use crate::call::{Call, ENTRY, Failure, NOT_AN_INTEGER, SYNTAX, Unit, expires, find_in};
use crate::collections::{collection_of, making_len};
use crate::glob;
use crate::objects::{Access, Unready};
use crate::session::DATABASES;
use sprat_log::Content;
use sprat_resp::integer;
use sprat_wire::elements::{CollectionId, CollectionKind};
use sprat_wire::entry::Entry;
use sprat_wire::expiry::{NEVER, Time};
use std::ops::Range;

/// How many keys `KEYS` looks at before others have their turn.
const AT_ONCE: usize = 1024;

/// How many pieces of the table a `SCAN` or `RANDOMKEY` looks through before others have their
/// turn.
const PIECES: usize = 16;

/// Limit on the number of keys of a `SCAN`.
const MAX_COUNT: i64 = 4096;

pub(super) fn del(call: &mut Call<'_>) -> Result<(), Failure> {
    call.each_key(|call, key| {
        if call.find(key, Access::Change)?.is_some() {
            call.objects.remove(call.table, key)?;
            call.resume.count += 1;
        }
        Ok(())
    })?;
    call.reply.integer(call.resume.count);
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_>) -> Result<(), Failure> {
    call.each_key(|call, key| {
        call.resume.count += i64::from(call.find(key, Access::Read)?.is_some());
        Ok(())
    })?;
    call.reply.integer(call.resume.count);
    Ok(())
}

pub(super) fn type_of(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let found = call.find(key, Access::Read)?;
    let name = found.map_or("none", |entry| type_name(&entry));
    call.reply.simple(name);
    Ok(())
}

/// Returns the type of a value, as Redis names it.
fn type_name(entry: &Entry<'_>) -> &'static str {
    match collection_of(entry).map(CollectionId::kind) {
        None => "string",
        Some(CollectionKind::Hash) => "hash",
        Some(CollectionKind::List) => "list",
        Some(CollectionKind::Set) => "set",
        Some(CollectionKind::SortedSet) => "zset",
    }
}

pub(super) fn dbsize(call: &mut Call<'_>) -> Result<(), Failure> {
    let count = call.objects.count(call.table);
    call.reply.integer(count.cast_signed());
    Ok(())
}

/// The conditions of `EXPIRE` on the present expiry.
#[derive(Clone, Copy, Default)]
struct Conditions {
    /// There is none.
    nx: bool,
    /// There is one.
    xx: bool,
    /// The new one is later.
    gt: bool,
    /// The new one is earlier.
    lt: bool,
}

impl Conditions {
    fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let mut conditions = Self::default();
        for argument in call.command.iter().skip(3) {
            match &argument.to_ascii_lowercase()[..] {
                b"nx" => conditions.nx = true,
                b"xx" => conditions.xx = true,
                b"gt" => conditions.gt = true,
                b"lt" => conditions.lt = true,
                _ => {
                    let option = String::from_utf8_lossy(argument);
                    return Err(format!("ERR Unsupported option {option}").into());
                }
            }
        }
        let Self { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into()
            );
        }
        if gt && lt {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }

    fn hold(self, present: Option<i64>, next: i64) -> bool {
        !(self.nx && present.is_some()
            || self.xx && present.is_none()
            || self.gt && present.is_none_or(|present| next <= present)
            || self.lt && present.is_some_and(|present| next >= present))
    }
}

/// Sets when a key expires, and removes it if that is now.
fn set_expiry(call: &mut Call<'_>, unit: Unit) -> Result<(), Failure> {
    let conditions = Conditions::parse(call)?;
    let until = call.expiry(call.integer(2)?, unit)?;
    let key = call.key(1)?;
    let now = call.objects.time().cast_signed();
    let Some(entry) = call.find(key, Access::Change)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let holds = conditions.hold(expires(&entry), until);
    if holds {
        let (value, value_type) = (entry.value.to_vec(), entry.value_type);
        match Time::try_from(until) {
            Ok(expires) if until > now => {
                call.objects.put(
                    call.table,
                    key,
                    Content { value: &value, value_type, expires },
                )?;
            }
            _ => call.objects.remove(call.table, key)?,
        }
    }
    call.reply.integer(holds.into());
    Ok(())
}

pub(super) fn expire(call: &mut Call<'_>) -> Result<(), Failure> {
    set_expiry(call, Unit { seconds: true, relative: true })
}

pub(super) fn pexpire(call: &mut Call<'_>) -> Result<(), Failure> {
    set_expiry(call, Unit { seconds: false, relative: true })
}

pub(super) fn expireat(call: &mut Call<'_>) -> Result<(), Failure> {
    set_expiry(call, Unit { seconds: true, relative: false })
}

pub(super) fn pexpireat(call: &mut Call<'_>) -> Result<(), Failure> {
    set_expiry(call, Unit { seconds: false, relative: false })
}

pub(super) fn persist(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let entry = call.find(key, Access::Change)?.filter(|entry| entry.expires != NEVER);
    let persists = entry.is_some();
    if let Some(entry) = entry {
        let (value, value_type) = (entry.value.to_vec(), entry.value_type);
        let content = Content { value: &value, value_type, expires: NEVER };
        call.objects.put(call.table, key, content)?;
    }
    call.reply.integer(persists.into());
    Ok(())
}

/// Replies with what `of` makes of the time at which the key expires and the present time, or with
/// -1 if the key does not expire, and -2 if there is none.
fn time_left(call: &mut Call<'_>, of: impl Fn(i64, i64) -> i64) -> Result<(), Failure> {
    let key = call.key(1)?;
    let now = call.objects.time().cast_signed();
    let found = call.find(key, Access::Read)?.map(|entry| expires(&entry));
    call.reply.integer(match found {
        None => -2,
        Some(None) => -1,
        Some(Some(until)) => of(until, now),
    });
    Ok(())
}

/// Returns milliseconds as seconds, rounded.
fn seconds(millis: i64) -> i64 {
    (millis + 500) / 1000
}

pub(super) fn ttl(call: &mut Call<'_>) -> Result<(), Failure> {
    time_left(call, |until, now| seconds((until - now).max(0)))
}

pub(super) fn pttl(call: &mut Call<'_>) -> Result<(), Failure> {
    time_left(call, |until, now| (until - now).max(0))
}

pub(super) fn expiretime(call: &mut Call<'_>) -> Result<(), Failure> {
    time_left(call, |until, _| seconds(until))
}

pub(super) fn pexpiretime(call: &mut Call<'_>) -> Result<(), Failure> {
    time_left(call, |until, _| until)
}

pub(super) fn copy(call: &mut Call<'_>) -> Result<(), Failure> {
    let (mut replaces, mut database, mut at) = (false, call.session.database, 3);
    while let Some(option) = call.command.get(at) {
        match &option.to_ascii_lowercase()[..] {
            b"replace" => replaces = true,
            b"db" if at + 1 < call.command.len() => {
                at += 1;
                database = call.database(at)?;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let (from, to) = (call.key(1)?, call.key(2)?);
    if from == to && database == call.session.database {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(entry) = call.find(from, Access::Read)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let (value, value_type, expires) = (entry.value.to_vec(), entry.value_type, entry.expires);
    let collection = collection_of(&entry);
    let table = call.table_of(database)?;
    let is_there = find_in(call.objects, (database, table), to, Access::Change)?.is_some();
    let copies = replaces || !is_there;
    match collection {
        _ if !copies => {}
        Some(id) => call.copy_collection(id, (table, to), expires, 0, |_| Ok(()))?,
        None => call.objects.put(table, to, Content { value: &value, value_type, expires })?,
    }
    call.reply.integer(copies.into());
    Ok(())
}

/// Moves a key to another name or another database, if `may` says so, given whether there is a key
/// already. Returns whether it did; `None` if there is no key to be moved.
fn move_to(
    call: &mut Call<'_>,
    key: &[u8],
    (database, table, to): (usize, u32, &[u8]),
    may: impl Fn(bool) -> bool,
) -> Result<Option<bool>, Failure> {
    let Some(entry) = call.find(key, Access::Change)? else { return Ok(None) };
    let (value, value_type, expires) = (entry.value.to_vec(), entry.value_type, entry.expires);
    let collection = collection_of(&entry);
    if !may(find_in(call.objects, (database, table), to, Access::Change)?.is_some()) {
        return Ok(Some(false));
    }
    let remove = |call: &mut Call<'_>| Ok(call.objects.remove(call.table, key)?);
    let bytes = ENTRY + key.len();
    match collection {
        _ if (table, to) == (call.table, key) => {}
        Some(id) if table != call.table => {
            call.copy_collection(id, (table, to), expires, bytes, remove)?;
        }
        Some(id) => call.together((bytes + making_len(to), false), |call| {
            call.put_head((table, to), id, expires)?;
            remove(call)
        })?,
        None => call.together((bytes + ENTRY + to.len() + value.len(), false), |call| {
            call.objects.put(table, to, Content { value: &value, value_type, expires })?;
            remove(call)
        })?,
    }
    Ok(Some(true))
}

/// The reply to a command that needs a key which is not there.
const NO_SUCH_KEY: &str = "ERR no such key";

pub(super) fn rename(call: &mut Call<'_>) -> Result<(), Failure> {
    let place = (call.session.database, call.table, call.key(2)?);
    move_to(call, call.key(1)?, place, |_| true)?.ok_or(NO_SUCH_KEY)?;
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn renamenx(call: &mut Call<'_>) -> Result<(), Failure> {
    let place = (call.session.database, call.table, call.key(2)?);
    let moved = move_to(call, call.key(1)?, place, |exists| !exists)?.ok_or(NO_SUCH_KEY)?;
    call.reply.integer(moved.into());
    Ok(())
}

pub(super) fn move_key(call: &mut Call<'_>) -> Result<(), Failure> {
    let (key, database) = (call.key(1)?, call.database(2)?);
    if database == call.session.database {
        return Err("ERR source and destination objects are the same".into());
    }
    let place = (database, call.table_of(database)?, key);
    let moved = move_to(call, key, place, |exists| !exists)?;
    call.reply.integer(moved.unwrap_or(false).into());
    Ok(())
}

/// Empties databases.
fn flush(call: &mut Call<'_>, mut databases: Range<usize>) -> Result<(), Failure> {
    let is_known = |option: &[u8]| {
        option.eq_ignore_ascii_case(b"sync") || option.eq_ignore_ascii_case(b"async")
    };
    if call.command.len() > 2 || !call.command.iter().skip(1).all(is_known) {
        return Err(SYNTAX.into());
    }
    if std::mem::replace(&mut call.resume.done, 1) == 0 {
        databases.clone().for_each(|database| call.server.clear(database));
    }
    if databases.any(|database| call.server.is_clearing(database)) {
        return Err(Unready::Later("the database will be empty in a moment").into());
    }
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn flushdb(call: &mut Call<'_>) -> Result<(), Failure> {
    flush(call, call.session.database..call.session.database + 1)
}

pub(super) fn flushall(call: &mut Call<'_>) -> Result<(), Failure> {
    flush(call, 0..DATABASES)
}

pub(super) fn keys(call: &mut Call<'_>) -> Result<(), Failure> {
    let pattern = call.pattern(1)?;
    let mut page = Vec::new();
    let next = call.objects.keys(call.table, call.resume.after, AT_ONCE, &mut page)?;
    page.retain(|key| glob::matches(pattern, key));
    call.add_to_reply(page.iter().map(Vec::len).sum())?;
    call.resume.found.append(&mut page);
    if next.is_some() {
        call.resume.after = next;
        return Err(Failure::Continue);
    }
    call.reply.array(call.resume.found.len());
    call.resume.found.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

/// What a scan is to find.
pub(super) struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    pub(super) count: usize,
    type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Parses the arguments from `at` on. Only scans of keys choose a type.
    pub(super) fn parse(call: &Call<'a>, mut at: usize, of_keys: bool) -> Result<Self, Failure> {
        let (mut pattern, mut count, mut type_name) = (None, 10, None);
        while let Some(option) = call.command.get(at) {
            let value = call.command.get(at + 1);
            match (&option.to_ascii_lowercase()[..], value) {
                (b"match", Some(_)) => pattern = Some(call.pattern(at + 1)?),
                (b"count", Some(value)) => {
                    count = integer(value).ok_or(NOT_AN_INTEGER)?;
                    if count < 1 {
                        return Err(SYNTAX.into());
                    }
                }
                (b"type", Some(value)) if of_keys => type_name = Some(value),
                _ => return Err(SYNTAX.into()),
            }
            at += 2;
        }
        let count = usize::try_from(count.min(MAX_COUNT)).expect("it is positive");
        Ok(Self { pattern, count, type_name })
    }

    /// Returns whether a name is to be found.
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Returns the cursor of a scan, parsed as C's `strtoul` does: nothing is zero, and a number may
/// have a sign.
pub(super) fn scan_cursor(call: &Call<'_>, at: usize) -> Result<u64, Failure> {
    let text = call.argument(at);
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] => (digits, false),
        [] => return Ok(0),
        _ => (text, false),
    };
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number);
    match number.and_then(|digits| digits.parse::<u64>().ok()) {
        Some(number) => Ok(if is_negative { number.wrapping_neg() } else { number }),
        None => Err("ERR invalid cursor".into()),
    }
}

pub(super) fn scan(call: &mut Call<'_>) -> Result<(), Failure> {
    let cursor = scan_cursor(call, 1)?;
    let options = ScanOptions::parse(call, 2, true)?;
    let count = options.count;
    // Zero is where a scan begins, and where it ends; any other cursor is above the last position.
    let mut after = cursor.checked_sub(1);
    let mut found = Vec::new();
    for _ in 0..PIECES {
        let wanted = count - found.len();
        after = call.objects.keys(call.table, after, wanted, &mut found)?;
        if after.is_none() || found.len() >= count {
            break;
        }
    }
    found.retain(|key| options.wants(key));
    if let Some(wanted) = options.type_name {
        let mut left = Vec::new();
        for key in found {
            let entry = call.find(&key, Access::Read)?;
            if entry.is_some_and(|it| wanted.eq_ignore_ascii_case(type_name(&it).as_bytes())) {
                left.push(key);
            }
        }
        found = left;
    }
    call.reply.array(2);
    call.reply.bulk(after.map_or(0, |after| after + 1).to_string().as_bytes());
    call.reply.array(found.len());
    found.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

/// Replies with the first key after a random position. So a key is the likelier, the larger the gap
/// before it.
pub(super) fn randomkey(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut found = Vec::new();
    if call.resume.after.is_none() {
        call.resume.after = Some(call.server.random());
    }
    for _ in 0..PIECES {
        let next = call.objects.keys(call.table, call.resume.after, 1, &mut found)?;
        if !found.is_empty() {
            break;
        }
        // At the end the search begins once more; then it has seen every position.
        call.resume.done += usize::from(next.is_none());
        if call.resume.done == 2 {
            break;
        }
        call.resume.after = Some(next.unwrap_or(0));
    }
    match found.first() {
        Some(key) => call.reply.bulk(key),
        None if call.resume.done == 2 => call.reply.null(),
        None => return Err(Failure::Continue),
    }
    Ok(())
}
