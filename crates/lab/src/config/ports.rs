//! Ports in words.

use crate::port::{MTU, PacketSpec, TapSpec};
use std::fmt;
use std::str::FromStr;

/// Longest name of an interface, in bytes.
const NAME_BYTES: usize = 15;

/// Which port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PortSpec {
    /// `tap:NAME[@NETNS][,mtu=N]`.
    Tap(TapSpec),
    /// `packet:NAME[@NETNS]`.
    Packet(PacketSpec),
}

/// Words that are no port.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("port {0:?}: {1}; want tap:NAME[@NAMESPACE][,mtu=BYTES] or packet:NAME[@NAMESPACE], such as tap:a0@left")]
pub struct PortSpecError(String, &'static str);

impl FromStr for PortSpec {
    type Err = PortSpecError;

    fn from_str(text: &str) -> Result<Self, PortSpecError> {
        let error = |why| PortSpecError(text.to_owned(), why);
        let (kind, rest) = text.split_once(':').ok_or_else(|| error("no kind"))?;
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
        let mut mtu = None;
        for part in parts {
            let bytes = part.strip_prefix("mtu=").ok_or_else(|| error("an option that is not mtu=BYTES"))?;
            let bytes = bytes.parse().ok().filter(|bytes| MTU.contains(bytes));
            mtu = Some(bytes.ok_or_else(|| error("an MTU is 68 to 65521 bytes"))?);
        }
        let (name, netns) = (name.to_owned(), netns.map(str::to_owned));
        match kind {
            "tap" => Ok(Self::Tap(TapSpec { name, netns, mtu })),
            "packet" if mtu.is_some() => Err(error("an MTU is for a TAP; an interface has its own")),
            "packet" => Ok(Self::Packet(PacketSpec { name, netns, force: false })),
            _ => Err(error("an unknown kind")),
        }
    }
}

impl PortSpec {
    /// The name of its interface.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tap(tap) => &tap.name,
            Self::Packet(packet) => &packet.name,
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, netns, mtu) = match self {
            Self::Tap(TapSpec { name, netns, mtu }) => ("tap", name, netns, *mtu),
            Self::Packet(PacketSpec { name, netns, .. }) => ("packet", name, netns, None),
        };
        write!(f, "{kind}:{name}")?;
        netns.iter().try_for_each(|netns| write!(f, "@{netns}"))?;
        mtu.iter().try_for_each(|mtu| write!(f, ",mtu={mtu}"))
    }
}
