//! Opening the driver: from a locator's words to a host on started devices.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use socket2::{Domain, SockAddr, Socket, Type};

use super::link::Link;
use super::sys::{Burst, Device, Pool, Seat, Setup, start};
use super::xdp::Shared;
use super::{Dpdk, DpdkRx, DpdkTx, MAX_PARKED};
use crate::ether::{
    Checksums, ETHERNET_BYTES, Host, LinkSettings, MIN_MTU, Settings, VLAN_BYTES, link_local_v4, link_local_v6,
};
use crate::{Bypass, Counters, Mac, Nanos};

/// Frames of a driver: what its devices' rings hold, and as many again on the way.
const FRAMES: u32 = 4095;

/// Slots of a memory interface's rings, as a power of two. Each slot is a frame's memory: 256 of 9 KB stay in a core's
/// cache, the 1,024 that DPDK would have do not, and carry a fifth less.
const MEMIF_RING: u32 = 8;

/// Longest packet of memory interfaces unless the locator says otherwise, and of others: Ethernet's.
const JUMBO: u16 = 9000;
const ETHERNET: u16 = 1500;

/// Bytes of a frame besides the packet, and some to spare for what devices put around it.
const FRAME_ROOM: usize = ETHERNET_BYTES + VLAN_BYTES + 14;

/// Least room of a frame: some devices take no less.
const LEAST_ROOM: usize = 2048;

/// The ports from which one is chosen that nobody asked for (RFC 6335).
const EPHEMERAL: std::ops::Range<u64> = 49_152..65_536;

/// Whom a driver is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Address {
    /// A host with this address and port; port 0 lets the driver choose.
    Own(SocketAddr),
    /// Nobody in particular: an address of the link's own is made of the hardware address, of IPv6 if true.
    LinkLocal(bool),
}

/// How a kind of device is to be treated.
struct Kind {
    /// A memory interface.
    memif: bool,
    /// Nothing but memory lies between it and its peer.
    memory: bool,
    /// The packet size is an argument of the device, not for us to set.
    fixed: bool,
    mtu: u16,
    /// Looks for its peer only when it is started.
    calls: bool,
    /// Takes its hardware address as an argument.
    mac_argument: bool,
}

impl Kind {
    fn of(device: &str) -> Self {
        let is = |prefix: &str| device.starts_with(prefix);
        let memif = is("net_memif");
        let virtio = is("net_virtio_user") || is("net_vhost");
        Self {
            memif,
            memory: memif || virtio,
            fixed: memif || is("net_af_"),
            mtu: if memif { JUMBO } else { ETHERNET },
            calls: memif && device.contains("role=client"),
            mac_argument: memif || is("net_virtio_user"),
        }
    }
}

