//! A TAP: a kernel interface whose frames this process reads and writes. With virtio-net headers
//! and offloads, super-packets of 64 KB pass whole.

use super::netns::within;
use super::stats::InterfaceStats;
use super::{Kind, Port, PortError, sys};
use crate::hosts::links::Links;
use rustix::fd::AsFd as _;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The allowed MTUs of a TAP, in bytes above Ethernet.
pub const MTU: std::ops::RangeInclusive<u32> = 68..=65_521;

/// Describes a TAP to open.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TapSpec {
    /// The TAP's name, of at most 15 bytes.
    pub name: String,
    /// The network namespace of the TAP: the name that `ip netns` uses, or a path. With `None`,
    /// that of this process.
    pub netns: Option<String>,
    /// The MTU: the length of the longest packet above Ethernet, in bytes. With `None`, the MTU
    /// stays as it is, which is 1,500 for a new TAP.
    pub mtu: Option<u32>,
}

/// Makes a TAP, or opens one that exists, and switches it on. When the port is closed, the TAP
/// disappears, unless it is persistent (`ip tuntap add`).
///
/// # Errors
/// [`PortError`] if the kernel refuses a step. Its message says what would help.
pub fn open_tap(spec: &TapSpec) -> Result<Port, PortError> {
    let name = &spec.name;
    within(name, spec.netns.as_deref(), |interfaces| {
        let refused =
            |step| move |error: Errno| PortError::Refused { port: name.clone(), step, error };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            open("/dev/net/tun", flags, Mode::empty()).map_err(refused("opening /dev/net/tun"))?;
        sys::attach_tap(fd.as_fd(), name).map_err(refused("making the TAP"))?;
        let control =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let control = control.map_err(refused("a socket to set it up with"))?;
        if let Some(mtu) = spec.mtu {
            sys::set_mtu(&control, name, mtu).map_err(refused("setting its MTU"))?;
        }
        let up = Links::here().and_then(|mut links| links.set_up_for_box(name));
        up.map_err(|error| {
            refused("switching it on")(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        let stats = interfaces.map(|list| InterfaceStats::new(list, name));
        Ok(Port::new(name, Kind::Tap(fd, stats)).with_interface(control))
    })
}
