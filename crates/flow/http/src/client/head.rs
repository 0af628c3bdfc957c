//! Heads of responses. They are parsed once into the fields that this crate needs.

use crate::MAX_HEAD;
use crate::date::time;
use crate::range::{ContentRange, number};
use crate::xattrs::Xattrs;
use std::time::{Duration, SystemTime};

/// Limit on the fields of a response's head. A head with more fields is malformed.
const MAX_FIELDS: usize = 100;

/// Limit on the groups that a server may report as corrupt. A response that reports more groups is
/// malformed.
const MAX_WRONG: usize = 1024;

/// Limit on the pause that `Retry-After` may ask for. A longer pause is reduced to this.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// The head of a response. A malformed `Content-Length`, `Transfer-Encoding`, `Content-Range`,
/// `Sprat-Xattrs` or `Sprat-Wrong` makes the whole head malformed. A second `Content-Length`,
/// `Transfer-Encoding`, `Content-Range`, `ETag` or `Location` also makes it malformed. Any other
/// malformed field counts as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// `Content-Length`: bytes of the body as it is sent.
    pub length: Option<u64>,
    /// Whether the body is chunked.
    pub chunked: bool,
    /// `Content-Range`: the part of the file that the body contains, and the length of the complete
    /// file, as far as the server states them.
    pub range: Option<ContentRange>,
    /// The entity tag with its quotes, if it is strong.
    pub tag: Option<String>,
    /// `Last-Modified`, as received.
    pub modified: Option<String>,
    /// `Date`: the time on the server's clock.
    pub date: Option<SystemTime>,
    /// `Content-Type` in lower case, without parameters.
    pub kind: String,
    /// `Content-Encoding`; `None` if it is `identity`.
    pub coding: Option<String>,
    /// `Location`: the target of a redirect.
    pub location: Option<String>,
    /// Whether the server accepts requests for ranges.
    pub ranges: bool,
    /// `Retry-After`: how long to wait before the next attempt, at most ten minutes.
    pub retry_after: Option<Duration>,
    /// Whether the server closes the connection after this response.
    pub close: bool,
    /// Permission bits of the file, from `sprat share`.
    pub mode: Option<u32>,
    /// Modification time of the file to the nanosecond, from `sprat share`.
    pub changed: Option<SystemTime>,
    /// Length in bytes of the file that already has the name, in the response to an upload query.
    /// In a response in verified form, length of the file.
    pub existing_length: Option<u64>,
    /// Extended attributes of the file, from `sprat share`.
    pub xattrs: Option<Xattrs>,
    /// What the server could not do for a file that it stored.
    pub note: Option<String>,
    /// Numbers of the uploaded groups whose bytes reached the server corrupt.
    pub wrong: Vec<u64>,
    /// The number of groups that the server still lacks when the sender tries to finish an upload.
    pub missing: Option<u64>,
    /// The number of a group of an upload that the server has in part, and how many of its bytes
    /// the server has.
    pub begun: Option<(u64, u64)>,
    /// Fields named `x-...`: their names in lower case, and their values as received.
    pub own: Vec<(String, String)>,
}

