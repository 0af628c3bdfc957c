//! Shared by several tests.

pub(crate) mod ended;
pub(crate) mod frames;
pub(crate) mod world;
