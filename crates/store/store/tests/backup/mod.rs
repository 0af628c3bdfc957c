//! The backup: what it reports durable is there after a crash, byte for byte, and nothing else is.

mod crash;
mod damage;
mod faults;
mod files;
mod fixture;
mod recycle;
mod support;
