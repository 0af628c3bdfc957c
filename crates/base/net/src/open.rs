//! Opening a driver, and saying why one cannot be.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::bypass::{Address, BypassDriver, Share};
use crate::{AnyDriver, Bypass, Locator, Tcp, Transport, Udp};

/// What a driver is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role<'a> {
    /// To be reached at the locator.
    Listen,
    /// To reach services such as the locator's: own address and port are the system's choice,
    /// unless this locator, of the same transport, says what they are. Of `fast+dpdk` it also
    /// names the device; otherwise that is the first.
    Connect(Option<&'a Locator>),
}

/// Why a driver could not be opened. Says which, why, and what to do.
#[derive(Debug, Error)]
#[error("cannot open `{locator}`: {cause}; {mend}")]
pub struct OpenError {
    /// The locator.
    pub locator: String,
    /// What is in the way.
    #[source]
    pub cause: io::Error,
    /// What to do about it.
    pub mend: &'static str,
}

impl AnyDriver {
    /// Opens the driver that `locator` asks for. A host's name is looked up, which can take
    /// seconds.
    ///
    /// # Errors
    /// [`OpenError`]: the name is unknown, the address taken, forbidden or another machine's, or the
    /// transport not built in.
    pub fn open(locator: &Locator, role: Role<'_>) -> Result<Self, OpenError> {
        Self::open_with(locator, role, None)
    }

    /// The same, to be reached at the locator, for one of several nodes that share a device: see
    /// [`BypassDriver::open_share`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_share(locator: &Locator, share: Share) -> Result<Self, OpenError> {
        Self::open_with(locator, Role::Listen, Some(share))
    }

    fn open_with(
        locator: &Locator,
        role: Role<'_>,
        mut share: Option<Share>,
    ) -> Result<Self, OpenError> {
        let own = match role {
            Role::Connect(Some(own)) if own.transport.name() == locator.transport.name() => own,
            _ => locator,
        };
        let fail = |cause: io::Error, mend| OpenError { locator: own.to_string(), cause, mend };
        let addresses = own
            .resolve()
            .map_err(|cause| fail(cause, "check the host's name, or give its address"))?;
        let given = role == Role::Listen || !std::ptr::eq(own, locator);
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
        let mend = match &own.transport {
            Transport::FastDpdk(_) => mend_of_bypass(&cause),
            _ => mend(&cause),
        };
        Err(fail(cause, mend))
    }
}

fn open(transport: &Transport, own: SocketAddr, role: Role<'_>) -> io::Result<AnyDriver> {
    Ok(match (transport, role) {
        (Transport::Tcp, Role::Listen) => AnyDriver::from(Tcp::listen(own)?),
        (Transport::Tcp, Role::Connect(_)) => AnyDriver::from(Tcp::connect_only()?),
        (Transport::FastUdp | Transport::FastDpdk(_), Role::Listen) => {
            AnyDriver::from(Udp::bind(own)?)
        }
        (Transport::FastUdp | Transport::FastDpdk(_), Role::Connect(_)) => {
            let mut udp = Udp::bind(own)?;
            // Without it a peer where no process listens looks like one that is silent.
            let _ = udp.hear_refusals();
            AnyDriver::from(udp)
        }
    })
}

fn bypass_kernel(
    bypass: &Bypass,
    address: SocketAddr,
    given: bool,
    share: Option<Share>,
) -> io::Result<AnyDriver> {
    match given {
        // The locator is the peer's: of ours nothing is known.
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

/// Any address and port of the family of `address`.
fn unspecified(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn mend_of_bypass(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::Unsupported => {
            "build it with `--features dpdk`, or use `fast+udp:host=..,port=..` in its place"
        }
        io::ErrorKind::AddrNotAvailable => "write the host's address on that network",
        io::ErrorKind::PermissionDenied => {
            "run as root, or give the user the device and huge pages (docs/bypass.md)"
        }
        _ => "docs/bypass.md tells which devices there are and what they take",
    }
}

fn mend(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "stop whoever has the port (`ss -lntup` shows it), or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "give an address of this machine (`ip address` lists them)"
        }
        io::ErrorKind::PermissionDenied => {
            "choose a port from 1024 up, or run with the right to use lower ones"
        }
        io::ErrorKind::Unsupported => {
            "this kernel lacks what the transport needs; use `tcp` in its place"
        }
        _ => "see the cause",
    }
}
