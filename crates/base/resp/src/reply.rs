//! Replies, in both versions of the protocol.

use std::io::Write as _;

/// The version of the protocol that a client speaks. A client chooses with `HELLO`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protocol {
    /// The version of every client that has not chosen.
    #[default]
    Resp2,
    /// The version with maps, sets, null and numbers as types of their own.
    Resp3,
}

/// Appends replies to a buffer. The reply to a command is one call, or [`array`](Self::array) or
/// [`map`](Self::map) and then a reply for each element.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> ReplyWriter<'a> {
    /// Creates a writer that appends to `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// Writes what follows in this version of the protocol.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Returns a writer that appends to the same buffer.
    pub fn again(&mut self) -> ReplyWriter<'_> {
        ReplyWriter { out: self.out, protocol: self.protocol }
    }

    /// Returns the number of bytes in the buffer, for [`truncate`](Self::truncate).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a buffer holds other replies, too")]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was written after the buffer had this number of bytes.
    pub fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// Takes what was written after the buffer had this number of bytes.
    pub fn split_off(&mut self, len: usize) -> Vec<u8> {
        self.out.split_off(len)
    }

    /// Appends a reply that another writer has written.
    pub fn raw(&mut self, reply: &[u8]) {
        self.out.extend_from_slice(reply);
    }

    fn header(&mut self, mark: char, number: impl std::fmt::Display) {
        write!(self.out, "{mark}{number}\r\n").expect("a vector takes every write");
    }

    /// Appends bytes as one line: line ends in them become spaces, as in Redis.
    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.push(mark);
        let on_one_line = |byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        self.out.extend(text.iter().map(|byte| on_one_line(*byte)));
        self.out.extend_from_slice(b"\r\n");
    }

    /// A short text such as `OK`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: a code in capitals, such as `ERR`, and a sentence.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.header(':', number);
    }

    /// A number with 17 significant digits.
    pub fn double(&mut self, number: f64) {
        let text = double_text(number);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// A truth: 1 or 0 in RESP2.
    pub fn boolean(&mut self, truth: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(truth.into()),
            Protocol::Resp3 => self.line(b'#', if truth { b"t" } else { b"f" }),
        }
    }

    /// An integer of any length, in digits: a string in RESP2.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => self.line(b'(', digits),
        }
    }

    /// A string with the name of its format, which has three characters: a string in RESP2.
    pub fn verbatim(&mut self, format: &[u8], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                let mut name = *b"   ";
                name.iter_mut().zip(format).for_each(|(byte, given)| *byte = *given);
                self.header('=', name.len() + 1 + text.len());
                self.out.extend_from_slice(&name);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// A string of any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header('$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Instead of a string: there is none.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Instead of an array: there is none.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.null(),
        }
    }

    /// An array of `len` replies, which must follow.
    pub fn array(&mut self, len: usize) {
        self.header('*', len);
    }

    /// What the client has not asked for, of `len` replies, which must follow: an array in RESP2.
    pub fn push(&mut self, len: usize) {
        self.header(if self.protocol == Protocol::Resp2 { '*' } else { '>' }, len);
    }

    /// A map of `len` keys and values, which must follow in turns.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header('*', 2 * len),
            Protocol::Resp3 => self.header('%', len),
        }
    }

    /// A set of `len` replies, which must follow.
    pub fn set(&mut self, len: usize) {
        self.header(if self.protocol == Protocol::Resp2 { '*' } else { '~' }, len);
    }
}

/// Returns a number with 17 significant digits, without zeros at the end, as C's `%.17g` does.
#[must_use]
pub fn double_text(number: f64) -> String {
    const DIGITS: i32 = 17;
    if !number.is_finite() {
        return number.to_string().to_ascii_lowercase();
    }
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let text = format!("{number:.0$e}", DIGITS.unsigned_abs() as usize - 1);
    let (digits, exponent) = text.split_once('e').expect("scientific notation");
    let exponent: i32 = exponent.parse().expect("a number");
    match usize::try_from(DIGITS - 1 - exponent) {
        Ok(places) if exponent >= -4 => trimmed(&format!("{number:.places$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
        }
    }
}
