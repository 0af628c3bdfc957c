//! Recovery of dead servers by live ones, on a network in memory, in virtual time.

mod attempts;
mod expiry;
mod full;
mod leaving;
mod raised;
mod segment;
mod world;
use crate::common::ended;
