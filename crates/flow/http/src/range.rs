//! Byte ranges of requests and responses (RFC 9110, section 14).

use std::ops::{Range, RangeInclusive};

/// Limit on the ranges of one request. A request for more ranges gets the complete file, as the
/// standard allows.
pub const MAX_PARTS: usize = 16;

/// The part of a file that a `Range` field selects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestedRange {
    /// The whole file, because there is no `Range` field, or because the field is ignored: its unit
    /// is unknown, it is malformed, it has too many ranges, or its ranges together are longer than
    /// the file.
    Whole,
    /// These parts, in the order of the request. None of them is empty.
    Parts(Vec<Range<u64>>),
    /// The field selects no bytes of the file: its ranges lie beyond the end or are empty. The
    /// response has status 416.
    Nothing,
}

/// Parses a `Range` field for a file of `size` bytes.
#[must_use]
pub fn parse_range(field: &str, size: u64) -> RequestedRange {
    let Some((unit, list)) = field.split_once('=') else { return RequestedRange::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return RequestedRange::Whole;
    }
    let mut parts = Vec::new();
    let mut count = 0;
    for item in
        list.split(',').map(|item| item.trim_matches([' ', '\t'])).filter(|item| !item.is_empty())
    {
        count += 1;
        let Some(part) = part(item, size) else { return RequestedRange::Whole };
        if count > MAX_PARTS {
            return RequestedRange::Whole;
        }
        parts.extend(part);
    }
    let total = parts.iter().map(|part| part.end - part.start).fold(0u64, u64::saturating_add);
    match parts.len() {
        _ if count == 0 => RequestedRange::Whole,
        0 => RequestedRange::Nothing,
        1 => RequestedRange::Parts(parts),
        _ if total > size => RequestedRange::Whole,
        _ => RequestedRange::Parts(parts),
    }
}

/// Parses one range. `None` if it is malformed; `Some(None)` if it contains no byte of the file.
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

/// Parses digits. A number too large for `u64` becomes `u64::MAX`.
fn saturating(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

/// The value of a `Content-Range` field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentRange {
    /// The first and the last byte. `None` in a response that rejects a range.
    pub bytes: Option<RangeInclusive<u64>>,
    /// Length of the whole file in bytes, if the server states it.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes FIRST-LAST/ALL`, where `*` can stand in place of `FIRST-LAST` or of `ALL`.
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

/// Parses digits only, whereas `str::parse` would also accept a sign.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_the_standard_says() {
        let one = |range| RequestedRange::Parts(vec![range]);
        for (field, expected) in [
            ("bytes=0-0", one(0..1)),
            ("bytes=0-", one(0..10)),
            ("Bytes = 3-5", one(3..6)),
            ("bytes=9-100", one(9..10)),
            ("bytes=-3", one(7..10)),
            ("bytes=-100", one(0..10)),
            ("bytes=0-99999999999999999999999", one(0..10)),
            ("bytes=0-1, 4-5 ,,-1", RequestedRange::Parts(vec![0..2, 4..6, 9..10])),
            ("bytes=0-1,20-30", one(0..2)),
            ("bytes=10-", RequestedRange::Nothing),
            ("bytes=-0", RequestedRange::Nothing),
            ("bytes=20-30,40-", RequestedRange::Nothing),
            ("bytes=5-4", RequestedRange::Whole),
            ("bytes=", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("bytes=+1-2", RequestedRange::Whole),
            ("bytes 0-1", RequestedRange::Whole),
            ("lines=0-1", RequestedRange::Whole),
            ("bytes=0-9,0-9", RequestedRange::Whole),
        ] {
            assert_eq!(parse_range(field, 10), expected, "{field}");
        }
        assert_eq!(
            parse_range("bytes=0-", 0),
            RequestedRange::Nothing,
            "an empty file has no bytes"
        );
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        let most = parse_range(&many(MAX_PARTS), 100);
        assert!(matches!(most, RequestedRange::Parts(parts) if parts.len() == MAX_PARTS));
        assert_eq!(parse_range(&many(MAX_PARTS + 1), 100), RequestedRange::Whole);
    }
}
