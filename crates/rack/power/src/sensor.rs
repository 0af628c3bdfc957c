//! A sensor of any kind.

use crate::command::Command;
use crate::hwmon::Hwmon;
use crate::ipmi::Ipmi;
use crate::plug::{Model, Plug};
use crate::rapl::Rapl;
use crate::reading::Reading;
use crate::redfish::Redfish;
use crate::sysfs::SysfsRoot;
use crate::web::Trusted;
use crate::{Cause, Error, MAX_SERVER_WATTS, MAX_WATTS, Watts};
use sprat_plan::power::Sensor as Described;
use std::path::PathBuf;
use std::time::Duration;

/// The default timeout of a sensor.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A sensor that is read repeatedly. Reading blocks at most for the sensor's timeout.
#[derive(Debug)]
pub struct Sensor {
    /// Kind of the sensor.
    pub kind: &'static str,
    /// Location of the sensor, for people.
    pub place: String,
    device: Device,
    patience: Duration,
    /// The highest plausible reading.
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
    /// Creates a sensor of a plan whose placeholders are filled in. `server` is the ssh
    /// destination, for sensors that are read on the server itself.
    #[must_use]
    pub fn new(described: &Described, server: Option<&str>, patience: Duration) -> Self {
        let sysfs = |root: &Option<String>| SysfsRoot {
            root: PathBuf::from(root.as_deref().unwrap_or("/sys")),
            server: server.map(str::to_owned),
        };
        let file = |path: &Option<String>| path.as_ref().map(PathBuf::from);
        let device = match described {
            Described::Rapl { root } => Device::Rapl(Rapl::new(sysfs(root))),
            Described::Hwmon { root, channels } => {
                Device::Hwmon(Hwmon::new(sysfs(root), channels.clone()))
            }
            Described::Ipmi { host, port, login, channels } => {
                let host = (host.clone(), port.unwrap_or(Ipmi::PORT));
                Device::Ipmi(Ipmi::new(Some(host), file(login), channels.clone()))
            }
            Described::Redfish { url, login, chassis, authorities, pin, insecure } => {
                let pin = pin.as_deref().and_then(digits);
                let trusted = Trusted { authorities: file(authorities), pin, any: *insecure };
                Device::Redfish(Box::new(Redfish::new(url, file(login), chassis.clone(), trusted)))
            }
            Described::Shelly { address, switch } => {
                Device::Plug(Plug::new(address.clone(), Model::Shelly { switch: *switch }))
            }
            Described::Tasmota { address, login } => {
                Device::Plug(Plug::new(address.clone(), Model::Tasmota { login: file(login) }))
            }
            Described::Command { command } => Device::Command(Command::new(command.clone())),
        };
        let most = if server.is_some() { MAX_SERVER_WATTS } else { MAX_WATTS };
        Self { most: Watts(most), ..Self::of(described.kind(), device, patience) }
    }

    /// Returns the sensors that this machine may have, with sysfs at `root`.
    #[must_use]
    pub fn this_machine(root: PathBuf, channels: &[String], patience: Duration) -> Vec<Self> {
        let place = SysfsRoot { root, server: None };
        vec![
            Self::of("rapl", Device::Rapl(Rapl::new(place.clone())), patience),
            Self::of("hwmon", Device::Hwmon(Hwmon::new(place, channels.to_vec())), patience),
            Self::of("ipmi", Device::Ipmi(Ipmi::new(None, None, Vec::new())), patience),
        ]
    }

    fn of(kind: &'static str, device: Device, patience: Duration) -> Self {
        let place = match &device {
            Device::Rapl(rapl) => rapl.location(),
            Device::Hwmon(hwmon) => hwmon.location(),
            Device::Ipmi(ipmi) => ipmi.location(),
            Device::Redfish(redfish) => redfish.location(),
            Device::Plug(plug) => plug.location(),
            Device::Command(command) => command.location(),
        };
        Self { kind, place, device, patience, most: Watts(MAX_SERVER_WATTS) }
    }

    /// Reads the sensor, within its timeout.
    ///
    /// # Errors
    /// The sensor does not answer within its timeout, denies access or gives no plausible reading,
    /// or the power is above its limit. The error has the sensor, its location and the cause.
    pub fn read(&mut self) -> Result<Reading, Error> {
        let time = self.patience;
        let result: Result<Reading, Cause> = match &mut self.device {
            Device::Rapl(rapl) => rapl.read(time),
            Device::Hwmon(hwmon) => hwmon.read(time),
            Device::Ipmi(ipmi) => ipmi.read(time),
            Device::Redfish(redfish) => redfish.read(time),
            Device::Plug(plug) => plug.read(time),
            Device::Command(command) => command.read(time),
        };
        let result = result.and_then(|reading| match reading {
            Reading::Watts(watts) if watts > self.most => {
                Err(Cause::Nonsense(format!("{watts}, above the limit of {}", self.most)))
            }
            reading => Ok(reading),
        });
        result.map_err(|cause| Error { kind: self.kind, place: self.place.clone(), cause })
    }
}

/// Parses 64 hexadecimal digits.
fn digits(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (text.len() == 64).then_some(bytes)
}
