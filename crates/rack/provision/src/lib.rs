//! Brings the hosts of a planned rack to the state that the plan describes.
//!
//! A [`Folder`] on the controlling machine holds everything of a rack: roles, inventory, the files
//! of each instance, keys. [`ansible`] runs the roles over ssh and reports what they changed; roles
//! change only what differs from the plan. [`Members`] records which instances are on the ring, and
//! [`survey`] asks hosts what runs on them. [`Local`] makes the hosts themselves on this machine:
//! namespaces with a name, addresses and an ssh server of their own, or guests, which are virtual
//! machines with kernels of their own.

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
pub use guests::has_amx;
pub use interrupt::Interrupt;
pub use local::Local;
pub use members::{JoinError, KnownInstance, Members, RingState};
pub use status::{Node, nodes, schemas};
pub use survey::{InstanceProcess, ProcessState, survey, survey_services};
