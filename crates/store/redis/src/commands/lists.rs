//! Commands on lists.

use super::elements::{
    self, PART, Several, element_at, end_of, first_of, keys_before_timeout, pop_count, ranks,
    reply_each,
};
use super::strings::length;
use crate::call::{Call, Deadline, Failure, NOT_AN_INTEGER, SYNTAX};
use crate::collections::{ELEMENT, Element, Span, check_element, making_len};
use crate::label;
use crate::objects::Access;
use sprat_resp::integer;
use sprat_wire::elements::CollectionId;
use sprat_wire::elements::CollectionKind::List;
use sprat_wire::expiry::NEVER;

/// The names of a list's ends.
const ENDS: [&str; 2] = ["left", "right"];

/// The longest label. Before an element gets a longer one, those around it get shorter ones.
const MAX_LABEL: usize = 64;

/// The number of elements on either side that get other labels then, at least.
const RELABELLED: usize = 64;

/// The reply when a list has no more labels at an end, after 2^63 elements.
const NO_LABEL: &str = "ERR the list has no more places at this end";

/// Finds the list of the key that is argument 1; `None` if there is no such key.
fn list(call: &mut Call<'_>, access: Access) -> Result<Option<CollectionId>, Failure> {
    let key = call.key(1)?;
    call.collection(key, List, access)
}

/// Writes elements at an end of the list of a key, which is made if there is none.
fn push_to<'v>(
    call: &mut Call<'_>,
    key: &[u8],
    values: impl Iterator<Item = &'v [u8]> + Clone,
    at_end: bool,
) -> Result<CollectionId, Failure> {
    let (mut count, mut bytes) = (0, 0);
    for value in values.clone() {
        check_element(b"", value)?;
        (count, bytes) = (count + 1, bytes + ELEMENT + label::NUMBER + value.len());
    }
    let mut list = None;
    call.change_collection(key, List, (count, bytes), |call, id| {
        list = Some(id);
        let mut end = call.elements(&Span::of(id).directed(at_end), (0, 1))?.pop();
        for value in values {
            let last = end.as_ref().map(|(label, _)| label.as_slice());
            let label = label::beyond(last, !at_end).ok_or(NO_LABEL)?;
            call.put_element(id, &label, value)?;
            end = Some((label, Vec::new()));
        }
        Ok(())
    })?;
    Ok(list.expect("it was changed"))
}

fn push(call: &mut Call<'_>, at_end: bool, makes: bool) -> Result<(), Failure> {
    let key = call.key(1)?;
    if !makes && call.collection(key, List, Access::Change)?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let id = push_to(call, key, call.command.iter().skip(2), at_end)?;
    let count = call.count(id);
    call.reply.integer(length(count));
    Ok(())
}

pub(super) fn lpush(call: &mut Call<'_>) -> Result<(), Failure> {
    push(call, false, true)
}

pub(super) fn rpush(call: &mut Call<'_>) -> Result<(), Failure> {
    push(call, true, true)
}

pub(super) fn lpushx(call: &mut Call<'_>) -> Result<(), Failure> {
    push(call, false, false)
}

pub(super) fn rpushx(call: &mut Call<'_>) -> Result<(), Failure> {
    push(call, true, false)
}

pub(super) fn llen(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::count(call, List)
}

