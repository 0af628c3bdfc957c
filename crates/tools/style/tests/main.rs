//! All integration tests of the crate as one program, because each program links all of the crate's
//! dependencies. `cargo test -p sprat-style --test style NAME::` runs those of one file.

mod house;
mod rules;
