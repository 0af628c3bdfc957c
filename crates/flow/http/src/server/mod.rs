//! The server half of HTTP/1.1: parses requests, evaluates their conditions, and writes the heads
//! of responses. Nothing here does I/O. Begin with [`request::extent`], which finds a head in the
//! bytes of a connection, and [`request::Request::parse`], which parses it.

pub mod answer;
pub mod condition;
pub mod refused;
pub mod request;
pub mod tag;
pub mod target;
