//! Chooses addresses for hosts that have none.

use super::TopologyError;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Default range of IPv4 addresses.
const V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 64, 0, 0), 16);

/// Default range of IPv6 addresses: a unique local prefix (RFC 4193).
const V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd53, 0x7072, 0x6174, 0, 0, 0, 0, 0), 48);

/// Prefix lengths of one network, for the two families.
const V4_NETWORK: u8 = 24;
const V6_NETWORK: u8 = 64;

/// Chooses free addresses.
pub(super) struct Addresses {
    v4: Ipv4Net,
    v6: Ipv6Net,
    taken: HashSet<IpAddr>,
}

impl Addresses {
    pub(super) fn new(v4: Option<Ipv4Net>, v6: Option<Ipv6Net>) -> Result<Self, TopologyError> {
        let (v4, v6) = (v4.unwrap_or(V4), v6.unwrap_or(V6));
        let small = |place: &str, range: String, least| TopologyError::Invalid {
            place: place.to_owned(),
            what: format!("{range} is too small; a network takes a /{least} of it"),
        };
        if v4.prefix_len() > V4_NETWORK {
            return Err(small("v4", v4.to_string(), V4_NETWORK));
        }
        if v6.prefix_len() > V6_NETWORK {
            return Err(small("v6", v6.to_string(), V6_NETWORK));
        }
        Ok(Self { v4, v6, taken: HashSet::new() })
    }

    /// Marks an address as taken. Returns `false` if it was already taken.
    pub(super) fn take(&mut self, address: IpAddr) -> bool {
        self.taken.insert(address)
    }

    /// Returns the next free address of each family in a network. Networks are counted from 0.
    /// `None` if there is no such network, or no free address.
    pub(super) fn next(&mut self, network: u32) -> Option<[IpNet; 2]> {
        let v4 = u32::from(self.v4.network())
            .checked_add(network.checked_shl(u32::from(32 - V4_NETWORK))?)?;
        let v4 = Some(Ipv4Addr::from(v4))
            .filter(|base| self.v4.contains(base) && network < 1 << V4_NETWORK)?;
        let v6 =
            u128::from(self.v6.network()).checked_add(u128::from(network) << (128 - V6_NETWORK))?;
        let v6 = Some(Ipv6Addr::from(v6)).filter(|base| self.v6.contains(base))?;
        // Both families use the same number for a host, which is easier to remember.
        let pairs = (1u32..255).map(|host| {
            (
                Ipv4Addr::from(u32::from(v4) + host),
                Ipv6Addr::from(u128::from(v6) + u128::from(host)),
            )
        });
        let free = |&(v4, v6): &(Ipv4Addr, Ipv6Addr)| {
            ![v4.into(), v6.into()].iter().any(|ip| self.taken.contains(ip))
        };
        let (v4, v6) = pairs.into_iter().find(free)?;
        self.taken.extend([IpAddr::from(v4), IpAddr::from(v6)]);
        Some([IpNet::new(v4.into(), V4_NETWORK).ok()?, IpNet::new(v6.into(), V6_NETWORK).ok()?])
    }
}
