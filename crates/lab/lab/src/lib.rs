//! The network box in software: what a long fat pipe, a switch or a stream harmonizer does to the
//! packets between its ports, computed on an exact virtual clock.
//!
//! From the inside out: a port receives a [`frame`], which is parsed once and is kept as a packet
//! in [`memory`] that was allocated at the start. A [`line`](mod@line) carries packets in one
//! direction, to one output port, with loss, a queue, a rate and a delay. A line has neither a
//! clock nor a port of its own. The [`switch`] chooses the lines for a frame. A [`port`] reads and
//! writes frames. The [`engine`] runs the worker threads that move packets between ports and lines.
//! A [`config`] describes a box in flags or TOML. [`rtt`] measures the round trips of the flows
//! that pass.
//!
//! Around the box: a [`series`] records what boxes do over time, a [`filter`] selects packets, and
//! a [`capture`] writes packets to files. [`hosts`] makes the virtual hosts that a box connects.
//! [`control`] changes a box while it runs. A [`topology`] describes hosts, boxes and cables in one
//! file.

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
