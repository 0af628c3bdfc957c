//! Entity tags: what tells one version of a file from another (RFC 9110, 8.8.3).

/// Most tags of a list that are looked at; the rest matches nothing.
pub const MAX_TAGS: usize = 64;

/// Tags that a condition names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Tags<'a> {
    /// `*`: any version there is.
    Any,
    /// These, with their quotes; weak ones with their `W/`.
    These(Vec<&'a str>),
}

impl<'a> Tags<'a> {
    /// Reads a list; what is no tag ends it.
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

    /// Whether one is `tag`, byte by byte: neither is weak.
    #[must_use]
    pub fn has_strong(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|one| same_strong(one, tag)),
        }
    }

    /// Whether one is `tag`, weak or not.
    #[must_use]
    pub fn has_weak(&self, tag: &str) -> bool {
        let bare = |tag: &'_ str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|one| bare(one) == bare(tag)),
        }
    }
}

/// Whether both are one strong tag.
#[must_use]
pub fn same_strong(one: &str, other: &str) -> bool {
    one == other && one.starts_with('"')
}

/// Bytes of the tag that `text` begins with.
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
