//! Controllers that speak Redfish. Where a chassis tells its power is looked for once: in
//! `EnvironmentMetrics`, as newer ones have it, in `Power`, as older ones do, or at its power
//! supplies.

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

/// How a controller describes a supply that is not there, or gives nothing: it takes nothing
/// either.
const WITHOUT_POWER: [&str; 4] = ["Absent", "Disabled", "StandbyOffline", "UnavailableOffline"];

/// Members of a collection, by their paths on the controller at `url`.
///
/// # Errors
/// It is none, or leads elsewhere.
pub fn members(value: &Value, url: &str) -> Result<Vec<String>, Trouble> {
    let list = value.get("Members").and_then(Value::as_array);
    let list =
        list.ok_or_else(|| Trouble::Nonsense("a collection without `Members`".to_owned()))?;
    list.iter()
        .take(MAX_MEMBERS)
        .map(|member| path(member, url).ok_or_else(|| strange(member)))
        .collect()
}

/// Where a resource leads by one of its links.
#[must_use]
pub fn link(value: &Value, name: &str, url: &str) -> Option<String> {
    value.get(name).and_then(|link| path(link, url))
}

/// A path on the controller at `url`, and on no other: credentials are for that one. Some
/// controllers write links with their own scheme and address.
fn path(value: &Value, url: &str) -> Option<String> {
    let link = value.get("@odata.id")?.as_str()?;
    let path = link.strip_prefix(url).unwrap_or(link);
    let plain = path.starts_with("/redfish/")
        && path.len() <= 512
        && path.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| path.to_owned())
}

fn strange(value: &Value) -> Trouble {
    let shown: String = value.to_string().chars().take(80).collect();
    Trouble::Nonsense(format!("{shown}: it leads to no resource of the address in `url`"))
}

/// A number at a place. Some controllers write it as a text, against the schema.
fn number(value: &Value, pointer: &str) -> Option<f64> {
    match value.pointer(pointer)? {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    }
}

/// What `EnvironmentMetrics` tells; none: not of power.
///
/// # Errors
/// A number makes no sense.
pub fn environment(value: &Value) -> Result<Option<Watts>, Trouble> {
    number(value, "/PowerWatts/Reading").map(believed).transpose()
}

/// What `Power` tells: the first part of `PowerControl` is the whole, and those after it are parts
/// of it, which are never taken for the whole. Where the whole has no number, what its supplies
/// take.
///
/// # Errors
/// A number makes no sense, or a supply that works has none.
pub fn power(value: &Value) -> Result<Option<Watts>, Trouble> {
    if let Some(whole) =
        number(value, "/PowerControl/0/PowerConsumedWatts").filter(|watts| *watts != 0.0)
    {
        return believed(whole).map(Some);
    }
    let supplies =
        value.get("PowerSupplies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let taken = |supply: &Value| match number(supply, "/PowerInputWatts") {
        Some(watts) => believed(watts).map(Some),
        None => takes_nothing(supply).map(|()| None),
    };
    let supplied = sum(supplies.iter().take(MAX_MEMBERS).map(taken))?;
    let nothing = number(value, "/PowerControl/0/PowerConsumedWatts").map(Watts);
    Ok(supplied.or(nothing))
}

/// What a supply's metrics tell that it takes; none: no number.
///
/// # Errors
/// A number makes no sense.
pub fn supply(metrics: &Value) -> Result<Option<Watts>, Trouble> {
    number(metrics, "/InputPowerWatts/Reading").map(believed).transpose()
}

/// Sees that a supply that does not say what it takes is not there, or off.
fn takes_nothing(supply: &Value) -> Result<(), Trouble> {
    let state = supply.pointer("/Status/State").and_then(Value::as_str);
    if state.is_some_and(|state| WITHOUT_POWER.contains(&state)) {
        return Ok(());
    }
    let name = ["Name", "MemberId", "Id"]
        .iter()
        .find_map(|key| supply.get(*key)?.as_str())
        .unwrap_or("without a name");
    Err(Trouble::Absent(format!(
        "the power supply {name:?} does not say what it takes, and the others are not all"
    )))
}

/// The sum of those that are there; none: there are none.
fn sum(
    all: impl Iterator<Item = Result<Option<Watts>, Trouble>>,
) -> Result<Option<Watts>, Trouble> {
    let mut sum = None;
    for watts in all {
        if let Some(watts) = watts? {
            sum = Some(sum.unwrap_or_default() + watts);
        }
    }
    Ok(sum)
}

/// Where a chassis tells its power.
#[derive(Clone, Debug)]
enum Way {
    /// A resource, by its path.
    Resource(Kind, String),
    /// Each of its power supplies, and its metrics.
    Supplies(Vec<(String, String)>),
}

/// Resources of a chassis that may have its power.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Environment,
    Power,
}

