//! What an answer means for who asked: a pure function of the head and the question, so that a
//! server that lies is caught here.

use crate::group;
use sprat_http::client::Framing;
use sprat_http::client::Head;
use std::ops::Range;
use std::time::Duration;

/// Longest file, bytes: 64 TiB. A server that tells more is not believed.
pub const MAX_LENGTH: u64 = 64 << 40;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Whether only the head was.
    pub head_only: bool,
    /// The part, bytes of the file; none: all of it.
    pub range: Option<Range<u64>>,
    /// Of a file of which nothing is known yet: no more than the first so many bytes. A shorter
    /// file comes whole, and so does one from a server that sends no parts.
    pub beginning: Option<u64>,
    /// The length of the file, if an earlier answer told.
    pub length: Option<u64>,
    /// What an earlier answer told this state of the file by.
    pub validator: Option<String>,
    /// The form that the body must have; none: the file, verified or as it is.
    pub form: Option<Form>,
    /// Whether the file's extended attributes are to be told.
    pub xattrs: bool,
    /// Whether nothing is to be answered from memory: what came before was wrong.
    pub fresh: bool,
}

/// What a body holds of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Its bytes.
    Plain,
    /// Its groups, each with its value behind it.
    Verified,
    /// The groups' values alone.
    Values,
}

impl Form {
    /// The form of a file's bytes that `verified` stands for.
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

/// What came.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The bytes that were asked for.
    Bytes(Start),
    /// They are elsewhere.
    Elsewhere(String),
    /// There is no such file.
    Missing,
    /// Not for us.
    Denied,
    /// Not now; and when, if the server says.
    Later(Option<Duration>),
    /// The file is not the one that we began with.
    Changed(String),
    /// What makes no sense, or was not asked for.
    Wrong(String),
}

/// A body that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// How its end is told.
    pub framing: Framing,
    /// The first byte of the file that comes.
    pub first: u64,
    /// The byte behind the last that comes, if that is known.
    pub end: Option<u64>,
    /// The length of the file, if that is known.
    pub length: Option<u64>,
    /// Whether it is in verified form.
    pub verified: bool,
}

/// Holds an answer against what was asked.
#[must_use]
pub fn judge(head: &Head, asked: &Asked) -> Answer {
    match head.status {
        200 | 206 => match accepted(head, asked) {
            Ok(answer) => answer,
            Err(why) => Answer::Wrong(why),
        },
        301 | 302 | 303 | 307 | 308 => match &head.location {
            Some(location) => Answer::Elsewhere(location.clone()),
            None => Answer::Wrong(format!("redirects ({}) to nowhere", head.status)),
        },
        401 | 403 | 407 => Answer::Denied,
        404 | 410 => Answer::Missing,
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Answer::Later(head.pause),
        412 => Answer::Changed("it does not meet our condition".to_owned()),
        416 => Answer::Changed("it has no such part".to_owned()),
        status => Answer::Wrong(format!("answers {status}, which makes no sense here")),
    }
}

fn accepted(head: &Head, asked: &Asked) -> Result<Answer, String> {
    if let Some(coding) = &head.coding {
        return Err(format!("sends the file coded as {coding:?}, which was not asked for"));
    }
    let form = Form::of_kind(&head.kind);
    let verified = form == Form::Verified;
    if asked.form.map_or(form == Form::Values, |want| want != form) {
        let (want, has) = (asked.form.map_or("as it is", Form::name), form.name());
        return Err(format!(
            "was asked for the file {want}, and sends it {has}; sprat:// is for servers of ours"
        ));
    }
    // The state of the file first: of another one nothing else can be right.
    if let (Some(want), Some(has)) = (&asked.validator, head.validator())
        && *want != has
    {
        return Ok(Answer::Changed(format!("was {want}, is {has}")));
    }
    let framing = match (head.chunked, head.length) {
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::Close,
    };
    let (first, end, length) = match (&asked.range, head.status) {
        (None, 206) if let Some(most) = asked.beginning => beginning(head, most)?,
        (None, 200) if form == Form::Values => return Err("sends values of no part".to_owned()),
        (None, 200) => whole(&framing, verified)?,
        (None, _) => return Err("sends a part and was asked for all".to_owned()),
        (Some(range), 206) => part(head, range)?,
        // With a condition a whole file means that it does not hold; without one, that parts cannot
        // be had.
        (Some(_), _) if asked.validator.is_some() => {
            return Ok(Answer::Changed(
                "the whole file was sent where a part of the one before was asked for".to_owned(),
            ));
        }
        (Some(_), _) => return Err("sends the whole file and was asked for a part".to_owned()),
    };
    if let (Some(want), Some(has)) = (asked.length, length)
        && want != has
    {
        return Ok(Answer::Changed(format!("had {want} B, has {has} B")));
    }
    if length.or(end).is_some_and(|length| length > MAX_LENGTH) {
        return Err(format!("tells of a file of more than {MAX_LENGTH} B"));
    }
    if let (Framing::Length(body), Some(end)) = (&framing, end)
        && !asked.head_only
    {
        let want = match form {
            Form::Plain => end - first,
            Form::Verified => group::verified_length(&(first..end)),
            Form::Values => group::values_length(&(first..end)),
        };
        if *body != want {
            return Err(format!(
                "says that bytes {first} to {end} make a body of {body} B, and {want} B is right"
            ));
        }
    }
    Ok(Answer::Bytes(Start { framing, first, end, length, verified }))
}

/// First byte, the one behind the last, and length of a whole file.
fn whole(framing: &Framing, verified: bool) -> Result<(u64, Option<u64>, Option<u64>), String> {
    let Framing::Length(body) = *framing else {
        return if verified {
            Err("does not say how long the verified form is".to_owned())
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
        return Err(format!("says that the verified form has {body} B, which no file has"));
    };
    Ok((0, Some(length), Some(length)))
}

/// First byte, end and length of an answer to a request for the first `most` bytes.
fn beginning(head: &Head, most: u64) -> Result<(u64, Option<u64>, Option<u64>), String> {
    let Some(total) = head.range.as_ref().and_then(|told| told.total).filter(|total| *total > 0)
    else {
        return Err("sends a part and does not say of how much".to_owned());
    };
    part(head, &(0..total.min(most)))
}

/// The same for a part.
fn part(head: &Head, range: &Range<u64>) -> Result<(u64, Option<u64>, Option<u64>), String> {
    let Some(told) = &head.range else {
        return Err("sends a part and does not say which".to_owned());
    };
    let Some(bytes) = &told.bytes else { return Err("sends no part and calls it one".to_owned()) };
    if *bytes.start() != range.start || *bytes.end() != range.end - 1 {
        let (first, last) = (range.start, range.end - 1);
        return Err(format!(
            "was asked for bytes {first}-{last} and sends {}-{}",
            bytes.start(),
            bytes.end()
        ));
    }
    Ok((range.start, Some(range.end), told.total))
}
