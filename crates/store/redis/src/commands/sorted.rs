//! Commands on sorted sets.

use super::elements::{
    self, Several, first_of, keys_before_timeout, pop_count, ranks, reply_each, score_of,
};
use super::strings::{NOT_A_FLOAT, length};
use crate::call::{Call, Failure, NOT_AN_INTEGER, SYNTAX};
use crate::collections::{
    ELEMENT, Element, Span, WRONG_TYPE, check_element, collection_of, name_of,
};
use crate::objects::Access;
use crate::score::{MemberBound, double, member_bound, score_bound};
use sprat_resp::{Protocol, integer};
use sprat_wire::elements::CollectionKind::{Set, SortedSet};
use sprat_wire::elements::{CollectionId, CollectionKind};
use sprat_wire::index::Field;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes of a score.
const SCORE: usize = size_of::<f64>();

/// The reply to a sum of infinities that cancel one another out.
const NO_NUMBER: &str = "ERR resulting score is not a number (NaN)";

/// The names of a sorted set's ends.
const ENDS: [&str; 2] = ["min", "max"];

/// Returns the bytes of a score. Minus zero becomes zero, as in the small sorted sets of Redis.
fn stored(score: f64) -> [u8; SCORE] {
    (score + 0.0).to_le_bytes()
}

/// Finds the score of a member.
fn score(call: &mut Call<'_>, id: CollectionId, member: &[u8]) -> Option<f64> {
    call.element(id, member).map(|entry| score_of(entry.value))
}

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct Conditions {
    /// The member is not there.
    nx: bool,
    /// The member is there.
    xx: bool,
    /// The new score is greater, if it is there.
    gt: bool,
    /// The new score is less, if it is there.
    lt: bool,
    /// Members whose scores change count.
    ch: bool,
    /// The score is added to the present one.
    incr: bool,
}

impl Conditions {
    /// Parses the options; returns them, and the position of the first score.
    fn parse(call: &Call<'_>) -> Result<(Self, usize), Failure> {
        let mut conditions = Self::default();
        let mut at = 2;
        while let Some(option) = call.command.get(at) {
            match &option.to_ascii_lowercase()[..] {
                b"nx" => conditions.nx = true,
                b"xx" => conditions.xx = true,
                b"gt" => conditions.gt = true,
                b"lt" => conditions.lt = true,
                b"ch" => conditions.ch = true,
                b"incr" => conditions.incr = true,
                _ => break,
            }
            at += 1;
        }
        let parts = call.command.len() - at;
        let Self { nx, xx, gt, lt, incr, .. } = conditions;
        if parts == 0 || !parts.is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        if nx && xx {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        if [nx, gt, lt].iter().filter(|given| **given).count() > 1 {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
        }
        if incr && parts > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok((conditions, at))
    }

    /// Returns the score that a member gets; `None` if it keeps the one that it has, or has none.
    fn next(self, present: Option<f64>, given: f64) -> Result<Option<f64>, Failure> {
        let Some(present) = present else { return Ok((!self.xx).then_some(given)) };
        if self.nx {
            return Ok(None);
        }
        let next = if self.incr { present + given } else { given };
        if next.is_nan() {
            return Err(NO_NUMBER.into());
        }
        let keeps = self.gt && next <= present || self.lt && next >= present;
        Ok((!keeps).then_some(next))
    }
}

/// Adds members with scores, which are arguments in turns from `at` on.
fn add(call: &mut Call<'_>, conditions: Conditions, at: usize) -> Result<(), Failure> {
    let command = call.command;
    let pairs = (at..command.len()).step_by(2);
    let mut scores = Vec::new();
    for at in pairs.clone() {
        scores.push(double(call.argument(at)).ok_or(NOT_A_FLOAT)?);
    }
    let mut bytes = 0;
    for at in pairs.clone() {
        let member = call.argument(at + 1);
        check_element(member, b"")?;
        bytes += ELEMENT + member.len() + SCORE;
    }
    let key = call.key(1)?;
    let exists = call.collection(key, SortedSet, Access::Change)?.is_some();
    let (mut added, mut changed, mut last) = (0, 0, None);
    let change = |call: &mut Call<'_>, id| {
        for (at, given) in pairs.zip(&scores) {
            let member = command.get(at + 1).expect("they are in pairs");
            let present = score(call, id, member);
            last = conditions.next(present, *given)?;
            let Some(next) = last else { continue };
            if present != Some(next) {
                call.put_element(id, member, &stored(next))?;
                added += i64::from(present.is_none());
                changed += 1;
            }
        }
        Ok(())
    };
    if exists || !conditions.xx {
        call.change_collection(key, SortedSet, (scores.len(), bytes), change)?;
    }
    match (conditions.incr, last) {
        (true, Some(score)) => call.reply.double(score),
        (true, None) => call.reply.null(),
        (false, _) => call.reply.integer(if conditions.ch { changed } else { added }),
    }
    Ok(())
}

