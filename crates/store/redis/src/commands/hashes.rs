//! Commands on hashes.

use super::elements::{self, reply_each};
use super::strings::{NOT_A_FLOAT, length};
use crate::call::{Call, Failure};
use crate::collections::{ELEMENT, Span, check_element, name_of};
use crate::extended::{Extended, MAX_SUM};
use crate::objects::Access;
use sprat_resp::integer;
use sprat_wire::elements::CollectionId;
use sprat_wire::elements::CollectionKind::Hash;

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
    elements::count(call, Hash)
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
    elements::exists(call, Hash)
}

pub(super) fn hdel(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::remove(call, Hash)
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
    reply_each(call, &Span::of(id), (0, count), |reply, entry| {
        if fields {
            reply.bulk(name_of(entry));
        }
        if values {
            reply.bulk(entry.value);
        }
    })
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
    elements::scan(call, Hash)
}

pub(super) fn hrandfield(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::random(call, Hash, Some("withvalues"))
}
