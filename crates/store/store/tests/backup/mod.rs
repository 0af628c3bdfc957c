//! The backup: after a crash it returns all bytes that it has reported durable, and only bytes that
//! were written.

mod crash;
mod damage;
mod faults;
mod files;
mod fixture;
mod recycle;
mod support;
