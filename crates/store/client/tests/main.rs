//! The client's core between a coordinator and servers, in virtual time.

mod counts;
mod silent;
mod world;
