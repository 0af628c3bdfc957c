//! The network box in software: what a long fat pipe, a switch or a stream harmonizer does to the
//! packets between its ports, computed on an exact virtual clock.
//!
//! From the inside out: a port receives a [`frame`], which is parsed once and lies as a packet in
//! [`memory`] that was made at the start. A [`line`](mod@line) is one direction towards one output
//! port, with loss, a queue, a rate and a delay; it has neither clock nor port of its own. The
//! [`switch`] chooses the lines for a frame. A [`port`] reads and writes frames. The [`engine`] has
//! the worker threads that move packets between ports and lines. A [`config`] describes a box in
//! flags or TOML. [`rtt`] measures round trips of the flows that pass.
//!
//! A [`series`] records what boxes do over time. Around the box: a [`filter`] selects packets, a
//! [`capture`] writes them to files, [`hosts`] are the virtual hosts that it connects, [`control`]
//! changes it while it runs; a [`topology`] describes all of it in one file.

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