pub(super) fn zadd(call: &mut Call<'_>) -> Result<(), Failure> {
    let (conditions, at) = Conditions::parse(call)?;
    add(call, conditions, at)
}

pub(super) fn zincrby(call: &mut Call<'_>) -> Result<(), Failure> {
    add(call, Conditions { incr: true, ..Conditions::default() }, 2)
}

pub(super) fn zrem(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::remove(call, SortedSet)
}

pub(super) fn zcard(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::count(call, SortedSet)
}

pub(super) fn zscan(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::scan(call, SortedSet)
}

pub(super) fn zrandmember(call: &mut Call<'_>) -> Result<(), Failure> {
    elements::random(call, SortedSet, Some("withscores"))
}

fn reply_score(call: &mut Call<'_>, id: Option<CollectionId>, member: &[u8]) {
    match id.and_then(|id| score(call, id, member)) {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
}

pub(super) fn zscore(call: &mut Call<'_>) -> Result<(), Failure> {
    let (key, member) = (call.key(1)?, call.argument(2));
    let id = call.collection(key, SortedSet, Access::Read)?;
    reply_score(call, id, member);
    Ok(())
}

pub(super) fn zmscore(call: &mut Call<'_>) -> Result<(), Failure> {
    let key = call.key(1)?;
    let id = call.collection(key, SortedSet, Access::Read)?;
    call.reply.array(call.command.len() - 2);
    for member in call.command.iter().skip(2) {
        reply_score(call, id, member);
    }
    Ok(())
}

/// Replies with the number of members before one.
fn rank(call: &mut Call<'_>, descending: bool) -> Result<(), Failure> {
    let (key, member) = (call.key(1)?, call.argument(2));
    let id = call.collection(key, SortedSet, Access::Read)?;
    let found = id.and_then(|id| Some((id, score(call, id, member)?)));
    let Some((id, score)) = found else {
        call.reply.null();
        return Ok(());
    };
    let [begin, _] = with_score(id, score);
    let key = [&begin, member].concat();
    let bound = Bound::Excluded(key);
    let before = match descending {
        false => Span { to: bound, ..Span::of(id) },
        true => Span { from: bound, ..Span::of(id) },
    };
    let rank = call.count_in(&before);
    call.reply.integer(length(rank));
    Ok(())
}

pub(super) fn zrank(call: &mut Call<'_>) -> Result<(), Failure> {
    rank(call, false)
}

pub(super) fn zrevrank(call: &mut Call<'_>) -> Result<(), Failure> {
    rank(call, true)
}

/// By what a range of members is chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum By {
    Rank,
    Score,
    Member,
}

/// The ends of a range of members.
#[derive(Clone, Copy, Debug)]
enum Ends<'a> {
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    /// Among members with equal scores.
    Members(MemberBound<'a>, MemberBound<'a>),
}

/// The bytes with which the keys of all members with a score begin, and the first ones above them.
fn with_score(id: CollectionId, score: f64) -> [Vec<u8>; 2] {
    let encoded = Field::Double(score).encode();
    let number = u64::from_be_bytes(encoded.try_into().expect("a double has eight bytes"));
    [number, number + 1].map(|number| id.element(&number.to_be_bytes()))
}

