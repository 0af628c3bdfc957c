//! Controllers that speak Redfish. Where a chassis tells its power is looked for once: in `EnvironmentMetrics`, as newer ones have it, in
//! `Power`, as older ones do, or at its power supplies.

use crate::login::Login;
use crate::web::{Trusted, Web};
use crate::{Reading, Trouble, Watts, believed};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most chassis of a controller, and supplies of a chassis.
const MAX_MEMBERS: usize = 64;

/// Where the chassis are listed.
const CHASSIS: &str = "/redfish/v1/Chassis";

/// Members of a collection, by their paths.
///
/// # Errors
/// It is none, or leads elsewhere.
pub fn members(value: &Value) -> Result<Vec<String>, Trouble> {
    let list = value.get("Members").and_then(Value::as_array);
    let list = list.ok_or_else(|| Trouble::Nonsense("a collection without `Members`".to_owned()))?;
    list.iter().take(MAX_MEMBERS).map(|member| path(member).ok_or_else(|| strange(member))).collect()
}

/// Where a resource leads by one of its links.
#[must_use]
pub fn link(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(path)
}

/// A path on the same controller, and no other.
fn path(value: &Value) -> Option<String> {
    let path = value.get("@odata.id")?.as_str()?;
    let plain = path.starts_with("/redfish/") && path.len() <= 512 && path.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| path.to_owned())
}

fn strange(value: &Value) -> Trouble {
    Trouble::Nonsense(value.to_string().chars().take(80).collect())
}

/// What `EnvironmentMetrics` tells; none: not of power.
///
/// # Errors
/// A number makes no sense.
pub fn environment(value: &Value) -> Result<Option<Watts>, Trouble> {
    value.pointer("/PowerWatts/Reading").and_then(Value::as_f64).map(believed).transpose()
}

/// What `Power` tells: the first part of `PowerControl` that has a number, which is the whole. Others after it are parts of it.
///
/// # Errors
/// A number makes no sense.
pub fn power(value: &Value) -> Result<Option<Watts>, Trouble> {
    let parts = value.get("PowerControl").and_then(Value::as_array);
    let number = |part: &Value| part.get("PowerConsumedWatts").and_then(Value::as_f64);
    parts.and_then(|parts| parts.iter().take(MAX_MEMBERS).find_map(number)).map(believed).transpose()
}

/// What a supply's metrics tell that it takes.
///
/// # Errors
/// A number makes no sense.
pub fn supply(value: &Value) -> Result<Option<Watts>, Trouble> {
    value.pointer("/InputPowerWatts/Reading").and_then(Value::as_f64).map(believed).transpose()
}

/// Where a chassis tells its power.
#[derive(Clone, Debug)]
enum Way {
    Environment(String),
    Power(String),
    /// Metrics of each.
    Supplies(Vec<String>),
}

/// A controller.
#[derive(Debug)]
pub(crate) struct Redfish {
    url: String,
    login: Option<PathBuf>,
    chassis: Option<String>,
    anybody: bool,
    web: Web,
    way: Option<Way>,
}

impl Redfish {
    pub(crate) fn new(url: &str, login: Option<PathBuf>, chassis: Option<String>, trusted: Trusted) -> Self {
        let (url, anybody) = (url.trim_end_matches('/').to_owned(), trusted.anybody);
        Self { url, login, chassis, anybody, web: Web::new(trusted), way: None }
    }

    pub(crate) fn told(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Trouble> {
        let until = Instant::now() + time;
        let login = self.login.as_deref().map(Login::read).transpose()?;
        if login.is_some() && self.url.starts_with("http://") && !self.anybody {
            let why = "a password would go over plain http: https, or `insecure = true`";
            return Err(Trouble::Unreachable(why.to_owned()));
        }
        let mut asked = Asked { url: &self.url, login: login.as_ref(), web: &mut self.web, until };
        let (way, watts) = match &self.way {
            Some(way) => (way.clone(), asked.watts(way)?),
            None => asked.look(self.chassis.as_deref())?,
        };
        let watts = watts.ok_or_else(|| Trouble::Absent("it does not measure just now".to_owned()))?;
        self.way = Some(way);
        Ok(Reading::Watts(watts))
    }
}

/// One look at a controller.
struct Asked<'a> {
    url: &'a str,
    login: Option<&'a Login>,
    web: &'a mut Web,
    until: Instant,
}

impl Asked<'_> {
    fn get(&mut self, path: &str) -> Result<Value, Trouble> {
        self.web.get(&format!("{}{path}", self.url), self.login, self.until)
    }

    /// The only chassis that tells its power, or the one that was chosen.
    fn look(&mut self, chosen: Option<&str>) -> Result<(Way, Option<Watts>), Trouble> {
        let all = members(&self.get(CHASSIS)?)?;
        let name = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let mut found = Vec::new();
        for path in all.iter().filter(|path| chosen.is_none_or(|chosen| name(path) == chosen)) {
            if let Some((way, watts)) = self.chassis(path)? {
                found.push((name(path), way, watts));
            }
        }
        match found.len() {
            1 => Ok(found.swap_remove(0)).map(|(_, way, watts)| (way, Some(watts))),
            0 => {
                let names: Vec<String> = all.iter().map(|path| name(path)).collect();
                Err(Trouble::Absent(format!("no power is told of its chassis ({})", names.join(", "))))
            }
            _ => Err(Trouble::Several { key: "chassis", all: found.into_iter().map(|(name, ..)| name).collect() }),
        }
    }

    /// How a chassis tells its power, and what it is.
    fn chassis(&mut self, path: &str) -> Result<Option<(Way, Watts)>, Trouble> {
        let chassis = self.get(path)?;
        let mut ways = Vec::new();
        ways.extend(link(&chassis, "EnvironmentMetrics").map(Way::Environment));
        ways.extend(link(&chassis, "Power").map(Way::Power));
        for way in ways {
            match self.watts(&way) {
                Ok(Some(watts)) => return Ok(Some((way, watts))),
                Ok(None) | Err(Trouble::Absent(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        let Some(subsystem) = link(&chassis, "PowerSubsystem") else { return Ok(None) };
        let Some(list) = link(&self.get(&subsystem)?, "PowerSupplies") else { return Ok(None) };
        let mut metrics = Vec::new();
        for supply in members(&self.get(&list)?)? {
            metrics.extend(link(&self.get(&supply)?, "Metrics"));
        }
        let way = Way::Supplies(metrics);
        Ok(self.watts(&way)?.map(|watts| (way, watts)))
    }

    fn watts(&mut self, way: &Way) -> Result<Option<Watts>, Trouble> {
        match way {
            Way::Environment(path) => environment(&self.get(path)?),
            Way::Power(path) => power(&self.get(path)?),
            Way::Supplies(paths) => {
                // One that is not plugged in tells nothing, and takes nothing.
                let mut sum = None;
                for path in paths {
                    if let Some(watts) = supply(&self.get(path)?)? {
                        sum = Some(sum.unwrap_or_default() + watts);
                    }
                }
                Ok(sum)
            }
        }
    }
}
