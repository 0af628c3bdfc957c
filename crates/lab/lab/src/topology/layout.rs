//! From words to a lab in which nothing is left to be chosen.

use super::addresses::Addresses;
use super::words::{AtWords, BoxWords, CaptureWords, HostWords, Topology};
use crate::capture;
use crate::config::{self, ConfigError, PortSpec};
use crate::engine::{Forwarding, Tolerance};
use crate::filter::{RulePlan, RuleWords};
use crate::hosts::{Cable, End, Host, Interface, Plan, Route, Unfit, is_name};
use crate::line::Settings;
use crate::port::{PacketSpec, TapSpec};
use std::collections::BTreeMap;

/// Most boxes of a lab.
pub const MAX_BOXES: usize = 64;

/// How ports begin that are the machine's, and neither host nor box.
const OF_THE_MACHINE: [&str; 3] = ["packet:", "xdp:", "dpdk:"];

/// The host that the cables between boxes end in.
const BOXES: &str = "boxes";

/// Longest packet, unless told, in bytes.
const MTU: u32 = 1_500;

/// A lab.
#[derive(Clone, Debug, Default)]
pub struct Lab {
    /// Its hosts.
    pub plan: Plan,
    /// Its boxes.
    pub boxes: Vec<BoxPlan>,
    /// What share of segments may be late in them.
    pub tolerance: Tolerance,
}

/// A box.
#[derive(Clone, Debug)]
pub struct BoxPlan {
    /// Its name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<PortPlan>,
    /// How they are joined.
    pub forwarding: Forwarding,
    /// Packet memory of each lane in bytes; none: as much as its lines need.
    pub memory: Option<u64>,
    /// Rules, in order.
    pub filters: Vec<RulePlan>,
    /// What is written down.
    pub capture: Option<CapturePlan>,
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// What it is called: the host, box or interface at the other end.
    pub name: String,
    /// What it is.
    pub spec: PortSpec,
    /// What the line to it does.
    pub line: Settings,
}

/// A capture.
pub type CapturePlan = capture::Settings;

/// Why a topology is none.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// It is not TOML, or has what no topology has.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Something in it cannot be.
    #[error("{place}: {what}")]
    Place {
        /// Where, by its keys.
        place: String,
        /// What is wrong, and the mend.
        what: String,
    },
}

impl From<Unfit> for TopologyError {
    fn from(Unfit { place, what }: Unfit) -> Self {
        Self::Place { place, what }
    }
}

fn at<T>(place: impl Into<String>, what: impl Into<String>) -> Result<T, TopologyError> {
    Err(TopologyError::Place { place: place.into(), what: what.into() })
}

/// What is at the other end of a host's interface, and in which network.
struct Link<'a> {
    host: &'a str,
    far: &'a str,
    network: u32,
}

impl Topology {
    /// What it means.
    ///
    /// # Errors
    /// The first thing that cannot be, with its place and the mend.
    pub fn lay_out(&self) -> Result<Lab, TopologyError> {
        self.check_names()?;
        let networks = self.networks()?;
        let mut links: Vec<Link<'_>> = Vec::new();
        for (name, words) in &self.boxes {
            for (number, port) in words.ports.iter().enumerate() {
                let place = || format!("box.{name}.ports[{number}]");
                if words.ports[..number].contains(port) {
                    return at(
                        place(),
                        format!("{port} is a port of it already: a port is used once"),
                    );
                }
                if self.hosts.contains_key(port) {
                    links.push(Link { host: port, far: name, network: networks[&name[..]] });
                }
            }
        }
        for (number, cable) in self.cables.iter().enumerate() {
            let place = || format!("cable[{number}].ends");
            let network = number_of(networks.len() + number);
            let [one, other] = &cable.ends;
            if one == other {
                return at(place(), format!("both are {one}: name two hosts"));
            }
            if let Some(unknown) = cable.ends.iter().find(|end| !self.hosts.contains_key(*end)) {
                return at(place(), format!("no host {unknown:?}: add [host.{unknown}]"));
            }
            for (host, far) in [(one, other), (other, one)] {
                if links.iter().any(|link| link.host == host && link.far == far) {
                    return at(place(), format!("{host} and {far} have a cable already"));
                }
                links.push(Link { host, far, network });
            }
        }
        let mut plan = self.hosts(&links)?;
        let trunks = self.trunks(&mut plan)?;
        plan.check()?;
        let boxes = self
            .boxes
            .iter()
            .map(|(name, words)| self.lay_out_box(name, words, &plan, &links, &trunks));
        Ok(Lab { boxes: boxes.collect::<Result<_, _>>()?, plan, tolerance: Tolerance::default() })
    }

