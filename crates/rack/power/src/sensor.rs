//! A sensor of any kind.

use crate::command::Command;
use crate::hwmon::Hwmon;
use crate::ipmi::Ipmi;
use crate::plug::{Plug, What};
use crate::rapl::Rapl;
use crate::reading::Reading;
use crate::redfish::Redfish;
use crate::sysfs::Place;
use crate::web::Trusted;
use crate::{Error, MAX_SERVER_WATTS, MAX_WATTS, Trouble, Watts};
use sprat_plan::power::Sensor as Asked;
use std::path::PathBuf;
use std::time::Duration;

/// How long a sensor may take, unless told.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A sensor that is read again and again.
#[derive(Debug)]
pub struct Sensor {
    /// Its kind.
    pub kind: &'static str,
    /// Where it is.
    pub place: String,
    device: Device,
    patience: Duration,
    /// Most power that it is believed.
    most: Watts,
}

#[derive(Debug)]
enum Device {
    Rapl(Rapl),
    Hwmon(Hwmon),
    Ipmi(Ipmi),
    Redfish(Box<Redfish>),
    Plug(Plug),
    Command(Command),
}

impl Sensor {
    /// As a plan has it, all names put in. `server` is where it is over ssh, for sensors that are
    /// read there.
    #[must_use]
    pub fn new(asked: &Asked, server: Option<&str>, patience: Duration) -> Self {
        let sysfs = |root: &Option<String>| Place {
            root: PathBuf::from(root.as_deref().unwrap_or("/sys")),
            server: server.map(str::to_owned),
        };
        let file = |path: &Option<String>| path.as_ref().map(PathBuf::from);
        let device = match asked {
            Asked::Rapl { root } => Device::Rapl(Rapl::new(sysfs(root))),
            Asked::Hwmon { root, channels } => {
                Device::Hwmon(Hwmon::new(sysfs(root), channels.clone()))
            }
            Asked::Ipmi { host, port, login, channels } => {
                let host = (host.clone(), port.unwrap_or(Ipmi::PORT));
                Device::Ipmi(Ipmi::new(Some(host), file(login), channels.clone()))
            }
            Asked::Redfish { url, login, chassis, authorities, pin, insecure } => {
                let pin = pin.as_deref().and_then(digits);
                let trusted = Trusted { authorities: file(authorities), pin, anybody: *insecure };
                Device::Redfish(Box::new(Redfish::new(url, file(login), chassis.clone(), trusted)))
            }
            Asked::Shelly { address, switch } => {
                Device::Plug(Plug::new(address.clone(), What::Shelly { switch: *switch }))
            }
            Asked::Tasmota { address, login } => {
                Device::Plug(Plug::new(address.clone(), What::Tasmota { login: file(login) }))
            }
            Asked::Command { command } => Device::Command(Command::new(command.clone())),
        };
        let most = if server.is_some() { MAX_SERVER_WATTS } else { MAX_WATTS };
        Self { most: Watts(most), ..Self::of(asked.kind(), device, patience) }
    }

    /// This machine's own: what there may be, with its sysfs at a folder of choice.
    #[must_use]
    pub fn here(root: PathBuf, channels: &[String], patience: Duration) -> Vec<Self> {
        let place = Place { root, server: None };
        vec![
            Self::of("rapl", Device::Rapl(Rapl::new(place.clone())), patience),
            Self::of("hwmon", Device::Hwmon(Hwmon::new(place, channels.to_vec())), patience),
            Self::of("ipmi", Device::Ipmi(Ipmi::new(None, None, Vec::new())), patience),
        ]
    }

    fn of(kind: &'static str, device: Device, patience: Duration) -> Self {
        let place = match &device {
            Device::Rapl(rapl) => rapl.told(),
            Device::Hwmon(hwmon) => hwmon.told(),
            Device::Ipmi(ipmi) => ipmi.told(),
            Device::Redfish(redfish) => redfish.told(),
            Device::Plug(plug) => plug.told(),
            Device::Command(command) => command.told(),
        };
        Self { kind, place, device, patience, most: Watts(MAX_SERVER_WATTS) }
    }

    /// Asks it. Takes as long as it may and hardly more.
    ///
    /// # Errors
    /// It tells nothing: which, where, why, and the mend.
    pub fn read(&mut self) -> Result<Reading, Error> {
        let time = self.patience;
        let told: Result<Reading, Trouble> = match &mut self.device {
            Device::Rapl(rapl) => rapl.read(time),
            Device::Hwmon(hwmon) => hwmon.read(time),
            Device::Ipmi(ipmi) => ipmi.read(time),
            Device::Redfish(redfish) => redfish.read(time),
            Device::Plug(plug) => plug.read(time),
            Device::Command(command) => command.read(time),
        };
        let told = told.and_then(|reading| match reading {
            Reading::Watts(watts) if watts > self.most => {
                Err(Trouble::Nonsense(format!("{watts}, where {} is the most", self.most)))
            }
            reading => Ok(reading),
        });
        told.map_err(|trouble| Error { kind: self.kind, place: self.place.clone(), trouble })
    }
}

/// 64 digits of base 16.
fn digits(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (text.len() == 64).then_some(bytes)
}
