//! Code that several tests share.

pub(crate) mod clients;
pub(crate) mod ended;
pub(crate) mod frames;
pub(crate) mod world;
