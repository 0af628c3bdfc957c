//! Parses ports from text.

use crate::port::{
    DpdkSpec, MTU, PacketSpec, Port, PortError, TapSpec, XdpSpec, open_dpdk, open_packet, open_tap,
    open_xdp, prepare,
};
use std::fmt;
use std::str::FromStr;

/// Limit on the length of an interface's name, in bytes. A longer name is invalid.
const NAME_BYTES: usize = 15;

/// Limit on the length of a DPDK device's name with its arguments, in bytes. A longer text is
/// invalid.
const DEVICE_BYTES: usize = 1_024;

/// A port to open, as it is written in flags and in TOML.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PortSpec {
    /// `tap:NAME[@NETNS][,mtu=N]`.
    Tap(TapSpec),
    /// `packet:NAME[@NETNS]`.
    Packet(PacketSpec),
    /// `xdp:NAME[@NETNS][,mtu=N]`.
    Xdp(XdpSpec),
    /// `dpdk:DEVICE[,ARGUMENT=VALUE...][,mtu=N]`.
    Dpdk(DpdkSpec),
}

/// Why a text does not describe a port: the text, and the reason.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "port {0:?}: {1}; want tap:NAME[@NAMESPACE][,mtu=BYTES], packet:NAME[@NAMESPACE], \
     xdp:NAME[@NAMESPACE][,mtu=BYTES] or dpdk:DEVICE[,ARGUMENTS][,mtu=BYTES], such as tap:a0@left"
)]
pub struct PortSpecError(String, &'static str);

impl FromStr for PortSpec {
    type Err = PortSpecError;

    fn from_str(text: &str) -> Result<Self, PortSpecError> {
        let error = |why| PortSpecError(text.to_owned(), why);
        let (kind, rest) = text.split_once(':').ok_or_else(|| error("no kind"))?;
        let device_mtu =
            |mtu: Option<u32>| mtu.map(u16::try_from).transpose().map_err(|_| error(MTU_IS));
        if kind == "dpdk" {
            let is_device = |name: &str| !name.is_empty() && !name.contains([' ', '@', '/']);
            if rest.len() > DEVICE_BYTES || !rest.split(',').next().is_some_and(is_device) {
                return Err(error(
                    "a device is named as DPDK does, such as 0000:01:00.1 or \
                     net_memif0,role=server,..",
                ));
            }
            let (mtus, arguments): (Vec<_>, Vec<_>) =
                rest.split(',').partition(|part| part.starts_with("mtu="));
            let mtu = device_mtu(mtu(mtus.into_iter()).map_err(error)?)?;
            return Ok(Self::Dpdk(DpdkSpec { device: arguments.join(","), mtu, force: false }));
        }
        let mut parts = rest.split(',');
        let place = parts.next().unwrap_or_default();
        let (name, netns) = match place.split_once('@') {
            Some((name, netns)) => (name, Some(netns)),
            None => (place, None),
        };
        if name.is_empty() || name.len() > NAME_BYTES || name.contains(['/', ' ']) {
            return Err(error("an interface's name has 1 to 15 characters, no slash and no space"));
        }
        if netns == Some("") {
            return Err(error("no namespace behind the @"));
        }
        let mtu = mtu(parts).map_err(error)?;
        let (name, netns) = (name.to_owned(), netns.map(str::to_owned));
        match kind {
            "tap" => Ok(Self::Tap(TapSpec { name, netns, mtu })),
            "packet" if mtu.is_some() => {
                Err(error("an MTU is for others; an interface has its own"))
            }
            "packet" => Ok(Self::Packet(PacketSpec { name, netns, force: false })),
            "xdp" => Ok(Self::Xdp(XdpSpec { name, netns, mtu: device_mtu(mtu)?, force: false })),
            _ => Err(error("an unknown kind")),
        }
    }
}

const MTU_IS: &str = "an MTU is 68 to 65521 bytes";

/// Parses the MTU, which is the only option.
fn mtu<'a>(options: impl Iterator<Item = &'a str>) -> Result<Option<u32>, &'static str> {
    let mut mtu = None;
    for option in options {
        let bytes = option.strip_prefix("mtu=").ok_or("an option that is not mtu=BYTES")?;
        mtu = Some(bytes.parse().ok().filter(|bytes| MTU.contains(bytes)).ok_or(MTU_IS)?);
    }
    Ok(mtu)
}

impl PortSpec {
    /// Returns the name of the port's interface or device.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tap(tap) => &tap.name,
            Self::Packet(packet) => &packet.name,
            Self::Xdp(xdp) => &xdp.name,
            Self::Dpdk(dpdk) => dpdk.name(),
        }
    }

    /// Returns the port's network namespace, if one was given.
    #[must_use]
    pub fn netns(&self) -> Option<&str> {
        match self {
            Self::Tap(TapSpec { netns, .. })
            | Self::Packet(PacketSpec { netns, .. })
            | Self::Xdp(XdpSpec { netns, .. }) => netns.as_deref(),
            Self::Dpdk(_) => None,
        }
    }

    /// Returns whether the port is a device that bypasses the kernel.
    #[must_use]
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Xdp(_) | Self::Dpdk(_))
    }

    /// Makes [`open`](Self::open) open the interface even if it is in use.
    pub fn force(&mut self) {
        match self {
            Self::Tap(_) => {}
            Self::Packet(packet) => packet.force = true,
            Self::Xdp(xdp) => xdp.force = true,
            Self::Dpdk(dpdk) => dpdk.force = true,
        }
    }

    /// Prepares all ports that will be opened. Call it once, before any port is opened.
    ///
    /// # Errors
    /// DPDK does not start.
    pub fn prepare<'a>(specs: impl Iterator<Item = &'a Self>) -> Result<(), PortError> {
        prepare(specs.filter_map(|spec| match spec {
            Self::Dpdk(dpdk) => Some(dpdk),
            _ => None,
        }))
    }

    /// Opens the port.
    ///
    /// # Errors
    /// [`PortError`] if there is no such interface, namespace or device, if it is in use, or if the
    /// kernel or DPDK refuses a step.
    pub fn open(&self) -> Result<Port, PortError> {
        match self {
            Self::Tap(tap) => open_tap(tap),
            Self::Packet(packet) => open_packet(packet),
            Self::Xdp(xdp) => open_xdp(xdp),
            Self::Dpdk(dpdk) => open_dpdk(dpdk),
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, netns, mtu) = match self {
            Self::Tap(TapSpec { name, netns, mtu }) => ("tap", name, netns.as_ref(), *mtu),
            Self::Packet(PacketSpec { name, netns, .. }) => ("packet", name, netns.as_ref(), None),
            Self::Xdp(XdpSpec { name, netns, mtu, .. }) => {
                ("xdp", name, netns.as_ref(), mtu.map(u32::from))
            }
            Self::Dpdk(DpdkSpec { device, mtu, .. }) => ("dpdk", device, None, mtu.map(u32::from)),
        };
        write!(f, "{kind}:{name}")?;
        netns.iter().try_for_each(|netns| write!(f, "@{netns}"))?;
        mtu.iter().try_for_each(|mtu| write!(f, ",mtu={mtu}"))
    }
}
