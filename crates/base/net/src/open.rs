//! Opens the driver that a locator names, and explains failures.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::bypass::{Address, BypassDriver, DeviceShare};
use crate::{AnyDriver, Bypass, Locator, Tcp, Transport, Udp};

/// What a driver is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DriverRole<'a> {
    /// To listen at the locator.
    Listen,
    /// To connect to services such as the one at the locator. A locator given here states the
    /// client's own address and port; without it the system chooses them. With `fast+dpdk` this
    /// locator also names the device; without it the first device is used. It is ignored with
    /// `tcp`, and if its transport is another than the service's.
    Connect(Option<&'a Locator>),
}

/// Why a driver could not be opened: the locator, the cause, and what to do about it.
#[derive(Debug, Error)]
#[error("cannot open `{locator}`: {cause}; {remedy}")]
pub struct OpenError {
    /// The locator.
    pub locator: String,
    /// The cause.
    #[source]
    pub cause: io::Error,
    /// What the user can do about it.
    pub remedy: &'static str,
}

impl AnyDriver {
    /// Opens the driver that `locator` names. Looks up a host's name, which can take seconds.
    ///
    /// # Errors
    /// [`OpenError`] if the name is unknown, the address is in use, forbidden or not this
    /// machine's, a device cannot be opened, or this build lacks the transport.
    pub fn open(locator: &Locator, role: DriverRole<'_>) -> Result<Self, OpenError> {
        Self::open_with(locator, role, None)
    }

    /// Opens the driver that listens at `locator`, for one of several nodes that share a device.
    /// See [`BypassDriver::open_share`].
    ///
    /// # Errors
    /// [`OpenError`] for the causes of [`open`](Self::open), and if the device has too few queues
    /// or cannot be shared.
    pub fn open_share(locator: &Locator, share: DeviceShare) -> Result<Self, OpenError> {
        Self::open_with(locator, DriverRole::Listen, Some(share))
    }

    fn open_with(
        locator: &Locator,
        role: DriverRole<'_>,
        mut share: Option<DeviceShare>,
    ) -> Result<Self, OpenError> {
        let own = match role {
            DriverRole::Connect(Some(own)) if own.transport.name() == locator.transport.name() => {
                own
            }
            _ => locator,
        };
        let fail = |cause: io::Error, remedy| OpenError { locator: own.to_string(), cause, remedy };
        let addresses = own
            .resolve()
            .map_err(|cause| fail(cause, "check the host's name, or give its address"))?;
        let given = role == DriverRole::Listen || !std::ptr::eq(own, locator);
        let mut last = None;
        for address in addresses {
            let opened = match &own.transport {
                Transport::FastDpdk(bypass) => bypass_kernel(bypass, address, given, share.take()),
                _ if given => open(&own.transport, address, role),
                _ => open(&own.transport, unspecified(address), role),
            };
            match opened {
                Ok(driver) => return Ok(driver),
                Err(cause) => last = Some(cause),
            }
        }
        let cause = last.expect("resolve gives at least one address");
        let remedy = match &own.transport {
            Transport::FastDpdk(_) => remedy_of_bypass(&cause),
            _ => remedy_of_kernel(&cause),
        };
        Err(fail(cause, remedy))
    }
}

fn open(transport: &Transport, own: SocketAddr, role: DriverRole<'_>) -> io::Result<AnyDriver> {
    Ok(match (transport, role) {
        (Transport::Tcp, DriverRole::Listen) => AnyDriver::from(Tcp::listen(own)?),
        (Transport::Tcp, DriverRole::Connect(_)) => AnyDriver::from(Tcp::connect_only()?),
        (Transport::FastUdp | Transport::FastDpdk(_), DriverRole::Listen) => {
            AnyDriver::from(Udp::bind(own)?)
        }
        (Transport::FastUdp | Transport::FastDpdk(_), DriverRole::Connect(_)) => {
            let mut udp = Udp::bind(own)?;
            // Without this, a peer whose port no process listens on would look like a silent peer.
            let _ = udp.enable_refusals();
            AnyDriver::from(udp)
        }
    })
}

fn bypass_kernel(
    bypass: &Bypass,
    address: SocketAddr,
    given: bool,
    share: Option<DeviceShare>,
) -> io::Result<AnyDriver> {
    match given {
        // The locator names the peer, and says nothing about our own devices.
        false => {
            Ok(BypassDriver::open(&Bypass::default(), Address::LinkLocal(address.is_ipv6()))?
                .into())
        }
        true if address.ip().is_unspecified() => {
            let reason = "a host that bypasses the kernel needs an address of its own";
            Err(io::Error::new(io::ErrorKind::AddrNotAvailable, reason))
        }
        true => Ok(match share {
            Some(share) => BypassDriver::open_share(bypass, address, share)?,
            None => BypassDriver::open(bypass, Address::Own(address))?,
        }
        .into()),
    }
}

/// Returns the unspecified address of the family of `address`, with port 0.
fn unspecified(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn remedy_of_bypass(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::Unsupported => {
            "build it with `--features dpdk`, or use `fast+udp:host=..,port=..` in its place"
        }
        io::ErrorKind::AddrNotAvailable => "write the host's address on that network",
        io::ErrorKind::PermissionDenied => {
            "run as root, or give the user access to the device and huge pages (docs/bypass.md)"
        }
        _ => "docs/bypass.md lists the devices and their arguments",
    }
}

fn remedy_of_kernel(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "stop the process that uses the port (`ss -lntup` shows it), or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "give an address of this machine (`ip address` lists them)"
        }
        io::ErrorKind::PermissionDenied => {
            "choose a port from 1024 up, or run with CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::Unsupported => {
            "this kernel lacks what the transport needs; use `tcp` in its place"
        }
        _ => "see the cause",
    }
}
