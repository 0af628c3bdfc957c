//! HTTP/1.1 as the file mover needs it, in two halves. [`server`] parses requests and writes the
//! heads of responses, without I/O. [`client`] connects, sends requests and receives responses.
//!
//! `httparse` splits heads into fields. This crate is stricter: it rejects a head if two readers
//! could interpret its end, its body length or its host differently. Such a difference would allow
//! a request to be smuggled past a proxy.

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
/// rejects a longer request head with status 431. The client treats a longer response head as
/// malformed.
pub const MAX_HEAD: usize = 16 << 10;

/// Permissions of a file, in octal. Sent with a response in verified form, and with an upload.
pub const MODE: &str = "Sprat-Mode";

/// Modification time of a file: seconds since 1970, a dot, nine digits. Sent with a response in
/// verified form, and with an upload. In the response to an upload query, the time of the file that
/// already has the name.
pub const MTIME: &str = "Sprat-Mtime";

/// Length of a whole file, in bytes. In a response in verified form or with values alone, the
/// length of the file, which is not that of the body. In an upload, the length of the file that is
/// sent. In the response to an upload query, the length of the file that already has the name.
pub const LENGTH: &str = "Sprat-Length";

/// Extended attributes of a file (`user.*`). In a request for a file, this field asks for the
/// attributes. In the response, and in an upload, it contains them.
pub const XATTRS: &str = "Sprat-Xattrs";

/// What the server could not do for a file that it stored, such as set its time.
pub const NOTE: &str = "Sprat-Note";

/// Identifies the state of the file that an upload sends. The sender chooses the text, in visible
/// ASCII.
pub const UPLOAD: &str = "Sprat-Upload";

/// The BLAKE3 hash that an uploaded file must have, in hexadecimal.
pub const BLAKE3: &str = "Sprat-Blake3";

/// In the response to an uploaded part, the numbers of the groups whose bytes did not match the
/// value that was sent with them. The numbers are separated by spaces.
pub const WRONG: &str = "Sprat-Wrong";

/// A group of an upload of which only the first bytes arrived before a connection broke: the
/// group's number, a space, and the number of its bytes that the server has.
pub const BEGUN: &str = "Sprat-Begun";

/// The number of groups that the server still lacks when the sender tries to finish an upload.
pub const MISSING: &str = "Sprat-Missing";

/// Content type of the state of an upload, which has the format of a journal. It is also the
/// content type of the request that finishes an upload; that request has no body.
pub const UPLOADED: &str = "application/vnd.sprat.upload";
