//! Opening a driver, and saying why one cannot be.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::{AnyDriver, Locator, Tcp, Transport, Udp};

/// What a driver is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// To be reached at the locator.
    Listen,
    /// To reach services such as the locator's: own address and port are the system's choice.
    Connect,
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
    /// Opens the driver that `locator` asks for. A host's name is looked up, which can take seconds.
    ///
    /// # Errors
    /// [`OpenError`]: the name is unknown, the address taken, forbidden or another machine's, or the
    /// transport not built in.
    pub fn open(locator: &Locator, role: Role) -> Result<Self, OpenError> {
        let fail = |cause: io::Error, mend| OpenError { locator: locator.to_string(), cause, mend };
        if let Transport::FastDpdk { .. } = locator.transport {
            let cause = io::Error::new(io::ErrorKind::Unsupported, "the fast+dpdk driver is not built in yet");
            return Err(fail(cause, "use `fast+udp:host=..,port=..` in its place"));
        }
        let addresses = locator.resolve().map_err(|cause| fail(cause, "check the host's name, or give its address"))?;
        let mut last = None;
        for address in addresses {
            match open(&locator.transport, address, role) {
                Ok(driver) => return Ok(driver),
                Err(cause) => last = Some(cause),
            }
        }
        let cause = last.expect("resolve gives at least one address");
        let mend = mend(&cause);
        Err(fail(cause, mend))
    }
}

fn open(transport: &Transport, address: SocketAddr, role: Role) -> io::Result<AnyDriver> {
    let own = match role {
        Role::Listen => address,
        Role::Connect => unspecified(address),
    };
    Ok(match (transport, role) {
        (Transport::Tcp, Role::Listen) => AnyDriver::from(Tcp::listen(own)?),
        (Transport::Tcp, Role::Connect) => AnyDriver::from(Tcp::connect_only()?),
        (Transport::FastUdp | Transport::FastDpdk { .. }, _) => AnyDriver::from(Udp::bind(own)?),
    })
}

/// Any address and port of the family of `address`.
fn unspecified(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn mend(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "stop whoever has the port (`ss -lntup` shows it), or choose another port",
        io::ErrorKind::AddrNotAvailable => "give an address of this machine (`ip address` lists them)",
        io::ErrorKind::PermissionDenied => "choose a port from 1024 up, or run with the right to use lower ones",
        io::ErrorKind::Unsupported => "this kernel lacks what the transport needs; use `tcp` in its place",
        _ => "see the cause",
    }
}
