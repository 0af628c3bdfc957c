//! Conditional requests (RFC 9110, section 13).

use super::request::Request;
use super::tag::{Tags, same_strong};
use crate::date::Moment;

/// The current version of a file, with which conditions are compared.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The strong entity tag of the file.
    pub tag: &'a str,
    /// The modification time of the file.
    pub modified: Moment,
}

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Carry out the request, including its ranges.
    Proceed,
    /// Carry out the request for the whole file, because `If-Range` does not name this version by
    /// its strong tag.
    Whole,
    /// The client already has this version; the status is 304.
    NotModified,
    /// A precondition does not hold; the status is 412.
    Failed,
}

/// Evaluates the conditions of a `GET` or `HEAD`, in the order that the standard prescribes.
#[must_use]
pub fn judge(request: &Request, version: Version<'_>) -> Verdict {
    let date = |name: &str| request.field(name).and_then(|text| Moment::parse_http(&text));
    // HTTP dates have whole seconds.
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
        // A date is not a strong validator, because a file can change twice in a second.
        Some(text) if !same_strong(text.trim(), version.tag) => Verdict::Whole,
        _ => Verdict::Proceed,
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
            ("X: y".to_owned(), Verdict::Proceed),
            ("If-Match: \"x\"".to_owned(), Verdict::Proceed),
            ("If-Match: *".to_owned(), Verdict::Proceed),
            ("If-Match: \"y\", W/\"x\"".to_owned(), Verdict::Failed),
            (format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {before}"), Verdict::Proceed),
            (format!("If-Unmodified-Since: {before}"), Verdict::Failed),
            (format!("If-Unmodified-Since: {then}"), Verdict::Proceed),
            ("If-Unmodified-Since: yesterday".to_owned(), Verdict::Proceed),
            ("If-None-Match: W/\"x\"".to_owned(), Verdict::NotModified),
            ("If-None-Match: *".to_owned(), Verdict::NotModified),
            (format!("If-None-Match: \"y\"\r\nIf-Modified-Since: {then}"), Verdict::Proceed),
            (format!("If-Modified-Since: {then}"), Verdict::NotModified),
            (format!("If-Modified-Since: {before}"), Verdict::Proceed),
            ("If-Range: \"x\"".to_owned(), Verdict::Proceed),
            ("If-Range: \"y\"".to_owned(), Verdict::Whole),
            ("If-Range: W/\"x\"".to_owned(), Verdict::Whole),
            (format!("If-Range: {then}"), Verdict::Whole),
        ] {
            assert_eq!(judged(&fields), expected, "{fields}");
        }
    }
}
