//! Scores of sorted sets, and ranges of them.

use std::ops::Bound;

/// The longest text of a number, in bytes.
const MAX_TEXT: usize = 255;

/// Parses a number as C's `strtod` does; `None` if the text is none, or is too near to zero or too
/// far from it.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_TEXT)?;
    let number: f64 = text.parse().ok().filter(|number: &f64| !number.is_nan())?;
    let unsigned = text.trim_start_matches(['-', '+']);
    let is_named = unsigned.starts_with(['i', 'I']);
    let digits = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = digits.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let is_in_range = match number {
        _ if is_named => true,
        0.0 => is_zero,
        _ => number.is_finite(),
    };
    is_in_range.then_some(number)
}

/// Parses an end of a range of scores. After a parenthesis, the score itself is left out.
pub(crate) fn score_bound(text: &[u8]) -> Option<Bound<f64>> {
    let (text, bound): (_, fn(f64) -> Bound<f64>) = match text {
        [b'(', text @ ..] => (text, Bound::Excluded),
        _ => (text, Bound::Included),
    };
    // `strtod` passes over white space, and takes nothing for zero.
    let text = text.trim_ascii_start();
    match text {
        [] => Some(bound(0.0)),
        _ => double(text).map(bound),
    }
}

/// Parses an end of a range of members, which are compared byte by byte.
pub(crate) fn member_bound(text: &[u8]) -> Option<MemberBound<'_>> {
    match text {
        b"-" => Some(MemberBound::Lowest),
        b"+" => Some(MemberBound::Highest),
        [b'(', member @ ..] => Some(MemberBound::Member(Bound::Excluded(member))),
        [b'[', member @ ..] => Some(MemberBound::Member(Bound::Included(member))),
        _ => None,
    }
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MemberBound<'a> {
    /// Below all members.
    Lowest,
    /// Above all members.
    Highest,
    Member(Bound<&'a [u8]>),
}

#[cfg(test)]
mod tests {
    use super::{double, score_bound};
    use std::ops::Bound;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, number) in [
            ("1.5", Some(1.5)),
            ("-.5", Some(-0.5)),
            ("+inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1x", None),
        ] {
            assert_eq!(double(text.as_bytes()), number, "{text}");
        }
        assert_eq!(score_bound(b"(1"), Some(Bound::Excluded(1.0)));
        assert_eq!(score_bound(b" 2"), Some(Bound::Included(2.0)));
        assert_eq!((score_bound(b""), score_bound(b"((1")), (Some(Bound::Included(0.0)), None));
    }
}
