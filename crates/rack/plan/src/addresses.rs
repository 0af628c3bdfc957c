//! Parses the lists of IPv4 addresses in a description.

use serde::de::{Deserialize, Deserializer, Error as _};
use std::net::Ipv4Addr;

/// Limit on the addresses of one list. A longer list is refused.
const MAX_ADDRESSES: usize = 1 << 16;

/// IPv4 addresses in the order in which the plan assigns them. A description writes ranges,
/// `["10.3.29.101-10.3.29.112"]`, single addresses, `["10.0.0.7", "10.0.0.3"]`, or a mix of both.
/// An empty list means that the description lists no addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AddressList(pub Vec<Ipv4Addr>);

impl AddressList {
    fn add(&mut self, text: &str) -> Result<(), String> {
        let want =
            || format!("{text:?}: want an address, or a range such as \"10.0.0.1-10.0.0.9\"");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (Ipv4Addr, Ipv4Addr) =
            first.trim().parse().ok().zip(last.trim().parse().ok()).ok_or_else(want)?;
        if first > last {
            return Err(want());
        }
        if (u32::from(last) - u32::from(first)) as usize >= MAX_ADDRESSES - self.0.len() {
            return Err(format!("{text:?}: want {MAX_ADDRESSES} addresses in all at most"));
        }
        self.0.extend((u32::from(first)..=u32::from(last)).map(Ipv4Addr::from));
        Ok(())
    }
}

impl<'de> Deserialize<'de> for AddressList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut list = Self::default();
        for text in Vec::<String>::deserialize(deserializer)? {
            list.add(&text).map_err(D::Error::custom)?;
        }
        Ok(list)
    }
}
