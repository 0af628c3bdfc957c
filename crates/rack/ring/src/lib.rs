//! Changes a running Cassandra ring one instance at a time.
//!
//! A [`Deployment`] is a planned rack together with its servers. [`Deployment::up`] brings them to
//! the plan and starts them; [`rolling`] restarts instances one after the other; [`replace`]
//! restores an instance that lost its data; [`add`] and [`remove`] change which instances the ring
//! has. All of them
//!
//! - refuse to begin while an instance that they rely on is down, or while another change is half
//!   done;
//! - write what they are about to do into the rack's folder before they do it, so that the same
//!   call, made again after an interruption, goes on with the rest;
//! - report each step to a [`Watcher`], and ask it between steps whether to stop.
//!
//! All of them block, for minutes if rows must move, and a rack allows only one at a time: hold
//! [`Deployment::lock`] meanwhile.

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
