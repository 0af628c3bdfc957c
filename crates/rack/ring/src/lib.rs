//! Changes a running Cassandra ring one instance at a time.
//!
//! A [`Deployment`] is a planned rack together with its servers. [`Deployment::up`] installs on the
//! servers what the plan describes, and starts them; [`rolling`] restarts instances one after the
//! other; [`replace`] restores an instance that lost its data; [`add`] and [`remove`] change which
//! instances the ring has. All of these
//!
//! - refuse to begin while an instance that they depend on is down, or while another change is not
//!   finished;
//! - write what they are about to do into the rack's folder before they do it, so that the same
//!   call, repeated after an interruption, continues with the rest;
//! - report each step to a [`Watcher`], and ask the watcher between steps whether to stop.
//!
//! They block until they are done, for minutes if rows must move. A rack allows only one of them at
//! a time, so hold [`Deployment::lock`] while you call one.

mod add;
mod deployment;
mod error;
mod health;
mod remove;
mod replace;
mod rolling;
mod status;
mod watch;

pub use add::{Added, JoinedInstance, add};
pub use deployment::{Deployment, Location, Machines};
pub use error::Error;
pub use health::wait_until_well;
pub use remove::{Removal, Removed, remove};
pub use replace::replace;
pub use rolling::{Rolling, RollingReport, rolling, update_instance};
pub use status::{InstanceStatus, ServiceStatus, Status};
pub use watch::{Ended, Event, LeftData, Watcher};
