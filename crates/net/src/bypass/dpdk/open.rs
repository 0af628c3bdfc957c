//! Opening a device of DPDK's: how it is to be treated, and its start.

use std::io;

use socket2::{Domain, SockAddr, Socket, Type};

use super::sys::{Before, Device, Pool, Seat, Setup};
use super::xdp::Shared;
use super::{Dpdk, argument};
use crate::Mac;
use crate::bypass::open::{Address, FRAME_ROOM};
use crate::ether::Checksums;

/// Frames of a device: what its rings hold, and as many again on the way.
const FRAMES: u32 = 4095;

/// Least room of a frame: some devices take no less.
const LEAST_ROOM: usize = 2048;

/// Cards count a frame's room in steps of this: what is beyond the last full one they do not use, and a frame that would
/// need it comes in pieces.
const ROOM_STEP: usize = 1024;

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

impl Dpdk {
    /// Opens the device of that name, with its arguments, or the first there is, for packets of up to `mtu` bytes; also
    /// says who writes checksums. What goes to `address`, with that tag, is the node's. DPDK has been started.
    ///
    /// # Errors
    /// What DPDK says of it; packets longer than it carries.
    pub(in crate::bypass) fn open(
        name: Option<&str>,
        mac: Option<Mac>,
        mtu: u16,
        (address, vlan): (Address, Option<u16>),
    ) -> io::Result<(Self, Checksums)> {
        let kind = Kind::of(name.unwrap_or_default());
        let mut arguments = name.map(str::to_owned);
        let mut shared = None;
        if let Some(arguments) = &mut arguments {
            clear_socket(arguments);
            if let Address::Own(own) = address {
                shared = Shared::prepare(arguments, own, vlan)?;
            }
            arguments.extend(shared.iter().map(|shared| format!(",{}", shared.argument())));
        }
        if let (Some(arguments), Some(mac), true) = (&mut arguments, mac, kind.mac_argument)
            && !arguments.contains(",mac=")
        {
            arguments.push_str(&format!(",mac={mac}"));
        }
        let before = Before::opening();
        let mut device = Device::open(arguments.as_deref())?;
        if let Some(max) = device.max_mtu().filter(|&max| max < mtu && !kind.fixed) {
            let reason = format!("device {} carries packets of at most {max} bytes, not {mtu}", device.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let seat = Seat::take()?;
        let room = (usize::from(mtu) + FRAME_ROOM).max(LEAST_ROOM).next_multiple_of(ROOM_STEP);
        let pool = Pool::new(FRAMES, room, device.node())?;
        let mut setup = Setup { mac, mtu: (!kind.fixed).then_some(mtu), vlan, check: !kind.memory, ring: true };
        device.set_up(&setup, &pool)?;
        device.hang(before.found());
        drop(before);
        let checksums = match (kind.memory, device.checks_sent()) {
            (true, _) => Checksums::Spared,
            (false, true) => Checksums::Device,
            (false, false) => Checksums::Software,
        };
        // One whose peer is not there yet starts later; what is really wrong shows as a link that is down.
        let mut started = device.start();
        if started.is_err() {
            // Some have no interrupts to give where they are.
            setup.ring = false;
            device.set_up(&setup, &pool)?;
            started = device.start();
        }
        let trouble = started.err().map(|error| error.to_string());
        Ok((Self::new(device, pool, seat, shared, trouble), checksums))
    }
}

/// Removes the socket on which a device listened whose process was killed: the next could not be made.
fn clear_socket(arguments: &str) {
    let Some(path) = argument(arguments, "iface=").filter(|_| arguments.starts_with("net_vhost")) else { return };
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
