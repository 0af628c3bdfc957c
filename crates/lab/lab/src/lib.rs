//! The network box in software: what a long fat pipe, a switch or a stream harmonizer does to the
//! packets between its ports, computed on an exact virtual clock.
//!
//! From the inside out: a [`frame`] is what came over a port, parsed once, and lies as a packet in
//! [`memory`] that was made beforehand. A [`line`](mod@line) is one direction towards one output
//! port: loss, a queue, a rate, a delay; it has neither clock nor port of its own. The [`switch`]
//! says which lines a frame goes to. A [`port`] reads and writes frames; the [`engine`] turns the
//! wheel; a [`config`] says what there is, in words of flags and of TOML. [`rtt`] times the round
//! trips of what passes.
//!
//! A [`series`] is what a box does over time. Around the box: a [`filter`] picks packets, a
//! [`capture`] writes down what passes, [`hosts`] are what the box is between; a [`topology`] says
//! all of it in one file.

pub mod capture;
pub mod chance;
pub mod config;
pub mod control;
pub mod engine;
pub mod filter;
pub mod frame;
pub mod hosts;
pub mod line;
pub mod memory;
mod netns;
pub mod port;
pub mod rtt;
pub mod series;
pub mod switch;
pub mod time;
pub mod topology;

pub use time::Time;
