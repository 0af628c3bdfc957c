//! What several of these tests use.

pub(crate) mod ended;
pub(crate) mod frames;
pub(crate) mod world;
