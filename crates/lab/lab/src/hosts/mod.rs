//! Virtual hosts: network namespaces with interfaces and addresses, the commands that run in them,
//! and how all of it goes away again, also when its owner was killed.
//!
//! What there is to be is a [`Plan`]. [`Standing::make`] makes it and remembers it in a state file
//! that is written before anything is made; [`Standing::configure`] gives the interfaces their
//! addresses once they are all there. Whoever opens TAPs for the box does so in between. Everything
//! a lab makes lives inside namespaces of its own, so nothing outside them is ever touched: no
//! interface of the machine, and no namespace that another made, even one of the same name.

mod error;
mod join;
mod kernel;
pub(crate) mod links;
mod namespace;
mod plan;
mod privilege;
mod rootless;
mod run;
mod standing;
mod state;

pub use crate::netns::within;
pub use error::Error;
pub use join::join;
pub use plan::{
    Cable, End, Host, Interface, MAX_CABLES, MAX_COMMAND_BYTES, MAX_HOSTS, MAX_INTERFACE_NAME,
    MAX_INTERFACES, MAX_MTU, MAX_NAME, MAX_ROUTES, MAX_SYSCTLS, MIN_MTU, Plan, Route, Unfit,
    WINDOW_BYTES, is_name,
};
pub use privilege::{check as check_privileges, missing as missing_privileges};
pub use rootless::{enter_own, make_own};
pub use run::{Commands, Event, Job, MAX_LINE, Stream};
pub use standing::{Left, Standing, down};
pub use state::{MAX_LABS, StateDir, Summary};
