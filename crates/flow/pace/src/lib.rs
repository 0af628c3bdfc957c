//! How fast to send on a TCP connection: what the kernel knows of the path ([`path`]), the rate
//! that follows from that, and how the kernel is made to keep it.

pub mod doctor;
pub mod pacer;
pub mod path;
mod sys;
pub mod weir;
pub mod window;

pub use pacer::{MIN_RATE, Pace, Paced, Pacer, State};
