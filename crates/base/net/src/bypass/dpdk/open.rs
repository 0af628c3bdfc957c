//! Opening a device of DPDK's: how it is to be treated, and its start.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, SockAddr, Socket, Type};

use super::Dpdk;
use super::arguments::argument;
use super::sys::{Before, Bell, Buffers, Device, Joint, Pool, Setup};
use super::xdp::Shared;
use crate::Mac;
use crate::bypass::address::Address;
use crate::bypass::exchange::Share;
use crate::bypass::sizes::FRAME_ROOM;
use crate::ether::Checksums;

/// Frames of a device: what its rings hold, and as many again on the way.
const FRAMES: u32 = 4095;

/// Least room of a frame: some devices take no less.
const LEAST_ROOM: usize = 2048;

/// Cards count a frame's room in steps of this: what is beyond the last full one they do not use,
/// and a frame that would need it comes in pieces.
const ROOM_STEP: usize = 1024;

/// Most queues of a device that one node listens to.
const MAX_QUEUES: usize = 16;

/// How a kind of device is to be treated.
#[derive(Clone, Copy)]
struct Kind {
    /// Nothing but memory lies between it and its peer.
    memory: bool,
    /// The packet size is not for us to set.
    fixed: bool,
    /// Takes its hardware address as an argument.
    mac_argument: bool,
}

impl Kind {
    fn of(device: &str) -> Self {
        let is = |prefix: &str| device.starts_with(prefix);
        Self {
            memory: is("net_virtio_user") || is("net_vhost"),
            fixed: is("net_af_"),
            mac_argument: is("net_virtio_user"),
        }
    }
}

/// Whose frames a device is to take in.
#[derive(Clone, Copy)]
pub(in crate::bypass) enum Whose {
    /// A node's, which has that tag on all of its own.
    Node(Address, Option<u16>),
    /// Everybody's.
    All,
}

/// A device that is about to be opened: its arguments, and what they mean.
struct Opening<'a> {
    name: Option<&'a str>,
    mac: Option<Mac>,
    mtu: u16,
    vlan: Option<u16>,
    all: bool,
    kind: Kind,
}

