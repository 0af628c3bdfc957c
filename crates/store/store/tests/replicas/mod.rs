//! Replicas: what a backup has acknowledged it gives back, byte for byte, or says why not.

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
