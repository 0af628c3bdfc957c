//! Commands on hashes.

use super::keys::{ScanOptions, scan_cursor};
use super::strings::{NOT_A_FLOAT, length};
use crate::call::{Call, Failure, NOT_AN_INTEGER, SYNTAX};
use crate::collections::{ELEMENT, check_element, name_of, with_range};
use crate::extended::{Extended, MAX_SUM};
use crate::objects::Access;
use sprat_resp::{Protocol, integer};
use sprat_wire::elements::CollectionId;
use sprat_wire::elements::CollectionKind::Hash;
use sprat_wire::entry::Entry;
use sprat_wire::order::KeyRange;
use std::ops::Bound;

/// The largest number of elements of a collection that a scan returns at once, whatever its count.
const SMALL: usize = 128;

/// Limit on the number of fields that are asked for with their values, in either direction.
const MOST: i64 = i64::MAX / 2;

/// Bytes that a reply of many parts has for each of them, at least.
const PART: usize = 8;

/// Returns the fields and values of a command that has them in turns from argument 2 on.
fn pairs<'a>(call: &Call<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
    let command = call.command;
    let argument = move |at| command.get(at).expect("it has so many");
    (2..command.len()).step_by(2).map(move |at| (argument(at), argument(at + 1)))
}

/// Writes fields; returns how many of them are new.
fn put_fields(call: &mut Call<'_>) -> Result<i64, Failure> {
    if !call.command.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{}' command", call.name).into());
    }
    let key = call.key(1)?;
    let (mut count, mut bytes) = (0, 0);
    for (field, value) in pairs(call) {
        check_element(field, value)?;
        (count, bytes) = (count + 1, bytes + ELEMENT + field.len() + value.len());
    }
    let mut added = 0;
    let pairs = pairs(call);
    call.change_collection(key, Hash, (count, bytes), |call, id| {
        for (field, value) in pairs {
            added += i64::from(call.put_element(id, field, value)?);
        }
        Ok(())
    })?;
    Ok(added)
}

pub(super) fn hset(call: &mut Call<'_>) -> Result<(), Failure> {
    let added = put_fields(call)?;
    call.reply.integer(added);
    Ok(())
}

pub(super) fn hmset(call: &mut Call<'_>) -> Result<(), Failure> {
    put_fields(call)?;
    call.reply.simple("OK");
    Ok(())
}

/// Writes a field.
fn put_field(call: &mut Call<'_>, key: &[u8], field: &[u8], value: &[u8]) -> Result<(), Failure> {
    check_element(field, value)?;
    let bytes = ELEMENT + field.len() + value.len();
    call.change_collection(key, Hash, (1, bytes), |call, id| {
        call.put_element(id, field, value).map(drop)
    })
}

/// Finds the value of a field that is going to change.
fn value_of<'c>(
    call: &'c mut Call<'_>,
    key: &[u8],
    field: &[u8],
) -> Result<Option<&'c [u8]>, Failure> {
    let Some(id) = call.collection(key, Hash, Access::Change)? else { return Ok(None) };
    Ok(call.element(id, field).map(|entry| entry.value))
}

pub(super) fn hsetnx(call: &mut Call<'_>) -> Result<(), Failure> {
    let (key, field) = (call.key(1)?, call.argument(2));
    let is_absent = value_of(call, key, field)?.is_none();
    if is_absent {
        put_field(call, key, field, call.argument(3))?;
    }
    call.reply.integer(is_absent.into());
    Ok(())
}

pub(super) fn hget(call: &mut Call<'_>) -> Result<(), Failure> {
    let (key, field) = (call.key(1)?, call.argument(2));
    let id = call.collection(key, Hash, Access::Read)?;
    reply_value(call, id, field);
    Ok(())
}

