//! Opening the driver: from a locator's words to a host on its ports.

use sprat_host::random;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::BypassDriver;
use super::address::Address;
#[cfg(feature = "dpdk")]
use super::dpdk::{self, Dpdk, Seat, Whose};
use super::exchange::Share;
use super::memif::Memif;
use super::port::Port;
use super::sizes::{ETHERNET, FRAME_ROOM, JUMBO};
use crate::ether::{
    Checksums, Host, LinkSettings, MIN_MTU, Settings, group_mac, link_local_v4, link_local_v6,
};
use crate::{Bypass, Mac};

/// The ports from which one is chosen that nobody asked for (RFC 6335).
const EPHEMERAL: std::ops::Range<u64> = 49_152..65_536;

impl BypassDriver {
    /// Opens the devices that `bypass` names, or the first there is, and makes a host of them.
    ///
    /// # Errors
    /// What a device or DPDK says of its start; packets longer than a device carries; `Unsupported`
    /// for devices of DPDK's in a build without it.
    pub fn open(bypass: &Bypass, address: Address) -> io::Result<Self> {
        Self::open_with(bypass, address, None)
    }

    /// The same for one of several nodes, on threads of their own, that share the device and the IP
    /// address: the first has the port of `share`'s first, and so on. The device is open when
    /// the first has opened it, and closed when the last has gone.
    ///
    /// # Errors
    /// As [`open`](Self::open); a device that has not so many queues, or is of a kind that cannot
    /// be shared.
    pub fn open_share(bypass: &Bypass, address: SocketAddr, share: Share) -> io::Result<Self> {
        #[cfg(feature = "dpdk")]
        if usize::from(address.port()) <= share.number() {
            let reason = format!(
                "{} nodes that share a device have ports that follow one another",
                share.nodes()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Self::open_with(bypass, Address::Own(address), Some(share))
    }

    fn open_with(bypass: &Bypass, address: Address, share: Option<Share>) -> io::Result<Self> {
        let is_memif = |device: &String| Memif::is(device);
        let all_memif = !bypass.devices.is_empty() && bypass.devices.iter().all(is_memif);
        let mtu = bypass.mtu.unwrap_or(if all_memif { JUMBO } else { ETHERNET });
        assert!(usize::from(mtu) >= MIN_MTU, "locators and defaults know the least packet size");

        let (mut ports, mut links) = (Vec::new(), Vec::new());
        let address = with_port(address);
        for (port, checksums) in open_ports(bypass, mtu, address, share.as_ref())? {
            links.push(LinkSettings { mac: port.mac(), checksums });
            ports.push(port);
        }
        let address = own_address(address, links[0].mac);
        if let Some(group) = group_mac(address.ip()) {
            ports.iter_mut().for_each(|port| port.hear(group));
        }
        #[cfg(feature = "dpdk")]
        let seat =
            ports.iter().any(|port| matches!(port, Port::Dpdk(_))).then(Seat::take).transpose()?;
        let (vlan, gateway) = (bypass.vlan, bypass.gateway);
        if let Some(gateway) = gateway
            && gateway.is_ipv4() != address.is_ipv4()
        {
            let reason = format!("the gateway {gateway} is not of the family of {}", address.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let prefix = bypass.prefix.unwrap_or(0);
        let host = Host::new(Settings { address, prefix, gateway, vlan, mtu: mtu.into() }, &links);
        let driver = Self::new(host, ports, usize::from(mtu) + FRAME_ROOM);
        #[cfg(feature = "dpdk")]
        let driver = driver.sharing(share).seated(seat);
        Ok(driver)
    }
}

/// The ports, in the locator's order, and who writes their checksums. The locator's hardware
/// address is the first's.
fn open_ports(
    bypass: &Bypass,
    mtu: u16,
    address: Address,
    share: Option<&Share>,
) -> io::Result<Vec<(Port, Checksums)>> {
    let mac = |at: usize| bypass.mac.filter(|_| at == 0);
    #[cfg(feature = "dpdk")]
    {
        let named: Vec<_> =
            bypass.devices.iter().filter(|device| !Memif::is(device)).cloned().collect();
        if bypass.devices.is_empty() || !named.is_empty() {
            dpdk::start(&named)?;
        }
        if let Some(share) = share {
            let (Address::Own(own), [] | [_]) = (address, bypass.devices.as_slice()) else {
                let reason = "nodes share one device; give each its own, with -L once for each";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            };
            dpdk::start(&bypass.devices)?;
            let name = bypass.devices.first().map(String::as_str);
            let (port, checksums) = Dpdk::open_share(name, mac(0), mtu, (own, bypass.vlan), share)?;
            return Ok(vec![(Port::Dpdk(port), checksums)]);
        }
        if bypass.devices.is_empty() {
            let (port, checksums) =
                Dpdk::open(None, mac(0), mtu, Whose::Node(address, bypass.vlan))?;
            return Ok(vec![(Port::Dpdk(port), checksums)]);
        }
    }
    #[cfg(not(feature = "dpdk"))]
    let _ = (address, share); // what a memory interface carries is all ours
    #[cfg(not(feature = "dpdk"))]
    if bypass.devices.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this sprat was built without DPDK",
        ));
    }
    let open = |(at, device): (usize, &String)| match Memif::is(device) {
        true => {
            let port = Memif::open(device, mac(at), usize::from(mtu) + FRAME_ROOM)?;
            Ok((Port::Memif(port), Checksums::Spared))
        }
        #[cfg(feature = "dpdk")]
        false => {
            let (port, checksums) =
                Dpdk::open(Some(device), mac(at), mtu, Whose::Node(address, bypass.vlan))?;
            Ok((Port::Dpdk(port), checksums))
        }
        #[cfg(not(feature = "dpdk"))]
        false => {
            let reason = format!("this sprat was built without DPDK, which {device} needs");
            Err(io::Error::new(io::ErrorKind::Unsupported, reason))
        }
    };
    bypass.devices.iter().enumerate().map(open).collect()
}

fn own_address(address: Address, mac: Mac) -> SocketAddr {
    match address {
        Address::Own(address) => address,
        Address::LinkLocal(true) => (IpAddr::from(link_local_v6(mac)), ephemeral()).into(),
        Address::LinkLocal(false) => (IpAddr::from(link_local_v4(mac)), ephemeral()).into(),
    }
}

/// The address with a port, if it is known so far.
fn with_port(address: Address) -> Address {
    match address {
        Address::Own(own) if own.port() == 0 => {
            Address::Own(SocketAddr::new(own.ip(), ephemeral()))
        }
        other => other,
    }
}

fn ephemeral() -> u16 {
    let random = random();
    let port = EPHEMERAL.start + random % (EPHEMERAL.end - EPHEMERAL.start);
    u16::try_from(port).expect("below 65,536")
}
