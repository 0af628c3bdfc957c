//! Brings a planned rack's hosts to what the plan says.
//!
//! A [`Folder`] on the controlling machine holds all of a rack: the roles, the inventory, every
//! instance's files, keys. [`ansible`] runs the roles over ssh and tells what they changed; what is
//! right already they leave alone. [`Local`] makes the hosts on this machine, as namespaces with a
//! name, addresses and an ssh server of their own, or as guests with kernels of their own.

pub mod ansible;
mod error;
mod faults;
mod folder;
mod guests;
mod interrupt;
mod keys;
mod local;
mod members;
mod program;
mod roles;
mod status;
mod survey;

pub use error::Error;
pub use faults::{Fault, MAX_FAULTS};
pub use folder::Folder;
pub use interrupt::Interrupt;
pub use local::Local;
pub use members::{Joining, Known, Members, State};
pub use status::{Node, nodes, schemas};
pub use survey::{Alive, Seen, survey, survey_services};