impl Head {
    /// Parses the head at the beginning of `bytes`. Returns it with its length in bytes; `None` if
    /// the head is incomplete.
    /// # Errors
    /// The reason, as text for an error message, if the head is malformed or too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let used = match response.parse(bytes) {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => {
                return Err(format!("the header of its response is longer than {MAX_HEAD} B"));
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("its answer is not HTTP: {error}")),
        };
        let mut head = Self { status: response.code.unwrap_or(0), ..Self::default() };
        head.close = response.version == Some(0);
        let mut until = None;
        for field in response.headers.iter() {
            let text = std::str::from_utf8(field.value).map(str::trim).unwrap_or("\u{fffd}");
            if field.name.eq_ignore_ascii_case("retry-after") {
                until = httpdate::parse_http_date(text).ok();
            }
            head.take(&field.name.to_ascii_lowercase(), text)
                .map_err(|why| format!("its answer says {}: {text:?}: {why}", field.name))?;
        }
        // The server's clock may differ from ours. `Retry-After` refers to the server's clock, so
        // `Date` is used as the current time if there is one.
        if let Some(until) = until {
            let now = head.date.unwrap_or_else(SystemTime::now);
            head.retry_after = Some(until.duration_since(now).unwrap_or_default().min(MAX_PAUSE));
        }
        if head.chunked && head.length.is_some() {
            return Err("its response has both a Content-Length and chunks, so its end is unknown"
                .to_owned());
        }
        Ok(Some((head, used)))
    }

    fn take(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        match name {
            "content-length" => once(&mut self.length, number(text).ok_or("want one number")?)?,
            "transfer-encoding" => {
                let known = text.eq_ignore_ascii_case("chunked") && !self.chunked;
                self.chunked =
                    known.then_some(true).ok_or("want chunked, once, and nothing else")?;
            }
            "content-range" => once(
                &mut self.range,
                ContentRange::parse(text).ok_or("want bytes FIRST-LAST/ALL")?,
            )?,
            // A weak tag does not guarantee that the bytes are equal.
            "etag" if text.starts_with('"') && text.len() >= 2 && text.ends_with('"') => {
                once(&mut self.tag, text.to_owned())?;
            }
            "last-modified" => self.modified = Some(text.to_owned()),
            "date" => self.date = httpdate::parse_http_date(text).ok(),
            "content-type" => {
                self.kind = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
            }
            "content-encoding" if !text.eq_ignore_ascii_case("identity") => {
                self.coding = Some(text.to_owned())
            }
            "location" => once(&mut self.location, text.to_owned())?,
            "accept-ranges" => {
                self.ranges = text.split(',').any(|word| word.trim().eq_ignore_ascii_case("bytes"))
            }
            "retry-after" => {
                self.retry_after =
                    number(text).map(|seconds| Duration::from_secs(seconds).min(MAX_PAUSE))
            }
            "connection" => {
                self.close |= text.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"));
            }
            "sprat-length" => self.existing_length = number(text),
            "sprat-xattrs" => {
                self.xattrs = Some(Xattrs::parse(text).ok_or("want NAME=BASE64, ...")?)
            }
            "sprat-note" => self.note = Some(text.to_owned()),
            "sprat-missing" => self.missing = number(text),
            "sprat-begun" => {
                self.begun = text
                    .split_once(' ')
                    .and_then(|(group, bytes)| number(group).zip(number(bytes)));
            }
            "sprat-wrong" => {
                let groups: Option<Vec<u64>> = text.split(' ').map(number).collect();
                self.wrong = groups
                    .filter(|groups| groups.len() <= MAX_WRONG)
                    .ok_or("want a few numbers")?;
            }
            "sprat-mode" => self.mode = u32::from_str_radix(text, 8).ok(),
            "sprat-mtime" => self.changed = time(text),
            _ if name.starts_with("x-") => self.own.push((name.to_owned(), text.to_owned())),
            _ => {}
        }
        Ok(())
    }

    /// Returns the modification time, with the precision that the server states.
    #[must_use]
    pub fn changed(&self) -> Option<SystemTime> {
        self.changed.or_else(|| httpdate::parse_http_date(self.modified.as_deref()?).ok())
    }

    /// Returns what identifies this state of the file: its strong entity tag, otherwise
    /// `Last-Modified`. Does not return a `Last-Modified` that is malformed, or that is not at
    /// least a second before a `Date` in the head: the file may change again within that second
    /// (RFC 9110, section 8.8.2.2).
    #[must_use]
    pub fn validator(&self) -> Option<String> {
        let modified = self.modified.as_ref().and_then(|text| httpdate::parse_http_date(text).ok());
        let settled = match (modified, self.date) {
            (Some(modified), Some(date)) => {
                date.duration_since(modified).is_ok_and(|since| since >= Duration::from_secs(1))
            }
            (modified, None) => modified.is_some(),
            (None, _) => false,
        };
        self.tag.clone().or_else(|| self.modified.clone().filter(|_| settled))
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), &'static str> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err("said twice"),
    }
}
