//! What servers take, and what that costs.
//!
//! - [`sensor`]: a sensor, of whatever kind, that is read again and again; [`rapl`], [`hwmon`],
//!   [`ipmi`], [`redfish`], [`plug`] and `command` are the kinds. What comes from outside is parsed
//!   there, once, into [`Watts`] or energy.
//! - [`targets`]: which sensors a rack's servers have, by its plan.
//! - [`sampling`]: threads that read them; [`meter`]: what energy that comes to; [`report`]: what
//!   is told of it.
//! - [`cost`]: what power and servers cost over the years. It asks nobody.

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
pub use error::{Error, Trouble};
pub use reading::Reading;
pub use sensor::Sensor;
pub use sprat_plan::quantity::Watts;
pub use sysfs::{Files, Place, parse as listed};

/// Most watts that a sensor is believed: no rack takes more.
pub const MAX_WATTS: f64 = 1e6;

/// Most watts that a sensor of one server is believed: about twice what the largest take.
/// Controllers that have no reading give the largest number that fits, such as 65,535 W.
pub const MAX_SERVER_WATTS: f64 = 30e3;

/// Watts, where a number can be that.
pub(crate) fn believed(watts: f64) -> Result<Watts, Trouble> {
    if (0.0..=MAX_WATTS).contains(&watts) {
        Ok(Watts(watts))
    } else {
        Err(Trouble::Nonsense(format!("{watts} W")))
    }
}
