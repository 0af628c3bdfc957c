//! Conditions of a request: what it wants only if, or only if not (RFC 9110, 13).

use super::request::Request;
use super::tag::{Tags, same_strong};
use crate::date::Moment;

/// What is compared: one version of a file.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// Its entity tag, strong.
    pub tag: &'a str,
    /// When it was modified.
    pub modified: Moment,
}

/// What its conditions make of a request for something that is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is done, ranges and all.
    Go,
    /// It is done, but for the whole: `If-Range` names another version.
    Whole,
    /// Its sender has this version already (304).
    NotModified,
    /// What it wants is not so (412).
    Failed,
}

/// Judges the conditions of a GET or HEAD, in the order that the standard has them in.
#[must_use]
pub fn judge(request: &Request, version: Version<'_>) -> Verdict {
    let date = |name: &str| request.field(name).and_then(|text| Moment::parse_http(&text));
    // Dates know whole seconds.
    let modified = Moment { nanoseconds: 0, ..version.modified };
    if let Some(tags) = request.field("if-match") {
        if !Tags::parse(&tags).has_strong(version.tag) {
            return Verdict::Failed;
        }
    } else if date("if-unmodified-since").is_some_and(|since| modified > since) {
        return Verdict::Failed;
    }
    if let Some(tags) = request.field("if-none-match") {
        if Tags::parse(&tags).has_weak(version.tag) {
            return Verdict::NotModified;
        }
    } else if date("if-modified-since").is_some_and(|since| modified <= since) {
        return Verdict::NotModified;
    }
    match request.field("if-range") {
        // A date is no strong validator: a file can change twice in a second.
        Some(text) if !same_strong(text.trim(), version.tag) => Verdict::Whole,
        _ => Verdict::Go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(fields: &str) -> Verdict {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let request = Request::parse(head.as_bytes()).expect("a request");
        let modified = Moment::parse_http("Sun, 22 Nov 2026 08:00:00 GMT").expect("a date");
        judge(&request, Version { tag: "\"x\"", modified: Moment { nanoseconds: 5, ..modified } })
    }

    #[test]
    fn conditions_are_judged_in_order() {
        let (before, then) = ("Sun, 22 Nov 2026 07:59:59 GMT", "Sun, 22 Nov 2026 08:00:00 GMT");
        for (fields, expected) in [
            ("X: y".to_owned(), Verdict::Go),
            ("If-Match: \"x\"".to_owned(), Verdict::Go),
            ("If-Match: *".to_owned(), Verdict::Go),
            ("If-Match: \"y\", W/\"x\"".to_owned(), Verdict::Failed),
            (format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {before}"), Verdict::Go),
            (format!("If-Unmodified-Since: {before}"), Verdict::Failed),
            (format!("If-Unmodified-Since: {then}"), Verdict::Go),
            ("If-Unmodified-Since: yesterday".to_owned(), Verdict::Go),
            ("If-None-Match: W/\"x\"".to_owned(), Verdict::NotModified),
            ("If-None-Match: *".to_owned(), Verdict::NotModified),
            (format!("If-None-Match: \"y\"\r\nIf-Modified-Since: {then}"), Verdict::Go),
            (format!("If-Modified-Since: {then}"), Verdict::NotModified),
            (format!("If-Modified-Since: {before}"), Verdict::Go),
            ("If-Range: \"x\"".to_owned(), Verdict::Go),
            ("If-Range: \"y\"".to_owned(), Verdict::Whole),
            ("If-Range: W/\"x\"".to_owned(), Verdict::Whole),
            (format!("If-Range: {then}"), Verdict::Whole),
        ] {
            assert_eq!(judged(&fields), expected, "{fields}");
        }
    }
}