impl Kind {
    /// What the links to them are called, the newer first.
    const LINKS: [(&'static str, Self); 2] =
        [("EnvironmentMetrics", Self::Environment), ("Power", Self::Power)];

    fn read(self, value: &Value) -> Result<Option<Watts>, Trouble> {
        match self {
            Self::Environment => environment(value),
            Self::Power => power(value),
        }
    }

    /// Whether there is a place for the power of the whole, though it may be empty just now.
    fn has_room(self, value: &Value) -> bool {
        let place = match self {
            Self::Environment => "/PowerWatts/Reading",
            Self::Power => "/PowerControl/0/PowerConsumedWatts",
        };
        value.pointer(place).is_some()
    }
}

/// What was found at the first look: which chassis, and where it tells its power.
#[derive(Clone, Debug)]
struct Found {
    chassis: String,
    way: Way,
}

/// A controller.
#[derive(Debug)]
pub(crate) struct Redfish {
    url: String,
    login: Option<PathBuf>,
    chassis: Option<String>,
    anybody: bool,
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
        let (url, anybody) = (url.trim_end_matches('/').to_owned(), trusted.anybody);
        Self { url, login, chassis, anybody, web: Web::new(trusted), found: None }
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
        let found = match &self.found {
            Some(found) => found.clone(),
            None => asked.look(self.chassis.as_deref())?,
        };
        let watts = asked.watts(&found.way)?.ok_or_else(|| {
            Trouble::Absent(
                "it does not measure just now: the power of the whole has no value".to_owned(),
            )
        })?;
        if watts.0 == 0.0 && !asked.is_off(&found.chassis)? {
            let why = "it reports 0 W of a server that is not off: it does not measure";
            return Err(Trouble::Absent(why.to_owned()));
        }
        self.found = Some(found);
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

    /// A resource that a link leads to; none where nothing is there, twice in a row: busy
    /// controllers say so of what they have.
    fn linked(&mut self, path: &str) -> Result<Option<Value>, Trouble> {
        for _ in 0..2 {
            match self.get(path) {
                Ok(value) => return Ok(Some(value)),
                Err(Trouble::Absent(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(None)
    }

    /// The only chassis that has a place for its power, or the one that was chosen. One whose place
    /// is empty just now counts: another, which may be a part of it, is not taken in its place.
    fn look(&mut self, chosen: Option<&str>) -> Result<Found, Trouble> {
        let list = self.linked(CHASSIS)?;
        let list =
            list.ok_or_else(|| Trouble::Absent(format!("{}{CHASSIS} is not there", self.url)))?;
        let all = members(&list, self.url)?;
        let name = |path: &str| {
            path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned()
        };
        let mut found = Vec::new();
        for path in all.iter().filter(|path| chosen.is_none_or(|chosen| name(path) == chosen)) {
            if let Some(way) = self.chassis(path)? {
                found.push(Found { chassis: path.clone(), way });
            }
        }
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            0 => {
                let names: Vec<String> = all.iter().map(|path| name(path)).collect();
                Err(Trouble::Absent(format!(
                    "no power is told of its chassis ({})",
                    names.join(", ")
                )))
            }
            _ => Err(Trouble::Several {
                key: "chassis",
                all: found.into_iter().map(|found| name(&found.chassis)).collect(),
            }),
        }
    }

    /// How a chassis tells its power: by the first of its places that has a number, or else the
    /// first that has room for one.
    fn chassis(&mut self, path: &str) -> Result<Option<Way>, Trouble> {
        let Some(chassis) = self.linked(path)? else { return Ok(None) };
        let mut empty = None;
        for (name, kind) in Kind::LINKS {
            let Some(place) = link(&chassis, name, self.url) else { continue };
            let Some(value) = self.linked(&place)? else { continue };
            let way = Way::Resource(kind, place);
            match kind.read(&value) {
                Ok(Some(watts)) if watts.0 > 0.0 => return Ok(Some(way)),
                Ok(_) if !kind.has_room(&value) => {}
                Ok(_) | Err(Trouble::Absent(_)) => empty = empty.or(Some(way)),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(self.supplies(&chassis)?.or(empty))
    }

    /// The metrics of a chassis's power supplies, if one of them has a number.
    fn supplies(&mut self, chassis: &Value) -> Result<Option<Way>, Trouble> {
        let Some(subsystem) = link(chassis, "PowerSubsystem", self.url) else { return Ok(None) };
        let Some(subsystem) = self.linked(&subsystem)? else { return Ok(None) };
        let Some(list) = link(&subsystem, "PowerSupplies", self.url) else { return Ok(None) };
        let Some(list) = self.linked(&list)? else { return Ok(None) };
        let mut metrics = Vec::new();
        for path in members(&list, self.url)? {
            let supply = self.linked(&path)?;
            metrics.extend(
                supply.and_then(|supply| Some((path, link(&supply, "Metrics", self.url)?))),
            );
        }
        let way = Way::Supplies(metrics);
        Ok(self.watts(&way)?.map(|_| way))
    }

    fn watts(&mut self, way: &Way) -> Result<Option<Watts>, Trouble> {
        match way {
            Way::Resource(kind, path) => kind.read(&self.get(path)?),
            Way::Supplies(paths) => sum(paths.iter().map(|(path, metrics)| {
                let watts = supply(&self.get(metrics)?)?;
                if watts.is_none() {
                    takes_nothing(&self.get(path)?)?;
                }
                Ok(watts)
            })),
        }
    }

    /// Whether a chassis says that it is switched off.
    fn is_off(&mut self, chassis: &str) -> Result<bool, Trouble> {
        Ok(self.get(chassis)?.get("PowerState").and_then(Value::as_str) == Some("Off"))
    }
}
