//! Virtual hosts: network namespaces with interfaces and addresses, the commands that run in them,
//! and their removal, even after their owner was killed.
//!
//! A [`HostsPlan`] says what to make. [`LabHosts::make`] writes a state file and then makes the
//! hosts. The caller then opens the TAPs of its boxes in the hosts' namespaces, and
//! [`LabHosts::configure`] gives all interfaces their addresses. Everything that a lab makes is
//! inside its own namespaces. So nothing outside them is ever changed: no interface of the machine,
//! and no namespace that others made, even if it has the same name.

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
pub use error::HostsError;
pub use join::join;
pub use plan::{
    Cable, CableEnd, Host, HostsPlan, Interface, InvalidPlan, MAX_CABLES, MAX_COMMAND_BYTES,
    MAX_HOSTS, MAX_INTERFACE_NAME, MAX_INTERFACES, MAX_MTU, MAX_NAME, MAX_ROUTES, MAX_SYSCTLS,
    MIN_MTU, Route, WINDOW_BYTES, is_name,
};
pub use privilege::{check as check_privileges, missing as missing_privileges};
pub use rootless::{enter_own_namespaces, make_own_namespace};
pub use run::{Commands, Event, Job, MAX_LINE, Stream};
pub use standing::{LabHosts, Leftover, down};
pub use state::{LabSummary, MAX_LABS, StateDir};
