//! Checks the heads of responses against their requests. The check is a pure function of request
//! and head.

use crate::group;
use sprat_http::client::Framing;
use sprat_http::client::Head;
use std::ops::Range;
use std::time::Duration;

/// Limit on the length of a file, in bytes: 64 TiB. A response that states a longer file is
/// rejected as a violation of the protocol.
pub const MAX_LENGTH: u64 = 64 << 40;

/// A request for a file, for a part of a file, or for the values of its groups ([`group::Value`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileRequest {
    /// Whether to request only the head.
    pub head_only: bool,
    /// The range of bytes to request; `None` requests the complete file.
    pub range: Option<Range<u64>>,
    /// If set, requests at most this many bytes from the beginning of a file of unknown length. A
    /// server sends a shorter file complete; a server that ignores ranges sends any file complete.
    pub beginning: Option<u64>,
    /// The length of the file, if an earlier response stated it.
    pub length: Option<u64>,
    /// The entity tag or date that identified the file's state in an earlier response.
    pub validator: Option<String>,
    /// The form that the body must have; `None` accepts the file verified or plain.
    pub form: Option<Form>,
    /// Whether to request the file's extended attributes.
    pub xattrs: bool,
    /// Whether to bypass caches, because bytes received before were corrupt.
    pub fresh: bool,
}

/// The content of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// The file's bytes.
    Plain,
    /// The file's groups, each followed by its value.
    Verified,
    /// Only the values of the groups.
    Values,
}

impl Form {
    /// Returns `Verified` if the server sends each group with its value, otherwise `Plain`.
    #[must_use]
    pub fn of_bytes(verified: bool) -> Self {
        if verified { Self::Verified } else { Self::Plain }
    }

    fn of_kind(kind: &str) -> Self {
        match kind {
            group::VERIFIED => Self::Verified,
            group::VALUES => Self::Values,
            _ => Self::Plain,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "as it is",
            Self::Verified => "in verified form",
            Self::Values => "as values alone",
        }
    }
}

/// The meaning of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The requested body follows.
    Bytes(BodyStart),
    /// The file is at another address.
    Redirect(String),
    /// There is no such file.
    Missing,
    /// The credentials do not grant access.
    Denied,
    /// The server asks to try again later, after this pause if it states one.
    Unavailable(Option<Duration>),
    /// The file is no longer in the state that was requested. The text says how Sprat noticed it.
    Changed(String),
    /// The response violates the protocol or does not match the request. The text says how.
    Invalid(String),
}

/// What the head of a response says about the body that follows.
#[derive(Clone, Debug, PartialEq)]
pub struct BodyStart {
    /// How the body's end is marked.
    pub framing: Framing,
    /// The offset in the file of the body's first byte.
    pub first: u64,
    /// The offset in the file after the body's last byte, if known.
    pub end: Option<u64>,
    /// The length of the file, if known.
    pub length: Option<u64>,
    /// Whether the body is in verified form.
    pub verified: bool,
}

/// Checks the head of a response against the request that it answers.
#[must_use]
pub fn judge(head: &Head, file_request: &FileRequest) -> Answer {
    match head.status {
        200 | 206 => match accepted(head, file_request) {
            Ok(answer) => answer,
            Err(why) => Answer::Invalid(why),
        },
        301 | 302 | 303 | 307 | 308 => match &head.location {
            Some(location) => Answer::Redirect(location.clone()),
            None => Answer::Invalid(format!(
                "the server redirected ({}) without an address",
                head.status
            )),
        },
        401 | 403 | 407 => Answer::Denied,
        404 | 410 => Answer::Missing,
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Answer::Unavailable(head.retry_after),
        412 => Answer::Changed(
            "the server answered 412: the file is no longer the version requested".to_owned(),
        ),
        416 => Answer::Changed("the server answered 416: the file has no such range".to_owned()),
        status => Answer::Invalid(format!(
            "the server answered with status {status}, which is unexpected here"
        )),
    }
}

