//! How a rack's power is measured, and what it costs: `[power]` of a description. Nothing is asked
//! here.

use crate::quantity::{Seconds, Watts};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

/// Most sensors of a server, and of a chassis.
pub const MAX_SENSORS: usize = 8;

/// Longest text of a sensor, bytes.
pub const MAX_TEXT: usize = 1_024;

/// Most words of a sensor's command, and most names that are chosen of what it tells.
pub const MAX_WORDS: usize = 64;

/// Most servers whose cost is told side by side.
pub const MAX_OPTIONS: usize = 16;

/// What a server's sensor may have in its texts.
pub const OF_SERVER: [&str; 5] = ["name", "address", "chassis", "slot", "user"];

/// What a chassis's may.
pub const OF_CHASSIS: [&str; 2] = ["name", "chassis"];

/// How power is measured, and what it costs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Power {
    /// Each server's. Those of the first one's kind are added up and count; others are told beside
    /// them.
    pub sensors: Vec<Sensor>,
    /// Each chassis's, for all that is in it.
    pub chassis: Vec<Sensor>,
    /// How long a sensor may take to answer; 5 s unless told.
    pub timeout: Option<Seconds>,
    /// What power and servers cost.
    pub cost: Cost,
}

/// A sensor. In its texts `{name}` stands for its server's or chassis's name, `{chassis}` for the
/// chassis's number; of a server also `{address}`, `{slot}` from 1, and `{user}`, who one is on it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Sensor {
    /// Energy counters of the processors and their memory, read over ssh.
    Rapl {
        /// Where the server has its sysfs, unless at `/sys`.
        root: Option<String>,
    },
    /// Power sensors of the board, read over ssh.
    Hwmon {
        /// Where the server has its sysfs, unless at `/sys`.
        root: Option<String>,
        /// Those that are added up, where there are several.
        #[serde(default)]
        channels: Vec<String>,
    },
    /// A board's controller, over the network.
    Ipmi {
        /// Its address.
        host: String,
        /// Its port, unless 623.
        port: Option<u16>,
        /// The file with `USER:PASSWORD`.
        login: Option<String>,
        /// Those that are added up where the controller does not tell power as a whole.
        #[serde(default)]
        channels: Vec<String>,
    },
    /// A controller that speaks Redfish.
    Redfish {
        /// Its address: `https://bmc-{name}`.
        url: String,
        /// The file with `USER:PASSWORD`.
        login: Option<String>,
        /// The chassis as it calls it, where it has several.
        chassis: Option<String>,
        /// Whose certificates are trusted (a file, PEM) in place of the machine's authorities.
        authorities: Option<String>,
        /// The SHA-256 of its certificate, in hex: it is trusted, and no other.
        pin: Option<String>,
        /// Whether any certificate is.
        #[serde(default)]
        insecure: bool,
    },
    /// A Shelly plug, second generation and later.
    Shelly {
        /// Its address.
        address: String,
        /// Which of its switches.
        #[serde(default)]
        switch: u8,
    },
    /// A plug with Tasmota.
    Tasmota {
        /// Its address.
        address: String,
        /// The file with `USER:PASSWORD`.
        login: Option<String>,
    },
    /// Any program that prints watts.
    Command {
        /// It, and its arguments; no shell reads them.
        command: Vec<String>,
    },
}

/// What power and servers cost. What is not told is not counted.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// What prices are in.
    pub currency: String,
    /// The price of a kilowatt hour.
    pub kwh: f64,
    /// What the building takes for each watt that servers take: power usage effectiveness.
    pub pue: f64,
    /// For how long servers are used, years.
    pub years: f64,
    /// Grams of CO2 for each kilowatt hour.
    pub carbon: Option<f64>,
    /// How many instances there are to be.
    pub instances: u32,
    /// Servers that are held side by side.
    pub options: Vec<CostOption>,
}

/// A server that instances could be on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostOption {
    /// What it is called.
    pub name: String,
    /// What it takes under load.
    pub power: Watts,
    /// How many instances it carries.
    pub instances: u32,
    /// What it costs to buy.
    #[serde(default)]
    pub price: f64,
}

/// For comparison: 12 instances for five years, in a good building, at a price as in many places.
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
    /// What it is called.
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

    /// Itself with other texts.
    #[must_use]
    pub fn map(&self, text: &dyn Fn(&str) -> String) -> Self {
        let mut new = self.clone();
        new.texts().into_iter().for_each(|of| *of = text(of));
        new
    }

    /// All its texts that a name may stand in.
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
    /// What means nothing.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let lists = [
            ("power.sensors", &self.sensors, &OF_SERVER[..]),
            ("power.chassis", &self.chassis, &OF_CHASSIS),
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
    /// What means nothing.
    ///
    /// # Errors
    /// The first such value.
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
    if names.len() == OF_CHASSIS.len()
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
    // A server's own sysfs is read by a shell there.
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
        let rack = "name = \"r\"\n[server]\ncores = 2\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n[chassis]\nservers = 3\n";
        Spec::from_toml(&format!("{rack}{power}")).map_err(|error| error.to_string())
    }

    #[test]
    fn sensors_and_costs_are_read() {
        let text = "[power]\ntimeout = \"2s\"\nsensors = [{ kind = \"rapl\" }, { kind = \"ipmi\", host = \"bmc-{name}\" }]\n\
                    chassis = [{ kind = \"shelly\", address = \"plug-{chassis}\" }]\n[power.cost]\nkwh = 0.3\n\
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
    fn what_means_nothing_is_named() {
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
            let told = sensor(text).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
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
            let told = spec(&format!("[power]\n{text}\n")).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
