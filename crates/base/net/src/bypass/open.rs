//! Opens the driver: turns a locator's settings into a host with its ports.

use sprat_host::random;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::BypassDriver;
use super::address::Address;
#[cfg(feature = "dpdk")]
use super::dpdk::{self, AcceptedFrames, Dpdk, ThreadRegistration};
use super::exchange::DeviceShare;
use super::memif::Memif;
use super::port::Port;
use super::sizes::{ETHERNET, FRAME_ROOM, JUMBO};
use crate::ether::{
    Checksums, EtherHost, HostSettings, LinkSettings, MIN_MTU, group_mac, link_local_v4,
    link_local_v6,
};
use crate::{Bypass, Mac};

/// The UDP ports from which the driver chooses if none is specified (RFC 6335).
const EPHEMERAL: std::ops::Range<u64> = 49_152..65_536;

impl BypassDriver {
    /// Opens the devices that `bypass` names, or the first one found, and creates a host over them.
    ///
    /// # Errors
    /// Errors of a device or of DPDK. `InvalidInput` if the MTU is larger than a device carries, or
    /// the gateway is of the other address family. `Unsupported` for devices of DPDK's in a build
    /// without DPDK.
    pub fn open(bypass: &Bypass, address: Address) -> io::Result<Self> {
        Self::open_with(bypass, address, None)
    }

    /// Opens the driver of one node. Several nodes, each on a thread of its own, share a device and
    /// an IP address; node i has the first node's port plus i. The first node opens the device, and
    /// the last to exit closes it.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). Also if `bypass` names several devices, the device has
    /// too few queues or cannot be shared, or `address` has a port too low for the node's number.
    pub fn open_share(
        bypass: &Bypass,
        address: SocketAddr,
        share: DeviceShare,
    ) -> io::Result<Self> {
        #[cfg(feature = "dpdk")]
        if usize::from(address.port()) <= share.number() {
            let reason =
                format!("{} nodes that share a device need consecutive ports", share.nodes());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Self::open_with(bypass, Address::Own(address), Some(share))
    }

    fn open_with(
        bypass: &Bypass,
        address: Address,
        share: Option<DeviceShare>,
    ) -> io::Result<Self> {
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
            ports.iter_mut().for_each(|port| port.join_group(group));
        }
        #[cfg(feature = "dpdk")]
        let registration = ports
            .iter()
            .any(|port| matches!(port, Port::Dpdk(_)))
            .then(ThreadRegistration::register)
            .transpose()?;
        let (vlan, gateway) = (bypass.vlan, bypass.gateway);
        if let Some(gateway) = gateway
            && gateway.is_ipv4() != address.is_ipv4()
        {
            let reason = format!("the gateway {gateway} is not of the family of {}", address.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let prefix = bypass.prefix.unwrap_or(0);
        let host = EtherHost::new(
            HostSettings { address, prefix, gateway, vlan, mtu: mtu.into() },
            &links,
        );
        let driver = Self::new(host, ports, usize::from(mtu) + FRAME_ROOM);
        #[cfg(feature = "dpdk")]
        let driver = driver.with_share(share).with_registration(registration);
        Ok(driver)
    }
}

/// Opens the ports in the locator's order. Returns each port with who computes its checksums. The
/// locator's hardware address is that of the first port.
fn open_ports(
    bypass: &Bypass,
    mtu: u16,
    address: Address,
    share: Option<&DeviceShare>,
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
                Dpdk::open(None, mac(0), mtu, AcceptedFrames::Node(address, bypass.vlan))?;
            return Ok(vec![(Port::Dpdk(port), checksums)]);
        }
    }
    #[cfg(not(feature = "dpdk"))]
    let _ = (address, share); // memory interfaces carry frames for this host only
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
                Dpdk::open(Some(device), mac(at), mtu, AcceptedFrames::Node(address, bypass.vlan))?;
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

/// Replaces port 0 of a known address by a port that the driver chooses.
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
