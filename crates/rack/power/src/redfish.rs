//! Reads controllers by Redfish. The first reading finds out where a chassis reports its power: in
//! `EnvironmentMetrics` (newer controllers), in `Power` (older controllers), or at its power
//! supplies.

use crate::login::Login;
use crate::web::{Trusted, Web};
use crate::{Cause, Reading, Watts, plausible};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Limit on the members of a collection: the chassis of a controller, or the supplies of a chassis.
/// Further members are ignored.
const MAX_MEMBERS: usize = 64;

/// Path of the list of chassis.
const CHASSIS: &str = "/redfish/v1/Chassis";

/// States of a power supply that is absent or off, and draws nothing.
const WITHOUT_POWER: [&str; 4] = ["Absent", "Disabled", "StandbyOffline", "UnavailableOffline"];

/// Returns the members of a collection, as paths on the controller at `url`.
///
/// # Errors
/// [`Cause::Nonsense`] if the value is no collection, or a member is not a link to a resource below
/// `/redfish/` on this controller.
pub fn members(value: &Value, url: &str) -> Result<Vec<String>, Cause> {
    let list = value.get("Members").and_then(Value::as_array);
    let list = list.ok_or_else(|| Cause::Nonsense("a collection without `Members`".to_owned()))?;
    list.iter()
        .take(MAX_MEMBERS)
        .map(|member| path(member, url).ok_or_else(|| strange(member)))
        .collect()
}

/// Returns the path of a resource's link `name`. `None` if the resource has no such link, or if the
/// link leads to another host than `url`.
#[must_use]
pub fn link(value: &Value, name: &str, url: &str) -> Option<String> {
    value.get(name).and_then(|link| path(link, url))
}

/// Returns a link's path on the controller at `url`. Some controllers write links with their own
/// scheme and address, which are removed. Returns `None` if the link leads to another host, since
/// the credentials are only for this controller.
fn path(value: &Value, url: &str) -> Option<String> {
    let link = value.get("@odata.id")?.as_str()?;
    let path = link.strip_prefix(url).unwrap_or(link);
    let plain = path.starts_with("/redfish/")
        && path.len() <= 512
        && path.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| path.to_owned())
}

fn strange(value: &Value) -> Cause {
    let shown: String = value.to_string().chars().take(80).collect();
    Cause::Nonsense(format!("{shown}: this is not a link to a resource at the address in `url`"))
}

/// Returns the number at a JSON pointer. Some controllers send the number as a string, against the
/// schema.
fn number(value: &Value, pointer: &str) -> Option<f64> {
    match value.pointer(pointer)? {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    }
}

/// Returns the power in `EnvironmentMetrics`, or `None` if it has no number.
///
/// # Errors
/// The number is negative or implausibly large.
pub fn environment(value: &Value) -> Result<Option<Watts>, Cause> {
    number(value, "/PowerWatts/Reading").map(plausible).transpose()
}

/// Returns the power in `Power`. The first element of `PowerControl` is the total; further elements
/// are parts of the total, and are ignored. If the total is 0 or has no number, the inputs of the
/// power supplies are added up. Returns `None` if neither the total nor a supply has a number.
///
/// # Errors
/// A number is negative or implausibly large, or the total is 0 or missing although a supply that
/// is on has no number.
pub fn power(value: &Value) -> Result<Option<Watts>, Cause> {
    if let Some(whole) =
        number(value, "/PowerControl/0/PowerConsumedWatts").filter(|watts| *watts != 0.0)
    {
        return plausible(whole).map(Some);
    }
    let supplies =
        value.get("PowerSupplies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let taken = |supply: &Value| match number(supply, "/PowerInputWatts") {
        Some(watts) => plausible(watts).map(Some),
        None => takes_nothing(supply).map(|()| None),
    };
    let supplied = sum(supplies.iter().take(MAX_MEMBERS).map(taken))?;
    let nothing = number(value, "/PowerControl/0/PowerConsumedWatts").map(Watts);
    Ok(supplied.or(nothing))
}

/// Returns the input power in a supply's metrics, or `None` if they have no number.
///
/// # Errors
/// The number is negative or implausibly large.
pub fn supply(metrics: &Value) -> Result<Option<Watts>, Cause> {
    number(metrics, "/InputPowerWatts/Reading").map(plausible).transpose()
}

