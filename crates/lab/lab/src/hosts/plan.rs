//! The complete plan of a lab's hosts: when they are made, nothing is left to choose.

use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Limit on the hosts of a lab. A plan with more is invalid.
pub const MAX_HOSTS: usize = 256;

/// Limit on the interfaces of a host. A plan with more is invalid.
pub const MAX_INTERFACES: usize = 64;

/// Limit on the cables of a lab. A plan with more is invalid.
pub const MAX_CABLES: usize = 1_024;

/// Limit on the routes of a host. A plan with more is invalid.
pub const MAX_ROUTES: usize = 64;

/// Limit on the sysctls of a host. A plan with more is invalid.
pub const MAX_SYSCTLS: usize = 64;

/// Limit on the length of a lab's or a host's name, in bytes.
pub const MAX_NAME: usize = 32;

/// Limit on the length of an interface's name, in bytes: the kernel's limit.
pub const MAX_INTERFACE_NAME: usize = 15;

/// Limit on the length of a host's command, in bytes.
pub const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// The smallest MTU of an interface, in bytes: the minimum of IPv6.
pub const MIN_MTU: u32 = 1_280;

/// The largest MTU of an interface, in bytes: that of a TAP.
pub const MAX_MTU: u32 = 65_521;

/// Default limit on the TCP windows of a host, in bytes: twice what 10 Gb/s at 400 ms needs.
pub const WINDOW_BYTES: u64 = 1 << 30;

/// The hosts of a lab and the cables between them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HostsPlan {
    /// The lab's name; see [`is_name`].
    pub name: String,
    /// The hosts of the lab; at most [`MAX_HOSTS`].
    pub hosts: Vec<Host>,
    /// Cables that join two hosts without a box; at most [`MAX_CABLES`].
    pub cables: Vec<Cable>,
}

/// A host: a network namespace and what is in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Host {
    /// The host's name; see [`is_name`].
    pub name: String,
    /// The host's interfaces; at most [`MAX_INTERFACES`].
    pub interfaces: Vec<Interface>,
    /// The host's routes; at most [`MAX_ROUTES`].
    pub routes: Vec<Route>,
    /// Kernel settings below `/proc/sys/net`, by their names without `net.`. At most
    /// [`MAX_SYSCTLS`].
    pub sysctls: BTreeMap<String, String>,
    /// A command for `sh -c` in the host. `LabHosts` does not start it; the `run` of a raised lab
    /// does.
    pub run: Option<String>,
    /// Name of a kernel bridge that joins all interfaces of the host, which makes the host a
    /// switch.
    pub bridge: Option<String>,
}

/// An interface. The lab makes it if a cable ends in it; otherwise the caller must make it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// The interface's name, of at most [`MAX_INTERFACE_NAME`] bytes.
    pub name: String,
    /// The interface's addresses.
    pub addresses: Vec<IpNet>,
    /// The MTU: the length of the longest packet, in bytes. [`MIN_MTU`] to [`MAX_MTU`].
    pub mtu: u32,
}

/// A route to another network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Route {
    /// The destination.
    pub to: IpNet,
    /// The gateway.
    pub via: IpAddr,
}

/// A pair of interfaces; frames sent on one arrive at the other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cable {
    /// The two ends of the cable.
    pub ends: [CableEnd; 2],
}

/// An end of a cable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CableEnd {
    /// Index of the host in the plan.
    pub host: usize,
    /// The interface's name.
    pub interface: String,
}

/// Why a plan is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct InvalidPlan {
    /// The host or the cable that is at fault.
    pub place: String,
    /// What is wrong, and how to correct it.
    pub what: String,
}

impl HostsPlan {
    /// Returns the name of a host's namespace: the lab's name, a hyphen and the host's name.
    #[must_use]
    pub fn namespace(&self, host: &Host) -> String {
        format!("{}-{}", self.name, host.name)
    }

    /// Returns the index of the host with this name.
    #[must_use]
    pub fn position(&self, host: &str) -> Option<usize> {
        self.hosts.iter().position(|other| other.name == host)
    }

