//! Simulates bodies that attract each other.

mod bodies;
mod gravity;
mod hermite;
mod picture;
mod plummer;
mod run;
mod snapshot;

pub use bodies::{Bodies, Conserved, MAX_BODIES, Vectors, at};
pub use gravity::Gravity;
pub use picture::picture;
pub use plummer::plummer;
pub use run::{MAX_STEPS, Scheme, Simulation};
pub use snapshot::{read_snapshot, write_snapshot};