/// Removes elements at an end of a list, and returns their values.
fn take(
    call: &mut Call<'_>,
    key: &[u8],
    id: CollectionId,
    (from_end, count): (bool, usize),
) -> Result<Vec<Vec<u8>>, Failure> {
    let found = call.take_elements(key, id, &Span::of(id).directed(from_end), count)?;
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

fn reply_values(call: &mut Call<'_>, values: &[Vec<u8>]) {
    call.reply.array(values.len());
    values.iter().for_each(|value| call.reply.bulk(value));
}

fn pop(call: &mut Call<'_>, from_end: bool) -> Result<(), Failure> {
    if call.command.len() > 3 {
        return Err(format!("ERR wrong number of arguments for '{}' command", call.name).into());
    }
    let count = pop_count(call)?;
    let Some(id) = list(call, Access::Change)? else {
        match count {
            Some(_) => call.reply.null_array(),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let values = take(call, call.key(1)?, id, (from_end, count.unwrap_or(1)))?;
    match count {
        Some(_) => reply_values(call, &values),
        None => call.reply.bulk(&values[0]),
    }
    Ok(())
}

pub(super) fn lpop(call: &mut Call<'_>) -> Result<(), Failure> {
    pop(call, false)
}

pub(super) fn rpop(call: &mut Call<'_>) -> Result<(), Failure> {
    pop(call, true)
}

fn blocking_pop(call: &mut Call<'_>, from_end: bool) -> Result<(), Failure> {
    let until = call.timeout(call.command.len() - 1)?;
    let keys = keys_before_timeout(call)?;
    let Some((key, id)) = first_of(call, List, keys.iter().copied())? else {
        call.wait_for(keys.into_iter(), until)?;
        call.reply.null_array();
        return Ok(());
    };
    let values = take(call, key, id, (from_end, 1))?;
    call.reply.array(2);
    call.reply.bulk(key);
    call.reply.bulk(&values[0]);
    Ok(())
}

pub(super) fn blpop(call: &mut Call<'_>) -> Result<(), Failure> {
    blocking_pop(call, false)
}

pub(super) fn brpop(call: &mut Call<'_>) -> Result<(), Failure> {
    blocking_pop(call, true)
}

/// Takes elements from the first of several lists. If argument 1 is a timeout, waits for one.
fn pop_several(call: &mut Call<'_>, waits: bool) -> Result<(), Failure> {
    let Several { keys, from_end, count } = Several::parse(call, 1 + usize::from(waits), ENDS)?;
    let until = if waits { Some(call.timeout(1)?) } else { None };
    let Some((key, id)) = first_of(call, List, keys.iter().copied())? else {
        if let Some(until) = until {
            call.wait_for(keys.into_iter(), until)?;
        }
        call.reply.null_array();
        return Ok(());
    };
    let values = take(call, key, id, (from_end, count))?;
    call.reply.array(2);
    call.reply.bulk(key);
    reply_values(call, &values);
    Ok(())
}

pub(super) fn lmpop(call: &mut Call<'_>) -> Result<(), Failure> {
    pop_several(call, false)
}

pub(super) fn blmpop(call: &mut Call<'_>) -> Result<(), Failure> {
    pop_several(call, true)
}

/// Moves an element from an end of the list at argument 1 to an end of the one at argument 2. Waits
/// for one if there is a deadline.
fn move_element(
    call: &mut Call<'_>,
    (from_end, to_end): (bool, bool),
    wait: Option<Deadline>,
) -> Result<(), Failure> {
    let (from, to) = (call.key(1)?, call.key(2)?);
    let Some((_, id)) = first_of(call, List, std::iter::once(from))? else {
        if let Some(until) = wait {
            call.wait_for(std::iter::once(from), until)?;
        }
        call.reply.null();
        return Ok(());
    };
    call.collection(to, List, Access::Change)?;
    let (_, value) = call.elements(&Span::of(id).directed(from_end), (0, 1))?.remove(0);
    if from == to && call.count(id) == 1 {
        call.server.changes.note(call.table, id);
    } else {
        let bytes = 2 * REMOVED + value.len() + making_len(from) + making_len(to);
        call.together((bytes, false), |call| {
            take(call, from, id, (from_end, 1))?;
            push_to(call, to, std::iter::once(&value[..]), to_end).map(drop)
        })?;
    }
    call.reply.bulk(&value);
    Ok(())
}

pub(super) fn rpoplpush(call: &mut Call<'_>) -> Result<(), Failure> {
    move_element(call, (true, false), None)
}

pub(super) fn brpoplpush(call: &mut Call<'_>) -> Result<(), Failure> {
    let until = call.timeout(3)?;
    move_element(call, (true, false), Some(until))
}

/// Parses the ends between which an element is moved.
fn ends(call: &Call<'_>) -> Result<(bool, bool), Failure> {
    Ok((end_of(call.argument(3), ENDS)?, end_of(call.argument(4), ENDS)?))
}

pub(super) fn lmove(call: &mut Call<'_>) -> Result<(), Failure> {
    let ends = ends(call)?;
    move_element(call, ends, None)
}

pub(super) fn blmove(call: &mut Call<'_>) -> Result<(), Failure> {
    let ends = ends(call)?;
    let until = call.timeout(5)?;
    move_element(call, ends, Some(until))
}

/// Returns the rank of an element, given its index, which counts from the end if negative.
fn rank(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).expect("a length");
    let at = if index < 0 { index.checked_add(len)? } else { index };
    usize::try_from(at).ok().filter(|_| at < len)
}

pub(super) fn lindex(call: &mut Call<'_>) -> Result<(), Failure> {
    let Some(id) = list(call, Access::Read)? else {
        call.reply.null();
        return Ok(());
    };
    let index = call.integer(2)?;
    match rank(index, call.count(id)) {
        Some(at) => {
            let (_, value) = element_at(call, id, at);
            call.reply.bulk(&value);
        }
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn lset(call: &mut Call<'_>) -> Result<(), Failure> {
    let Some(id) = list(call, Access::Change)? else { return Err("ERR no such key".into()) };
    let index = call.integer(2)?;
    let at = rank(index, call.count(id)).ok_or("ERR index out of range")?;
    let (label, _) = element_at(call, id, at);
    call.put_element(id, &label, call.argument(3))?;
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn lrange(call: &mut Call<'_>) -> Result<(), Failure> {
    let (first, last) = (call.integer(2)?, call.integer(3)?);
    let id = list(call, Access::Read)?;
    let (first, count) = id.map_or((0, 0), |id| ranks(first, last, call.count(id)));
    call.reply.array(count);
    let Some(id) = id else { return Ok(()) };
    reply_each(call, &Span::of(id), (first, count), |reply, entry| reply.bulk(entry.value))
}

/// Returns how many elements `LTRIM` removes from the beginning and from the end of a list of this
/// length.
fn trimmed((first, last): (i64, i64), len: usize) -> (usize, usize) {
    let (first, kept) = ranks(first, last, len);
    match kept {
        0 => (len, 0),
        _ => (first, len - first - kept),
    }
}

/// Bytes of the log for an element that is removed, at most.
const REMOVED: usize = ELEMENT + MAX_LABEL;

pub(super) fn ltrim(call: &mut Call<'_>) -> Result<(), Failure> {
    let (first, last) = (call.integer(2)?, call.integer(3)?);
    if let Some(id) = list(call, Access::Change)? {
        let (key, len) = (call.key(1)?, call.count(id));
        let (at_begin, at_end) = trimmed((first, last), len);
        let kept = len - at_begin - at_end;
        let span = Span::of(id);
        // As in Redis, the list counts as changed for those who watch it, also if it is not.
        call.server.changes.note(call.table, id);
        if kept == 0 {
            call.remove_span(key, id, &span, (0, len))?;
        } else if call.check_count(at_begin + at_end).is_ok() {
            let mut removed = call.elements(&span, (0, at_begin))?;
            removed.extend(call.elements(&span.directed(true), (0, at_end))?);
            call.remove_elements(key, id, removed.iter().map(|(label, _)| label.as_slice()))?;
        } else {
            // What is kept becomes another list.
            call.check_count(kept)?;
            let expires = call.find(key, Access::Change)?.map_or(NEVER, |head| head.expires);
            let elements = call.elements(&span, (at_begin, kept))?;
            let table = call.table;
            call.make_collection((table, key), (List, expires), &elements, 0, |_| Ok(()))?;
        }
    }
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn lrem(call: &mut Call<'_>) -> Result<(), Failure> {
    let (limit, wanted) = (call.integer(2)?, call.argument(3));
    let most = match usize::try_from(limit.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(most) => most,
    };
    let Some(id) = list(call, Access::Change)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let mut labels = Vec::new();
    call.each_element(Span::of(id).directed(limit < 0), |call, (label, value)| {
        if value == wanted {
            labels.push(label);
            call.check_count(labels.len())?;
        }
        Ok(labels.len() < most)
    })?;
    let key = call.key(1)?;
    let removed = call.remove_elements(key, id, labels.iter().map(Vec::as_slice))?;
    call.reply.integer(length(removed));
    Ok(())
}

/// Inserts an element before the one at a rank, or at the end.
fn insert(
    call: &mut Call<'_>,
    (key, id): (&[u8], CollectionId),
    at: usize,
    value: &[u8],
) -> Result<(), Failure> {
    check_element(b"", value)?;
    let mut around = Labels::around(call, id, at, 0)?;
    let one = label::spread(around.before(), around.behind(), 1).ok_or(NO_LABEL)?;
    if one[0].len() <= MAX_LABEL {
        return call.put_element(id, &one[0], value).map(drop);
    }
    let mut count = RELABELLED;
    let labels = loop {
        around = Labels::around(call, id, at, count)?;
        call.check_count(around.elements.len())?;
        let all = around.elements.len() + 1;
        let labels = label::spread(around.before(), around.behind(), all).ok_or(NO_LABEL)?;
        let is_short = labels.iter().all(|label| label.len() <= MAX_LABEL / 2);
        if is_short || around.before().or(around.behind()).is_none() {
            break labels;
        }
        count *= 2;
    };
    let Labels { elements, inserted_at, .. } = around;
    let mut values: Vec<&[u8]> = elements.iter().map(|(_, value)| value.as_slice()).collect();
    values.insert(inserted_at, value);
    let entries = elements.len() + values.len();
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    let bytes = bytes + entries * (ELEMENT + MAX_LABEL) + making_len(key);
    call.together((bytes, false), |call| {
        for (label, _) in &elements {
            call.objects.remove_element(call.table, &id.element(label))?;
        }
        for (label, value) in labels.iter().zip(values) {
            call.put_element(id, label, value)?;
        }
        Ok(())
    })
}

/// Elements around a place of a list, and the labels before and behind them.
struct Labels {
    elements: Vec<Element>,
    /// How many of the elements are before the place.
    inserted_at: usize,
    before: Option<Element>,
    behind: Option<Element>,
}

impl Labels {
    /// Finds up to `count` elements on either side of a rank.
    fn around(
        call: &mut Call<'_>,
        id: CollectionId,
        at: usize,
        count: usize,
    ) -> Result<Self, Failure> {
        let (first, span) = (at.saturating_sub(count), Span::of(id));
        let behind = call.elements(&span, (at + count, 1))?.pop();
        let before = first.checked_sub(1).map(|at| element_at(call, id, at));
        let elements = call.elements(&span, (first, at + count - first))?;
        Ok(Self { elements, inserted_at: at - first, before, behind })
    }

    fn before(&self) -> Option<&[u8]> {
        self.before.as_ref().map(|(label, _)| label.as_slice())
    }

    fn behind(&self) -> Option<&[u8]> {
        self.behind.as_ref().map(|(label, _)| label.as_slice())
    }
}

pub(super) fn linsert(call: &mut Call<'_>) -> Result<(), Failure> {
    let is_behind = end_of(call.argument(2), ["before", "after"])?;
    let Some(id) = list(call, Access::Change)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let (pivot, mut at, mut found) = (call.argument(3), 0, false);
    call.each_element(Span::of(id), |_, (_, value)| {
        found = value == pivot;
        at += usize::from(!found);
        Ok(!found)
    })?;
    if !found {
        call.reply.integer(-1);
        return Ok(());
    }
    let key = call.key(1)?;
    insert(call, (key, id), at + usize::from(is_behind), call.argument(4))?;
    let count = call.count(id);
    call.reply.integer(length(count));
    Ok(())
}

/// The options of `LPOS`.
struct Search {
    /// Which match comes first.
    rank: u64,
    from_end: bool,
    /// How many matches are wanted; `None` for one, which is not in an array.
    count: Option<usize>,
    /// How many elements are compared.
    compared: usize,
}

impl Search {
    fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let mut search = Self { rank: 1, from_end: false, count: None, compared: usize::MAX };
        for at in (3..call.command.len()).step_by(2) {
            let option = call.argument(at).to_ascii_lowercase();
            let Some(value) = call.command.get(at + 1) else { return Err(SYNTAX.into()) };
            match &option[..] {
                b"rank" => {
                    let rank = integer(value).ok_or(NOT_AN_INTEGER)?;
                    if rank == 0 {
                        return Err(ZERO_RANK.into());
                    }
                    (search.rank, search.from_end) = (rank.unsigned_abs(), rank < 0);
                }
                b"count" => {
                    let count = call.natural(at + 1, "ERR COUNT can't be negative")?;
                    search.count = Some(if count == 0 { usize::MAX } else { count });
                }
                b"maxlen" => {
                    let compared = call.natural(at + 1, "ERR MAXLEN can't be negative")?;
                    search.compared = if compared == 0 { usize::MAX } else { compared };
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(search)
    }
}

/// The reply to a rank of zero.
const ZERO_RANK: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
    second ... or use negative to start from the end of the list";

pub(super) fn lpos(call: &mut Call<'_>) -> Result<(), Failure> {
    let Search { rank, from_end, count, compared } = Search::parse(call)?;
    let (wanted, most) = (call.argument(2), count.unwrap_or(1));
    let id = list(call, Access::Read)?;
    let len = id.map_or(0, |id| call.count(id));
    let (mut at, mut matches, mut found) = (0, 0, Vec::new());
    if let Some(id) = id {
        call.each_element(Span::of(id).directed(from_end), |call, (_, value)| {
            if value == wanted {
                matches += 1;
                if matches >= rank {
                    call.add_to_reply(PART)?;
                    found.push(if from_end { len - 1 - at } else { at });
                }
            }
            at += 1;
            Ok(at < compared && found.len() < most)
        })?;
    }
    match (count, found.first()) {
        (Some(_), _) => {
            call.reply.array(found.len());
            found.iter().for_each(|at| call.reply.integer(length(*at)));
        }
        (None, Some(at)) => call.reply.integer(length(*at)),
        (None, None) => call.reply.null(),
    }
    Ok(())
}