    /// Checks the plan.
    ///
    /// # Errors
    /// The first fault: an invalid name, a value outside its limits, a duplicate, a port of a
    /// bridge that has addresses, a gateway that is out of reach, or a cable that ends in no
    /// interface.
    pub fn check(&self) -> Result<(), InvalidPlan> {
        let at = |place: &str, what: String| Err(InvalidPlan { place: place.to_owned(), what });
        if !is_name(&self.name) {
            return at("name", format!("{:?} {NAME_RULE}", self.name));
        }
        for (what, count, most) in
            [("hosts", self.hosts.len(), MAX_HOSTS), ("cables", self.cables.len(), MAX_CABLES)]
        {
            if count > most {
                return at(what, format!("{count} are too many; {most} are the limit"));
            }
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let place = format!("host.{}", host.name);
            if !is_name(&host.name) {
                return at(&place, format!("{:?} {NAME_RULE}", host.name));
            }
            if self.position(&host.name) != Some(number) {
                return at(&place, "there are two of this name; rename one".to_owned());
            }
            if let Err(what) = host.check() {
                return at(&place, what);
            }
        }
        for (number, cable) in self.cables.iter().enumerate() {
            for end in &cable.ends {
                let there =
                    self.hosts.get(end.host).and_then(|host| host.interface(&end.interface));
                if there.is_none() {
                    return at(
                        &format!("cable {number}"),
                        format!("it ends in {}, which does not exist", end.interface),
                    );
                }
            }
            let ends = self.cables.iter().flat_map(|cable| &cable.ends);
            if let Some(twice) =
                cable.ends.iter().find(|end| ends.clone().filter(|other| other == end).count() > 1)
            {
                return at(
                    &format!("cable {number}"),
                    format!("{} has another cable already", twice.interface),
                );
            }
        }
        Ok(())
    }
}

impl Host {
    /// Returns the interface with this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    fn check(&self) -> Result<(), String> {
        for (what, count, most) in [
            ("interfaces", self.interfaces.len(), MAX_INTERFACES),
            ("routes", self.routes.len(), MAX_ROUTES),
            ("sysctls", self.sysctls.len(), MAX_SYSCTLS),
            ("bytes of command", self.run.as_ref().map_or(0, String::len), MAX_COMMAND_BYTES),
        ] {
            if count > most {
                return Err(format!("{count} {what} are too many; {most} are the limit"));
            }
        }
        for (number, interface) in self.interfaces.iter().enumerate() {
            let name = &interface.name;
            if !is_interface(name) {
                return Err(format!("{name:?} is not a name for an interface; {INTERFACE_RULE}"));
            }
            if self.interfaces.iter().position(|other| other.name == *name) != Some(number) {
                return Err(format!("there are two interfaces {name}; rename one"));
            }
            if !(MIN_MTU..=MAX_MTU).contains(&interface.mtu) {
                return Err(format!(
                    "an MTU of {} for {name}; use {MIN_MTU} to {MAX_MTU}",
                    interface.mtu
                ));
            }
        }
        if let Some(bridge) = &self.bridge {
            if !is_interface(bridge) || self.interface(bridge).is_some() {
                return Err(format!(
                    "{bridge:?} is not a name for a bridge; {INTERFACE_RULE}, that no interface has"
                ));
            }
            if let Some(interface) =
                self.interfaces.iter().find(|interface| !interface.addresses.is_empty())
            {
                return Err(format!(
                    "{} is a port of a bridge and has addresses; leave them away",
                    interface.name
                ));
            }
        }
        for key in self.sysctls.keys() {
            let plain = |part: &str| {
                !part.is_empty()
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            };
            if !key.split('.').all(plain) {
                return Err(format!(
                    "{key:?} is not a sysctl; name it as behind `net.`, such as \
                     ipv4.tcp_no_metrics_save"
                ));
            }
        }
        self.routes.iter().try_for_each(|route| self.reaches(route))
    }

    /// Checks that a route's gateway is on a network of the host, and that destination and gateway
    /// are both IPv4 or both IPv6.
    fn reaches(&self, route: &Route) -> Result<(), String> {
        let Route { to, via } = route;
        let mut near = self.interfaces.iter().flat_map(|interface| &interface.addresses);
        if to.addr().is_ipv4() != via.is_ipv4() {
            return Err(format!(
                "a route to {to} via {via}: one is IPv4 and one IPv6; use the same for both"
            ));
        }
        match near.any(|address| address.contains(via)) {
            true => Ok(()),
            false => Err(format!(
                "no route to {via}: it is on no network of this host; name a neighbour's address"
            )),
        }
    }
}

const INTERFACE_RULE: &str = "use 1 to 15 letters, digits, - and _";

fn is_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=MAX_INTERFACE_NAME).contains(&name.len()) && name.bytes().all(plain) && name != "lo"
}

pub(super) const NAME_RULE: &str =
    "is not a name; use 1 to 32 of a-z, 0-9 and -, beginning and ending with a letter or digit";

/// Returns whether a lab or a host can have this name: 1 to [`MAX_NAME`] of a-z, 0-9 and `-`. A
/// name must not begin or end with `-`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
