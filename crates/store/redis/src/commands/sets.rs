//! Commands on sets.

use super::elements::{self, PART, element_at, reply_each};
use super::strings::length;
use crate::call::{Call, Failure, NOT_POSITIVE, SYNTAX};
use crate::collections::{ELEMENT, Span, check_element, making_len, name_of};
use crate::objects::Access;
use sprat_wire::elements::CollectionId;
use sprat_wire::elements::CollectionKind::Set;
use std::collections::BTreeSet;

pub(super) fn sadd(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let members = call.command.iter().skip(2);
    let (mut count, mut bytes) = (0, 0);
    for member in members.clone() {
        check_element(member, b"")?;
        (count, bytes) = (count + 1, bytes + ELEMENT + member.len());
    }
    let mut added = 0;
    call.change_collection(key, Set, (count, bytes), |call, id| {
        for member in members {
            if call.element(id, member).is_none() {
                call.put_element(id, member, b"")?;
                added += 1;
            }
        }
        Ok(())
    })?;
    call.reply.integer(added);
    Ok(())
}

pub(super) fn srem(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::remove(call, Set)
}

pub(super) fn scard(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::count(call, Set)
}

pub(super) fn sismember(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::exists(call, Set)
}

pub(super) fn smismember(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, Set, Access::Read)?;
    call.reply.array(call.command.len() - 2);
    for member in call.command.iter().skip(2) {
        let exists = id.is_some_and(|id| call.element(id, member).is_some());
        call.reply.integer(exists.into());
    }
    Ok(())
}

pub(super) fn sscan(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::scan(call, Set)
}

pub(super) fn srandmember(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::random(call, Set, None)
}

pub(super) fn spop(call: &mut Call<'_>) -> Result<(), Failure> {
    let count = match call.command.len() {
        ..=2 => None,
        3 => Some(call.natural(2, NOT_POSITIVE)?),
        _ => return Err(SYNTAX.into()),
    };
    let key = call.key(1)?;
    let Some(id) = call.collection(key, Set, Access::Change)? else {
        match count {
            Some(_) => call.reply.set(0),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let len = call.count(id);
    let wanted = count.unwrap_or(1).min(len);
    call.check_count(wanted)?;
    let ranks = call.server.random_distinct(wanted, len);
    let mut members = Vec::new();
    for at in ranks {
        let (member, _) = element_at(call, id, at);
        call.add_to_reply(PART + member.len())?;
        members.push(member);
    }
    match count {
        Some(_) => reply_members(call, &members),
        None => call.reply.bulk(&members[0]),
    }
    call.remove_elements(key, id, members.iter().map(Vec::as_slice))?;
    Ok(())
}

pub(super) fn smove(call: &mut Call<'_>) -> Result<(), Failure> {
    let (from, to, member) = (call.key(1)?, call.key(2)?, call.argument(3));
    let Some(id) = call.collection(from, Set, Access::Change)? else {
        call.reply.integer(0);
        return Ok(());
    };
    call.collection(to, Set, Access::Change)?;
    let exists = call.element(id, member).is_some();
    if exists && from != to {
        let making = making_len(from) + making_len(to);
        call.together((2 * (ELEMENT + member.len()) + making, false), |call| {
            call.remove_elements(from, id, std::iter::once(member))?;
            call.change_collection(to, Set, (1, ELEMENT + member.len()), |call, id| {
                call.put_element(id, member, b"").map(drop)
            })
        })?;
    }
    call.reply.integer(exists.into());
    Ok(())
}

fn reply_members(call: &mut Call<'_>, members: &[Vec<u8>]) {
    call.reply.set(members.len());
    members.iter().for_each(|member| call.reply.bulk(member));
}

pub(super) fn smembers(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, Set, Access::Read)?;
    let count = id.map_or(0, |id| call.count(id));
    call.reply.set(count);
    let Some(id) = id else { return Ok(()) };
    reply_each(call, &Span::of(id), (0, count), |reply, entry| reply.bulk(name_of(entry)))
}

/// What is made of several sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Intersection,
    Union,
    Difference,
}

