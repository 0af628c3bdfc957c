//! Chooses how fast to send on a TCP connection. [`path`] reads what the kernel knows of the path,
//! [`weir`] computes a rate from it, and [`window`] makes the kernel keep that rate. [`Pacer`] does
//! all three for the connections of a process.

pub mod doctor;
pub mod pacer;
pub mod path;
mod sys;
pub mod weir;
pub mod window;

pub use pacer::{MIN_RATE, Pace, Paced, Pacer, PacerState};