/// Replies with the value of a field. Returns its length.
fn reply_value(call: &mut Call<'_>, id: Option<CollectionId>, field: &[u8]) -> usize {
    let value = id.and_then(|id| call.element(id, field)).map(|entry| entry.value.to_vec());
    match &value {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    value.map_or(0, |value| value.len())
}

pub(super) fn hmget(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, Hash, Access::Read)?;
    call.reply.array(call.command.len() - 2);
    for at in 2..call.command.len() {
        let len = reply_value(call, id, call.argument(at));
        call.add_to_reply(len)?;
    }
    Ok(())
}

pub(super) fn hlen(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, Hash, Access::Read)?;
    let count = id.map_or(0, |id| call.count(id));
    call.reply.integer(length(count));
    Ok(())
}

pub(super) fn hstrlen(call: &mut Call<'_>) -> Result<(), Failure> {
    let (key, field) = (call.key(1)?, call.argument(2));
    let id = call.collection(key, Hash, Access::Read)?;
    let value = id.and_then(|id| call.element(id, field));
    let len = value.map_or(0, |entry| entry.value.len());
    call.reply.integer(length(len));
    Ok(())
}

pub(super) fn hexists(call: &mut Call<'_>) -> Result<(), Failure> {
    let (key, field) = (call.key(1)?, call.argument(2));
    let id = call.collection(key, Hash, Access::Read)?;
    let exists = id.is_some_and(|id| call.element(id, field).is_some());
    call.reply.integer(exists.into());
    Ok(())
}

pub(super) fn hdel(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let removed = match call.collection(key, Hash, Access::Change)? {
        Some(id) => call.remove_elements(key, id, call.command.iter().skip(2))?,
        None => 0,
    };
    call.reply.integer(length(removed));
    Ok(())
}

/// Replies with the fields, the values, or both.
fn reply_all(call: &mut Call<'_>, fields: bool, values: bool) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, Hash, Access::Read)?;
    let count = id.map_or(0, |id| call.count(id));
    match fields && values {
        true => call.reply.map(count),
        false => call.reply.array(count),
    }
    let Some(id) = id else { return Ok(()) };
    let (room, mut bytes) = (call.room, 0);
    let Call { objects, reply, table, .. } = call;
    let mut add = |part: &[u8]| {
        bytes += PART + part.len();
        if bytes <= room {
            reply.bulk(part);
        }
    };
    let mut visit = |entry: &Entry<'_>| {
        if fields {
            add(name_of(entry));
        }
        if values {
            add(entry.value);
        }
    };
    with_range(id, |range| objects.visit_elements(*table, range, (0, count), &mut visit));
    call.add_to_reply(bytes)
}

pub(super) fn hkeys(call: &mut Call<'_>) -> Result<(), Failure> {
    reply_all(call, true, false)
}

pub(super) fn hvals(call: &mut Call<'_>) -> Result<(), Failure> {
    reply_all(call, false, true)
}

pub(super) fn hgetall(call: &mut Call<'_>) -> Result<(), Failure> {
    reply_all(call, true, true)
}

