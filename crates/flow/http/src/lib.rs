//! HTTP/1.1 as the mover speaks it, in two halves: [`server`] parses requests and writes heads of
//! answers, without I/O; [`client`] connects, sends requests and receives answers.
//!
//! `httparse` takes heads apart. This crate adds strictness: where two readers of one head could
//! disagree on where it ends, on its body's length, or on the host that it is for, it is refused.

pub mod address;
mod cancel;
pub mod client;
pub mod date;
mod error;
pub mod range;
pub mod server;
pub mod xattrs;

pub use address::Address;
pub use cancel::Cancel;
pub use error::Error;

/// Most bytes of a head, its last empty line included; more is refused (431).
pub const MAX_HEAD: usize = 16 << 10;

/// The file's permissions, octal, in an answer in verified form.
pub const MODE: &str = "Sprat-Mode";

/// The file's time of modification in an answer in verified form: seconds since 1970, a dot, nine
/// digits.
pub const MTIME: &str = "Sprat-Mtime";

/// Bytes of the whole file in an answer in verified form, whose own length is another; and of the
/// file that is to be sent, or is there, where an upload is spoken of.
pub const LENGTH: &str = "Sprat-Length";

/// A file's extended attributes, the user's own, where they are asked for by the same field; and
/// what an upload gives its file.
pub const XATTRS: &str = "Sprat-Xattrs";

/// What could not be done for a file that was put and is there.
pub const NOTE: &str = "Sprat-Note";

/// What the sender of an upload tells this state of its file from others by: visible ASCII.
pub const UPLOAD: &str = "Sprat-Upload";

/// The BLAKE3 hash that an upload must have at its end, hexadecimal.
pub const BLAKE3: &str = "Sprat-Blake3";

/// Groups of a part of an upload that arrived with another value than was told: numbers with spaces
/// between them.
pub const WRONG: &str = "Sprat-Wrong";

/// The beginning of a group of an upload that came before a connection broke: its number, a space,
/// and how many bytes.
pub const BEGUN: &str = "Sprat-Begun";

/// How many groups an upload lacks that was to end.
pub const MISSING: &str = "Sprat-Missing";

/// The content type of what is told of an upload, which is the form of a journal; and of the
/// request that ends one, which has no body.
pub const UPLOADED: &str = "application/vnd.sprat.upload";