impl<'a> Ends<'a> {
    /// Parses two arguments.
    fn parse(call: &Call<'a>, by: By, (first, last): (usize, usize)) -> Result<Self, Failure> {
        let [low, high] = [first, last].map(|at| call.argument(at));
        match by {
            By::Rank => Ok(Self::Ranks(call.integer(first)?, call.integer(last)?)),
            By::Score => score_bound(low)
                .and_then(|low| Some(Self::Scores(low, score_bound(high)?)))
                .ok_or_else(|| "ERR min or max is not a float".into()),
            By::Member => member_bound(low)
                .and_then(|low| Some(Self::Members(low, member_bound(high)?)))
                .ok_or_else(|| "ERR min or max not valid string range item".into()),
        }
    }

    /// Returns the range, and how many of its elements come before the first one and how many are
    /// wanted.
    fn select(
        self,
        call: &mut Call<'_>,
        id: CollectionId,
        descending: bool,
    ) -> (Span, (usize, usize)) {
        let span = match self {
            Self::Ranks(first, last) => {
                let (first, count) = ranks(first, last, call.count(id));
                return (Span::of(id).directed(descending), (first, count));
            }
            Self::Scores(low, high) => Span {
                from: match low {
                    Bound::Included(score) => Bound::Included(with_score(id, score)[0].clone()),
                    Bound::Excluded(score) => Bound::Included(with_score(id, score)[1].clone()),
                    Bound::Unbounded => Span::of(id).from,
                },
                to: match high {
                    Bound::Included(score) => Bound::Excluded(with_score(id, score)[1].clone()),
                    Bound::Excluded(score) => Bound::Excluded(with_score(id, score)[0].clone()),
                    Bound::Unbounded => Span::of(id).to,
                },
                descending,
            },
            Self::Members(low, high) => {
                let mut score = 0.0;
                call.visit(&Span::of(id), (0, 1), &mut |entry| score = score_of(entry.value));
                let [begin, end] = with_score(id, score);
                let key = |member: &[u8]| [&begin, member].concat();
                Span {
                    from: match low {
                        MemberBound::Lowest => Bound::Included(begin.clone()),
                        MemberBound::Highest => Bound::Included(end.clone()),
                        MemberBound::Member(bound) => bound.map(key),
                    },
                    to: match high {
                        MemberBound::Lowest => Bound::Excluded(begin.clone()),
                        MemberBound::Highest => Bound::Excluded(end.clone()),
                        MemberBound::Member(bound) => bound.map(key),
                    },
                    descending,
                }
            }
        };
        let count = call.count_in(&span);
        (span, (0, count))
    }
}

/// What is done with a range of members.
struct Query<'a> {
    ends: Ends<'a>,
    descending: bool,
    with_scores: bool,
    /// How many members are left out, and how many are wanted; the others if negative.
    limit: (i64, i64),
}

impl<'a> Query<'a> {
    /// Parses the arguments behind a key. The command may say by what, and in which direction, the
    /// members are chosen.
    fn parse(
        call: &Call<'a>,
        key: usize,
        mut by: Option<By>,
        mut descending: Option<bool>,
    ) -> Result<Self, Failure> {
        let stores = key == 2;
        let (mut with_scores, mut limit, mut at) = (false, (0, -1), key + 3);
        while let Some(option) = call.command.get(at) {
            match &option.to_ascii_lowercase()[..] {
                b"withscores" if !stores => with_scores = true,
                b"limit" if call.command.len() - at > 2 => {
                    limit = (call.integer(at + 1)?, call.integer(at + 2)?);
                    at += 2;
                }
                b"rev" if descending.is_none() => descending = Some(true),
                b"bylex" if by.is_none() => by = Some(By::Member),
                b"byscore" if by.is_none() => by = Some(By::Score),
                _ => return Err(SYNTAX.into()),
            }
            at += 1;
        }
        let (by, descending) = (by.unwrap_or(By::Rank), descending.unwrap_or(false));
        if by == By::Rank && limit.1 != -1 {
            return Err("ERR syntax error, LIMIT is only supported in combination with either \
                        BYSCORE or BYLEX"
                .into());
        }
        if by == By::Member && with_scores {
            return Err(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX".into()
            );
        }
        let is_turned = descending && by != By::Rank;
        let ends = if is_turned { (key + 2, key + 1) } else { (key + 1, key + 2) };
        Ok(Self { ends: Ends::parse(call, by, ends)?, descending, with_scores, limit })
    }

