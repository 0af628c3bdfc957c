//! Heads of requests: whole, strict and bounded, or refused.

use super::refused::Refused;
use super::target::Target;
use crate::MAX_HEAD;
use std::borrow::Cow;

/// Most fields of a head; more is refused (431).
pub const MAX_FIELDS: usize = 64;

/// What is asked to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Send it.
    Get,
    /// Send its head.
    Head,
    /// Say what can be done with it.
    Options,
    /// Take it.
    Put,
}

/// A request's head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// With what; `None` for `OPTIONS *`.
    pub target: Option<Target>,
    /// Whether it is of HTTP/1.0.
    pub old: bool,
    /// Whether the connection stays open for another.
    pub keep: bool,
    /// Bytes that follow the head.
    pub length: u64,
    /// Whether its sender waits for a word (100) before it sends those.
    pub expects: bool,
    fields: Vec<(String, String)>,
}

/// How much of the first bytes of a connection is a head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Its end has not come yet.
    Unfinished,
    /// This many bytes.
    Bytes(usize),
}

/// Finds a head's end in `bytes`, of which those before `seen` were looked at before. Empty lines
/// before a head are part of it.
///
/// # Errors
/// [`Refused`]: a line that does not end as it should (400), or more bytes than [`MAX_HEAD`] (431).
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
        true => {
            Err(Refused { status: 431, what: format!("the head is longer than {MAX_HEAD} bytes") })
        }
        false => Ok(Extent::Unfinished),
    }
}

impl Request {
    /// Reads a whole head: what [`extent`] found.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn parse(head: &[u8]) -> Result<Self, Refused> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Ok(_) => return Err(Refused::bad("the head ends before its end")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Refused {
                    status: 431,
                    what: format!("more than {MAX_FIELDS} fields"),
                });
            }
            Err(httparse::Error::Version) => {
                return Err(Refused { status: 505, what: "HTTP/1.1 is spoken here".to_owned() });
            }
            Err(error) => return Err(Refused::bad(&format!("not a request: {error}"))),
        }
        let (Some(method), Some(target), Some(version)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(Refused::bad("not a request"));
        };
        let old = version == 0;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields =
            parsed.headers.iter().map(|field| (field.name.to_ascii_lowercase(), text(field.value)));
        let mut request = Self {
            method: Method::Get,
            target: None,
            old,
            keep: !old,
            length: 0,
            expects: false,
            fields: fields.collect(),
        };
        request.check_frame()?;
        request.method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "PUT" => Method::Put,
            "POST" | "DELETE" | "PATCH" | "TRACE" | "CONNECT" => {
                return Err(Refused { status: 405, what: format!("{method} is not done here") });
            }
            _ => {
                return Err(Refused {
                    status: 501,
                    what: "there is no such method here".to_owned(),
                });
            }
        };
        request.target = match (request.method, target) {
            (Method::Options, "*") => None,
            (_, target) => Some(Target::parse(target)?),
        };
        Ok(request)
    }

    /// Where the request ends, whom it is for, and what comes after it: nothing that two readers
    /// could see differently.
    fn check_frame(&mut self) -> Result<(), Refused> {
        let count = |name: &str| self.fields.iter().filter(|(key, _)| key == name).count();
        if count("transfer-encoding") > 0 {
            return Err(Refused::bad(
                "a body of a length that is not told beforehand is not taken",
            ));
        }
        if count("content-length") > 1 {
            return Err(Refused::bad("more than one length"));
        }
        if count("host") > 1 || (count("host") == 0 && !self.old) {
            return Err(Refused::bad("one host is wanted"));
        }
        if let Some(host) = self.field("host")
            && !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(&byte))
        {
            return Err(Refused::bad("the host is none"));
        }
        if let Some(length) = self.field("content-length") {
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse().ok().filter(|_| digits);
            self.length = length.ok_or_else(|| Refused::bad("the length is no number"))?;
        }
        if let Some(expected) = self.field("expect") {
            if !expected.eq_ignore_ascii_case("100-continue") {
                return Err(Refused {
                    status: 417,
                    what: "only 100-continue can be expected".to_owned(),
                });
            }
            self.expects = !self.old;
        }
        let says = |word: &str| {
            let words = self.field("connection");
            words.is_some_and(|words| {
                words.split(',').any(|one| one.trim().eq_ignore_ascii_case(word))
            })
        };
        self.keep = !says("close") && (!self.old || says("keep-alive"));
        Ok(())
    }

    /// A field's value, by its name in small letters; several of one name as the list that they
    /// mean.
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

    /// Whether the content type `kind` is among those it asks for by name.
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
