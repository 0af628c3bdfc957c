//! Commands of the file mover.

pub(crate) mod browser;
pub(crate) mod cp;
pub(crate) mod share;
