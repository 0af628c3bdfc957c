//! Bodies that attract each other, over time.

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
pub use run::{MAX_STEPS, Run, Scheme};
pub use snapshot::{read_snapshot, write_snapshot};
