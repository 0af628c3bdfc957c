//! Masters and coordinators on failing disks and with requests from strangers, in virtual time.

mod disk;
mod hoard;
mod input;
mod world;
