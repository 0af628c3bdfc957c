//! Decides what to send for a file. The decision is a pure function of the request and the file's
//! version.

use super::version::Version;
use crate::group::{GROUP_BYTES, VALUES, VERIFIED, values_length, verified_length};
use sprat_http::range::{RequestedRange, parse_range};
use sprat_http::server::answer::Head;
use sprat_http::server::condition::{self, Verdict};
use sprat_http::server::request::{Method, Request};
use sprat_http::{LENGTH, MODE, MTIME};
use std::ops::Range;

/// The head of a response, and its body.
#[derive(Debug)]
pub struct Decision {
    /// The head, without the lines that [`Head::finish`] adds.
    pub head: Head,
    /// The body.
    pub body: Body,
}

/// The body of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Body {
    /// There is no body.
    Empty,
    /// A generated text.
    Text(Vec<u8>),
    /// The entries of a directory, one line for each. The length is not known in advance.
    Lines,
    /// A part of the file.
    Part(Range<u64>),
    /// A part of the file in verified form. It begins at a group, and ends at the end of a group or
    /// of the file.
    Verified(Range<u64>),
    /// Only the values of the groups of a part. The part begins and ends as for `Verified`.
    Values(Range<u64>),
    /// Several parts of the file, each with a head before it, and a text at the end
    /// (`multipart/byteranges`).
    Parts(Vec<(Vec<u8>, Range<u64>)>, Vec<u8>),
}

impl Body {
    /// Returns the length of the body in bytes; 0 for lines, whose length is unknown.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Empty | Self::Lines => 0,
            Self::Text(text) => text.len() as u64,
            Self::Part(part) => part.end - part.start,
            Self::Verified(part) => verified_length(part),
            Self::Values(part) => values_length(part),
            Self::Parts(parts, end) => {
                let parts =
                    parts.iter().map(|(head, part)| head.len() as u64 + (part.end - part.start));
                parts.sum::<u64>() + end.len() as u64
            }
        }
    }
}

/// Decides what to send for a GET or HEAD of a file of content type `kind`. With `save_as`, the
/// file is offered as a download under that name.
#[must_use]
pub fn decide(request: &Request, version: &Version, kind: &str, save_as: Option<&str>) -> Decision {
    let (tag, size) = (version.tag(), version.size);
    let common = |status| {
        let head =
            Head::new(status).field("ETag", &tag).field("Last-Modified", version.modified.http());
        // All forms share one tag, which identifies the file's version. `Vary` makes caches
        // distinguish the forms.
        head.field("Accept-Ranges", "bytes")
            .field("Vary", "Accept")
            .field("Cache-Control", "no-cache, no-transform")
    };
    let verdict =
        condition::judge(request, condition::Version { tag: &tag, modified: version.modified });
    // A range applies only to GET.
    let range = request
        .field("range")
        .filter(|_| verdict == Verdict::Proceed && request.method == Method::Get);
    match verdict {
        Verdict::NotModified => return Decision { head: common(304), body: Body::Empty },
        Verdict::Failed => return text(request, common(412), "this version of the file is gone\n"),
        Verdict::Proceed | Verdict::Whole => {}
    }
    // A client that accepts the verified form gets it. Otherwise, a client that accepts values gets
    // only the values.
    let grouped = match (request.accepts(VERIFIED), request.accepts(VALUES)) {
        (true, _) => Some(Body::Verified as fn(Range<u64>) -> Body),
        (false, true) => Some(Body::Values as fn(Range<u64>) -> Body),
        (false, false) => None,
    };
    let in_form = grouped.unwrap_or(Body::Part);
    let requested = range.map_or(RequestedRange::Whole, |range| parse_range(&range, size));
    let (head, body) = match requested {
        RequestedRange::Nothing => {
            let head = common(416).field("Content-Range", format_args!("bytes */{size}"));
            return text(request, head, &format!("the file has {size} bytes\n"));
        }
        RequestedRange::Parts(parts) => match &parts[..] {
            [part]
                if grouped.is_some() && !(is_edge(part.start, size) && is_edge(part.end, size)) =>
            {
                let head = common(416).field("Content-Range", format_args!("bytes */{size}"));
                let what = format!(
                    "in this form, a range must start and end at multiples of {GROUP_BYTES} bytes\n"
                );
                return text(request, head, &what);
            }
            [part] => {
                let head = common(206).field("Content-Range", content_range(part, size));
                (head, in_form(part.clone()))
            }
            _ if grouped.is_some() => (common(200), in_form(0..size)),
            parts => {
                let (boundary, body) = in_parts(parts, &tag, kind, size);
                let head = common(206).field(
                    "Content-Type",
                    format_args!("multipart/byteranges; boundary={boundary}"),
                );
                return finish(request, head, body);
            }
        },
        RequestedRange::Whole => (common(200), in_form(0..size)),
    };
    let head = match &body {
        Body::Verified(_) | Body::Values(_) => {
            let kind = if matches!(body, Body::Values(_)) { VALUES } else { VERIFIED };
            let head = head.field("Content-Type", kind).field(LENGTH, size);
            head.field(MODE, format_args!("{:04o}", version.mode)).field(MTIME, version.modified)
        }
        _ => head.field("Content-Type", kind),
    };
    let head = match save_as {
        Some(name) => {
            head.field("Content-Disposition", format_args!("attachment; filename*=UTF-8''{name}"))
        }
        None => head,
    };
    finish(request, head, body)
}

/// Creates a response with a short text.
#[must_use]
pub fn text(request: &Request, head: Head, text: &str) -> Decision {
    let head = head.field("Content-Type", "text/plain; charset=utf-8");
    finish(request, head, Body::Text(text.as_bytes().to_vec()))
}

/// Adds the length, and removes the body for HEAD.
#[must_use]
pub fn finish(request: &Request, head: Head, body: Body) -> Decision {
    let head = head.field("Content-Length", body.length());
    Decision { head, body: if request.method == Method::Head { Body::Empty } else { body } }
}

/// Returns whether a group begins or ends at `at` in a file of `size` bytes.
fn is_edge(at: u64, size: u64) -> bool {
    at.is_multiple_of(GROUP_BYTES) || at == size
}

fn content_range(part: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.start, part.end - 1)
}

/// Creates a boundary, a hash that will not occur in the content by accident, and a body of several
/// parts.
fn in_parts(parts: &[Range<u64>], tag: &str, kind: &str, size: u64) -> (String, Body) {
    let boundary = blake3::keyed_hash(
        blake3::hash(tag.as_bytes()).as_bytes(),
        format!("{parts:?}").as_bytes(),
    );
    let boundary = boundary.to_hex()[..32].to_owned();
    let head = |part: &Range<u64>| {
        let range = content_range(part, size);
        format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n")
            .into_bytes()
    };
    let parts = parts.iter().map(|part| (head(part), part.clone())).collect();
    let end = format!("\r\n--{boundary}--\r\n").into_bytes();
    (boundary, Body::Parts(parts, end))
}
