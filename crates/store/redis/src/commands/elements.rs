//! What commands on collections of several kinds have in common.

use super::keys::{ScanOptions, scan_cursor};
use super::strings::length;
use crate::call::{Call, Failure, NOT_AN_INTEGER, NOT_POSITIVE, SYNTAX};
use crate::collections::{Element, Span, name_of};
use crate::objects::Access;
use sprat_resp::{Protocol, ReplyWriter, double_text, integer};
use sprat_wire::elements::{CollectionId, CollectionKind, sort_key};
use sprat_wire::entry::Entry;
use std::borrow::Cow;

/// The largest number of elements of a collection that a scan returns at once, whatever its count.
const SMALL: usize = 128;

/// Limit on the number of elements that are asked for with their values, in either direction.
const MOST: i64 = i64::MAX / 2;

/// Bytes that a reply of many parts has for each of them, at least.
pub(super) const PART: usize = 8;

/// Returns the score of a member of a sorted set, given the element's value.
pub(super) fn score_of(value: &[u8]) -> f64 {
    value.try_into().map_or(0.0, f64::from_le_bytes)
}

/// Replies with the number of elements.
pub(super) fn count(call: &mut Call<'_>, kind: CollectionKind) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, kind, Access::Read)?;
    let count = id.map_or(0, |id| call.count(id));
    call.reply.integer(length(count));
    Ok(())
}

/// Replies with whether there is an element with the name that is argument 2.
pub(super) fn exists(call: &mut Call<'_>, kind: CollectionKind) -> Result<(), Failure> {
    let (key, name) = (call.key(1)?, call.argument(2));
    let id = call.collection(key, kind, Access::Read)?;
    let exists = id.is_some_and(|id| call.element(id, name).is_some());
    call.reply.integer(exists.into());
    Ok(())
}

/// Removes the elements whose names are the arguments from 2 on.
pub(super) fn remove(call: &mut Call<'_>, kind: CollectionKind) -> Result<(), Failure> {
    let key = call.key(1)?;
    let removed = match call.collection(key, kind, Access::Change)? {
        Some(id) => call.remove_elements(key, id, call.command.iter().skip(2))?,
        None => 0,
    };
    call.reply.integer(length(removed));
    Ok(())
}

/// Replies with the value of an element.
fn write_value(reply: &mut ReplyWriter<'_>, kind: CollectionKind, value: &[u8]) {
    match kind {
        CollectionKind::SortedSet => reply.double(score_of(value)),
        _ => reply.bulk(value),
    }
}

