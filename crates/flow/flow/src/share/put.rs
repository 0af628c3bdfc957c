//! Decides what a PUT request stores, and where. The decision is a pure function of the request's
//! head.
//!
//! ```text
//! PUT dir/    no body                            makes a directory, and missing ones above it
//! PUT file    bytes, or the verified form        stores a whole file
//! PUT file    verified form, Content-Range       stores a part of an upload, which it may begin
//! PUT file    no body, type UPLOADED             finishes an upload: the file gets its name
//! GET file    Accept: UPLOADED                   the state of an upload, in the format of a
//!                                                journal, and of the file
//! ```
//! `UPLOADED` is `application/vnd.sprat.upload`.

use crate::file::{Attributes, Destination};
use crate::group::{self, GROUP_BYTES, VERIFIED, Value};
use sprat_http::date::time;
use sprat_http::range::ContentRange;
use sprat_http::server::condition::Version as Condition;
use sprat_http::server::refused::Refused;
use sprat_http::server::request::{Method, Request};
use sprat_http::server::tag::Tags;
use sprat_http::xattrs::Xattrs;
use sprat_http::{BLAKE3, LENGTH, MODE, MTIME, UPLOAD, UPLOADED, XATTRS};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

/// Limit on the length of an uploaded file, in bytes: 64 TiB. A server's own limit can only be
/// lower. A longer file is rejected with status 413 or 400.
pub const MAX_FILE: u64 = 64 << 40;

/// Limit on the names in the path of an upload. A request for a longer path is rejected with status
/// 403.
pub const MAX_NAMES: usize = 128;

/// Limit on the length of a name in the path of an upload, in bytes. Common filesystems accept no
/// longer name. A request with a longer name is rejected with status 403.
const MAX_NAME: usize = 255;

/// Limit on the length of an upload's tag, in bytes. A request with a longer tag is rejected with
/// status 400.
const MAX_TAG: usize = 128;

/// What a PUT request does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PutKind {
    /// Creates a directory.
    Folder,
    /// Stores a complete file.
    Whole {
        /// Length of the file in bytes.
        length: u64,
        /// Whether the body is in verified form.
        verified: bool,
    },
    /// Stores a part of an upload, in verified form. The part begins at a group or within a group,
    /// and ends at the end of a group or of the file.
    Part {
        /// The upload that the part belongs to.
        upload: Upload,
        /// The range of the file's bytes in the part.
        range: Range<u64>,
    },
    /// Finishes an upload.
    Finish {
        /// The upload to finish.
        upload: Upload,
        /// The hash that the file must have, as `b3sum` prints it.
        blake3: Value,
    },
}

/// Identifies an upload, which is a file in one state at its sender.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Upload {
    /// A text that identifies the state.
    pub tag: String,
    /// Length of the file in bytes.
    pub length: u64,
}

