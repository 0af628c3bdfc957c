//! The server half of HTTP/1.1: parses requests and their conditions, and writes heads of
//! responses. Nothing here does I/O. Begin with [`request::extent`], which finds a head in the
//! bytes of a connection, and [`request::Request::parse`].

pub mod answer;
pub mod condition;
pub mod refused;
pub mod request;
pub mod tag;
pub mod target;
