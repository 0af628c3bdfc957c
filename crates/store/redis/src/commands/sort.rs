//! `SORT`: the elements of a collection in another order, and values of keys that belong to them.

use super::strings::length;
use crate::call::{Call, ENTRY, Failure, SYNTAX, text};
use crate::collections::{Element, Span, WRONG_TYPE, collection_of};
use crate::label;
use crate::objects::Access;
use crate::score::score_bound;
use sprat_resp::Command;
use sprat_wire::elements::CollectionId;
use sprat_wire::elements::CollectionKind::{Hash, List, Set, SortedSet};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

/// Limit on the patterns whose values a command asks for.
const MAX_PATTERNS: usize = 64;

/// The options of `SORT`.
#[derive(Default)]
struct Options<'a> {
    descending: bool,
    /// Whether values are compared byte by byte, and not as numbers.
    by_bytes: bool,
    /// How many elements are left out, and how many are wanted; the others if negative.
    limit: Option<(i64, i64)>,
    /// Where the values are by which elements are compared.
    by: Option<&'a [u8]>,
    /// The values that are wanted instead of the elements.
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Failure> {
        let (mut options, mut at) = (Self::default(), 2);
        while let Some(option) = call.command.get(at) {
            let next = call.command.get(at + 1);
            match (&option.to_ascii_lowercase()[..], next) {
                (b"asc", _) => options.descending = false,
                (b"desc", _) => options.descending = true,
                (b"alpha", _) => options.by_bytes = true,
                (b"limit", Some(_)) if call.command.len() - at > 2 => {
                    options.limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
                    at += 2;
                }
                (b"store", Some(_)) if call.name == "sort" => {
                    options.store = Some(call.key(at + 1)?);
                    at += 1;
                }
                (b"by", Some(pattern)) => {
                    options.by = Some(pattern);
                    at += 1;
                }
                (b"get", Some(pattern)) => {
                    if options.get.len() == MAX_PATTERNS {
                        return Err(format!("ERR SORT has at most {MAX_PATTERNS} GET").into());
                    }
                    options.get.push(pattern);
                    at += 1;
                }
                _ => return Err(SYNTAX.into()),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Returns which of `len` elements are wanted.
    fn wanted(&self, len: usize) -> (usize, usize) {
        let (skip, count) = self.limit.unwrap_or((0, -1));
        let skip = usize::try_from(skip).unwrap_or(0).min(len);
        (skip, usize::try_from(count).unwrap_or(usize::MAX).min(len - skip))
    }
}

/// Finds the value that belongs to an element: of the key, or of the field of the key behind an
/// arrow, that the pattern is with the element in place of its star. A hash sign is the element
/// itself.
fn look_up(
    call: &mut Call<'_>,
    pattern: &[u8],
    element: &[u8],
) -> Result<Option<Vec<u8>>, Failure> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (begin, rest) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = rest.windows(2).position(|two| two == b"->").filter(|at| at + 2 < rest.len());
    let end = &rest[..arrow.unwrap_or(rest.len())];
    let key = [begin, element, end].concat();
    let found = call.find(&key, Access::Read)?;
    let Some(arrow) = arrow else {
        let value = found.filter(|entry| collection_of(entry).is_none());
        return Ok(value.map(|entry| text(&entry).into_owned()));
    };
    let id = found.as_ref().and_then(collection_of).filter(|id| id.kind() == Hash);
    let Some(id) = id else { return Ok(None) };
    Ok(call.element(id, &rest[arrow + 2..]).map(|entry| entry.value.to_vec()))
}

/// Returns the elements of a list, a set or a sorted set in their order.
fn all(
    call: &mut Call<'_>,
    id: CollectionId,
    descending: bool,
    skip_and_count: (usize, usize),
) -> Result<Vec<Vec<u8>>, Failure> {
    let span = Span::of(id).directed(descending);
    let elements = call.elements(&span, skip_and_count)?;
    let is_list = id.kind() == List;
    Ok(elements.into_iter().map(|(name, value)| if is_list { value } else { name }).collect())
}

/// What an element is compared by.
#[derive(Debug)]
enum Weight {
    Number(f64),
    /// `None` if there is no such key.
    Bytes(Option<Vec<u8>>),
}

/// Sorts elements.
///
/// # Errors
/// They are compared as numbers, and one is none.
fn sort(
    call: &mut Call<'_>,
    options: &Options<'_>,
    elements: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let by = match options.by {
            Some(pattern) => look_up(call, pattern, &element)?.map(Cow::Owned),
            None => Some(Cow::Borrowed(&element[..])),
        };
        let weight = match (options.by_bytes, by) {
            (true, by) => Weight::Bytes(by.map(Cow::into_owned)),
            (false, None) => Weight::Number(0.0),
            // As a string of C it ends at a zero byte.
            (false, Some(by)) => match by.split(|byte| *byte == 0).next().and_then(score_bound) {
                Some(Bound::Included(number)) => Weight::Number(number),
                _ => return Err("ERR One or more scores can't be converted into double".into()),
            },
        };
        weighed.push((weight, element));
    }
    weighed.sort_by(|(one, element), (other, next)| {
        let order = match (one, other) {
            (Weight::Number(one), Weight::Number(other)) => {
                // Equal numbers are in the order of their elements.
                one.partial_cmp(other).unwrap_or(Ordering::Equal).then_with(|| element.cmp(next))
            }
            (Weight::Bytes(one), Weight::Bytes(other)) => one.cmp(other),
            _ => Ordering::Equal,
        };
        if options.descending { order.reverse() } else { order }
    });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

pub(super) fn sort_command(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut options = Options::parse(call)?;
    let key = call.key(1)?;
    let found = match call.find(key, Access::Read)? {
        Some(entry) => match collection_of(&entry) {
            Some(id) if matches!(id.kind(), List | Set | SortedSet) => Some(id),
            _ => return Err(WRONG_TYPE.into()),
        },
        None => None,
    };
    let len = found.map_or(0, |id| call.count(id));
    let (skip, count) = options.wanted(len);
    // Without a star the pattern asks for the order that there is. A set has none that could be
    // stored.
    let mut stays = options.by.is_some_and(|pattern| !pattern.contains(&b'*'));
    if stays && options.store.is_some() && found.is_some_and(|id| id.kind() == Set) {
        (stays, options.by_bytes, options.by) = (false, true, None);
    }
    let elements = match found {
        None => Vec::new(),
        Some(id) if stays => {
            let turned = options.descending && id.kind() != Set;
            all(call, id, turned, (skip, count))?
        }
        Some(id) => {
            let elements = all(call, id, false, (0, len))?;
            let sorted = sort(call, &options, elements)?;
            sorted.into_iter().skip(skip).take(count).collect()
        }
    };
    let mut values = Vec::new();
    for element in elements {
        let mut add = |call: &mut Call<'_>, value: Option<Vec<u8>>| {
            call.add_to_reply(ENTRY + value.as_ref().map_or(0, Vec::len))?;
            values.push(value);
            Ok::<_, Failure>(())
        };
        for pattern in &options.get {
            let value = look_up(call, pattern, &element)?;
            add(call, value)?;
        }
        if options.get.is_empty() {
            add(call, Some(element))?;
        }
    }
    let Some(to) = options.store else {
        call.reply.array(values.len());
        for value in &values {
            match value {
                Some(value) => call.reply.bulk(value),
                None => call.reply.null(),
            }
        }
        return Ok(());
    };
    let labels = label::spread(None, None, values.len()).expect("far from the ends");
    let elements: Vec<Element> =
        labels.into_iter().zip(values).map(|(label, it)| (label, it.unwrap_or_default())).collect();
    call.store(to, List, &elements)?;
    call.reply.integer(length(elements.len()));
    Ok(())
}

/// Returns which part of `SORT` is the key to which it writes.
pub(super) fn store_position(command: &Command<'_>) -> Option<usize> {
    let mut at = 2;
    let mut found = None;
    while let Some(option) = command.get(at) {
        match &option.to_ascii_lowercase()[..] {
            b"limit" => at += 2,
            b"by" | b"get" => at += 1,
            b"store" => {
                at += 1;
                found = (at < command.len()).then_some(at);
            }
            _ => {}
        }
        at += 1;
    }
    found
}
