//! Request targets: a path, as decoded names, and a query.

use super::refused::Refused;
use crate::address::encode;
use percent_encoding::percent_decode;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Limit on the length of a decoded path, in bytes: that of Linux. A request for a longer path is
/// rejected with status 404, because no such file can exist.
pub const MAX_PATH: usize = 4095;

/// Limit on the query parameters that are searched. Further parameters are ignored.
pub const MAX_PARAMETERS: usize = 16;

/// A request target, whose path was decoded once. No name is empty, `.` or `..`, and no name
/// contains a slash or a NUL. So a path that is made of these names stays below the root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The names from the root on; empty for the root itself.
    names: Vec<OsString>,
    /// Whether the path ends with a slash, as the path of a directory does.
    slash: bool,
    /// The query as received, without the question mark.
    query: String,
}

impl Target {
    /// Parses a target of the form `/path?query`, or of the form `http://host/path?query`.
    /// # Errors
    /// [`Refused`] with 400 for a malformed target, or with 404 for a name that no file can have or
    /// a path longer than [`MAX_PATH`].
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let path = match text.split_once("://") {
            Some((scheme, rest))
                if matches!(&scheme.to_ascii_lowercase()[..], "http" | "https") =>
            {
                // This absolute form is meant for proxies, but every server must accept it.
                &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
            }
            _ if text.starts_with('/') => text,
            _ => return Err(Refused::bad("the target is neither a path nor an address")),
        };
        if text.contains('#') {
            return Err(Refused::bad("the target has a fragment"));
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut names = Vec::new();
        for part in path.split('/') {
            if !is_encoded(part) {
                return Err(Refused::bad("a percent sign without two hexadecimal digits"));
            }
            let name: Vec<u8> = percent_decode(part.as_bytes()).collect();
            match &name[..] {
                b"" | b"." => {}
                b".." => return Err(Refused::bad("the path goes upwards")),
                name if name.contains(&0) => return Err(Refused::bad("a NUL in the path")),
                name if name.contains(&b'/') => return Err(Refused::missing()),
                _ => names.push(OsString::from_vec(name)),
            }
        }
        if names.iter().map(|name| name.len() + 1).sum::<usize>() > MAX_PATH {
            return Err(Refused::missing());
        }
        Ok(Self { names, slash: path.ends_with('/') || path.is_empty(), query: query.to_owned() })
    }

    /// Returns the names from the root on.
    #[must_use]
    pub fn names(&self) -> &[OsString] {
        &self.names
    }

    /// Returns the path relative to the root; `.` for the root itself.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        if self.names.is_empty() { PathBuf::from(".") } else { self.names.iter().collect() }
    }

    /// Returns whether the path ends with a slash.
    #[must_use]
    pub fn has_slash(&self) -> bool {
        self.slash
    }

    /// Returns the query as received; empty if there is none.
    #[must_use]
    pub fn query(&self) -> &str {
        &self.query
    }

    /// Returns a query parameter, decoded. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self
            .query
            .split('&')
            .take(MAX_PARAMETERS)
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
        let spaced = value.replace('+', " ");
        Some(percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned())
    }

    /// Returns the percent-encoded path. Only the root ends with a slash.
    #[must_use]
    pub fn encoded(&self) -> String {
        if self.names.is_empty() {
            return "/".to_owned();
        }
        self.names.iter().map(|name| format!("/{}", encode(name))).collect()
    }
}

/// Returns whether each percent sign is followed by two hexadecimal digits.
fn is_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let target = Target::parse(text).expect(text);
        target.names().iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn paths_are_decoded_once() {
        assert_eq!(names("/"), [""; 0]);
        assert_eq!(names("//a/./b%20c/"), ["a", "b c"]);
        assert_eq!(names("http://host:80/a?b=c"), ["a"]);
        assert_eq!(names("HTTP://host"), [""; 0]);
        assert_eq!(names("/%2561"), ["%61"], "once");
        assert_eq!(names("/%C3%A4+"), ["ä+"]);
        assert!(
            Target::parse("/a/").expect("a path").has_slash()
                && !Target::parse("/a").expect("a path").has_slash()
        );
    }

    #[test]
    fn targets_that_could_leave_the_root_are_refused() {
        for text in [
            "",
            "a",
            "*",
            "/..",
            "/a/../b",
            "/%2e%2e/x",
            "/.%2E",
            "/%00",
            "/%",
            "/%2",
            "/%zz",
            "/a#b",
            "ftp://x/a",
        ] {
            assert_eq!(Target::parse(text).expect_err(text).status, 400, "{text}");
        }
        for text in
            ["/a%2fb".to_owned(), "/..%2f..%2fetc".to_owned(), format!("/{}", "a/".repeat(3000))]
        {
            assert_eq!(Target::parse(&text).expect_err(&text).status, 404, "{text}");
        }
    }

    #[test]
    fn queries_are_looked_up() {
        let target = Target::parse("/?a=1&b=x+y%21&c&a=2").expect("a path");
        assert_eq!(target.parameter("a").as_deref(), Some("1"));
        assert_eq!(target.parameter("b").as_deref(), Some("x y!"));
        assert_eq!(target.parameter("c").as_deref(), Some(""));
        assert_eq!(target.parameter("d"), None);
    }

    #[test]
    fn encoded_names_are_decoded() {
        let name = OsString::from_vec((1..=255).filter(|byte| *byte != b'/').collect());
        let target = Target::parse(&format!("/x/{}", encode(&name))).expect("ours");
        assert_eq!(target.names()[1], name);
        assert_eq!(Target::parse(&target.encoded()), Ok(target));
    }
}
