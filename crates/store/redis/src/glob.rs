//! Patterns of keys, as Redis has them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that
//! stands for itself.

/// Returns whether a pattern matches a key. Takes at most as many steps as the product of their
/// lengths.
pub(crate) fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut pattern, mut key) = (pattern, key);
    // What follows the last `*`, and the part of the key that it has still to match.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix(b"*") {
            star = Some((rest, key));
            pattern = rest;
            continue;
        }
        if let Some((byte, rest)) = key.split_first() {
            if let Some(after) = one(pattern, *byte) {
                (pattern, key) = (after, rest);
                continue;
            }
        } else if pattern.is_empty() {
            return true;
        }
        // The `*` takes one byte more.
        let Some((after, of_star)) = star else { return false };
        let Some((_, rest)) = of_star.split_first() else { return false };
        star = Some((after, rest));
        (pattern, key) = (after, rest);
    }
}

/// Matches a byte with the beginning of a pattern; returns the rest of the pattern if it matches.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [same, rest @ ..] => (*same == byte).then_some(rest),
        [] => None,
    }
}

/// Matches a byte with a class of characters, after its `[`. A class without `]` ends with the
/// pattern.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_not, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut found = false;
    let after = loop {
        rest = match rest {
            [b'\\', escaped, after @ ..] => {
                found |= *escaped == byte;
                after
            }
            [b']', after @ ..] => break after,
            [] => break rest,
            [first, b'-', last, after @ ..] => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                after
            }
            [same, after @ ..] => {
                found |= *same == byte;
                after
            }
        };
    };
    (found != is_not).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abcbc", true),
            ("a*d", "abc", false),
            ("a**c", "ac", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a]x", "bx", true),
            ("[^a]x", "ax", false),
            ("[ab", "a", true),
            ("[a\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[]", "a", false),
            ("[^]", "a", true),
        ];
        for (pattern, key, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), key.as_bytes()), *expected, "{pattern} {key}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let (pattern, key) = ("a*".repeat(1000) + "b", "a".repeat(10_000));
        assert!(!matches(pattern.as_bytes(), key.as_bytes()));
    }
}