pub(super) fn scan(call: &mut Call<'_>, kind: CollectionKind) -> Result<(), Failure> {
    let cursor = scan_cursor(call, 2)?;
    let key = call.key(1)?;
    let Some(id) = call.collection(key, kind, Access::Read)? else {
        call.reply.array(2);
        call.reply.bulk(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let options = ScanOptions::parse(call, 3, false)?;
    let is_small = call.count(id) <= SMALL;
    let limit = if is_small { SMALL } else { options.count };
    let mut span = Span::of(id);
    let known = call.server.cursors.find(cursor).filter(|last| CollectionId::of(last) == Some(id));
    if let Some(last) = known {
        span.begin_after(last.to_vec());
    }
    let (mut visited, mut last, mut found) = (0, Vec::new(), Vec::new());
    call.visit(&span, (0, limit), &mut |entry| {
        visited += 1;
        if visited == limit {
            last = sort_key(entry.key, entry.value).map(Cow::into_owned).unwrap_or_default();
        }
        if options.wants(name_of(entry)) {
            found.push((name_of(entry).to_vec(), entry.value.to_vec()));
        }
    });
    let next = if is_small || visited < limit { 0 } else { call.server.cursors.add(&last) };
    let parts = if kind == CollectionKind::Set { 1 } else { 2 };
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    call.reply.array(parts * found.len());
    for (name, value) in &found {
        call.add_to_reply(name.len() + value.len())?;
        call.reply.bulk(name);
        match kind {
            CollectionKind::Set => {}
            CollectionKind::SortedSet => call.reply.bulk(double_text(score_of(value)).as_bytes()),
            _ => call.reply.bulk(value),
        }
    }
    Ok(())
}

/// Replies with elements at random, perhaps with their values, if the command has this option.
pub(super) fn random(
    call: &mut Call<'_>,
    kind: CollectionKind,
    option: Option<&str>,
) -> Result<(), Failure> {
    if option.is_none() && call.command.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = match call.command.get(2) {
        Some(count) => Some(integer(count).ok_or(NOT_AN_INTEGER)?),
        None => None,
    };
    if count == Some(i64::MIN) {
        let range = format!("value must between -{} and {0}", i64::MAX);
        return Err(format!("ERR value is out of range, {range}").into());
    }
    let is_option =
        |given: &[u8]| option.is_some_and(|it| given.eq_ignore_ascii_case(it.as_bytes()));
    let with_values = match (call.command.len(), call.command.get(3)) {
        (..=3, _) => false,
        (4, Some(given)) if is_option(given) => true,
        _ => return Err(SYNTAX.into()),
    };
    if with_values && count.is_some_and(|count| !(-MOST..=MOST).contains(&count)) {
        return Err("ERR value is out of range".into());
    }
    let key = call.key(1)?;
    let id = call.collection(key, kind, Access::Read)?;
    let len = id.map_or(0, |id| call.count(id));
    let Some(count) = count else {
        match id {
            Some(id) => {
                let at = call.server.random_below(len);
                let (name, _) = element_at(call, id, at);
                call.reply.bulk(&name);
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
        let (name, value) = element_at(call, id, at);
        call.add_to_reply(PART + name.len() + if with_values { value.len() } else { 0 })?;
        if in_pairs {
            call.reply.array(2);
        }
        call.reply.bulk(&name);
        if with_values {
            write_value(&mut call.reply, kind, &value);
        }
    }
    Ok(())
}

/// Returns an element by the number of elements before it.
pub(super) fn element_at(call: &mut Call<'_>, id: CollectionId, at: usize) -> Element {
    let mut found = None;
    call.visit(&Span::of(id), (at, 1), &mut |entry| {
        found = Some((name_of(entry).to_vec(), entry.value.to_vec()));
    });
    found.expect("there are more elements")
}

/// Writes the part of the reply that belongs to each element of a range, after the first `skip`.
///
/// # Errors
/// The reply would be too long.
pub(super) fn reply_each(
    call: &mut Call<'_>,
    span: &Span,
    skip_and_limit: (usize, usize),
    write: impl Fn(&mut ReplyWriter<'_>, &Entry<'_>),
) -> Result<(), Failure> {
    let Call { objects, reply, table, room, .. } = call;
    let begin = reply.len();
    span.visit(*objects, *table, skip_and_limit, &mut |entry| {
        if reply.len() - begin <= *room {
            write(reply, entry);
        }
    });
    let bytes = reply.len() - begin;
    call.add_to_reply(bytes)
}

/// Returns the first and the number of the elements between two ranks, which count from the end if
/// negative, of `len`.
pub(super) fn ranks(first: i64, last: i64, len: usize) -> (usize, usize) {
    let len = i64::try_from(len).expect("a length");
    let from_begin = |at: i64| if at < 0 { at.saturating_add(len).max(-1) } else { at.min(len) };
    let (first, end) = (from_begin(first).max(0), (from_begin(last) + 1).min(len));
    let count = |number: i64| usize::try_from(number).unwrap_or_default();
    (count(first), count(end - first))
}

/// What a command takes that names several keys, and takes elements from the first that has any.
pub(super) struct Several<'a> {
    pub(super) keys: Vec<&'a [u8]>,
    /// Whether it begins at the end.
    pub(super) from_end: bool,
    pub(super) count: usize,
}

impl<'a> Several<'a> {
    /// Parses the number of keys at an argument, the keys, the end of the collection, and perhaps
    /// the number of elements.
    pub(super) fn parse(call: &Call<'a>, at: usize, ends: [&str; 2]) -> Result<Self, Failure> {
        let (first, behind) = call.numbered_keys(at)?;
        let Some(end) = call.command.get(behind) else { return Err(SYNTAX.into()) };
        let from_end = end_of(end, ends)?;
        let count = match [1, 2].map(|at| call.command.get(behind + at)) {
            [None, _] => 1,
            [Some(option), Some(_)] if option.eq_ignore_ascii_case(b"count") => {
                const NOT_POSITIVE: &str = "ERR count should be greater than 0";
                let count = call.natural(behind + 2, NOT_POSITIVE)?;
                Some(count).filter(|count| *count > 0).ok_or(NOT_POSITIVE)?
            }
            _ => return Err(SYNTAX.into()),
        };
        if call.command.len() > behind + 3 {
            return Err(SYNTAX.into());
        }
        let keys = (first..behind).map(|at| call.key(at)).collect::<Result<_, _>>()?;
        Ok(Self { keys, from_end, count })
    }
}

/// Returns whether an argument names the second of two ends.
pub(super) fn end_of(argument: &[u8], ends: [&str; 2]) -> Result<bool, Failure> {
    let at = ends.iter().position(|end| argument.eq_ignore_ascii_case(end.as_bytes()));
    at.map(|at| at == 1).ok_or_else(|| SYNTAX.into())
}

/// Returns the number of elements to be popped, if argument 2 is there.
pub(super) fn pop_count(call: &Call<'_>) -> Result<Option<usize>, Failure> {
    match call.command.len() {
        ..=2 => Ok(None),
        _ => call.natural(2, NOT_POSITIVE).map(Some),
    }
}

/// Returns the first of these keys that has a collection of this kind, and the collection. If the
/// command has waited, keys with other values are passed over.
pub(super) fn first_of<'k>(
    call: &mut Call<'_>,
    kind: CollectionKind,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<(&'k [u8], CollectionId)>, Failure> {
    let has_waited = call.resume.wait.is_some();
    for key in keys {
        match call.collection(key, kind, Access::Change) {
            Ok(None) => {}
            Err(Failure::Error(_)) if has_waited => {}
            Ok(Some(id)) => return Ok(Some((key, id))),
            Err(failure) => return Err(failure),
        }
    }
    Ok(None)
}

/// The keys of all but the first and the last argument, as for `BLPOP`.
pub(super) fn keys_before_timeout<'a>(call: &Call<'a>) -> Result<Vec<&'a [u8]>, Failure> {
    (1..call.command.len() - 1).map(|at| call.key(at)).collect()
}