    fn select(&self, call: &mut Call<'_>, id: CollectionId) -> (Span, (usize, usize)) {
        let (span, (first, count)) = self.ends.select(call, id, self.descending);
        let (offset, most) = match self.ends {
            Ends::Ranks(..) => (0, -1),
            _ => self.limit,
        };
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX).min(count);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        (span, (first + skipped, (count - skipped).min(most)))
    }
}

fn range(call: &mut Call<'_>, by: Option<By>, descending: Option<bool>) -> Result<(), Failure> {
    let query = Query::parse(call, 1, by, descending)?;
    let key = call.key(1)?;
    let Some(id) = call.collection(key, SortedSet, Access::Read)? else {
        call.reply.array(0);
        return Ok(());
    };
    let (span, (skip, count)) = query.select(call, id);
    reply_range(call, &span, (skip, count), query.with_scores)
}

/// Replies with members, perhaps with their scores.
fn reply_range(
    call: &mut Call<'_>,
    span: &Span,
    (skip, count): (usize, usize),
    with_scores: bool,
) -> Result<(), Failure> {
    let in_pairs = with_scores && call.session.protocol == Protocol::Resp3;
    call.reply.array(if with_scores && !in_pairs { 2 * count } else { count });
    reply_each(call, span, (skip, count), |reply, entry| {
        if in_pairs {
            reply.array(2);
        }
        reply.bulk(name_of(entry));
        if with_scores {
            reply.double(score_of(entry.value));
        }
    })
}

pub(super) fn zrange(call: &mut Call<'_>) -> Result<(), Failure> {
    range(call, None, None)
}

pub(super) fn zrevrange(call: &mut Call<'_>) -> Result<(), Failure> {
    range(call, Some(By::Rank), Some(true))
}

pub(super) fn zrangebyscore(call: &mut Call<'_>) -> Result<(), Failure> {
    range(call, Some(By::Score), Some(false))
}

pub(super) fn zrevrangebyscore(call: &mut Call<'_>) -> Result<(), Failure> {
    range(call, Some(By::Score), Some(true))
}

pub(super) fn zrangebylex(call: &mut Call<'_>) -> Result<(), Failure> {
    range(call, Some(By::Member), Some(false))
}

pub(super) fn zrevrangebylex(call: &mut Call<'_>) -> Result<(), Failure> {
    range(call, Some(By::Member), Some(true))
}

pub(super) fn zrangestore(call: &mut Call<'_>) -> Result<(), Failure> {
    let query = Query::parse(call, 2, None, None)?;
    let (to, from) = (call.key(1)?, call.key(2)?);
    let mut elements = Vec::new();
    if let Some(id) = call.collection(from, SortedSet, Access::Read)? {
        let (span, (skip, count)) = query.select(call, id);
        call.check_count(count)?;
        elements = call.elements(&span, (skip, count))?;
    }
    call.store(to, SortedSet, &elements)?;
    call.reply.integer(length(elements.len()));
    Ok(())
}

fn count_between(call: &mut Call<'_>, by: By) -> Result<(), Failure> {
    let ends = Ends::parse(call, by, (2, 3))?;
    let key = call.key(1)?;
    let count = match call.collection(key, SortedSet, Access::Read)? {
        Some(id) => ends.select(call, id, false).1.1,
        None => 0,
    };
    call.reply.integer(length(count));
    Ok(())
}

