//! HTTP/1.1 as the file mover needs it, in two halves: [`server`] parses requests and writes the
//! heads of responses, without I/O; [`client`] connects, sends requests and receives responses.
//!
//! `httparse` splits heads into fields. This crate adds strictness: it rejects a head whose end,
//! body length or host two readers could interpret differently, since such a difference lets
//! requests be smuggled past a proxy.

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

/// Limit on the length of a head, in bytes, including the empty line that ends it. The server
/// rejects a longer request head with status 431; for the client, a longer response head is
/// malformed.
pub const MAX_HEAD: usize = 16 << 10;

/// Permissions of a file, in octal. Part of a response in verified form, and of an upload.
pub const MODE: &str = "Sprat-Mode";

/// Modification time of a file: seconds since 1970, a dot, nine digits. Part of a response in
/// verified form, and of an upload.
pub const MTIME: &str = "Sprat-Mtime";

/// Length of the whole file in bytes: in a response in verified form, whose body is longer than the
/// file; in an upload, the length of the file that is sent; in the response to an upload query,
/// that of the file that already has the name.
pub const LENGTH: &str = "Sprat-Length";

/// Extended attributes of a file (`user.*`): in a request for a file, asks for them; in the
/// response and in an upload, carries them.
pub const XATTRS: &str = "Sprat-Xattrs";

/// What the server could not do for a file that it stored, such as setting its time.
pub const NOTE: &str = "Sprat-Note";

/// Identifies the state of the file that an upload sends: visible ASCII, chosen by the sender.
pub const UPLOAD: &str = "Sprat-Upload";

/// The BLAKE3 hash that an uploaded file must have, in hexadecimal.
pub const BLAKE3: &str = "Sprat-Blake3";

/// Numbers, separated by spaces, of the groups of an uploaded part whose bytes did not match the
/// value sent with them.
pub const WRONG: &str = "Sprat-Wrong";

/// A group of an upload that was received in part before a connection broke: its number, a space,
/// and how many bytes the server has.
pub const BEGUN: &str = "Sprat-Begun";

/// The number of groups that the server still lacks of an upload that the sender tried to finish.
pub const MISSING: &str = "Sprat-Missing";

/// Content type of the state of an upload, which has the format of a journal, and of the request
/// without a body that finishes an upload.
pub const UPLOADED: &str = "application/vnd.sprat.upload";
