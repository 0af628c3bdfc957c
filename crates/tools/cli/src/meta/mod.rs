//! Commands about identities, this machine, and the program itself.

pub(crate) mod doctor;
pub(crate) mod key;
pub(crate) mod shell;
