//! The network box in software: what a long fat pipe, a switch or a stream harmonizer does to the
//! packets between its ports, computed on an exact virtual clock.
//!
//! Around the box: [`hosts`] are the virtual machines' cheaper cousins that it connects.

pub mod capture;
pub mod filter;
pub mod hosts;
