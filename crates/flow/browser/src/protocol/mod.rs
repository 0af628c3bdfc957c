//! The protocol between the extension and the host: JSON in frames, parsed once into types that are
//! always valid.

pub mod frame;
mod message;
mod name;

pub use message::{
    FailureCode, FileName, Id, MAX_ID, MAX_SOURCE, Report, Request, SourceAddress, UserText,
};
pub use name::{MAX_NAME, numbered, safe};

/// The version of the protocol. Both ends send it first, and reject any other version.
pub const PROTOCOL: u32 = 1;
