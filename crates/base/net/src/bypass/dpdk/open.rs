//! Opens a device of DPDK's: chooses its settings, and starts it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, SockAddr, Socket, Type};

use super::Dpdk;
use super::arguments::argument;
use super::sys::{Bell, Buffers, Device, Pool, Setup, SharedDevice, SocketSnapshot};
use super::xdp::SharedInterface;
use crate::Mac;
use crate::bypass::address::Address;
use crate::bypass::exchange::DeviceShare;
use crate::bypass::sizes::FRAME_ROOM;
use crate::ether::Checksums;

/// Number of frames in a device's pool: for one queue each way, twice what its two rings hold.
const FRAMES: u32 = 4095;

/// Smallest buffer of a frame, in bytes. Some devices accept no smaller buffer.
const LEAST_ROOM: usize = 2048;

/// Cards use only whole steps of this many bytes of a buffer; a frame that is longer than these
/// steps would be split.
const ROOM_STEP: usize = 1024;

/// The largest number of a device's queues that one node polls. A larger `queues=` argument is
/// lowered to this number.
const MAX_QUEUES: usize = 16;

/// How to treat a kind of device.
#[derive(Clone, Copy)]
struct Kind {
    /// Whether only memory lies between the device and its peer.
    memory: bool,
    /// Whether the device's MTU cannot be set.
    fixed: bool,
    /// Whether the device's hardware address is an argument.
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

/// Which frames a device receives.
#[derive(Clone, Copy)]
pub(in crate::bypass) enum AcceptedFrames {
    /// Frames for a node's address, with the node's VLAN tag if it has one.
    Node(Address, Option<u16>),
    /// All frames.
    All,
}

/// A device that is about to be opened: its arguments, and their meaning.
struct Opening<'a> {
    name: Option<&'a str>,
    mac: Option<Mac>,
    mtu: u16,
    vlan: Option<u16>,
    all: bool,
    kind: Kind,
}

impl Opening<'_> {
    /// Opens the device and sets it up with `queues` queues, whose frames come from `pools` pools.
    fn device(&self, arguments: Option<String>, queues: usize, pools: usize) -> io::Result<Opened> {
        let Self { mac, mtu, vlan, all, kind, .. } = *self;
        let mut arguments = arguments;
        if let (Some(arguments), Some(mac), true) = (&mut arguments, mac, kind.mac_argument)
            && !arguments.contains(",mac=")
        {
            arguments.push_str(&format!(",mac={mac}"));
        }
        let before = SocketSnapshot::take();
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
        let ring = queues == pools.len(); // several queues: no sleep on interrupts
        let buffers: Vec<_> = pools.into_iter().cycle().take(queues).collect();
        let check = !kind.memory && !all; // frames for other hosts are passed on unchecked
        let setup = Setup { mac, mtu: (!kind.fixed).then_some(mtu), vlan, check, all, ring };
        let mut opened = Opened { device, buffers, bells: Vec::new(), setup };
        opened.set_up()?;
        opened.bells = before.new_bells();
        Ok(opened)
    }

    /// Returns who computes the checksums of frames sent by the device.
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
    /// The buffers of each queue.
    buffers: Vec<Arc<Buffers>>,
    /// The device's sockets, if it has any.
    bells: Vec<Bell>,
    setup: Setup,
}

impl Opened {
    fn set_up(&mut self) -> io::Result<()> {
        let buffers: Vec<_> = self.buffers.iter().map(|buffers| &**buffers).collect();
        self.device.set_up(&self.setup, &buffers)
    }

    /// Starts the device.
    fn start(&mut self) -> io::Result<()> {
        if self.device.start().is_ok() {
            return Ok(());
        }
        // Some devices have no interrupts in some environments.
        self.setup.ring = false;
        self.set_up()?;
        self.device.start()
    }
}

