//! The client's core between a coordinator and servers, in virtual time.

mod aborted;
mod counts;
mod recovered;
mod silent;
mod world;