/// Parses the head of a PUT. Rejects files longer than `most` bytes.
/// # Errors
/// [`Refused`] with 400 for a malformed request, 403 for a name that is not allowed, 411 without a
/// length, 413 for a file that is too long, or 415 for a content encoding.
pub fn parse(request: &Request, most: u64) -> Result<(PutKind, Attributes), Refused> {
    let bad = |reason: &str| Err(Refused::bad(reason));
    let Some(target) = request.target.as_ref().filter(|_| request.method == Method::Put) else {
        return bad("files cannot be stored there");
    };
    check_names(target.names())?;
    let attributes = attributes(request)?;
    let kind = request.field("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let range = request.field("content-range");
    if target.has_slash() {
        return if request.length == 0 {
            Ok((PutKind::Folder, attributes))
        } else {
            bad("a PUT of a directory must not have a body")
        };
    }
    if target.names().is_empty() {
        return bad("a file has a name");
    }
    if request.field("content-length").is_none() {
        return Err(Refused { status: 411, reason: "Content-Length is required".to_owned() });
    }
    if request
        .field("content-encoding")
        .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
    {
        return Err(Refused {
            status: 415,
            reason: "Content-Encoding is not supported for uploads".to_owned(),
        });
    }
    let verified = kind == VERIFIED;
    let put = if kind == UPLOADED {
        let hash = request.field(&BLAKE3.to_ascii_lowercase());
        let hash = hash.and_then(|hash| blake3::Hash::from_hex(hash.as_bytes()).ok());
        match hash {
            Some(hash) if request.length == 0 && range.is_none() => {
                PutKind::Finish { upload: upload(request)?, blake3: *hash.as_bytes() }
            }
            _ => {
                return bad(&format!(
                    "the last request of an upload must have {BLAKE3} and no body"
                ));
            }
        }
    } else if let Some(range) = range {
        if !verified {
            return bad("parts of a file are accepted in verified form only");
        }
        let parsed =
            ContentRange::parse(&range).and_then(|range| Some((range.bytes?, range.total?)));
        let Some((bytes, total)) = parsed else {
            return bad("Content-Range must be bytes FIRST-LAST/ALL");
        };
        let range = *bytes.start()..bytes.end().saturating_add(1);
        let is_edge = |at: u64| at.is_multiple_of(GROUP_BYTES) || at == total;
        if !is_edge(range.end) || range.is_empty() || total > MAX_FILE {
            return bad(&format!(
                "a part must end at a multiple of {GROUP_BYTES} bytes, or at the end of the file"
            ));
        }
        // The part may continue a group whose first bytes have arrived.
        let skipped = range.start % GROUP_BYTES;
        if group::verified_length(&(range.start - skipped..range.end)) - skipped != request.length {
            return bad("the length of the body is not that of the part in verified form");
        }
        PutKind::Part { upload: Upload { length: total, ..upload(request)? }, range }
    } else if verified {
        let fits = Some(request.length)
            .filter(|bytes| *bytes <= 2 * MAX_FILE)
            .and_then(group::length_of_verified);
        let Some(length) = fits else { return bad("no file has a verified form of that length") };
        PutKind::Whole { length, verified }
    } else {
        PutKind::Whole { length: request.length, verified }
    };
    let length = match &put {
        PutKind::Whole { length, .. } => *length,
        PutKind::Part { upload, .. } | PutKind::Finish { upload, .. } => upload.length,
        PutKind::Folder => 0,
    };
    check_length(length, most)?;
    Ok((put, attributes))
}

/// Parses a query for the state of an upload. `None` if the request is not such a query.
/// # Errors
/// The errors of [`parse`].
pub fn parse_query(request: &Request, most: u64) -> Result<Option<Upload>, Refused> {
    let Some(target) = request.target.as_ref().filter(|_| request.accepts(UPLOADED)) else {
        return Ok(None);
    };
    if target.names().is_empty() {
        return Err(Refused::bad("a file has a name"));
    }
    check_names(target.names())?;
    let upload = upload(request)?;
    check_length(upload.length, most)?;
    Ok(Some(upload))
}

/// Checks whether the request's conditions allow the existing file to be replaced, or a new file to
/// be created.
/// # Errors
/// [`Refused`] with 409 if a file exists and the request has no condition that allows its
/// replacement. [`Refused`] with 412 if a condition fails.
pub fn may_replace(request: &Request, there: Option<Condition<'_>>) -> Result<(), Refused> {
    let failed = |reason: &str| Err(Refused { status: 412, reason: reason.to_owned() });
    let (only, none) = (request.field("if-match"), request.field("if-none-match"));
    match there {
        None if only.is_some() => failed("there is no such file"),
        None => Ok(()),
        Some(there) if none.as_ref().is_some_and(|tags| Tags::parse(tags).has_weak(there.tag)) => {
            failed("there is such a file already")
        }
        Some(there) => match only {
            Some(tags) if Tags::parse(&tags).has_strong(there.tag) => Ok(()),
            Some(_) => failed("the existing file has another ETag"),
            None => {
                let reason =
                    "there is such a file already; If-Match with its ETag, or *, replaces it";
                Err(Refused { status: 409, reason: reason.to_owned() })
            }
        },
    }
}

/// Rejects names that are hidden, too long or reserved, or contain control characters, and paths of
/// too many names.
fn check_names(names: &[OsString]) -> Result<(), Refused> {
    let refused = |reason: &str| Err(Refused { status: 403, reason: reason.to_owned() });
    if names.len() > MAX_NAMES {
        return refused(&format!("the path has more than {MAX_NAMES} names"));
    }
    for name in names {
        let bytes = name.as_bytes();
        if bytes.starts_with(b".") {
            return refused("names that begin with a dot are not accepted");
        }
        if bytes.iter().any(u8::is_ascii_control) || bytes.len() > MAX_NAME {
            return refused("a name has control characters, or is longer than 255 bytes");
        }
        if Destination::is_transfer_name(name) {
            return refused("names with that ending are reserved for incomplete files");
        }
    }
    Ok(())
}

fn upload(request: &Request) -> Result<Upload, Refused> {
    let tag = request.field(&UPLOAD.to_ascii_lowercase()).unwrap_or_default();
    if tag.is_empty() || tag.len() > MAX_TAG || !tag.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Refused::bad(&format!(
            "{UPLOAD} is required: a tag of this version of the file"
        )));
    }
    let length = match request.field(&LENGTH.to_ascii_lowercase()) {
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Some(_) => None,
        // The head of a part states the length in its range.
        None => Some(0),
    };
    match length {
        Some(length) => Ok(Upload { tag: tag.into_owned(), length }),
        None => Err(Refused::bad(&format!("{LENGTH} is not a number"))),
    }
}

fn check_length(length: u64, most: u64) -> Result<(), Refused> {
    if length > most.min(MAX_FILE) {
        return Err(Refused {
            status: 413,
            reason: format!("the file is too large; the limit is {} B", most.min(MAX_FILE)),
        });
    }
    Ok(())
}