/// Finds the sets of the keys that are arguments; `None` for a key that does not exist.
fn sets(
    call: &mut Call<'_>,
    positions: std::ops::Range<usize>,
) -> Result<Vec<Option<CollectionId>>, Failure> {
    positions.map(|at| call.collection(call.key(at)?, Set, Access::Read)).collect()
}

/// Appends what is made of several sets to `members`, up to a limit.
///
/// # Errors
/// The members would not fit in a reply.
fn collect(
    call: &mut Call<'_>,
    kind: &Kind,
    sets: &[Option<CollectionId>],
    members: &mut Vec<Vec<u8>>,
    limit: usize,
) -> Result<(), Failure> {
    let mut ids: Vec<CollectionId> = sets.iter().flatten().copied().collect();
    match kind {
        Kind::Intersection if ids.len() < sets.len() => return Ok(()),
        // The smallest one is looked through.
        Kind::Intersection => ids.sort_by_cached_key(|id| call.count(*id)),
        Kind::Difference if sets.first().is_none_or(Option::is_none) => return Ok(()),
        Kind::Union | Kind::Difference => {}
    }
    let looked_through = if *kind == Kind::Union { ids.len() } else { 1 };
    let (through, others) = ids.split_at(looked_through.min(ids.len()));
    let mut seen = BTreeSet::new();
    for id in through {
        call.each_element(Span::of(*id), |call, (member, _)| {
            let is_in = match kind {
                Kind::Intersection => others.iter().all(|id| call.element(*id, &member).is_some()),
                Kind::Union => through.len() == 1 || seen.insert(member.clone()),
                Kind::Difference => others.iter().all(|id| call.element(*id, &member).is_none()),
            };
            if is_in {
                call.add_to_reply(PART + member.len())?;
                members.push(member);
            }
            Ok(members.len() < limit)
        })?;
    }
    Ok(())
}

/// Replies with what is made of the sets of all keys.
fn combine(call: &mut Call<'_>, kind: Kind) -> Result<(), Failure> {
    let sets = sets(call, 1..call.command.len())?;
    let mut members = Vec::new();
    collect(call, &kind, &sets, &mut members, usize::MAX)?;
    reply_members(call, &members);
    Ok(())
}

/// Gives the first key what is made of the sets of the others.
fn store(call: &mut Call<'_>, kind: Kind) -> Result<(), Failure> {
    let sets = sets(call, 2..call.command.len())?;
    let mut members = Vec::new();
    collect(call, &kind, &sets, &mut members, usize::MAX)?;
    let elements: Vec<_> = members.into_iter().map(|member| (member, Vec::new())).collect();
    let key = call.key(1)?;
    call.store(key, Set, &elements)?;
    call.reply.integer(length(elements.len()));
    Ok(())
}

pub(super) fn sinter(call: &mut Call<'_>) -> Result<(), Failure> {
    combine(call, Kind::Intersection)
}

pub(super) fn sunion(call: &mut Call<'_>) -> Result<(), Failure> {
    combine(call, Kind::Union)
}

pub(super) fn sdiff(call: &mut Call<'_>) -> Result<(), Failure> {
    combine(call, Kind::Difference)
}

pub(super) fn sinterstore(call: &mut Call<'_>) -> Result<(), Failure> {
    store(call, Kind::Intersection)
}

pub(super) fn sunionstore(call: &mut Call<'_>) -> Result<(), Failure> {
    store(call, Kind::Union)
}

pub(super) fn sdiffstore(call: &mut Call<'_>) -> Result<(), Failure> {
    store(call, Kind::Difference)
}

pub(super) fn sintercard(call: &mut Call<'_>) -> Result<(), Failure> {
    let (first, behind) = call.numbered_keys(1)?;
    if behind > call.command.len() {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    // Redis takes the last of several limits.
    let mut limit = usize::MAX;
    for at in (behind..call.command.len()).step_by(2) {
        if !call.argument(at).eq_ignore_ascii_case(b"limit") || at + 1 == call.command.len() {
            return Err(SYNTAX.into());
        }
        limit = call.natural(at + 1, "ERR LIMIT can't be negative")?;
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    let sets = sets(call, first..behind)?;
    let mut members = Vec::new();
    collect(call, &Kind::Intersection, &sets, &mut members, limit)?;
    call.reply.integer(length(members.len()));
    Ok(())
}