impl Opening<'_> {
    /// Opens it and sets it up, with that many queues, whose frames come from so many pools.
    fn device(&self, arguments: Option<String>, queues: usize, pools: usize) -> io::Result<Opened> {
        let Self { mac, mtu, vlan, all, kind, .. } = *self;
        let mut arguments = arguments;
        if let (Some(arguments), Some(mac), true) = (&mut arguments, mac, kind.mac_argument)
            && !arguments.contains(",mac=")
        {
            arguments.push_str(&format!(",mac={mac}"));
        }
        let before = Before::opening();
        let device = Device::open(arguments.as_deref())?;
        if let Some(max) = device.max_mtu().filter(|&max| max < mtu && !kind.fixed) {
            let reason = format!(
                "device {} carries packets of at most {max} bytes, not {mtu}",
                device.name()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let room = (usize::from(mtu) + FRAME_ROOM).max(LEAST_ROOM).next_multiple_of(ROOM_STEP);
        let node = device.node();
        let pools: Vec<_> = (0..pools)
            .map(|_| Ok(Arc::new(Buffers::new(FRAMES, room, node)?)))
            .collect::<io::Result<_>>()?;
        let ring = queues == pools.len(); // who listens to several sleeps on none of them
        let buffers: Vec<_> = pools.into_iter().cycle().take(queues).collect();
        let check = !kind.memory && !all; // checksums of others' frames are not ours to judge
        let setup = Setup { mac, mtu: (!kind.fixed).then_some(mtu), vlan, check, all, ring };
        let mut opened = Opened { device, buffers, bells: Vec::new(), setup };
        opened.set_up()?;
        opened.bells = before.found();
        Ok(opened)
    }

    /// Who writes its checksums.
    fn checksums(&self, device: &Device) -> Checksums {
        match (self.kind.memory, device.checks_sent()) {
            (true, _) => Checksums::Spared,
            (false, true) => Checksums::Device,
            (false, false) => Checksums::Software,
        }
    }
}

/// A device that has been opened and set up.
struct Opened {
    device: Device,
    /// Of each queue.
    buffers: Vec<Arc<Buffers>>,
    /// Sockets, if it has such.
    bells: Vec<Bell>,
    setup: Setup,
}

impl Opened {
    fn set_up(&mut self) -> io::Result<()> {
        let buffers: Vec<_> = self.buffers.iter().map(|buffers| &**buffers).collect();
        self.device.set_up(&self.setup, &buffers)
    }

    /// Starts it.
    fn start(&mut self) -> io::Result<()> {
        if self.device.start().is_ok() {
            return Ok(());
        }
        // Some have no interrupts to give where they are.
        self.setup.ring = false;
        self.set_up()?;
        self.device.start()
    }
}

impl Dpdk {
    /// Opens the device of that name, with its arguments, or the first there is, for packets of up
    /// to `mtu` bytes; also says who writes checksums. DPDK has been started.
    ///
    /// # Errors
    /// What DPDK says of it; packets longer than it carries.
    pub(in crate::bypass) fn open(
        name: Option<&str>,
        mac: Option<Mac>,
        mtu: u16,
        whose: Whose,
    ) -> io::Result<(Self, Checksums)> {
        let (vlan, all) = match whose {
            Whose::Node(_, vlan) => (vlan, false),
            Whose::All => (None, true),
        };
        let opening =
            Opening { name, mac, mtu, vlan, all, kind: Kind::of(name.unwrap_or_default()) };
        let mut arguments = name.map(str::to_owned);
        let mut shared = None;
        if let Some(arguments) = &mut arguments {
            clear_socket(arguments);
            shared = match whose {
                Whose::Node(Address::Own(own), vlan) => {
                    Shared::prepare(arguments, Some((own, vlan)))?
                }
                Whose::Node(Address::LinkLocal(_), _) => None,
                Whose::All => Shared::prepare(arguments, None)?,
            };
            arguments.extend(shared.iter().map(|shared| format!(",{}", shared.argument())));
        }
        let queues = arguments.as_deref().map_or(1, queues_of);
        let mut opened = opening.device(arguments, queues, 1)?;
        let bell = opened.bells.pop();
        opened.device.hang(bell);
        // One whose peer is not there yet starts later; what is really wrong shows as a link that
        // is down.
        let trouble = opened.start().err().map(|error| error.to_string());
        let Opened { device, buffers, .. } = opened;
        let checksums = opening.checksums(&device);
        let pool = Pool::of(Arc::clone(&buffers[0]));
        Ok((Self::new(device, pool, shared, trouble, all), checksums))
    }

    /// Opens a queue of the device that several nodes share, and the device before if this is the
    /// first to come.
    ///
    /// # Errors
    /// As [`open`](Self::open); devices that cannot be shared.
    pub(in crate::bypass) fn open_share(
        name: Option<&str>,
        mac: Option<Mac>,
        mtu: u16,
        (own, vlan): (SocketAddr, Option<u16>),
        share: &Share,
    ) -> io::Result<(Self, Checksums)> {
        let opening =
            Opening { name, mac, mtu, vlan, all: false, kind: Kind::of(name.unwrap_or_default()) };
        let mut common = share.device();
        let joint = match common.upgrade() {
            Some(joint) => joint,
            None => {
                let joint = Arc::new(opening.joint(share.nodes())?);
                let first = own.port() - u16::try_from(share.number()).expect("few");
                joint.steer(first, own.is_ipv6());
                *common = Arc::downgrade(&joint);
                joint
            }
        };
        drop(common);
        let device = joint.queue(share.number())?;
        let checksums = opening.checksums(&device);
        let pool = Pool::of(joint.buffers(share.number()));
        Ok((Self::new(device, pool, None, None, false), checksums))
    }
}

impl Opening<'_> {
    fn joint(&self, nodes: usize) -> io::Result<Joint> {
        let mut arguments = self.name.map(str::to_owned);
        if let Some(arguments) = &mut arguments {
            let is = |prefix: &str| arguments.starts_with(prefix);
            if is("net_af_xdp") || is("net_virtio_user") || is("net_memif") {
                let name = arguments.split(',').next().unwrap_or_default();
                let reason = format!(
                    "{name} is for one node; give each a device of its own, with -L once for each"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
            let key = if is("net_af_packet") { "qpairs=" } else { "queues=" };
            if (is("net_af_packet") || is("net_vhost")) && argument(arguments, key).is_none() {
                arguments.push_str(&format!(",{key}{nodes}"));
            }
            clear_socket(arguments);
        }
        let mut opened = self.device(arguments, nodes, nodes)?;
        opened.start()?;
        Ok(Joint::of(opened.device, opened.buffers, opened.bells))
    }
}

/// Queues of a para-virtual device whose other end has several: all are listened to.
fn queues_of(arguments: &str) -> usize {
    let several = argument(arguments, "queues=").filter(|_| Kind::of(arguments).memory);
    several.and_then(|count| count.parse().ok()).unwrap_or(1).clamp(1, MAX_QUEUES)
}

/// Removes the socket on which a device listened whose process was killed: the next could not be
/// made.
fn clear_socket(arguments: &str) {
    let Some(path) = argument(arguments, "iface=").filter(|_| arguments.starts_with("net_vhost"))
    else {
        return;
    };
    if argument(arguments, "client=") == Some("1") {
        return;
    }
    // By a kind of socket that the device does not take.
    let call = || Socket::new(Domain::UNIX, Type::SEQPACKET, None)?.connect(&SockAddr::unix(path)?);
    if call().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        // If it cannot be removed DPDK says so.
        let _ = std::fs::remove_file(path);
    }
}
