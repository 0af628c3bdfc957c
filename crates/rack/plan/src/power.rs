//! `[power]` of a description: the sensors that measure a rack's power, and what power costs. The
//! crate `sprat-power` reads the sensors.

use crate::quantity::{Seconds, Watts};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

/// Limit on the sensors of a server, and on those of a chassis.
pub const MAX_SENSORS: usize = 8;

/// Limit on each text in the description of a sensor, in bytes.
pub const MAX_TEXT: usize = 1_024;

/// Limit on the arguments of a sensor's command, including the program, and on the channels that
/// one sensor selects.
pub const MAX_WORDS: usize = 64;

/// Limit on the types of servers whose costs are compared.
pub const MAX_OPTIONS: usize = 16;

/// Placeholders that the texts of a server's sensor may have.
pub const SERVER_PLACEHOLDERS: [&str; 5] = ["name", "address", "chassis", "slot", "user"];

/// Placeholders that the texts of a chassis's sensor may have.
pub const CHASSIS_PLACEHOLDERS: [&str; 2] = ["name", "chassis"];

/// `[power]`: how power is measured, and what it costs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Power {
    /// Sensors of each server. Readings of the first sensor's kind are added up; readings of other
    /// kinds are reported next to this sum.
    pub sensors: Vec<Sensor>,
    /// Sensors of each chassis. They measure everything in the chassis.
    pub chassis: Vec<Sensor>,
    /// Time within which a sensor must answer; 5 s by default.
    pub timeout: Option<Seconds>,
    /// Prices of power and servers.
    pub cost: Cost,
}

/// A power sensor. In the texts of a sensor, `{name}` is replaced by the name of its server or
/// chassis, and `{chassis}` by the number of the chassis. The texts of a server's sensor can also
/// contain `{address}`, `{slot}` (from 1), and `{user}`, the account for ssh.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Sensor {
    /// Intel's RAPL energy counters of processors and memory, read over ssh.
    Rapl {
        /// Where sysfs is mounted on the server; `/sys` by default.
        root: Option<String>,
    },
    /// Power sensors of the board in Linux's hwmon, read over ssh.
    Hwmon {
        /// Where sysfs is mounted on the server; `/sys` by default.
        root: Option<String>,
        /// Names of the channels to add up, if there are several channels.
        #[serde(default)]
        channels: Vec<String>,
    },
    /// A baseboard management controller (BMC), read over IPMI from the network.
    Ipmi {
        /// The controller's name or address.
        host: String,
        /// The controller's port; 623 by default.
        port: Option<u16>,
        /// A file that contains `USER:PASSWORD`.
        login: Option<String>,
        /// Names of the controller's sensors to add up; the controller's total is then not read. If
        /// empty, the total is read, or the only sensor if there is no total.
        #[serde(default)]
        channels: Vec<String>,
    },
    /// A baseboard management controller (BMC), read over Redfish.
    Redfish {
        /// The controller's URL, such as `https://bmc-{name}`.
        url: String,
        /// A file that contains `USER:PASSWORD`.
        login: Option<String>,
        /// The id of the Redfish chassis, if the controller has several chassis.
        chassis: Option<String>,
        /// A PEM file with the certificate authorities to trust in place of the machine's.
        authorities: Option<String>,
        /// SHA-256 fingerprint of the controller's certificate, in hex: only this certificate is
        /// trusted.
        pin: Option<String>,
        /// Whether to accept any certificate.
        #[serde(default)]
        insecure: bool,
    },
    /// A Shelly plug of the second generation or later.
    Shelly {
        /// The plug's name or address.
        address: String,
        /// The number of the switch on the plug.
        #[serde(default)]
        switch: u8,
    },
    /// A plug that runs Tasmota.
    Tasmota {
        /// The plug's name or address.
        address: String,
        /// A file that contains `USER:PASSWORD`.
        login: Option<String>,
    },
    /// A program that prints watts.
    Command {
        /// The program and its arguments, which are passed without a shell.
        command: Vec<String>,
    },
}

/// `[power.cost]`: prices of power and servers. Missing values take their defaults; a missing price
/// of a server counts as zero.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// The currency of all prices.
    pub currency: String,
    /// Price of a kilowatt hour.
    pub kwh: f64,
    /// Power usage effectiveness: the power that the building draws, divided by the power of its
    /// servers.
    pub pue: f64,
    /// How long servers are used, in years.
    pub years: f64,
    /// Grams of CO2 per kilowatt hour; `None` if unknown.
    pub carbon: Option<f64>,
    /// Number of instances of Cassandra to run.
    pub instances: u32,
    /// Servers to compare.
    pub options: Vec<CostOption>,
}

/// A type of server that could run the instances.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostOption {
    /// The server type's name.
    pub name: String,
    /// Power that the server draws under load.
    pub power: Watts,
    /// Number of instances that it can run.
    pub instances: u32,
    /// Purchase price.
    #[serde(default)]
    pub price: f64,
}

