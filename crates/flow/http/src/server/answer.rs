//! Heads of responses.

use crate::date;
use std::fmt::Write as _;

/// A response head under construction. Call [`Head::new`], then [`Head::field`] for each field,
/// then [`Head::finish`].
#[derive(Clone, Debug)]
pub struct Head {
    status: u16,
    text: String,
}

impl Head {
    /// Begins a head with `status`, the date, and the fields that all responses have.
    #[must_use]
    pub fn new(status: u16) -> Self {
        let text = format!(
            "HTTP/1.1 {status} {}\r\nDate: {}\r\nServer: sprat\r\nX-Content-Type-Options: \
             nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n",
            reason(status),
            date::now()
        );
        Self { status, text }
    }

    /// Returns the status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Adds a field. Control characters in the value become spaces, so that no value can end the
    /// line.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let value = value.to_string();
        let safe = value.chars().map(|char| if char.is_control() { ' ' } else { char });
        self.text.extend(name.chars().chain(": ".chars()).chain(safe).chain("\r\n".chars()));
        self
    }

    /// Returns the bytes of the head. The last field says whether the connection stays open.
    #[must_use]
    pub fn finish(mut self, keep_alive: bool) -> Vec<u8> {
        let word = if keep_alive { "keep-alive" } else { "close" };
        write!(self.text, "Connection: {word}\r\n\r\n").expect("a string takes all");
        self.text.into_bytes()
    }
}

/// Returns the reason phrase of a status code.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        303 => "See Other",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Status",
    }
}
