//! Chooses how fast to send on a TCP connection: reads what the kernel knows of the path
//! ([`path`]), computes a rate from it ([`weir`]), and makes the kernel keep that rate
//! ([`window`]). [`Pacer`] does all three for a process's connections.

pub mod doctor;
pub mod pacer;
pub mod path;
mod sys;
pub mod weir;
pub mod window;

pub use pacer::{MIN_RATE, Pace, Paced, Pacer, PacerState};
