//! Patterns of names with `*` and `?`.

/// Returns whether a text contains wildcards.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns whether `name` matches `pattern`. `*` matches any number of characters, also none, and
/// `?` matches one. A name that begins with a dot matches only a pattern that begins with a dot.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    // The position of the last star, and the end of the text that it matches so far.
    let mut star = None;
    while at < name.len() {
        match pattern.get(of) {
            Some('*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(one) if *one == '?' || *one == name[at] => (at, of) = (at + 1, of + 1),
            _ => match star {
                Some((begun, until)) => {
                    star = Some((begun, until + 1));
                    (at, of) = (until + 1, begun + 1);
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|one| *one == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_anything_and_question_marks_for_one() {
        for (pattern, name) in [
            ("*", "a"),
            ("*.jpg", "a.b.jpg"),
            ("a?c", "aéc"),
            ("a*b*c", "a-b-b-c"),
            ("**", ""),
            (".*", ".x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.jpg", "a.jpeg"),
            ("a?c", "ac"),
            ("", "a"),
            ("*", ".hidden"),
            ("a*b", "a"),
            ("?", ""),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
