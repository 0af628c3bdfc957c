//! All integration tests of the crate as one program, since each program is linked with all
//! dependencies. `cargo test -p sprat-lab --test lab NAME::` runs those of one file.

mod capture;
mod changes;
mod control;
mod devices;
mod engine;
mod filter;
mod flows;
mod frames;
mod hosts;
mod lines;
mod raised;
mod real;
mod round_trips;
mod series;
mod support;
mod topology;
