//! Ports that bypass the kernel: a device that DPDK drives, an interface by AF_XDP, or memory
//! shared with another process. They carry single frames without virtio-net headers, as a wire
//! does.

use super::packet_socket::used;
use super::{Kind, Port, PortError, sys};
use crate::frame::{Packet, VNET_BYTES};
use crate::netns;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open as open_file};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sprat_net::bypass::{RawDevice, start_devices};
use std::io::{self, IoSliceMut};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Describes an interface to open by AF_XDP.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct XdpSpec {
    /// The interface's name.
    pub name: String,
    /// The interface's network namespace. With `None`, that of this process.
    pub netns: Option<String>,
    /// The MTU: the length of the longest packet above Ethernet, in bytes. With `None`, 1,500.
    pub mtu: Option<u16>,
    /// Opens the interface even if it is in use.
    pub force: bool,
}

/// Describes a DPDK device to open.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DpdkSpec {
    /// The device in DPDK's syntax: its name, then arguments after commas.
    pub device: String,
    /// The MTU: the length of the longest packet above Ethernet, in bytes. With `None`, 1,500, or
    /// 9,000 for memory interfaces.
    pub mtu: Option<u16>,
    /// Opens the kernel interface below the device even if it is in use.
    pub force: bool,
}

impl DpdkSpec {
    /// Returns the device's name, without its arguments.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default()
    }

    /// Returns the kernel interface below the device, if it has one.
    fn interface(&self) -> Option<&str> {
        let mut arguments = self.device.split(',').skip(1);
        self.name()
            .starts_with("net_af_")
            .then(|| arguments.find_map(|argument| argument.strip_prefix("iface=")))?
    }
}

/// The network namespace of the calling thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A device that is closed in the namespace in which it was opened. To close it, DPDK refers to the
/// interface by name and index. In another namespace these belong to another interface.
#[derive(Debug)]
pub(crate) struct Device {
    /// The open device. `None` while it is being closed.
    raw: Option<RawDevice>,
    home: OwnedFd,
}

impl Deref for Device {
    type Target = RawDevice;

    fn deref(&self) -> &RawDevice {
        self.raw.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for Device {
    fn deref_mut(&mut self) -> &mut RawDevice {
        self.raw.as_mut().expect("there until it is dropped")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let raw = self.raw.take();
        // If no thread can be started, the interface stays as after a crash. The next process that
        // opens it cleans it up.
        let _ = netns::within(&self.home, move || drop(raw));
    }
}

/// Prepares devices that will be opened. DPDK probes devices on buses only once, when it starts.
///
/// # Errors
/// DPDK does not start.
pub fn prepare<'a>(specs: impl Iterator<Item = &'a DpdkSpec>) -> Result<(), PortError> {
    let devices: Vec<_> = specs.map(|spec| spec.device.clone()).collect();
    start_devices(&devices).map_err(|error| PortError::Device { port: devices.join(" "), error })
}

/// Opens an interface by AF_XDP, so that its packets bypass the kernel, and switches it on.
///
/// # Errors
/// The interface or namespace does not exist, the interface is in use, the kernel or DPDK refuses a
/// step, or this build has no DPDK.
pub fn open_xdp(spec: &XdpSpec) -> Result<Port, PortError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let device =
        format!("net_af_xdp_lab{},iface={}", NUMBER.fetch_add(1, Ordering::Relaxed), spec.name);
    open(&spec.name, &device, Some(&spec.name), (spec.netns.as_deref(), spec.mtu, spec.force))
}

/// Opens a device. If the device uses a kernel interface, switches that interface on.
///
/// # Errors
/// The interface below the device is in use, or the kernel or DPDK refuses a step. A build without
/// DPDK refuses every device that is not a memory interface.
pub fn open_dpdk(spec: &DpdkSpec) -> Result<Port, PortError> {
    open(spec.name(), &spec.device, spec.interface(), (None, spec.mtu, spec.force))
}

fn open(
    name: &str,
    device: &str,
    interface: Option<&str>,
    (netns, mtu, force): (Option<&str>, Option<u16>, bool),
) -> Result<Port, PortError> {
    // DPDK must start here, outside of the namespace. Otherwise its own threads would keep the
    // interface's namespace alive until the process ends.
    start_devices(&[device.to_owned()])
        .map_err(|error| PortError::Device { port: name.to_owned(), error })?;
    super::netns::within(name, netns, |_| {
        if let Some(interface) = interface {
            let refused = |step| {
                move |error: Errno| PortError::Refused { port: name.to_owned(), step, error }
            };
            if !force && let Some(why) = used(interface) {
                return Err(PortError::InUse { port: name.to_owned(), why });
            }
            let control =
                socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
            sys::bring_up(control.map_err(refused("a socket to set it up with"))?, interface)
                .map_err(refused("switching it on"))?;
        }
        let device = RawDevice::open(device, mtu)
            .map_err(|error| PortError::Device { port: name.to_owned(), error })?;
        if let Some(socket) = device.socket() {
            // Packets that the kernel itself sends on the interface are not input. Only devices
            // with a packet socket would receive them.
            let _ = sys::switch_on(socket, sys::PacketOption::IgnoreOutgoing);
        }
        let home = open_file(NAMESPACE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let home = home.map_err(|error| PortError::Refused {
            port: name.to_owned(),
            step: "its namespace",
            error,
        })?;
        Ok(Port::new(name, Kind::Device(Box::new(Mutex::new(Device { raw: Some(device), home })))))
    })
}

/// Copies the next frame into `slices`, behind an empty virtio-net header. Returns `AGAIN` if there
/// is no frame.
pub(super) fn receive(
    device: &mut RawDevice,
    slices: &mut [IoSliceMut<'_>],
) -> Result<usize, Errno> {
    let mut frame = device.receive().ok_or(Errno::AGAIN)?;
    let len = VNET_BYTES + frame.len();
    let mut header = VNET_BYTES;
    for slice in slices {
        let slice = &mut slice[..];
        slice[..header].fill(0);
        let slice = &mut slice[std::mem::take(&mut header)..];
        let (part, rest) = frame.split_at(frame.len().min(slice.len()));
        slice[..part.len()].copy_from_slice(part);
        frame = rest;
        if frame.is_empty() {
            break;
        }
    }
    Ok(len)
}

/// Sends a single frame. Returns whether the device accepted it.
pub(super) fn send(device: &mut RawDevice, packet: &Packet) -> bool {
    assert!(
        packet.count() == 1 && !packet.vnet().needs_checksum(),
        "a device sends complete packets"
    );
    packet.gather_ethernet(|slices| device.send(slices))
}

/// Returns the number of frames that were lost before the box read them.
pub(super) fn lost_before(device: &RawDevice) -> u64 {
    let state = device.state();
    state.missed + state.no_buffer + state.errors - state.unsent
}

/// Returns the number of frames that the device accepted but did not send.
pub(super) fn lost_behind(device: &RawDevice) -> u64 {
    device.state().unsent + device.discarded()
}

/// Makes the error for a device that failed.
pub(super) fn device_error(port: &str, error: io::Error) -> PortError {
    PortError::Device { port: port.to_owned(), error }
}