    fn check_names(&self) -> Result<(), TopologyError> {
        if self.boxes.len() > MAX_BOXES {
            return at(
                "box",
                format!("{} are too many; {MAX_BOXES} are the limit", self.boxes.len()),
            );
        }
        for name in self.boxes.keys() {
            if !is_name(name) {
                return at(format!("box.{name}"), "use 1 to 32 of a-z, 0-9 and - for its name");
            }
            if self.hosts.contains_key(name) {
                return at(format!("box.{name}"), "a host has the same name: rename one");
            }
        }
        if self.hosts.contains_key(BOXES) {
            return at(format!("host.{BOXES}"), "the name is taken by the lab's own: rename it");
        }
        Ok(())
    }

    /// The number of the network that a box belongs to, one for boxes that are connected.
    fn networks(&self) -> Result<BTreeMap<&str, u32>, TopologyError> {
        let mut networks: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, words) in &self.boxes {
            for (number, port) in words.ports.iter().enumerate() {
                let place = format!("box.{name}.ports[{number}]");
                match self.boxes.get(port) {
                    Some(_) if port == name => return at(place, "a box is no port of itself"),
                    Some(other) if !other.ports.contains(name) => {
                        return at(
                            place,
                            format!(
                                "box {port} has no port {name}: add {name:?} to box.{port}.ports"
                            ),
                        );
                    }
                    Some(_) => {}
                    None if self.hosts.contains_key(port) => {}
                    None if OF_THE_MACHINE.iter().any(|kind| port.starts_with(kind)) => {
                        if let Err(error) = port.parse::<PortSpec>() {
                            return at(place, error.to_string());
                        }
                    }
                    None => {
                        let what = format!(
                            "no host or box {port:?}: add [host.{port}], or name packet:INTERFACE, xdp:INTERFACE or dpdk:DEVICE"
                        );
                        return at(place, what);
                    }
                }
            }
        }
        for name in self.boxes.keys() {
            if networks.contains_key(&name[..]) {
                continue;
            }
            let network = networks.values().max().map_or(0, |last| last + 1);
            let mut reached = vec![&name[..]];
            while let Some(next) = reached.pop() {
                if networks.insert(next, network).is_none() {
                    reached.extend(
                        self.boxes[next]
                            .ports
                            .iter()
                            .map(|port| &port[..])
                            .filter(|port| self.boxes.contains_key(*port)),
                    );
                }
            }
        }
        Ok(networks)
    }

    fn hosts(&self, links: &[Link<'_>]) -> Result<Plan, TopologyError> {
        let mut addresses = Addresses::new(self.v4, self.v6)?;
        for (name, words) in &self.hosts {
            for (far, at_words) in &words.at {
                let place = format!("host.{name}.at.{far}");
                if !links.iter().any(|link| link.host == name && link.far == far) {
                    return at(
                        place,
                        format!(
                            "it is not connected with {far:?}: name it among its ports, or in a cable"
                        ),
                    );
                }
                let told = at_words.addresses.iter().flatten();
                if let Some(twice) = told.map(|net| net.addr()).find(|ip| !addresses.take(*ip)) {
                    return at(
                        place,
                        format!("{twice} is another interface's: addresses are used once"),
                    );
                }
            }
        }
        let mut plan = Plan { name: self.name.clone(), ..Plan::default() };
        for (name, words) in &self.hosts {
            plan.hosts.push(host(name, words, links, &mut addresses)?);
        }
        for (number, cable) in self.cables.iter().enumerate() {
            let [one, other] = &cable.ends;
            let end = |host: &str, far: &str| End {
                host: plan.position(host).expect("was looked at before"),
                interface: interface_at(&plan, links, host, far),
            };
            let ends = [end(one, other), end(other, one)];
            plan.cables.insert(number, Cable { ends });
        }
        Ok(plan)
    }

    /// Cables between boxes; says which interface is whose: `(box, far)`.
    fn trunks(&self, plan: &mut Plan) -> Result<BTreeMap<(String, String), String>, TopologyError> {
        let mtu = plan
            .hosts
            .iter()
            .flat_map(|host| &host.interfaces)
            .map(|interface| interface.mtu)
            .max()
            .unwrap_or(MTU);
        let mut boxes = Host { name: BOXES.to_owned(), ..Host::default() };
        // Nobody speaks there: frames of its own would be strangers on the lines.
        boxes.sysctls.insert("ipv6.conf.default.disable_ipv6".to_owned(), "1".to_owned());
        let mut ends = BTreeMap::new();
        let place = plan.hosts.len();
        for (one, words) in &self.boxes {
            for other in
                words.ports.iter().filter(|port| self.boxes.contains_key(*port) && one < *port)
            {
                let number = ends.len() / 2;
                let names = [format!("trunk{number}a"), format!("trunk{number}b")];
                for (name, (from, to)) in names.iter().zip([(one, other), (other, one)]) {
                    boxes.interfaces.push(Interface {
                        name: name.clone(),
                        addresses: Vec::new(),
                        mtu,
                    });
                    ends.insert((from.clone(), to.clone()), name.clone());
                }
                plan.cables
                    .push(Cable { ends: names.map(|interface| End { host: place, interface }) });
            }
        }
        if !ends.is_empty() {
            plan.hosts.push(boxes);
        }
        Ok(ends)
    }

    fn lay_out_box(
        &self,
        name: &str,
        words: &BoxWords,
        plan: &Plan,
        links: &[Link<'_>],
        trunks: &BTreeMap<(String, String), String>,
    ) -> Result<BoxPlan, TopologyError> {
        let mut named = words.ports.clone();
        if !words.pairs.is_empty() {
            let names: Vec<_> = words.ports.iter().map(|port| &port[..]).collect();
            match config::in_pairs(&words.pairs, &names) {
                Ok(order) => named = order.into_iter().map(|at| words.ports[at].clone()).collect(),
                Err(error) => return at(format!("box.{name}"), error.to_string()),
            }
        }
        let mut ports = Vec::new();
        for port in &named {
            let netns =
                |host: &str| plan.position(host).map(|host| plan.namespace(&plan.hosts[host]));
            let spec = if let Some(interface) = trunks.get(&(name.to_owned(), port.clone())) {
                PortSpec::Packet(PacketSpec {
                    name: interface.clone(),
                    netns: netns(BOXES),
                    force: false,
                })
            } else if self.hosts.contains_key(port) {
                PortSpec::Tap(TapSpec {
                    name: interface_at(plan, links, port, name),
                    netns: netns(port),
                    mtu: None,
                })
            } else {
                match port.parse() {
                    Ok(spec) => spec,
                    Err(error) => return at(format!("box.{name}.ports"), format!("{error}")),
                }
            };
            ports.push((port.clone(), spec));
        }
        if let Some(unknown) = words.to.keys().find(|port| !words.ports.contains(port)) {
            let what = format!("no port of that name; they are {}", words.ports.join(", "));
            return at(format!("box.{name}.to.{unknown}"), what);
        }
        let config = config::BoxWords {
            forward: words.forward.clone(),
            ageing: words.ageing.clone(),
            memory: words.memory.clone(),
            line: words.line.clone(),
            pairs: (0..words.pairs.len())
                .map(|pair| [2 * pair, 2 * pair + 1].map(|port| port.to_string()))
                .collect(),
            // Where they are was said above; here only how many there are counts, and their lines.
            ports: named
                .iter()
                .enumerate()
                .map(|(number, port)| config::PortWords {
                    open: format!("packet:{number}"),
                    line: words.to.get(port).cloned().unwrap_or_default(),
                })
                .collect(),
        };
        let checked = match config.check() {
            Ok(checked) => checked,
            Err(ConfigError::Word { place, error }) => {
                // The number that stood for the port.
                let port = place
                    .rsplit(' ')
                    .next()
                    .and_then(|number| number.parse().ok())
                    .and_then(|at: usize| named.get(at));
                let place = port.map_or(format!("box.{name} ({place})"), |port| {
                    format!("box.{name}.to.{port}")
                });
                return at(place, error.to_string());
            }
            Err(error) => return at(format!("box.{name}"), error.to_string()),
        };
        let ports: Vec<_> = ports
            .into_iter()
            .zip(checked.ports)
            .map(|((name, spec), (_, line))| PortPlan { name, spec, line })
            .collect();
        let filters = filters(name, words, &named, checked.forwarding)?;
        let capture = words
            .capture
            .as_ref()
            .map(|capture| capture_plan(name, capture, &named))
            .transpose()?;
        let (forwarding, memory) = (checked.forwarding, checked.memory);
        Ok(BoxPlan { name: name.to_owned(), ports, forwarding, memory, filters, capture })
    }
}

fn number_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The name of the interface that a host has to a neighbour.
fn interface_at(plan: &Plan, links: &[Link<'_>], host: &str, far: &str) -> String {
    let mut own = links.iter().filter(|link| link.host == host);
    let number = own.position(|link| link.far == far).expect("was linked before");
    let host = &plan.hosts[plan.position(host).expect("is planned")];
    host.interfaces[number].name.clone()
}

fn host(
    name: &str,
    words: &HostWords,
    links: &[Link<'_>],
    addresses: &mut Addresses,
) -> Result<Host, TopologyError> {
    let mut host = Host { name: name.to_owned(), run: words.run.clone(), ..Host::default() };
    let place = format!("host.{name}");
    for (number, link) in links.iter().filter(|link| link.host == name).enumerate() {
        let AtWords { interface, addresses: told, mtu } =
            words.at.get(link.far).cloned().unwrap_or_default();
        let addresses = match told.map_or_else(|| addresses.next(link.network).map(Vec::from), Some)
        {
            Some(addresses) => addresses,
            None => {
                let what = "no address is left for it: take a larger range for v4 and v6, or fewer networks of fewer hosts";
                return at(format!("{place}.at.{}", link.far), what);
            }
        };
        let interface = interface.unwrap_or_else(|| format!("eth{number}"));
        let mtu = mtu.or(words.mtu).unwrap_or(MTU);
        host.interfaces.push(Interface { name: interface, addresses, mtu });
    }
    if host.interfaces.is_empty() {
        return at(
            place,
            "it is connected with nothing: name it among a box's ports, or in a [[cable]]",
        );
    }
    if words.forward {
        for key in ["ipv4.ip_forward", "ipv6.conf.all.forwarding"] {
            host.sysctls.insert(key.to_owned(), "1".to_owned());
        }
    }
    host.sysctls.extend(words.sysctls.iter().map(|(key, value)| (key.clone(), value.0.clone())));
    host.routes = words.routes.iter().map(|route| Route { to: route.to, via: route.via }).collect();
    Ok(host)
}

fn filters(
    name: &str,
    words: &BoxWords,
    ports: &[String],
    forwarding: Forwarding,
) -> Result<Vec<RulePlan>, TopologyError> {
    let ports: Vec<_> = ports.iter().map(|port| &port[..]).collect();
    if words.filters.len() > crate::filter::MAX_RULES {
        let what =
            format!("{} rules; {} are the limit", words.filters.len(), crate::filter::MAX_RULES);
        return at(format!("box.{name}.filters"), what);
    }
    let switch = forwarding != Forwarding::Cross;
    let plan = |(number, rule): (usize, &RuleWords)| match rule.plan(&ports, switch) {
        Ok(plan) => Ok(plan),
        Err(error) => {
            at(format!("box.{name}.filters[{number}].{}", error.key()), error.to_string())
        }
    };
    words.filters.iter().enumerate().map(plan).collect()
}

fn capture_plan(
    name: &str,
    words: &CaptureWords,
    ports: &[String],
) -> Result<CapturePlan, TopologyError> {
    let bytes = |key: &str, word: &Option<config::Word>| match word {
        None => Ok(None),
        Some(word) => match sprat_units::size(&word.0) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => at(
                format!("box.{name}.capture.{key}"),
                format!("{:?}: want bytes, such as 64MB", word.0),
            ),
        },
    };
    let mut settings = capture::Settings::new(&words.file, ports.to_vec());
    settings.snap = words.snap.unwrap_or(settings.snap);
    settings.memory = bytes("memory", &words.memory)?.unwrap_or(settings.memory);
    settings.ring = match (bytes("file-size", &words.file_size)?, words.files) {
        (None, None) => None,
        (Some(bytes), files) => Some((
            bytes,
            usize::try_from(files.unwrap_or(u32::MAX))
                .unwrap_or(usize::MAX)
                .min(capture::MAX_FILES),
        )),
        (None, Some(_)) => {
            return at(
                format!("box.{name}.capture.files"),
                "of which size? add file-size = \"100MB\"",
            );
        }
    };
    match settings.check() {
        Ok(()) => Ok(settings),
        Err(error) => at(format!("box.{name}.capture"), error.to_string()),
    }
}
