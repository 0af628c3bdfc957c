//! Masters and coordinators with failing disks and malformed requests, in virtual time.

mod copies;
mod disk;
mod expiry;
mod hoard;
mod input;
mod world;