pub(super) fn zcount(call: &mut Call<'_>) -> Result<(), Failure> {
    count_between(call, By::Score)
}

pub(super) fn zlexcount(call: &mut Call<'_>) -> Result<(), Failure> {
    count_between(call, By::Member)
}

fn remove_between(call: &mut Call<'_>, by: By) -> Result<(), Failure> {
    let ends = Ends::parse(call, by, (2, 3))?;
    let key = call.key(1)?;
    let removed = match call.collection(key, SortedSet, Access::Change)? {
        Some(id) => {
            let (span, skip_and_count) = ends.select(call, id, false);
            call.remove_span(key, id, &span, skip_and_count)?
        }
        None => 0,
    };
    call.reply.integer(length(removed));
    Ok(())
}

pub(super) fn zremrangebyrank(call: &mut Call<'_>) -> Result<(), Failure> {
    remove_between(call, By::Rank)
}

pub(super) fn zremrangebyscore(call: &mut Call<'_>) -> Result<(), Failure> {
    remove_between(call, By::Score)
}

pub(super) fn zremrangebylex(call: &mut Call<'_>) -> Result<(), Failure> {
    remove_between(call, By::Member)
}

/// Replies with members and their scores.
fn reply_scored(call: &mut Call<'_>, members: &[Element], in_pairs: bool) {
    call.reply.array(if in_pairs { members.len() } else { 2 * members.len() });
    for (member, score) in members {
        if in_pairs {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        call.reply.double(score_of(score));
    }
}

fn pop(call: &mut Call<'_>, from_end: bool) -> Result<(), Failure> {
    if call.command.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = pop_count(call)?;
    let key = call.key(1)?;
    let members = match call.collection(key, SortedSet, Access::Change)? {
        Some(id) => {
            call.take_elements(key, id, &Span::of(id).directed(from_end), count.unwrap_or(1))?
        }
        None => Vec::new(),
    };
    let in_pairs = count.is_some() && call.session.protocol == Protocol::Resp3;
    reply_scored(call, &members, in_pairs);
    Ok(())
}

pub(super) fn zpopmin(call: &mut Call<'_>) -> Result<(), Failure> {
    pop(call, false)
}

pub(super) fn zpopmax(call: &mut Call<'_>) -> Result<(), Failure> {
    pop(call, true)
}

fn blocking_pop(call: &mut Call<'_>, from_end: bool) -> Result<(), Failure> {
    let until = call.timeout(call.command.len() - 1)?;
    let keys = keys_before_timeout(call)?;
    let Some((key, id)) = first_of(call, SortedSet, keys.iter().copied())? else {
        call.wait_for(keys.into_iter(), until)?;
        call.reply.null_array();
        return Ok(());
    };
    let (member, score) =
        call.take_elements(key, id, &Span::of(id).directed(from_end), 1)?.remove(0);
    call.reply.array(3);
    call.reply.bulk(key);
    call.reply.bulk(&member);
    call.reply.double(score_of(&score));
    Ok(())
}

pub(super) fn bzpopmin(call: &mut Call<'_>) -> Result<(), Failure> {
    blocking_pop(call, false)
}

pub(super) fn bzpopmax(call: &mut Call<'_>) -> Result<(), Failure> {
    blocking_pop(call, true)
}

/// Takes members from the first of several sorted sets. If argument 1 is a timeout, waits for one.
fn pop_several(call: &mut Call<'_>, waits: bool) -> Result<(), Failure> {
    let Several { keys, from_end, count } = Several::parse(call, 1 + usize::from(waits), ENDS)?;
    let until = if waits { Some(call.timeout(1)?) } else { None };
    let Some((key, id)) = first_of(call, SortedSet, keys.iter().copied())? else {
        if let Some(until) = until {
            call.wait_for(keys.into_iter(), until)?;
        }
        call.reply.null_array();
        return Ok(());
    };
    let members = call.take_elements(key, id, &Span::of(id).directed(from_end), count)?;
    call.reply.array(2);
    call.reply.bulk(key);
    reply_scored(call, &members, true);
    Ok(())
}

pub(super) fn zmpop(call: &mut Call<'_>) -> Result<(), Failure> {
    pop_several(call, false)
}

pub(super) fn bzmpop(call: &mut Call<'_>) -> Result<(), Failure> {
    pop_several(call, true)
}

/// What is made of several sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member are combined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn combine(self, one: f64, other: f64) -> f64 {
        match self {
            // Infinities that cancel one another out are zero.
            Self::Sum => zero_if_nan(one + other),
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        }
    }
}

