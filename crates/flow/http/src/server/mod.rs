//! The server's half of HTTP/1.1: requests, what they are for and on what condition, and heads of
//! answers. Nothing here does I/O.

pub mod answer;
pub mod condition;
pub mod refused;
pub mod request;
pub mod tag;
pub mod target;
