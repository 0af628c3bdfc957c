//! A file's bytes, read and written past the page cache, as many at a time as a group has.

pub mod source;

pub use source::{Source, SourceError};
