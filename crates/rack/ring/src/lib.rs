//! Changes a running Cassandra ring one instance at a time.
//!
//! A [`Deployment`] is a planned rack together with its servers. [`Deployment::up`] installs on the
//! servers what the plan describes, and starts them; [`rolling`] restarts instances one after the
//! other; [`replace`] restores an instance that lost its data; [`add`] and [`remove`] change which
//! instances the ring has. These operations
//!
//! - refuse to begin while another instance is leaving the ring; [`rolling`], [`add`] and
//!   [`remove`] also refuse while an instance that must run is not well;
//! - write the plan into the rack's folder before they change servers. [`add`] and [`remove`] also
//!   record there what they have begun, so that the same call, repeated after an interruption,
//!   continues with the rest;
//! - report each step to a [`Watcher`]. [`rolling`], [`add`] and [`remove`] ask the watcher between
//!   steps whether to stop.
//!
//! They block until they are done, for minutes if rows must move. Only one of them may run on a
//! rack at a time, so hold [`Deployment::lock`] while you call one.

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