fn zero_if_nan(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number }
}

/// Several sets or sorted sets, and what is made of them.
struct Combination {
    kind: Kind,
    /// With their weights; `None` for a key that does not exist.
    sets: Vec<(Option<CollectionId>, f64)>,
    aggregate: Aggregate,
    with_scores: bool,
    /// The number of members that are enough.
    limit: usize,
}

impl Combination {
    /// Parses the number of keys at an argument, the keys, and options. The command stores its
    /// result if the number is not the first argument.
    fn parse(call: &mut Call<'_>, kind: Kind, numbered_at: usize) -> Result<Self, Failure> {
        let counts = call.name == "zintercard";
        let count = integer(call.argument(numbered_at)).ok_or(NOT_AN_INTEGER)?;
        if count < 1 {
            let name = call.name;
            return Err(format!("ERR at least 1 input key is needed for '{name}' command").into());
        }
        let first = numbered_at + 1;
        let count = usize::try_from(count).expect("it is positive");
        if count > call.command.len() - first {
            return Err(SYNTAX.into());
        }
        let mut sets = Vec::new();
        for at in first..first + count {
            let key = call.key(at)?;
            let found = match call.find(key, Access::Read)? {
                Some(entry) => Some(
                    collection_of(&entry)
                        .filter(|id| matches!(id.kind(), Set | SortedSet))
                        .ok_or(WRONG_TYPE)?,
                ),
                None => None,
            };
            sets.push((found, 1.0));
        }
        let aggregate = Aggregate::Sum;
        let mut all = Self { kind, sets, aggregate, with_scores: false, limit: usize::MAX };
        let (stores, has_weights) = (numbered_at > 1, kind != Kind::Difference && !counts);
        let mut at = first + count;
        while let Some(option) = call.command.get(at) {
            let left = call.command.len() - at;
            at += match &option.to_ascii_lowercase()[..] {
                b"weights" if has_weights && left > count => {
                    for (index, (_, weight)) in all.sets.iter_mut().enumerate() {
                        let given = double(call.argument(at + 1 + index));
                        *weight = given.ok_or("ERR weight value is not a float")?;
                    }
                    1 + count
                }
                b"aggregate" if has_weights && left >= 2 => {
                    all.aggregate = match &call.argument(at + 1).to_ascii_lowercase()[..] {
                        b"sum" => Aggregate::Sum,
                        b"min" => Aggregate::Min,
                        b"max" => Aggregate::Max,
                        _ => return Err(SYNTAX.into()),
                    };
                    2
                }
                b"withscores" if !stores && !counts => {
                    all.with_scores = true;
                    1
                }
                b"limit" if counts && left >= 2 => {
                    let limit = call.natural(at + 1, "ERR LIMIT can't be negative")?;
                    all.limit = if limit == 0 { usize::MAX } else { limit };
                    2
                }
                _ => return Err(SYNTAX.into()),
            };
        }
        Ok(all)
    }