pub(super) fn hincrby(call: &mut Call<'_>) -> Result<(), Failure> {
    let delta = call.integer(3)?;
    let (key, field) = (call.key(1)?, call.argument(2));
    let present = value_of(call, key, field)?.map_or(Some(0), integer);
    let present = present.ok_or("ERR hash value is not an integer")?;
    let sum = present.checked_add(delta).ok_or("ERR increment or decrement would overflow")?;
    put_field(call, key, field, sum.to_string().as_bytes())?;
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(call: &mut Call<'_>) -> Result<(), Failure> {
    let delta = Extended::parse(call.argument(3)).ok_or(NOT_A_FLOAT)?;
    if delta == Extended::Infinite {
        return Err("ERR value is NaN or Infinity".into());
    }
    let (key, field) = (call.key(1)?, call.argument(2));
    let present = value_of(call, key, field)?.map_or(Some(Extended::zero()), Extended::parse);
    let present = present.ok_or("ERR hash value is not a float")?;
    let sum = present.plus(&delta).text();
    let sum = sum.ok_or("ERR increment would produce NaN or Infinity")?;
    debug_assert!(sum.len() <= MAX_SUM);
    put_field(call, key, field, sum.as_bytes())?;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}

pub(super) fn hscan(call: &mut Call<'_>) -> Result<(), Failure> {
    let cursor = scan_cursor(call, 2)?;
    let key = call.key(1)?;
    let Some(id) = call.collection(key, Hash, Access::Read)? else {
        call.reply.array(2);
        call.reply.bulk(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let options = ScanOptions::parse(call, 3, false)?;
    let is_small = call.count(id) <= SMALL;
    let limit = if is_small { SMALL } else { options.count };
    let [first, end] = id.range();
    let known = call.server.cursors.find(cursor).filter(|last| CollectionId::of(last) == Some(id));
    let last = known.map(<[u8]>::to_vec);
    let from = last.as_deref().map_or(Bound::Included(&first[..]), Bound::Excluded);
    let range = KeyRange { from, to: Bound::Excluded(&end[..]), descending: false };
    let (mut visited, mut last, mut found) = (0, Vec::new(), Vec::new());
    call.objects.visit_elements(call.table, &range, (0, limit), &mut |entry| {
        visited += 1;
        if visited == limit {
            last = entry.key.to_vec();
        }
        if options.wants(name_of(entry)) {
            found.push((name_of(entry).to_vec(), entry.value.to_vec()));
        }
    });
    let next = if is_small || visited < limit { 0 } else { call.server.cursors.add(&last) };
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(2 * found.len());
    for (field, value) in &found {
        call.add_to_reply(field.len() + value.len())?;
        call.reply.bulk(field);
        call.reply.bulk(value);
    }
    Ok(())
}

pub(super) fn hrandfield(call: &mut Call<'_>) -> Result<(), Failure> {
    let count = match call.command.get(2) {
        Some(count) => Some(integer(count).ok_or(NOT_AN_INTEGER)?),
        None => None,
    };
    if count == Some(i64::MIN) {
        let range = format!("value must between -{} and {0}", i64::MAX);
        return Err(format!("ERR value is out of range, {range}").into());
    }
    let with_values = match (call.command.len(), call.command.get(3)) {
        (..=3, _) => false,
        (4, Some(option)) if option.eq_ignore_ascii_case(b"withvalues") => true,
        _ => return Err(SYNTAX.into()),
    };
    if with_values && count.is_some_and(|count| !(-MOST..=MOST).contains(&count)) {
        return Err("ERR value is out of range".into());
    }
    let key = call.key(1)?;
    let id = call.collection(key, Hash, Access::Read)?;
    let len = id.map_or(0, |id| call.count(id));
    let Some(count) = count else {
        match id {
            Some(id) => {
                let at = call.server.random_below(len);
                let (field, _) = field_at(call, id, at);
                call.reply.bulk(&field);
            }
            None => call.reply.null(),
        }
        return Ok(());
    };
    let Some(id) = id else {
        call.reply.array(0);
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).expect("within a usize");
    let distinct = (count >= 0).then(|| call.server.random_distinct(wanted.min(len), len));
    let wanted = distinct.as_ref().map_or(wanted, Vec::len);
    let in_pairs = with_values && call.session.protocol == Protocol::Resp3;
    call.reply.array(if with_values && !in_pairs { 2 * wanted } else { wanted });
    for index in 0..wanted {
        let at = match &distinct {
            Some(ranks) => ranks[index],
            None => call.server.random_below(len),
        };
        let (field, value) = field_at(call, id, at);
        call.add_to_reply(PART + field.len() + if with_values { value.len() } else { 0 })?;
        if in_pairs {
            call.reply.array(2);
        }
        call.reply.bulk(&field);
        if with_values {
            call.reply.bulk(&value);
        }
    }
    Ok(())
}

/// Returns a field and its value by the number of fields before it.
fn field_at(call: &mut Call<'_>, id: CollectionId, at: usize) -> (Vec<u8>, Vec<u8>) {
    let mut found = None;
    call.visit(id, (at, 1), &mut |entry| {
        found = Some((name_of(entry).to_vec(), entry.value.to_vec()));
    });
    found.expect("there are more fields")
}
