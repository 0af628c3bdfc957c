//! Heads of requests: parsed strictly and with limits, or rejected.

use super::refused::Refused;
use super::target::Target;
use crate::MAX_HEAD;
use std::borrow::Cow;

/// Limit on the fields of a head. A request with more fields is rejected with status 431.
pub const MAX_FIELDS: usize = 64;

/// The method of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Send the resource.
    Get,
    /// Send only the head of the response.
    Head,
    /// List the methods that the resource allows.
    Options,
    /// Store the body as the resource.
    Put,
}

/// A parsed request head. Read bytes from a connection until [`extent`] finds the end of a head,
/// then call [`Request::parse`]. The body, of [`Request::length`] bytes, follows the head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The target; `None` for `OPTIONS *`.
    pub target: Option<Target>,
    /// Whether the version is HTTP/1.0.
    pub is_http10: bool,
    /// Whether the client wants to keep the connection open.
    pub keep_alive: bool,
    /// Number of bytes of the body.
    pub length: u64,
    /// Whether the client waits for an interim response (100) before it sends the body.
    pub expects_continue: bool,
    fields: Vec<(String, String)>,
}

/// Whether the first bytes of a connection contain a complete head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// The end of the head has not arrived.
    Unfinished,
    /// The head has this many bytes.
    Bytes(usize),
}

/// Finds the end of a head in `bytes`. `seen` is the number of bytes that an earlier call has
/// already searched. Empty lines before a head count as part of it.
/// # Errors
/// [`Refused`] with 400 for a malformed line end, or 431 for [`MAX_HEAD`] bytes without the end.
pub fn extent(bytes: &[u8], seen: usize) -> Result<Extent, Refused> {
    let begins = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
    for at in seen..bytes.len() {
        if bytes[at] == b'\n' && (at == 0 || bytes[at - 1] != b'\r') {
            return Err(Refused::bad("a line ends without a carriage return"));
        }
        if bytes[at] != b'\r' && at > 0 && bytes[at - 1] == b'\r' && bytes[at] != b'\n' {
            return Err(Refused::bad("a carriage return in a line"));
        }
        if at >= begins + 3 && bytes[at - 3..=at] == *b"\r\n\r\n" {
            return Ok(Extent::Bytes(at + 1));
        }
    }
    match bytes.len() >= MAX_HEAD {
        true => Err(Refused {
            status: 431,
            reason: format!("the head is longer than {MAX_HEAD} bytes"),
        }),
        false => Ok(Extent::Unfinished),
    }
}

impl Request {
    /// Parses a complete head, whose end [`extent`] has found.
    ///
    /// # Errors
    /// [`Refused`] with one of these statuses:
    /// - 400 for a malformed request or target, a `Transfer-Encoding`, or fields that two readers
    ///   could interpret differently;
    /// - 404 for a target that no file can have;
    /// - 405 or 501 for a method that is not supported;
    /// - 417 for an `Expect` other than `100-continue`;
    /// - 431 for more than [`MAX_FIELDS`] fields;
    /// - 505 for a version other than HTTP/1.0 and 1.1.
    pub fn parse(head: &[u8]) -> Result<Self, Refused> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Ok(_) => return Err(Refused::bad("the header ends too early")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Refused {
                    status: 431,
                    reason: format!("more than {MAX_FIELDS} fields"),
                });
            }
            Err(httparse::Error::Version) => {
                return Err(Refused {
                    status: 505,
                    reason: "only HTTP/1.0 and 1.1 are supported".to_owned(),
                });
            }
            Err(error) => return Err(Refused::bad(&format!("not a request: {error}"))),
        }
        let (Some(method), Some(target), Some(version)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(Refused::bad("not a request"));
        };
        let is_http10 = version == 0;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields =
            parsed.headers.iter().map(|field| (field.name.to_ascii_lowercase(), text(field.value)));
        let mut request = Self {
            method: Method::Get,
            target: None,
            is_http10,
            keep_alive: !is_http10,
            length: 0,
            expects_continue: false,
            fields: fields.collect(),
        };
        request.check_frame()?;
        request.method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "PUT" => Method::Put,
            "POST" | "DELETE" | "PATCH" | "TRACE" | "CONNECT" => {
                return Err(Refused { status: 405, reason: format!("{method} is not supported") });
            }
            _ => {
                return Err(Refused { status: 501, reason: "the method is unknown".to_owned() });
            }
        };
        request.target = match (request.method, target) {
            (Method::Options, "*") => None,
            (_, target) => Some(Target::parse(target)?),
        };
        Ok(request)
    }

    /// Reads the fields that determine the end of the body, the host, and whether the connection
    /// stays open. Rejects fields that two readers could interpret differently.
    fn check_frame(&mut self) -> Result<(), Refused> {
        let count = |name: &str| self.fields.iter().filter(|(key, _)| key == name).count();
        if count("transfer-encoding") > 0 {
            return Err(Refused::bad("a body must have a Content-Length"));
        }
        if count("content-length") > 1 {
            return Err(Refused::bad("more than one Content-Length"));
        }
        if count("host") > 1 || (count("host") == 0 && !self.is_http10) {
            return Err(Refused::bad("one Host field is required"));
        }
        if let Some(host) = self.field("host")
            && !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(&byte))
        {
            return Err(Refused::bad("the Host field is not a host"));
        }
        if let Some(length) = self.field("content-length") {
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse().ok().filter(|_| digits);
            self.length = length.ok_or_else(|| Refused::bad("Content-Length is not a number"))?;
        }
        if let Some(expected) = self.field("expect") {
            if !expected.eq_ignore_ascii_case("100-continue") {
                return Err(Refused {
                    status: 417,
                    reason: "Expect must be 100-continue".to_owned(),
                });
            }
            self.expects_continue = !self.is_http10;
        }
        let says = |word: &str| {
            let words = self.field("connection");
            words.is_some_and(|words| {
                words.split(',').any(|one| one.trim().eq_ignore_ascii_case(word))
            })
        };
        self.keep_alive = !says("close") && (!self.is_http10 || says("keep-alive"));
        Ok(())
    }

    /// Returns the value of the field with this name, which must be in lower case. Repeated fields
    /// are joined into one list, as the standard defines.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut values = self.fields.iter().filter(|(key, _)| key == name).map(|(_, value)| value);
        let first = values.next()?;
        Some(
            values.fold(Cow::Borrowed(&first[..]), |list, value| {
                Cow::Owned(format!("{list}, {value}"))
            }),
        )
    }

    /// Returns whether `Accept` names the content type `kind`, with a quality above 0. Wildcards do
    /// not count.
    #[must_use]
    pub fn accepts(&self, kind: &str) -> bool {
        let Some(list) = self.field("accept") else { return false };
        list.split(',').any(|item| {
            let mut words = item.split(';').map(str::trim);
            let named = words.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
            let refused =
                words.any(|word| word.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)));
            named && !refused
        })
    }
}