/// Values for a comparison: 12 instances for five years, in an efficient building, at a common
/// price of power.
impl Default for Cost {
    fn default() -> Self {
        let currency = "USD".to_owned();
        Self {
            currency,
            kwh: 0.15,
            pue: 1.4,
            years: 5.0,
            carbon: None,
            instances: 12,
            options: Vec::new(),
        }
    }
}

impl Sensor {
    /// Returns the kind of sensor, as descriptions name it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Rapl { .. } => "rapl",
            Self::Hwmon { .. } => "hwmon",
            Self::Ipmi { .. } => "ipmi",
            Self::Redfish { .. } => "redfish",
            Self::Shelly { .. } => "shelly",
            Self::Tasmota { .. } => "tasmota",
            Self::Command { .. } => "command",
        }
    }

    /// Returns the sensor with the function `text` applied to each of its texts.
    #[must_use]
    pub fn map(&self, text: &dyn Fn(&str) -> String) -> Self {
        let mut new = self.clone();
        new.texts().into_iter().for_each(|of| *of = text(of));
        new
    }

    /// Returns all texts that may contain placeholders.
    fn texts(&mut self) -> Vec<&mut String> {
        match self {
            Self::Rapl { root } => root.iter_mut().collect(),
            Self::Hwmon { root, channels } => root.iter_mut().chain(channels).collect(),
            Self::Ipmi { host, login, channels, .. } => {
                [host].into_iter().chain(login).chain(channels).collect()
            }
            Self::Redfish { url, login, chassis, authorities, pin, .. } => [url]
                .into_iter()
                .chain(login)
                .chain(chassis)
                .chain(authorities)
                .chain(pin)
                .collect(),
            Self::Shelly { address, .. } => vec![address],
            Self::Tasmota { address, login } => [address].into_iter().chain(login).collect(),
            Self::Command { command } => command.iter_mut().collect(),
        }
    }
}

impl Power {
    /// Checks sensors, timeout and prices.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let lists = [
            ("power.sensors", &self.sensors, &SERVER_PLACEHOLDERS[..]),
            ("power.chassis", &self.chassis, &CHASSIS_PLACEHOLDERS),
        ];
        for (key, list, names) in lists {
            if list.len() > MAX_SENSORS {
                return Err(value(key, list.len(), format!("{MAX_SENSORS} at most")));
            }
            for sensor in list {
                check_sensor(key, sensor, names)?;
            }
        }
        if let Some(timeout) = self.timeout.filter(|timeout| !(0.1..=60.0).contains(&timeout.0)) {
            return Err(value("power.timeout", timeout, "100ms to 60s"));
        }
        self.cost.check()
    }
}

impl Cost {
    /// Checks the prices.
    ///
    /// # Errors
    /// Returns the first invalid value.
    pub fn check(&self) -> Result<(), SpecError> {
        let plain = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        if !plain(&self.currency, 8) {
            return Err(value("power.cost.currency", &self.currency, "1 to 8 letters"));
        }
        let numbers = [
            ("power.cost.kwh", self.kwh, 0.0, 1e6),
            ("power.cost.pue", self.pue, 1.0, 10.0),
            ("power.cost.years", self.years, 0.1, 100.0),
            ("power.cost.carbon", self.carbon.unwrap_or_default(), 0.0, 1e5),
            ("power.cost.instances", f64::from(self.instances), 1.0, 1e6),
        ];
        for (key, number, least, most) in numbers {
            if !(least..=most).contains(&number) {
                return Err(value(key, number, format!("{least} to {most}")));
            }
        }
        if self.options.len() > MAX_OPTIONS {
            return Err(value(
                "power.cost.options",
                self.options.len(),
                format!("{MAX_OPTIONS} at most"),
            ));
        }
        for option in &self.options {
            if !plain(&option.name, 64) {
                return Err(value(
                    "power.cost.options.name",
                    format!("{:?}", option.name),
                    "1 to 64 letters",
                ));
            }
            if option.power.0 > 1e6 {
                return Err(value("power.cost.options.power", option.power, "1 MW at most"));
            }
            if !(1..=1_000).contains(&option.instances) {
                return Err(value("power.cost.options.instances", option.instances, "1 to 1000"));
            }
            if !(0.0..=1e9).contains(&option.price) {
                return Err(value("power.cost.options.price", option.price, "0 to 1000000000"));
            }
        }
        Ok(())
    }
}

