//! Measures the power of servers, and computes what it costs.
//!
//! - [`sensor`]: a sensor of any kind, read repeatedly. The kinds are [`rapl`], [`hwmon`],
//!   [`ipmi`], [`redfish`], [`plug`] and `command`; each parses the device's output into [`Watts`]
//!   or energy.
//! - [`targets`]: the servers and chassis of a plan, with their sensors.
//! - [`sampling`]: threads that read the sensors; [`meter`]: integrates the readings into energy;
//!   [`report`]: the result.
//! - [`cost`]: computes what power and servers cost over the years.

mod channel;
mod command;
pub mod cost;
mod error;
pub mod hwmon;
pub mod ipmi;
mod login;
pub mod meter;
pub mod plug;
mod program;
pub mod rapl;
mod reading;
pub mod redfish;
pub mod report;
pub mod sampling;
pub mod sensor;
mod sysfs;
pub mod targets;
mod web;

pub use channel::{Channel, sum};
pub use command::watts as command_watts;
pub use error::{Cause, Error};
pub use reading::Reading;
pub use sensor::Sensor;
pub use sprat_plan::quantity::Watts;
pub use sysfs::{Files, SysfsRoot, parse as parse_files};

/// The highest plausible reading: no rack draws more.
pub const MAX_WATTS: f64 = 1e6;

/// The highest plausible reading of a single server: about twice the largest servers' power. Some
/// controllers that have no reading report the largest number that their field can hold, such as
/// 65,535 W.
pub const MAX_SERVER_WATTS: f64 = 30e3;

/// Returns a reading if it is between 0 and [`MAX_WATTS`].
pub(crate) fn plausible(watts: f64) -> Result<Watts, Cause> {
    if (0.0..=MAX_WATTS).contains(&watts) {
        Ok(Watts(watts))
    } else {
        Err(Cause::Nonsense(format!("{watts} W")))
    }
}
