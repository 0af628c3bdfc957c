//! Turns a topology into a complete plan, in which nothing is left to choose.

use super::addresses::Addresses;
use super::words::{AtWords, BoxWords, CaptureWords, HostWords, Topology};
use crate::capture;
use crate::config::{self, ConfigError, PortSpec};
use crate::engine::{Forwarding, Tolerance};
use crate::filter::{RulePlan, RuleWords};
use crate::hosts::{Cable, CableEnd, Host, HostsPlan, Interface, InvalidPlan, Route, is_name};
use crate::line::LineSettings;
use crate::port::{PacketSpec, TapSpec};
use std::collections::BTreeMap;

/// Limit on the boxes of a lab. A topology with more is invalid.
pub const MAX_BOXES: usize = 64;

/// Prefixes of ports that belong to the machine. They are neither hosts nor boxes.
const OF_THE_MACHINE: [&str; 3] = ["packet:", "xdp:", "dpdk:"];

/// Name of the host in which the cables between boxes end.
const BOXES: &str = "boxes";

/// Default MTU, in bytes.
const MTU: u32 = 1_500;

/// The complete plan of a lab.
#[derive(Clone, Debug, Default)]
pub struct LabPlan {
    /// The hosts of the lab, and the cables between them.
    pub plan: HostsPlan,
    /// The boxes of the lab.
    pub boxes: Vec<BoxPlan>,
    /// How many segments of a line may leave late, and by how much, before a box has not kept up.
    pub tolerance: Tolerance,
}

/// The plan of a box.
#[derive(Clone, Debug)]
pub struct BoxPlan {
    /// The box's name.
    pub name: String,
    /// The box's ports, in order.
    pub ports: Vec<PortPlan>,
    /// How the ports are joined.
    pub forwarding: Forwarding,
    /// Packet memory of each worker, in bytes. With `None`, as much as its lines need.
    pub memory: Option<u64>,
    /// Filter rules, in order.
    pub filters: Vec<RulePlan>,
    /// The capture of the packets that arrive, if there is one.
    pub capture: Option<CapturePlan>,
}

/// The plan of a port.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// The port's name, as in the topology: that of the host or box at the other end, or the text
    /// of a port of the machine, such as `packet:eth1`.
    pub name: String,
    /// The kind of port, and its interface or device.
    pub spec: PortSpec,
    /// Settings of the line to the port.
    pub line: LineSettings,
}

/// The plan of a capture.
pub type CapturePlan = capture::CaptureSettings;

/// Why a topology is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The text is not TOML, or has unknown keys.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A part of the topology is invalid.
    #[error("{place}: {what}")]
    Invalid {
        /// The invalid part, by its keys.
        place: String,
        /// What is wrong, and how to correct it.
        what: String,
    },
}

impl From<InvalidPlan> for TopologyError {
    fn from(InvalidPlan { place, what }: InvalidPlan) -> Self {
        Self::Invalid { place, what }
    }
}

fn invalid<T>(place: impl Into<String>, what: impl Into<String>) -> Result<T, TopologyError> {
    Err(TopologyError::Invalid { place: place.into(), what: what.into() })
}

/// The other end of a host's interface, and its network.
struct Link<'a> {
    host: &'a str,
    neighbour: &'a str,
    network: u32,
}

impl Topology {
    /// Lays the topology out: chooses addresses, interfaces and cables.
    ///
    /// # Errors
    /// The topology is invalid. The error says where the first fault is and how to correct it.
    pub fn lay_out(&self) -> Result<LabPlan, TopologyError> {
        self.check_names()?;
        let networks = self.networks()?;
        let mut links: Vec<Link<'_>> = Vec::new();
        for (name, words) in &self.boxes {
            for (number, port) in words.ports.iter().enumerate() {
                let place = || format!("box.{name}.ports[{number}]");
                if words.ports[..number].contains(port) {
                    return invalid(
                        place(),
                        format!("{port} is a port of it already: a port is used once"),
                    );
                }
                if self.hosts.contains_key(port) {
                    links.push(Link { host: port, neighbour: name, network: networks[&name[..]] });
                }
            }
        }
        for (number, cable) in self.cables.iter().enumerate() {
            let place = || format!("cable[{number}].ends");
            let network = as_u32(networks.len() + number);
            let [one, other] = &cable.ends;
            if one == other {
                return invalid(place(), format!("both are {one}: name two hosts"));
            }
            if let Some(unknown) = cable.ends.iter().find(|end| !self.hosts.contains_key(*end)) {
                return invalid(place(), format!("no host {unknown:?}: add [host.{unknown}]"));
            }
            for (host, neighbour) in [(one, other), (other, one)] {
                if links.iter().any(|link| link.host == host && link.neighbour == neighbour) {
                    return invalid(
                        place(),
                        format!("{host} and {neighbour} have a cable already"),
                    );
                }
                links.push(Link { host, neighbour, network });
            }
        }
        let mut plan = self.hosts(&links)?;
        let trunks = self.trunks(&mut plan)?;
        plan.check()?;
        let boxes = self
            .boxes
            .iter()
            .map(|(name, words)| self.lay_out_box(name, words, &plan, &links, &trunks));
        Ok(LabPlan {
            boxes: boxes.collect::<Result<_, _>>()?,
            plan,
            tolerance: Tolerance::default(),
        })
    }

