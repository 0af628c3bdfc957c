//! Boards' controllers over IPMI, by `ipmitool`: the power that they tell as a whole (DCMI), or
//! sensors of theirs. A password goes by the environment, never by the command line, where all
//! could read it.

use crate::channel::{Channel, sum};
use crate::login::Login;
use crate::program::run;
use crate::{Reading, Trouble, Watts, believed};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Most sensors of a controller that are looked at.
const MAX_SENSORS: usize = 1_024;

/// What `ipmitool dcmi power reading` tells; none: something else.
///
/// # Errors
/// What it tells makes no sense.
pub fn dcmi(text: &str) -> Result<Option<Watts>, Trouble> {
    let Some((_, rest)) =
        text.lines().find_map(|line| line.split_once("Instantaneous power reading:"))
    else {
        return Ok(None);
    };
    let number =
        rest.trim().strip_suffix("Watts").and_then(|number| number.trim().parse::<f64>().ok());
    let watts = believed(number.ok_or_else(|| Trouble::Nonsense(format!("{:?}", rest.trim())))?)?;
    // A controller that does not measure just now says so, beside a nought.
    let state = text.lines().find_map(|line| line.split_once("Power reading state is:"));
    let active = state.is_none_or(|(_, state)| state.trim() == "activated");
    Ok(Some(watts).filter(|_| active))
}

/// What `ipmitool sensor` tells of power: `PSU1 Input | 168.000 | Watts | ok | ...`. Sensors
/// without a value are passed over.
///
/// # Errors
/// A value makes no sense.
pub fn channels(text: &str) -> Result<Vec<Channel>, Trouble> {
    let mut channels = Vec::new();
    for line in text.lines().take(MAX_SENSORS) {
        let mut cells = line.split('|').map(str::trim);
        let (Some(name), Some(value), Some("Watts")) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        if value != "na" {
            let watts = value.parse::<f64>().map_err(|_| Trouble::Nonsense(format!("{line:?}")))?;
            channels.push(Channel { name: name.to_owned(), watts: believed(watts)? });
        }
    }
    Ok(channels)
}

/// How a controller is asked, once that is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Dcmi,
    Sensors,
}

/// A controller.
#[derive(Debug)]
pub(crate) struct Ipmi {
    /// Its address and port; none: this machine's own.
    host: Option<(String, u16)>,
    login: Option<PathBuf>,
    chosen: Vec<String>,
    way: Option<Way>,
}

impl Ipmi {
    /// Port of controllers.
    pub(crate) const PORT: u16 = 623;

    pub(crate) fn new(
        host: Option<(String, u16)>,
        login: Option<PathBuf>,
        chosen: Vec<String>,
    ) -> Self {
        // Whoever chose sensors wants these.
        let way = (!chosen.is_empty()).then_some(Way::Sensors);
        Self { host, login, chosen, way }
    }

    pub(crate) fn told(&self) -> String {
        self.host
            .as_ref()
            .map_or("this machine's controller".to_owned(), |(host, port)| format!("{host}:{port}"))
    }

    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Trouble> {
        let begun = Instant::now();
        if self.way != Some(Way::Sensors) {
            match self.tool(&["dcmi", "power", "reading"], time).and_then(|text| dcmi(&text)) {
                Ok(Some(watts))
                    if watts.0 > 0.0 || self.is_off(time.saturating_sub(begun.elapsed())) =>
                {
                    self.way = Some(Way::Dcmi);
                    return Ok(Reading::Watts(watts));
                }
                // One that could do it before can do it again; else it is asked for its sensors.
                Err(trouble)
                    if self.way.is_some() || !matches!(trouble, Trouble::Failed { .. }) =>
                {
                    return Err(trouble);
                }
                Ok(_) if self.way.is_some() => {
                    return Err(Trouble::Absent("it does not measure just now".to_owned()));
                }
                Ok(_) | Err(_) => {}
            }
        }
        let text = self.tool(&["sensor"], time.saturating_sub(begun.elapsed()))?;
        let none = "the controller tells of no power, neither by DCMI nor by a sensor";
        let watts = sum(&channels(&text)?, &self.chosen, none)?;
        self.way = Some(Way::Sensors);
        Ok(Reading::Watts(watts))
    }

    /// Whether the server is switched off: then it takes nothing, and elsewhere 0 W is no reading.
    fn is_off(&self, time: Duration) -> bool {
        self.tool(&["chassis", "power", "status"], time)
            .is_ok_and(|text| text.trim() == "Chassis Power is off")
    }

    fn tool(&self, what: &[&str], time: Duration) -> Result<String, Trouble> {
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
