//! Commands of flow.

pub(crate) mod browser;
pub(crate) mod cp;
pub(crate) mod share;
