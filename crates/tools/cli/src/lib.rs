//! The parts of the `sprat` binary that stand by themselves, so that tests and fuzz targets reach them.

pub mod browser;
pub mod check;
pub mod recent;
pub mod transfer;
