//! The Rust client of the store: blocking and async, pipelined.