fn check_sensor(key: &'static str, sensor: &Sensor, names: &[&str]) -> Result<(), SpecError> {
    let mut sensor = sensor.clone();
    let kind = sensor.kind();
    if names.len() == CHASSIS_PLACEHOLDERS.len()
        && matches!(sensor, Sensor::Rapl { .. } | Sensor::Hwmon { .. })
    {
        return Err(value(key, kind, "a sensor of a chassis; a server has its own"));
    }
    for text in sensor.texts() {
        if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
            return Err(value(
                key,
                format!("{text:?}"),
                format!("1 to {MAX_TEXT} bytes of plain text"),
            ));
        }
        for part in text.split('{').skip(1) {
            if !names.contains(&part.split_once('}').map_or("", |(name, _)| name)) {
                let all: Vec<String> = names.iter().map(|name| format!("{{{name}}}")).collect();
                return Err(value(
                    key,
                    format!("{text:?}"),
                    format!("of names in braces {}", all.join(", ")),
                ));
            }
        }
    }
    let words = match &sensor {
        Sensor::Command { command } if command.is_empty() => {
            return Err(value(key, "[]", "a program"));
        }
        Sensor::Command { command: list }
        | Sensor::Hwmon { channels: list, .. }
        | Sensor::Ipmi { channels: list, .. } => list.len(),
        Sensor::Redfish { url, pin, .. } => {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err(value(key, format!("{url:?}"), "an address: https://HOST"));
            }
            if let Some(pin) = pin
                .as_ref()
                .filter(|pin| pin.len() != 64 || !pin.chars().all(|c| c.is_ascii_hexdigit()))
            {
                return Err(value(
                    key,
                    format!("{pin:?}"),
                    "64 digits: `openssl x509 -fingerprint -sha256`, without colons",
                ));
            }
            0
        }
        _ => 0,
    };
    if words > MAX_WORDS {
        return Err(value(key, words, format!("{MAX_WORDS} words at most")));
    }
    // A shell on the server reads these files, so their path must need no quoting.
    if let Sensor::Rapl { root: Some(root) } | Sensor::Hwmon { root: Some(root), .. } = &sensor {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.{}".contains(c);
        if !root.starts_with('/') || !root.chars().all(plain) {
            return Err(value(
                key,
                format!("{root:?}"),
                "an absolute path of letters, digits, dashes and dots",
            ));
        }
    }
    Ok(())
}

fn value(key: &'static str, value: impl ToString, want: impl Into<String>) -> SpecError {
    SpecError::Value { key, value: value.to_string(), want: want.into() }
}

#[cfg(test)]
mod tests {
    use crate::Spec;

    fn spec(power: &str) -> Result<Spec, String> {
        let rack = "name = \"r\"\n[server]\ncores = 2\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n\
                    [chassis]\nservers = 3\n";
        Spec::from_toml(&format!("{rack}{power}")).map_err(|error| error.to_string())
    }

    #[test]
    fn sensors_and_costs_are_read() {
        let text = "[power]\ntimeout = \"2s\"\nsensors = [{ kind = \"rapl\" }, { kind = \"ipmi\", \
                    host = \"bmc-{name}\" }]\n\
                    chassis = [{ kind = \"shelly\", address = \"plug-{chassis}\" }]\n[power.cost]\n\
                    kwh = 0.3\n\
                    options = [{ name = \"mini\", power = \"72W\", instances = 2 }]\n";
        let power = spec(text).expect("a rack").power;
        assert_eq!(
            power.sensors.iter().map(super::Sensor::kind).collect::<Vec<_>>(),
            ["rapl", "ipmi"]
        );
        let filled = power.sensors[1].map(&|text| text.replace("{name}", "c0-n1"));
        assert!(matches!(filled, super::Sensor::Ipmi { host, .. } if host == "bmc-c0-n1"));
        assert_eq!((power.cost.kwh, power.cost.years, power.cost.options.len()), (0.3, 5.0, 1));
        assert!(spec("").expect("a rack").power.sensors.is_empty());
    }

    #[test]
    fn invalid_sensors_and_prices_are_errors() {
        let sensor = |text: &str| spec(&format!("[power]\nsensors = [{{ {text} }}]\n"));
        for (text, why) in [
            ("kind = \"guess\"", "guess"),
            ("kind = \"rapl\", rot = \"/sys\"", "rot"),
            ("kind = \"rapl\", root = \"/sys; reboot\"", "absolute path"),
            ("kind = \"ipmi\"", "host"),
            ("kind = \"ipmi\", host = \"bmc-{nane}\"", "{name}, {address}"),
            ("kind = \"ipmi\", host = \"bmc-{\"", "in braces"),
            ("kind = \"ipmi\", host = \"\"", "1 to 1024"),
            ("kind = \"redfish\", url = \"bmc\"", "https://"),
            ("kind = \"redfish\", url = \"https://bmc\", pin = \"ab:cd\"", "64 digits"),
            ("kind = \"command\", command = []", "a program"),
        ] {
            let error = sensor(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        for (text, why) in [
            ("chassis = [{ kind = \"rapl\" }]", "a sensor of a chassis"),
            ("chassis = [{ kind = \"shelly\", address = \"{slot}\" }]", "{name}, {chassis}"),
            ("timeout = \"1 fortnight\"", "want a time"),
            ("timeout = \"1h\"", "100ms to 60s"),
            ("timeout = \"1us\"", "100ms to 60s"),
            ("cost = { pue = 0.9 }", "1 to 10"),
            ("cost = { kwh = nan }", "0 to 1000000"),
            ("cost = { options = [{ name = \"\", power = \"1W\", instances = 1 }] }", "letters"),
            ("cost = { options = [{ name = \"x\", power = \"1W\", instances = 0 }] }", "1 to 1000"),
        ] {
            let error = spec(&format!("[power]\n{text}\n")).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
