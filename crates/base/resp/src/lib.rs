//! The commands of Redis clients and the replies to them: RESP2, RESP3 and inline commands.
//!
//! A [`CommandReader`] parses the bytes of a connection as they come. A [`ReplyWriter`] appends
//! replies to a buffer, in the version of the protocol that the client speaks. The [protocol's
//! specification](https://redis.io/docs/latest/develop/reference/protocol-spec/) leaves some errors
//! open; then the texts, and what closes a connection, are those of Redis 7.0.
//!
//! ```
//! use sprat_resp::{CommandReader, Limits, MAX_PARTS, Next, Protocol, ReplyWriter};
//!
//! let limits = Limits { part: 1 << 20, command: 16 << 20, parts: MAX_PARTS };
//! let mut reader = CommandReader::new(limits);
//! reader.extend(b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n");
//! let mut replies = Vec::new();
//! while let Ok(Next::Command(command)) = reader.next() {
//!     let text = command.get(1).unwrap_or_default();
//!     ReplyWriter::new(&mut replies, Protocol::Resp2).bulk(text);
//! }
//! assert_eq!(replies, b"$2\r\nhi\r\n");
//! ```

mod command;
mod inline;
mod list;
mod reply;

pub use command::{
    Command, CommandReader, Excess, Limits, MAX_ANNOUNCED, MAX_PARTS, Next, ProtocolError,
};
pub use inline::MAX_INLINE;
pub use list::CommandList;
pub use reply::{Protocol, ReplyWriter, double_text};

/// Parses an integer as Redis does: no sign except `-`, no leading zeros, no spaces.
///
/// ```
/// assert_eq!(sprat_resp::integer(b"-12"), Some(-12));
/// assert_eq!(sprat_resp::integer(b"+12"), None);
/// assert_eq!(sprat_resp::integer(b"012"), None);
/// ```
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [first, rest @ ..] => (b'1'..=b'9').contains(first) && rest.iter().all(u8::is_ascii_digit),
        [] => false,
    };
    std::str::from_utf8(text).ok().filter(|_| is_canonical)?.parse().ok()
}
