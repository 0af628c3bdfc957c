//! Masters and coordinators on failing disks and with requests from strangers, in virtual time.

mod disk;
mod input;
mod world;