impl Dpdk {
    /// Opens a device for packets of up to `mtu` bytes: the device `name`, given with its
    /// arguments, or the first device found. Also returns who computes the checksums of its frames.
    /// DPDK must have been started.
    ///
    /// # Errors
    /// Errors of DPDK, or an MTU larger than the device carries. Also if its interface cannot be
    /// shared with the kernel.
    pub(in crate::bypass) fn open(
        name: Option<&str>,
        mac: Option<Mac>,
        mtu: u16,
        accepted: AcceptedFrames,
    ) -> io::Result<(Self, Checksums)> {
        let (vlan, all) = match accepted {
            AcceptedFrames::Node(_, vlan) => (vlan, false),
            AcceptedFrames::All => (None, true),
        };
        let opening =
            Opening { name, mac, mtu, vlan, all, kind: Kind::of(name.unwrap_or_default()) };
        let mut arguments = name.map(str::to_owned);
        let mut shared = None;
        if let Some(arguments) = &mut arguments {
            clear_socket(arguments);
            shared = match accepted {
                AcceptedFrames::Node(Address::Own(own), vlan) => {
                    SharedInterface::prepare(arguments, Some((own, vlan)))?
                }
                AcceptedFrames::Node(Address::LinkLocal(_), _) => None,
                AcceptedFrames::All => SharedInterface::prepare(arguments, None)?,
            };
            arguments.extend(shared.iter().map(|shared| format!(",{}", shared.argument())));
        }
        let queues = arguments.as_deref().map_or(1, queues_of);
        let mut opened = opening.device(arguments, queues, 1)?;
        let bell = opened.bells.pop();
        opened.device.set_bell(bell);
        // A device whose peer is not there yet starts later. After any other error the link stays
        // down.
        let trouble = opened.start().err().map(|error| error.to_string());
        let Opened { device, buffers, .. } = opened;
        let checksums = opening.checksums(&device);
        let pool = Pool::of(Arc::clone(&buffers[0]));
        Ok((Self::new(device, pool, shared, trouble, all), checksums))
    }

    /// Opens a queue of the device that several nodes share. The first node also opens the device.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). Also if the device cannot be shared or does not start.
    pub(in crate::bypass) fn open_share(
        name: Option<&str>,
        mac: Option<Mac>,
        mtu: u16,
        (own, vlan): (SocketAddr, Option<u16>),
        share: &DeviceShare,
    ) -> io::Result<(Self, Checksums)> {
        let opening =
            Opening { name, mac, mtu, vlan, all: false, kind: Kind::of(name.unwrap_or_default()) };
        let mut common = share.device();
        let shared_device = match common.upgrade() {
            Some(shared_device) => shared_device,
            None => {
                let shared_device = Arc::new(opening.shared_device(share.nodes())?);
                let first = own.port() - u16::try_from(share.number()).expect("few");
                shared_device.steer(first, own.is_ipv6());
                *common = Arc::downgrade(&shared_device);
                shared_device
            }
        };
        drop(common);
        let device = shared_device.queue(share.number())?;
        let checksums = opening.checksums(&device);
        let pool = Pool::of(shared_device.buffers(share.number()));
        Ok((Self::new(device, pool, None, None, false), checksums))
    }
}

impl Opening<'_> {
    fn shared_device(&self, nodes: usize) -> io::Result<SharedDevice> {
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
        Ok(SharedDevice::of(opened.device, opened.buffers, opened.bells))
    }
}

/// Returns the number of queues to poll. A para-virtual device whose peer has several queues needs
/// all of them polled.
fn queues_of(arguments: &str) -> usize {
    let several = argument(arguments, "queues=").filter(|_| Kind::of(arguments).memory);
    several.and_then(|count| count.parse().ok()).unwrap_or(1).clamp(1, MAX_QUEUES)
}

/// Removes the socket of a device whose process was killed; otherwise the next process could not
/// create it.
fn clear_socket(arguments: &str) {
    let Some(path) = argument(arguments, "iface=").filter(|_| arguments.starts_with("net_vhost"))
    else {
        return;
    };
    if argument(arguments, "client=") == Some("1") {
        return;
    }
    // Connects with a socket type that the device does not accept, only to test whether a process
    // listens.
    let call = || Socket::new(Domain::UNIX, Type::SEQPACKET, None)?.connect(&SockAddr::unix(path)?);
    if call().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        // If this fails, DPDK reports it.
        let _ = std::fs::remove_file(path);
    }
}
