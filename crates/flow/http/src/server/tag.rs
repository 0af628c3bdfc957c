//! Entity tags, which identify versions of a file (RFC 9110, section 8.8.3).

/// Limit on the tags of a list that are compared. Further tags are ignored.
pub const MAX_TAGS: usize = 64;

/// The tags of a conditional field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Tags<'a> {
    /// `*`, which stands for any existing version.
    Any,
    /// A list of tags, with their quotes. Weak tags include their `W/`.
    These(Vec<&'a str>),
}

impl<'a> Tags<'a> {
    /// Parses a list. The list ends at the first text that is not a tag.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        let (mut tags, mut rest) = (Vec::new(), text);
        while tags.len() < MAX_TAGS {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let Some(length) = tag_length(rest) else { break };
            let (tag, behind) = rest.split_at(length);
            tags.push(tag);
            rest = behind;
        }
        Self::These(tags)
    }

    /// Returns whether `tag` is in the list by strong comparison: both tags are strong and equal.
    /// `*` contains each tag.
    #[must_use]
    pub fn has_strong(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|one| same_strong(one, tag)),
        }
    }

    /// Returns whether `tag` is in the list by weak comparison, which ignores `W/`. `*` contains
    /// each tag.
    #[must_use]
    pub fn has_weak(&self, tag: &str) -> bool {
        let bare = |tag: &'_ str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|one| bare(one) == bare(tag)),
        }
    }
}

/// Returns whether both tags are strong and equal.
#[must_use]
pub fn same_strong(one: &str, other: &str) -> bool {
    one == other && one.starts_with('"')
}

/// Returns the length of the tag with which `text` begins.
fn tag_length(text: &str) -> Option<usize> {
    let prefix = if text.starts_with("W/") { 2 } else { 0 };
    let inside = text[prefix..].strip_prefix('"')?;
    let end = inside.find('"')?;
    let fits = inside[..end]
        .bytes()
        .all(|byte| byte == 0x21 || (0x23..=0x7e).contains(&byte) || byte >= 0x80);
    fits.then_some(prefix + 1 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        assert_eq!(Tags::parse(" * "), Tags::Any);
        let tags = Tags::parse(r#""a", W/"b,c" ,, "d""#);
        assert_eq!(tags, Tags::These(vec![r#""a""#, r#"W/"b,c""#, r#""d""#]));
        assert!(
            tags.has_strong(r#""a""#) && !tags.has_strong(r#""b,c""#) && tags.has_weak(r#""b,c""#)
        );
        assert!(!tags.has_strong(r#"W/"b,c""#), "weak tags are never the same bytes");
        for text in ["", "a", "\"", "W/", "W/a", "\"a b\"", "\"a\u{7f}\""] {
            assert_eq!(Tags::parse(text), Tags::These(vec![]), "{text:?}");
        }
    }
}