/// Checks that a supply without a number is absent or off.
fn takes_nothing(supply: &Value) -> Result<(), Cause> {
    let state = supply.pointer("/Status/State").and_then(Value::as_str);
    if state.is_some_and(|state| WITHOUT_POWER.contains(&state)) {
        return Ok(());
    }
    let name = ["Name", "MemberId", "Id"]
        .iter()
        .find_map(|key| supply.get(*key)?.as_str())
        .unwrap_or("without a name");
    Err(Cause::Absent(format!(
        "the power supply {name:?} reports no power, so the sum would be too low"
    )))
}

/// Adds up the numbers that exist. Returns `None` if there are none.
fn sum(all: impl Iterator<Item = Result<Option<Watts>, Cause>>) -> Result<Option<Watts>, Cause> {
    let mut sum = None;
    for watts in all {
        if let Some(watts) = watts? {
            sum = Some(sum.unwrap_or_default() + watts);
        }
    }
    Ok(sum)
}

/// Where a chassis reports its power.
#[derive(Clone, Debug)]
enum Source {
    /// A resource, by its path.
    Resource(ResourceKind, String),
    /// For each power supply that has metrics: the supply's path, and the path of its metrics.
    Supplies(Vec<(String, String)>),
}

/// Kinds of resources that may contain a chassis's power.
#[derive(Clone, Copy, Debug)]
enum ResourceKind {
    Environment,
    Power,
}

