//! Commands of meta.

pub(crate) mod doctor;
pub(crate) mod key;
pub(crate) mod shell;
