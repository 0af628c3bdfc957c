//! HTTP/1.1 as the mover speaks it: heads, targets, ranges, conditions. Nothing here does I/O.
//!
//! Heads are taken apart by `httparse`. What this module adds is strictness: where two readers of one head could
//! disagree on where it ends, on its body's length, or on whom it is for, it is refused.

pub mod answer;
pub mod condition;
pub mod date;
pub mod range;
pub mod request;
pub mod tag;
pub mod target;

/// Most bytes of a head, its last empty line included; more is refused (431).
pub const MAX_HEAD: usize = 16 << 10;

/// Most fields of a head; more is refused (431).
pub const MAX_FIELDS: usize = 64;

/// The file's permissions, octal, in an answer in verified form.
pub const MODE: &str = "Sprat-Mode";

/// The file's time of modification in an answer in verified form: seconds since 1970, a dot, nine digits.
pub const MTIME: &str = "Sprat-Mtime";

/// Bytes of the whole file in an answer in verified form, whose own length is another.
pub const LENGTH: &str = "Sprat-Length";
