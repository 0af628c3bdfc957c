//! The integration tests of the crate are one program, because each program is linked with all
//! dependencies. `cargo test -p sprat-lab --test lab NAME::` runs the tests of one file.

mod capture;
mod changes;
mod control;
mod devices;
mod engine;
mod filter;
mod flows;
mod frames;
mod harmonizer;
mod hosts;
mod lines;
mod raised;
mod real;
mod round_trips;
mod series;
mod support;
mod topology;
