//! Replicas: a backup returns what it has acknowledged, byte for byte, or reports why it cannot.

mod crash;
mod damage;
mod faults;
mod fences;
mod files;
mod fixture;
mod lives;
mod reads;
mod requests;
mod select;
mod support;