fn attributes(request: &Request) -> Result<Attributes, Refused> {
    let mode = match request.field(&MODE.to_ascii_lowercase()) {
        None => None,
        Some(text) => Some(
            u32::from_str_radix(&text, 8)
                .map_err(|_| Refused::bad(&format!("{MODE} is not an octal number")))?,
        ),
    };
    let modified = match request.field(&MTIME.to_ascii_lowercase()) {
        None => None,
        Some(text) => {
            Some(time(&text).ok_or_else(|| Refused::bad(&format!("{MTIME} is not a time")))?)
        }
    };
    let xattrs = match request.field(&XATTRS.to_ascii_lowercase()) {
        None => Xattrs::default(),
        Some(text) => Xattrs::parse(&text).ok_or_else(|| {
            Refused::bad(&format!("{XATTRS} is not a list of extended attributes"))
        })?,
    };
    Ok(Attributes { mode, modified, xattrs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, fields: &str) -> Result<PutKind, u16> {
        let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let request = Request::parse(head.as_bytes()).expect("a request");
        parse(&request, 10 * GROUP_BYTES).map(|(put, _)| put).map_err(|refused| refused.status)
    }

    #[test]
    fn the_head_determines_what_is_put() {
        assert_eq!(parsed("PUT /a/b/", "Content-Length: 0\r\n"), Ok(PutKind::Folder));
        assert_eq!(
            parsed("PUT /a", "Content-Length: 7\r\n"),
            Ok(PutKind::Whole { length: 7, verified: false })
        );
        let form = format!("Content-Type: {VERIFIED}\r\n");
        let whole = |bytes: u64| parsed("PUT /a", &format!("{form}Content-Length: {bytes}\r\n"));
        assert_eq!(whole(0), Ok(PutKind::Whole { length: 0, verified: true }));
        assert_eq!(whole(33), Ok(PutKind::Whole { length: 1, verified: true }));
        assert_eq!(whole(32), Err(400), "a value of nothing");
        let part = |range: &str, bytes: u64| {
            parsed(
                "PUT /a",
                &format!(
                    "{form}Sprat-Upload: t\r\nContent-Range: bytes {range}\r\nContent-Length: \
                     {bytes}\r\n"
                ),
            )
        };
        let upload = Upload { tag: "t".to_owned(), length: GROUP_BYTES + 5 };
        let last = PutKind::Part { upload, range: GROUP_BYTES..GROUP_BYTES + 5 };
        assert_eq!(part("1048576-1048580/1048581", 37), Ok(last));
        for (range, bytes) in [
            ("1048576-1048580/1048581", 36),
            ("1048576-1048579/1048581", 36),
            ("1-1048580/1048581", 0),
            ("*/1048581", 0),
            ("0-1048575/*", 1_048_608),
            ("5-4/10", 0),
            ("0-0", 33),
            ("0-18446744073709551615/18446744073709551615", 7),
        ] {
            assert_eq!(part(range, bytes), Err(400), "{range}");
        }
    }

    #[test]
    fn invalid_puts_are_refused() {
        for (line, fields, status) in [
            ("PUT /a", "", 411),
            ("PUT /", "Content-Length: 0\r\n", 200),
            ("PUT /a/", "Content-Length: 1\r\n", 400),
            ("PUT /.a", "Content-Length: 1\r\n", 403),
            ("PUT /a/.ssh/b", "Content-Length: 1\r\n", 403),
            ("PUT /.sprat/transfers", "Content-Length: 1\r\n", 403),
            ("PUT /a.sprat-part", "Content-Length: 1\r\n", 403),
            ("PUT /a%0Ab", "Content-Length: 1\r\n", 403),
            ("PUT /a", "Content-Length: 10485761\r\n", 413),
            ("PUT /a", "Content-Length: 1\r\nContent-Encoding: gzip\r\n", 415),
            ("PUT /a", "Content-Length: 1\r\nContent-Range: bytes 0-0/1\r\n", 400),
            ("PUT /a", "Content-Length: 1\r\nSprat-Mode: 9\r\n", 400),
            ("PUT /a", "Content-Length: 1\r\nSprat-Mtime: now\r\n", 400),
            ("PUT /a", "Content-Length: 0\r\nContent-Type: application/vnd.sprat.upload\r\n", 400),
        ] {
            assert_eq!(
                parsed(line, fields).map_or_else(|status| status, |_| 200),
                status,
                "{line} {fields}"
            );
        }
        let long = format!("PUT /{}", "d/".repeat(MAX_NAMES + 1));
        assert_eq!(parsed(&long, "Content-Length: 0\r\n"), Err(403));
    }

    #[test]
    fn a_file_that_is_there_is_replaced_on_demand_only() {
        let judged = |fields: &str, there: bool| {
            let head = format!("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{fields}\r\n");
            let request = Request::parse(head.as_bytes()).expect("a request");
            let modified = sprat_http::date::Moment::default();
            let there = there.then_some(Condition { tag: "\"x\"", modified });
            may_replace(&request, there).map_or_else(|refused| refused.status, |()| 200)
        };
        for (fields, missing, there) in [
            ("", 200, 409),
            ("If-None-Match: *\r\n", 200, 412),
            ("If-Match: *\r\n", 412, 200),
            ("If-Match: \"x\"\r\n", 412, 200),
            ("If-Match: \"y\"\r\n", 412, 412),
            ("If-Match: W/\"x\"\r\n", 412, 412),
        ] {
            assert_eq!((judged(fields, false), judged(fields, true)), (missing, there), "{fields}");
        }
    }
}
