//! The `sprat` binary.

fn main() {}