    fn check_names(&self) -> Result<(), TopologyError> {
        if self.boxes.len() > MAX_BOXES {
            return invalid(
                "box",
                format!("{} are too many; {MAX_BOXES} are the limit", self.boxes.len()),
            );
        }
        for name in self.boxes.keys() {
            if !is_name(name) {
                return invalid(
                    format!("box.{name}"),
                    "use 1 to 32 of a-z, 0-9 and - for its name",
                );
            }
            if self.hosts.contains_key(name) {
                return invalid(format!("box.{name}"), "a host has the same name: rename one");
            }
        }
        if self.hosts.contains_key(BOXES) {
            return invalid(
                format!("host.{BOXES}"),
                "the name is taken by the lab's own: rename it",
            );
        }
        Ok(())
    }

    /// Returns the number of each box's network. Boxes that are connected share one network.
    fn networks(&self) -> Result<BTreeMap<&str, u32>, TopologyError> {
        let mut networks: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, words) in &self.boxes {
            for (number, port) in words.ports.iter().enumerate() {
                let place = format!("box.{name}.ports[{number}]");
                match self.boxes.get(port) {
                    Some(_) if port == name => return invalid(place, "a box is no port of itself"),
                    Some(other) if !other.ports.contains(name) => {
                        return invalid(
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
                            return invalid(place, error.to_string());
                        }
                    }
                    None => {
                        let what = format!(
                            "no host or box {port:?}: add [host.{port}], or name packet:INTERFACE, \
                             xdp:INTERFACE or dpdk:DEVICE"
                        );
                        return invalid(place, what);
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

    fn hosts(&self, links: &[Link<'_>]) -> Result<HostsPlan, TopologyError> {
        let mut addresses = Addresses::new(self.v4, self.v6)?;
        for (name, words) in &self.hosts {
            for (neighbour, at_words) in &words.at {
                let place = format!("host.{name}.at.{neighbour}");
                if !links.iter().any(|link| link.host == name && link.neighbour == neighbour) {
                    return invalid(
                        place,
                        format!(
                            "it is not connected with {neighbour:?}: name it among its ports, or \
                             in a cable"
                        ),
                    );
                }
                let given = at_words.addresses.iter().flatten();
                if let Some(duplicate) = given.map(|net| net.addr()).find(|ip| !addresses.take(*ip))
                {
                    return invalid(
                        place,
                        format!("{duplicate} is another interface's: addresses are used once"),
                    );
                }
            }
        }
        let mut plan = HostsPlan { name: self.name.clone(), ..HostsPlan::default() };
        for (name, words) in &self.hosts {
            plan.hosts.push(host(name, words, links, &mut addresses)?);
        }
        for (number, cable) in self.cables.iter().enumerate() {
            let [one, other] = &cable.ends;
            let end = |host: &str, neighbour: &str| CableEnd {
                host: plan.position(host).expect("was looked at before"),
                interface: interface_at(&plan, links, host, neighbour),
            };
            let ends = [end(one, other), end(other, one)];
            plan.cables.insert(number, Cable { ends });
        }
        Ok(plan)
    }

    /// Adds the cables between boxes to the plan. Returns the interface that each box has towards
    /// each other box, by `(box, other)`.
    fn trunks(
        &self,
        plan: &mut HostsPlan,
    ) -> Result<BTreeMap<(String, String), String>, TopologyError> {
        let mtu = plan
            .hosts
            .iter()
            .flat_map(|host| &host.interfaces)
            .map(|interface| interface.mtu)
            .max()
            .unwrap_or(MTU);
        let mut boxes = Host { name: BOXES.to_owned(), ..Host::default() };
        // The kernel must not send frames of its own on these interfaces: they would appear on the
        // lines.
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
                plan.cables.push(Cable {
                    ends: names.map(|interface| CableEnd { host: place, interface }),
                });
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
        plan: &HostsPlan,
        links: &[Link<'_>],
        trunks: &BTreeMap<(String, String), String>,
    ) -> Result<BoxPlan, TopologyError> {
        let mut named = words.ports.clone();
        if !words.pairs.is_empty() {
            let names: Vec<_> = words.ports.iter().map(|port| &port[..]).collect();
            match config::in_pairs(&words.pairs, &names) {
                Ok(order) => named = order.into_iter().map(|at| words.ports[at].clone()).collect(),
                Err(error) => return invalid(format!("box.{name}"), error.to_string()),
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
                    Err(error) => return invalid(format!("box.{name}.ports"), format!("{error}")),
                }
            };
            ports.push((port.clone(), spec));
        }
        if let Some(unknown) = words.to.keys().find(|port| !words.ports.contains(port)) {
            let what = format!("no port of that name; they are {}", words.ports.join(", "));
            return invalid(format!("box.{name}.to.{unknown}"), what);
        }
        let config = config::BoxWords {
            forward: words.forward.clone(),
            ageing: words.ageing.clone(),
            memory: words.memory.clone(),
            line: words.line.clone(),
            pairs: (0..words.pairs.len())
                .map(|pair| [2 * pair, 2 * pair + 1].map(|port| port.to_string()))
                .collect(),
            // The ports' names were checked above. Here only the number of ports and their lines
            // matter, so each port has its index as its name.
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
                // The name of the port is its index here.
                let port = place
                    .rsplit(' ')
                    .next()
                    .and_then(|number| number.parse().ok())
                    .and_then(|at: usize| named.get(at));
                let place = port.map_or(format!("box.{name} ({place})"), |port| {
                    format!("box.{name}.to.{port}")
                });
                return invalid(place, error.to_string());
            }
            Err(error) => return invalid(format!("box.{name}"), error.to_string()),
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

fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the name of the interface by which a host is joined to a neighbour.
fn interface_at(plan: &HostsPlan, links: &[Link<'_>], host: &str, neighbour: &str) -> String {
    let mut own = links.iter().filter(|link| link.host == host);
    let number = own.position(|link| link.neighbour == neighbour).expect("was linked before");
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
        let AtWords { interface, addresses: given, mtu } =
            words.at.get(link.neighbour).cloned().unwrap_or_default();
        let addresses = match given
            .map_or_else(|| addresses.next(link.network).map(Vec::from), Some)
        {
            Some(addresses) => addresses,
            None => {
                let what = "no address is left for it: take a larger range for v4 and v6, or fewer \
                            networks of fewer hosts";
                return invalid(format!("{place}.at.{}", link.neighbour), what);
            }
        };
        let interface = interface.unwrap_or_else(|| format!("eth{number}"));
        let mtu = mtu.or(words.mtu).unwrap_or(MTU);
        host.interfaces.push(Interface { name: interface, addresses, mtu });
    }
    if host.interfaces.is_empty() {
        return invalid(
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
        return invalid(format!("box.{name}.filters"), what);
    }
    let switch = forwarding != Forwarding::Cross;
    let plan = |(number, rule): (usize, &RuleWords)| match rule.plan(&ports, switch) {
        Ok(plan) => Ok(plan),
        Err(error) => {
            invalid(format!("box.{name}.filters[{number}].{}", error.key()), error.to_string())
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
            Err(_) => invalid(
                format!("box.{name}.capture.{key}"),
                format!("{:?}: want bytes, such as 64MB", word.0),
            ),
        },
    };
    let mut settings = capture::CaptureSettings::new(&words.file, ports.to_vec());
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
            return invalid(
                format!("box.{name}.capture.files"),
                "the size of a file is missing: add file-size = \"100MB\"",
            );
        }
    };
    match settings.check() {
        Ok(()) => Ok(settings),
        Err(error) => invalid(format!("box.{name}.capture"), error.to_string()),
    }
}