fn accepted(head: &Head, file_request: &FileRequest) -> Result<Answer, String> {
    if let Some(coding) = &head.coding {
        return Err(format!(
            "the server sent the file with Content-Encoding {coding:?}, which was not requested"
        ));
    }
    let form = Form::of_kind(&head.kind);
    let verified = form == Form::Verified;
    if file_request.form.map_or(form == Form::Values, |want| want != form) {
        let (want, has) = (file_request.form.map_or("as it is", Form::name), form.name());
        return Err(format!(
            "Sprat requested the file {want}, but the server sent it {has}; sprat:// works only \
             with `sprat share`"
        ));
    }
    // Compare the state first. If the file has changed, the other checks would fail too, and the
    // response would count as invalid.
    if let (Some(want), Some(has)) = (&file_request.validator, head.validator())
        && *want != has
    {
        return Ok(Answer::Changed(format!("was {want}, is {has}")));
    }
    let framing = match (head.chunked, head.length) {
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::Close,
    };
    let (first, end, length) = match (&file_request.range, head.status) {
        (None, 206) if let Some(most) = file_request.beginning => beginning(head, most)?,
        (None, 200) if form == Form::Values => {
            return Err("the server sent group values without a range".to_owned());
        }
        (None, 200) => whole(&framing, verified)?,
        (None, _) => {
            return Err("the server sent a part although the whole file was requested".to_owned());
        }
        (Some(range), 206) => part(head, range)?,
        // The server sent the whole file. If the request had an `If-Range` condition, the condition
        // failed. Otherwise the server ignores ranges.
        (Some(_), _) if file_request.validator.is_some() => {
            return Ok(Answer::Changed(
                "the server sent the whole file instead of a part of the earlier version"
                    .to_owned(),
            ));
        }
        (Some(_), _) => {
            return Err("the server sent the whole file although a part was requested".to_owned());
        }
    };
    if let (Some(want), Some(has)) = (file_request.length, length)
        && want != has
    {
        return Ok(Answer::Changed(format!("had {want} B, has {has} B")));
    }
    if length.or(end).is_some_and(|length| length > MAX_LENGTH) {
        return Err(format!("the server states a length of more than {MAX_LENGTH} B"));
    }
    if let (Framing::Length(body), Some(end)) = (&framing, end)
        && !file_request.head_only
    {
        let want = match form {
            Form::Plain => end - first,
            Form::Verified => group::verified_length(&(first..end)),
            Form::Values => group::values_length(&(first..end)),
        };
        if *body != want {
            return Err(format!(
                "the server states a body of {body} B for bytes {first} to {end}; {want} B would \
                 be right"
            ));
        }
    }
    Ok(Answer::Bytes(BodyStart { framing, first, end, length, verified }))
}

/// Returns three offsets and lengths for a complete file: the first byte of the body, its end, and
/// the length of the file.
fn whole(framing: &Framing, verified: bool) -> Result<(u64, Option<u64>, Option<u64>), String> {
    let Framing::Length(body) = *framing else {
        return if verified {
            Err("the server does not state the length of the verified form".to_owned())
        } else {
            Ok((0, None, None))
        };
    };
    if !verified {
        return Ok((0, Some(body), Some(body)));
    }
    let Some(length) =
        Some(body).filter(|body| *body <= MAX_LENGTH).and_then(group::length_of_verified)
    else {
        return Err(format!("the server states {body} B for the verified form, which no file has"));
    };
    Ok((0, Some(length), Some(length)))
}

/// Returns the first byte, the end and the length, as [`whole`] does, for a response to a request
/// for the first `most` bytes.
fn beginning(head: &Head, most: u64) -> Result<(u64, Option<u64>, Option<u64>), String> {
    let Some(total) = head.range.as_ref().and_then(|range| range.total).filter(|total| *total > 0)
    else {
        return Err("the server sent a part without the length of the whole file".to_owned());
    };
    part(head, &(0..total.min(most)))
}

/// Returns the first byte, the end and the length, as [`whole`] does, for a partial response, which
/// must be for `range`.
fn part(head: &Head, range: &Range<u64>) -> Result<(u64, Option<u64>, Option<u64>), String> {
    let Some(content_range) = &head.range else {
        return Err("the server sent a part without its range".to_owned());
    };
    let Some(bytes) = &content_range.bytes else {
        return Err("the server answered 206 with an empty range".to_owned());
    };
    if *bytes.start() != range.start || *bytes.end() != range.end - 1 {
        let (first, last) = (range.start, range.end - 1);
        return Err(format!(
            "Sprat requested bytes {first}-{last}, but the server sent {}-{}",
            bytes.start(),
            bytes.end()
        ));
    }
    Ok((range.start, Some(range.end), content_range.total))
}
