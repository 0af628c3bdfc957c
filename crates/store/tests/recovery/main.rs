//! What a server had is brought back by others, on a network in memory, in virtual time.

mod attempts;
#[path = "../common/ended.rs"]
mod ended;
mod raised;
mod segment;
mod world;