    /// Returns the members and their scores, in order.
    fn collect(&self, call: &mut Call<'_>) -> Result<Vec<(f64, Vec<u8>)>, Failure> {
        let mut sets: Vec<_> =
            self.sets.iter().filter_map(|(id, weight)| Some(((*id)?, *weight))).collect();
        match self.kind {
            Kind::Intersection if sets.len() < self.sets.len() => return Ok(Vec::new()),
            Kind::Difference if self.sets[0].0.is_none() => return Ok(Vec::new()),
            Kind::Difference => {}
            // In this order scores are added, too.
            Kind::Intersection | Kind::Union => {
                sets.sort_by_cached_key(|(id, _)| call.count(*id));
            }
        }
        let looked_through = if self.kind == Kind::Union { sets.len() } else { 1 };
        let (through, others) = sets.split_at(looked_through.min(sets.len()));
        let mut members: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
        for (id, weight) in through {
            let mut act = |call: &mut Call<'_>, (member, value): Element| {
                let mut score = zero_if_nan(value_of(*id, &value) * weight);
                for (id, weight) in others {
                    let found = call.element(*id, &member).map(|it| value_of(*id, it.value));
                    match (self.kind, found) {
                        (Kind::Intersection, Some(other)) => {
                            let other = zero_if_nan(other * weight);
                            score = self.aggregate.combine(score, other);
                        }
                        (Kind::Intersection, None) | (_, Some(_)) => return Ok(true),
                        _ => {}
                    }
                }
                if let Some(present) = members.get_mut(&member) {
                    *present = self.aggregate.combine(*present, score);
                    return Ok(true);
                }
                call.add_to_reply(elements::PART + member.len())?;
                members.insert(member, score);
                Ok(members.len() < self.limit)
            };
            call.each_element(Span::of(*id), &mut act)?;
        }
        let mut members: Vec<_> =
            members.into_iter().map(|(member, score)| (score, member)).collect();
        // Members with equal scores stay in order.
        members.sort_by(|(one, _), (other, _)| (one + 0.0).total_cmp(&(other + 0.0)));
        Ok(members)
    }
}

/// Returns the score of an element of a sorted set, or one for a set.
fn value_of(id: CollectionId, value: &[u8]) -> f64 {
    match id.kind() {
        CollectionKind::SortedSet => score_of(value),
        _ => 1.0,
    }
}

/// Replies with what is made of the sets of all keys.
fn combine(call: &mut Call<'_>, kind: Kind) -> Result<(), Failure> {
    let combination = Combination::parse(call, kind, 1)?;
    let members = combination.collect(call)?;
    let with_scores = combination.with_scores;
    let in_pairs = with_scores && call.session.protocol == Protocol::Resp3;
    call.reply.array(if with_scores && !in_pairs { 2 * members.len() } else { members.len() });
    for (score, member) in &members {
        if in_pairs {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        if with_scores {
            call.reply.double(*score);
        }
    }
    Ok(())
}

/// Gives the first key what is made of the sets of the others.
fn store(call: &mut Call<'_>, kind: Kind) -> Result<(), Failure> {
    let combination = Combination::parse(call, kind, 2)?;
    let members = combination.collect(call)?;
    let elements: Vec<Element> =
        members.into_iter().map(|(score, member)| (member, stored(score).to_vec())).collect();
    let key = call.key(1)?;
    call.store(key, SortedSet, &elements)?;
    call.reply.integer(length(elements.len()));
    Ok(())
}

pub(super) fn zunion(call: &mut Call<'_>) -> Result<(), Failure> {
    combine(call, Kind::Union)
}

pub(super) fn zinter(call: &mut Call<'_>) -> Result<(), Failure> {
    combine(call, Kind::Intersection)
}

pub(super) fn zdiff(call: &mut Call<'_>) -> Result<(), Failure> {
    combine(call, Kind::Difference)
}

pub(super) fn zunionstore(call: &mut Call<'_>) -> Result<(), Failure> {
    store(call, Kind::Union)
}

pub(super) fn zinterstore(call: &mut Call<'_>) -> Result<(), Failure> {
    store(call, Kind::Intersection)
}

pub(super) fn zdiffstore(call: &mut Call<'_>) -> Result<(), Failure> {
    store(call, Kind::Difference)
}

pub(super) fn zintercard(call: &mut Call<'_>) -> Result<(), Failure> {
    let combination = Combination::parse(call, Kind::Intersection, 1)?;
    let members = combination.collect(call)?;
    call.reply.integer(length(members.len()));
    Ok(())
}
