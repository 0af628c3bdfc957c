//! Two ports joined by a pair of sockets: a cable without the kernel's network, for tests.

use super::{Kind, Port, PortError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Makes two ports, each of which receives what the other sends. The kernel buffers some hundred
/// kilobytes. A port refuses packets for which the buffer has no room.
///
/// # Errors
/// [`PortError::Refused`] if the kernel cannot make the sockets: for example, too many files are
/// open.
pub fn pair(names: [&str; 2]) -> Result<[Port; 2], PortError> {
    let refused = |error: Errno| PortError::Refused {
        port: names[0].to_owned(),
        step: "making a pair of sockets",
        error,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(refused)?;
    let port = |name: &str, fd| Port::new(name, Kind::Pair(fd));
    Ok([port(names[0], one), port(names[1], other)])
}