impl ResourceKind {
    /// Names of the links to the resources, the newer name first.
    const LINKS: [(&'static str, Self); 2] =
        [("EnvironmentMetrics", Self::Environment), ("Power", Self::Power)];

    fn read(self, value: &Value) -> Result<Option<Watts>, Cause> {
        match self {
            Self::Environment => environment(value),
            Self::Power => power(value),
        }
    }

    /// Returns whether the resource has a field for the total power, even if the field is empty at
    /// the moment.
    fn has_field(self, value: &Value) -> bool {
        let place = match self {
            Self::Environment => "/PowerWatts/Reading",
            Self::Power => "/PowerControl/0/PowerConsumedWatts",
        };
        value.pointer(place).is_some()
    }
}

/// What the first reading found: the chassis, and where the chassis reports its power.
#[derive(Clone, Debug)]
struct Found {
    chassis: String,
    source: Source,
}

/// A controller that supports Redfish.
#[derive(Debug)]
pub(crate) struct Redfish {
    url: String,
    login: Option<PathBuf>,
    chassis: Option<String>,
    any: bool,
    web: Web,
    found: Option<Found>,
}

impl Redfish {
    pub(crate) fn new(
        url: &str,
        login: Option<PathBuf>,
        chassis: Option<String>,
        trusted: Trusted,
    ) -> Self {
        let (url, any) = (url.trim_end_matches('/').to_owned(), trusted.any);
        Self { url, login, chassis, any, web: Web::new(trusted), found: None }
    }

    pub(crate) fn location(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Cause> {
        let until = Instant::now() + time;
        let login = self.login.as_deref().map(Login::read).transpose()?;
        if login.is_some() && self.url.starts_with("http://") && !self.any {
            let why = "the password would be sent over plain http: use https, or set `insecure = \
                       true`";
            return Err(Cause::Unreachable(why.to_owned()));
        }
        let mut requests =
            Requests { url: &self.url, login: login.as_ref(), web: &mut self.web, until };
        let found = match &self.found {
            Some(found) => found.clone(),
            None => requests.find(self.chassis.as_deref())?,
        };
        let watts = requests
            .watts(&found.source)?
            .ok_or_else(|| Cause::Absent("its power has no value at the moment".to_owned()))?;
        if watts.0 == 0.0 && !requests.is_off(&found.chassis)? {
            let why = "it reports 0 W although the server is on: it does not measure";
            return Err(Cause::Absent(why.to_owned()));
        }
        self.found = Some(found);
        Ok(Reading::Watts(watts))
    }
}

/// The requests of one reading.
struct Requests<'a> {
    url: &'a str,
    login: Option<&'a Login>,
    web: &'a mut Web,
    until: Instant,
}

impl Requests<'_> {
    fn get(&mut self, path: &str) -> Result<Value, Cause> {
        self.web.get(&format!("{}{path}", self.url), self.login, self.until)
    }

    /// Fetches a linked resource. `None` means that the resource was missing in two attempts: busy
    /// controllers sometimes report a resource as missing although it exists.
    fn linked(&mut self, path: &str) -> Result<Option<Value>, Cause> {
        for _ in 0..2 {
            match self.get(path) {
                Ok(value) => return Ok(Some(value)),
                Err(Cause::Absent(_)) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(None)
    }

    /// Finds the chassis that reports power: the chosen chassis, or the only one. A chassis whose
    /// power field is empty at the moment also counts. Otherwise another chassis would be read,
    /// which may be a part of the right one.
    fn find(&mut self, chosen: Option<&str>) -> Result<Found, Cause> {
        let list = self.linked(CHASSIS)?;
        let list =
            list.ok_or_else(|| Cause::Absent(format!("{}{CHASSIS} does not exist", self.url)))?;
        let all = members(&list, self.url)?;
        let name = |path: &str| {
            path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned()
        };
        let mut found = Vec::new();
        for path in all.iter().filter(|path| chosen.is_none_or(|chosen| name(path) == chosen)) {
            if let Some(source) = self.chassis(path)? {
                found.push(Found { chassis: path.clone(), source });
            }
        }
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            0 => {
                let names: Vec<String> = all.iter().map(|path| name(path)).collect();
                Err(Cause::Absent(format!(
                    "none of its chassis reports power ({})",
                    names.join(", ")
                )))
            }
            _ => Err(Cause::Several {
                key: "chassis",
                all: found.into_iter().map(|found| name(&found.chassis)).collect(),
            }),
        }
    }

    /// Finds where a chassis reports its power. The order is: the first field that has a number
    /// above 0, the power supplies, the first field that is empty or 0 at the moment.
    fn chassis(&mut self, path: &str) -> Result<Option<Source>, Cause> {
        let Some(chassis) = self.linked(path)? else { return Ok(None) };
        let mut empty = None;
        for (name, kind) in ResourceKind::LINKS {
            let Some(place) = link(&chassis, name, self.url) else { continue };
            let Some(value) = self.linked(&place)? else { continue };
            let source = Source::Resource(kind, place);
            match kind.read(&value) {
                Ok(Some(watts)) if watts.0 > 0.0 => return Ok(Some(source)),
                Ok(_) if !kind.has_field(&value) => {}
                Ok(_) | Err(Cause::Absent(_)) => empty = empty.or(Some(source)),
                Err(cause) => return Err(cause),
            }
        }
        Ok(self.supplies(&chassis)?.or(empty))
    }

    /// Returns the power supplies of a chassis and their metrics, if one of them has a number.
    ///
    /// # Errors
    /// A supply without metrics or without a number is neither absent nor off, so the sum would be
    /// too low.
    fn supplies(&mut self, chassis: &Value) -> Result<Option<Source>, Cause> {
        let Some(subsystem) = link(chassis, "PowerSubsystem", self.url) else { return Ok(None) };
        let Some(subsystem) = self.linked(&subsystem)? else { return Ok(None) };
        let Some(list) = link(&subsystem, "PowerSupplies", self.url) else { return Ok(None) };
        let Some(list) = self.linked(&list)? else { return Ok(None) };
        let (mut metrics, mut without) = (Vec::new(), Vec::new());
        for path in members(&list, self.url)? {
            let Some(supply) = self.linked(&path)? else { continue };
            match link(&supply, "Metrics", self.url) {
                Some(place) => metrics.push((path, place)),
                None => without.push(supply),
            }
        }
        let source = Source::Supplies(metrics);
        let watts = self.watts(&source)?;
        if watts.is_some() {
            without.iter().try_for_each(takes_nothing)?;
        }
        Ok(watts.map(|_| source))
    }

    fn watts(&mut self, source: &Source) -> Result<Option<Watts>, Cause> {
        match source {
            Source::Resource(kind, path) => kind.read(&self.get(path)?),
            Source::Supplies(paths) => sum(paths.iter().map(|(path, metrics)| {
                let watts = supply(&self.get(metrics)?)?;
                if watts.is_none() {
                    takes_nothing(&self.get(path)?)?;
                }
                Ok(watts)
            })),
        }
    }

    /// Returns whether a chassis reports that it is switched off.
    fn is_off(&mut self, chassis: &str) -> Result<bool, Cause> {
        Ok(self.get(chassis)?.get("PowerState").and_then(Value::as_str) == Some("Off"))
    }
}
