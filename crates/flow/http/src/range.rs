//! Which bytes of a file a request is for, and an answer has (RFC 9110, 14).

use std::ops::{Range, RangeInclusive};

/// Most parts that a request may ask for at once; of one that asks for more the whole file is sent,
/// as the standard allows.
pub const MAX_PARTS: usize = 16;

/// What a `Range` field means for a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Asked {
    /// All of it: there was no such field, or one that is to be passed over (another unit, not
    /// understood, too many parts, or parts that are longer than the file together).
    Whole,
    /// These parts, in the order of the request; none is empty.
    Parts(Vec<Range<u64>>),
    /// Only bytes that the file does not have (416).
    Nothing,
}

/// Reads a `Range` field for a file of `size` bytes.
#[must_use]
pub fn asked(field: &str, size: u64) -> Asked {
    let Some((unit, list)) = field.split_once('=') else { return Asked::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    let mut parts = Vec::new();
    let mut count = 0;
    for item in
        list.split(',').map(|item| item.trim_matches([' ', '\t'])).filter(|item| !item.is_empty())
    {
        count += 1;
        let Some(part) = part(item, size) else { return Asked::Whole };
        if count > MAX_PARTS {
            return Asked::Whole;
        }
        parts.extend(part);
    }
    let total = parts.iter().map(|part| part.end - part.start).fold(0u64, u64::saturating_add);
    match parts.len() {
        _ if count == 0 => Asked::Whole,
        0 => Asked::Nothing,
        1 => Asked::Parts(parts),
        _ if total > size => Asked::Whole,
        _ => Asked::Parts(parts),
    }
}

/// One part: `None` when it is not understood, and `Some(None)` when the file has no byte of it.
fn part(item: &str, size: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = item.split_once('-')?;
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => {
            let length = saturating(last)?.min(size);
            Some((length > 0).then(|| size - length..size))
        }
        (false, true) => {
            Some(Some(saturating(first)?).filter(|first| *first < size).map(|first| first..size))
        }
        (false, false) => {
            let (first, last) = (saturating(first)?, saturating(last)?);
            if last < first {
                return None;
            }
            Some((first < size).then(|| first..last.saturating_add(1).min(size)))
        }
    }
}

/// A number of digits alone; one that no machine counts to is as good as the greatest.
fn saturating(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

/// `Content-Range`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentRange {
    /// First and last byte; none in an answer that refuses a range.
    pub bytes: Option<RangeInclusive<u64>>,
    /// Bytes of the whole file.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Reads `bytes FIRST-LAST/ALL`, with `*` for what is not told.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (bytes, total) = rest.trim().split_once('/')?;
        let total = if total == "*" { None } else { Some(number(total)?) };
        let bytes = if bytes == "*" {
            None
        } else {
            let (first, last) = bytes.split_once('-')?;
            let (first, last) = (number(first)?, number(last)?);
            if first > last || total.is_some_and(|total| last >= total) {
                return None;
            }
            Some(first..=last)
        };
        Some(Self { bytes, total })
    }
}

/// A number of digits and nothing else: not even a sign, which the library's parser would take.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_the_standard_says() {
        let one = |range| Asked::Parts(vec![range]);
        for (field, expected) in [
            ("bytes=0-0", one(0..1)),
            ("bytes=0-", one(0..10)),
            ("Bytes = 3-5", one(3..6)),
            ("bytes=9-100", one(9..10)),
            ("bytes=-3", one(7..10)),
            ("bytes=-100", one(0..10)),
            ("bytes=0-99999999999999999999999", one(0..10)),
            ("bytes=0-1, 4-5 ,,-1", Asked::Parts(vec![0..2, 4..6, 9..10])),
            ("bytes=0-1,20-30", one(0..2)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=20-30,40-", Asked::Nothing),
            ("bytes=5-4", Asked::Whole),
            ("bytes=", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("bytes 0-1", Asked::Whole),
            ("lines=0-1", Asked::Whole),
            ("bytes=0-9,0-9", Asked::Whole),
        ] {
            assert_eq!(asked(field, 10), expected, "{field}");
        }
        assert_eq!(asked("bytes=0-", 0), Asked::Nothing, "an empty file has no bytes");
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(
            matches!(asked(&many(MAX_PARTS), 100), Asked::Parts(parts) if parts.len() == MAX_PARTS)
        );
        assert_eq!(asked(&many(MAX_PARTS + 1), 100), Asked::Whole);
    }
}
