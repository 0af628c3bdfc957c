//! Reads the power from baseboard management controllers (BMCs) over IPMI, with `ipmitool`: either
//! the total power (DCMI), or single sensors. The password is passed in the environment, since
//! everybody can read command lines.

use crate::channel::{Channel, sum};
use crate::login::Login;
use crate::program::run;
use crate::{Cause, Reading, Watts, plausible};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Limit on the lines of `ipmitool sensor` that are read. Further lines are ignored.
const MAX_SENSORS: usize = 1_024;

/// Parses the output of `ipmitool dcmi power reading`. Returns `None` if the output has no reading,
/// or states that reading is not activated.
///
/// # Errors
/// The reading is not a number of `Watts`, is negative, or is implausibly large.
pub fn dcmi(text: &str) -> Result<Option<Watts>, Cause> {
    let Some((_, rest)) =
        text.lines().find_map(|line| line.split_once("Instantaneous power reading:"))
    else {
        return Ok(None);
    };
    let number =
        rest.trim().strip_suffix("Watts").and_then(|number| number.trim().parse::<f64>().ok());
    let watts = plausible(number.ok_or_else(|| Cause::Nonsense(format!("{:?}", rest.trim())))?)?;
    // A controller that does not measure at the moment reports zero and says so.
    let state = text.lines().find_map(|line| line.split_once("Power reading state is:"));
    let active = state.is_none_or(|(_, state)| state.trim() == "activated");
    Ok(Some(watts).filter(|_| active))
}

/// Parses the power sensors in the output of `ipmitool sensor`: `PSU1 Input | 168.000 | Watts | ok
/// | ...`. Sensors without a value are skipped.
///
/// # Errors
/// The value of a sensor in watts is not a number, is negative, or is implausibly large.
pub fn channels(text: &str) -> Result<Vec<Channel>, Cause> {
    let mut channels = Vec::new();
    for line in text.lines().take(MAX_SENSORS) {
        let mut cells = line.split('|').map(str::trim);
        let (Some(name), Some(value), Some("Watts")) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        if value != "na" {
            let watts = value.parse::<f64>().map_err(|_| Cause::Nonsense(format!("{line:?}")))?;
            channels.push(Channel { name: name.to_owned(), watts: plausible(watts)? });
        }
    }
    Ok(channels)
}

/// How a controller is read: by its sensors if `channels` chooses some, otherwise as the first
/// successful reading determines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Method {
    Dcmi,
    Sensors,
}

/// A baseboard management controller (BMC).
#[derive(Debug)]
pub(crate) struct Ipmi {
    /// The controller's host and port. `None` means this machine's own controller.
    host: Option<(String, u16)>,
    login: Option<PathBuf>,
    chosen: Vec<String>,
    method: Option<Method>,
}

impl Ipmi {
    /// The default port of IPMI.
    pub(crate) const PORT: u16 = 623;

    pub(crate) fn new(
        host: Option<(String, u16)>,
        login: Option<PathBuf>,
        chosen: Vec<String>,
    ) -> Self {
        // If sensors are chosen, the total of DCMI is not used.
        let method = (!chosen.is_empty()).then_some(Method::Sensors);
        Self { host, login, chosen, method }
    }

    pub(crate) fn location(&self) -> String {
        self.host
            .as_ref()
            .map_or("this machine's controller".to_owned(), |(host, port)| format!("{host}:{port}"))
    }

    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Cause> {
        let begun = Instant::now();
        if self.method != Some(Method::Sensors) {
            match self.tool(&["dcmi", "power", "reading"], time).and_then(|text| dcmi(&text)) {
                Ok(Some(watts))
                    if watts.0 > 0.0 || self.is_off(time.saturating_sub(begun.elapsed())) =>
                {
                    self.method = Some(Method::Dcmi);
                    return Ok(Reading::Watts(watts));
                }
                // If DCMI has worked before, or `ipmitool` is missing or too slow, the error is
                // returned. Otherwise the controller may lack DCMI, and the sensors are tried.
                Err(cause) if self.method.is_some() || !matches!(cause, Cause::Failed { .. }) => {
                    return Err(cause);
                }
                Ok(_) if self.method.is_some() => {
                    return Err(Cause::Absent("it reports no value at the moment".to_owned()));
                }
                Ok(_) | Err(_) => {}
            }
        }
        let text = self.tool(&["sensor"], time.saturating_sub(begun.elapsed()))?;
        let none = "the controller reports no power, neither by DCMI nor by a sensor";
        let watts = sum(&channels(&text)?, &self.chosen, none)?;
        self.method = Some(Method::Sensors);
        Ok(Reading::Watts(watts))
    }

    /// Returns whether the server is switched off: only then is 0 W a valid reading.
    fn is_off(&self, time: Duration) -> bool {
        self.tool(&["chassis", "power", "status"], time)
            .is_ok_and(|text| text.trim() == "Chassis Power is off")
    }

    fn tool(&self, what: &[&str], time: Duration) -> Result<String, Cause> {
        let mut command = Command::new("ipmitool");
        if let Some((host, port)) = &self.host {
            command.args([
                "-I",
                "lanplus",
                "-H",
                host,
                "-p",
                &port.to_string(),
                "-N",
                "1",
                "-R",
                "2",
            ]);
            if let Some(path) = &self.login {
                let login = Login::read(path)?;
                command.args(["-U", &login.user, "-E"]).env("IPMI_PASSWORD", login.password);
            }
        }
        run("ipmitool", command.args(what), time)
    }
}
