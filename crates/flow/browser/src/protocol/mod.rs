//! What the extension and the host say to each other: JSON in frames, parsed once into types that
//! cannot be wrong.

pub mod frame;
mod message;
mod name;

pub use message::{Code, FileName, Id, MAX_ID, MAX_SOURCE, Report, Request, Source, Text};
pub use name::{MAX_NAME, numbered, safe};

/// The version of the messages. Both ends say it first, and do not go on with another.
pub const PROTOCOL: u32 = 1;