impl Dpdk {
    /// Opens the devices that `bypass` names, or the first there is, and makes a host of them.
    ///
    /// # Errors
    /// What DPDK says of its start or a device; packets longer than a device carries.
    pub fn open(bypass: &Bypass, address: Address) -> io::Result<Self> {
        start(&bypass.devices)?;
        let seat = Seat::take()?;
        let named: Vec<_> =
            if bypass.devices.is_empty() { vec![None] } else { bypass.devices.iter().map(Some).collect() };
        let address = with_port(address);
        let (mut devices, mut shared) = (Vec::new(), Vec::new());
        for (at, name) in named.into_iter().enumerate() {
            // The locator's hardware address is the first device's; others have their own.
            let mac = bypass.mac.filter(|_| at == 0);
            let mut name = name.cloned();
            if let (Some(name), Address::Own(own)) = (&mut name, address)
                && let Some(with_kernel) = Shared::prepare(name, own, bypass.vlan)?
            {
                name.push_str(&format!(",{}", with_kernel.argument()));
                shared.push(with_kernel);
            }
            devices.push(attach(name.as_deref(), mac, bypass.mtu)?);
        }
        let mtu = devices.iter().map(|(_, _, mtu)| *mtu).min().expect("one device at least");
        let room = (usize::from(mtu) + FRAME_ROOM).max(LEAST_ROOM);
        let pool = Pool::new(FRAMES * u32::try_from(devices.len()).expect("few"), room)?;

        let (mut links, mut settings) = (Vec::new(), Vec::new());
        for (at, (mut device, kind, _)) in devices.into_iter().enumerate() {
            let setup =
                Setup { mac: bypass.mac.filter(|_| at == 0), mtu: (!kind.fixed).then_some(mtu), check: !kind.memory };
            device.set_up(&setup, &pool)?;
            let checksums = match (kind.memory, device.checks_sent()) {
                (true, _) => Checksums::Spared,
                (false, true) => Checksums::Device,
                (false, false) => Checksums::Software,
            };
            settings.push(LinkSettings { mac: device.mac(), checksums });
            // One whose peer is not there yet starts later; what is really wrong shows as a link that is down.
            let _ = device.start();
            links.push(Link::new(device, kind.calls, kind.memory));
        }
        let address = own_address(address, settings[0].mac);
        let (vlan, gateway) = (bypass.vlan, bypass.gateway);
        if let Some(gateway) = gateway
            && gateway.is_ipv4() != address.is_ipv4()
        {
            let reason = format!("the gateway {gateway} is not of the family of {}", address.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let host = Host::new(
            Settings { address, prefix: bypass.prefix.unwrap_or(0), gateway, vlan, mtu: mtu.into() },
            &settings,
        );
        let tx = DpdkTx {
            host,
            links,
            parked: Vec::with_capacity(MAX_PARKED),
            pongs: Vec::new(),
            pool,
            counters: Counters::default(),
            start: Instant::now(),
            rounds: 0,
            tended: Nanos(0),
            _shared: shared,
            _seat: seat,
        };
        Ok(Self { tx, rx: DpdkRx { burst: Burst::new() } })
    }
}

/// Opens a device, with the arguments it lacks; returns the longest packet it is to carry.
fn attach(name: Option<&str>, mac: Option<Mac>, mtu: Option<u16>) -> io::Result<(Device, Kind, u16)> {
    let kind = Kind::of(name.unwrap_or_default());
    let wanted = mtu.unwrap_or(kind.mtu);
    assert!(usize::from(wanted) >= MIN_MTU, "locators and defaults know the least packet size");
    let mut arguments = name.map(str::to_owned);
    clear_socket(name.unwrap_or_default());
    if let Some(arguments) = &mut arguments {
        let mut add = |key: &str, value: String| {
            if !arguments.split(',').any(|argument| argument.starts_with(&format!("{key}="))) {
                arguments.push_str(&format!(",{key}={value}"));
            }
        };
        if kind.memif {
            add("rsize", MEMIF_RING.to_string());
            add("bsize", (usize::from(wanted) + FRAME_ROOM).max(LEAST_ROOM).to_string());
        }
        if let (true, Some(mac)) = (kind.mac_argument, mac) {
            add("mac", mac.to_string());
        }
    }
    let device = Device::open(arguments.as_deref())?;
    if let Some(max) = device.max_mtu().filter(|&max| max < wanted && !kind.fixed) {
        let reason = format!("device {} carries packets of at most {max} bytes, not {wanted}", device.name());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok((device, kind, wanted))
}

/// Removes the socket on which a device listened whose process was killed: the next could not be made.
fn clear_socket(arguments: &str) {
    let value = |key: &str| arguments.split(',').find_map(|argument| argument.strip_prefix(key));
    // By a kind of socket that the device does not take: to a caller who hangs up memif's answer is to end.
    let (path, kind) = match (value("socket="), value("iface=")) {
        (Some(path), _) if value("role=") == Some("server") && value("socket-abstract=") == Some("no") => {
            (path, Type::STREAM)
        }
        (_, Some(path)) if arguments.starts_with("net_vhost") && value("client=") != Some("1") => {
            (path, Type::SEQPACKET)
        }
        _ => return,
    };
    let call = || Socket::new(Domain::UNIX, kind, None)?.connect(&SockAddr::unix(path)?);
    if call().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        // If it cannot be removed DPDK says so.
        let _ = std::fs::remove_file(path);
    }
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
        Address::Own(own) if own.port() == 0 => Address::Own(SocketAddr::new(own.ip(), ephemeral())),
        other => other,
    }
}

fn ephemeral() -> u16 {
    let random = RandomState::new().hash_one(std::process::id());
    let port = EPHEMERAL.start + random % (EPHEMERAL.end - EPHEMERAL.start);
    u16::try_from(port).expect("below 65,536")
}
