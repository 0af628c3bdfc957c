//! Commands of the store.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod export;
pub(crate) mod files;
pub(crate) mod import;
pub(crate) mod index;
pub(crate) mod moves;
pub(crate) mod objects;
pub(crate) mod scan;
pub(crate) mod server;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod txn;
pub(crate) mod watch;
