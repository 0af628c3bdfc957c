//! What the kernel is asked and tells of network interfaces, over netlink (`man 7 rtnetlink`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

/// Kinds of messages: an interface is there or has changed, is gone, is asked for.
pub(super) const NEW_LINK: u16 = 16;
pub(super) const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;

/// The group that hears of interfaces.
pub(super) const LINKS: u32 = 1;

/// "This is a request."
const REQUEST: u16 = 1;

/// Bytes of a message's header, and of what follows it when it is about an interface.
const HEADER: usize = 16;
const ABOUT: usize = 16;

/// A message about an interface.
pub(super) struct Message {
    pub(super) kind: u16,
    pub(super) index: u32,
    pub(super) flags: u32,
}

/// A way to the kernel, in the network namespace of the thread that opened it.
pub(super) struct Kernel {
    pub(super) socket: OwnedFd,
}

impl Kernel {
    /// Opens one that hears of `groups`.
    pub(super) fn open(groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let route = None; // protocol 0 of netlink
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, route)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { socket })
    }

    /// Asks how an interface is. The answer is a message like any other.
    pub(super) fn ask_for_link(&self, index: u32) -> io::Result<()> {
        self.send(GET_LINK, index)
    }

    fn send(&self, kind: u16, index: u32) -> io::Result<()> {
        let len = u32::try_from(HEADER + ABOUT).expect("short");
        let mut message = Vec::new();
        message.extend(len.to_ne_bytes());
        message.extend([kind.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
        message.extend([0; 8 + 4]); // sequence and sender: the kernel's to fill; then family and kind: any
        message.extend(index.to_ne_bytes());
        message.extend([0; 8]);
        send(&self.socket, &message, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Hears what has come, as much as fits `buffer`; what does not is cut.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): nothing has come. `ENOBUFS`: more than the kernel kept for us.
    pub(super) fn receive(&self, buffer: &mut [u8], mut hear: impl FnMut(Message)) -> Result<(), rustix::io::Errno> {
        let (got, _) = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        let mut messages = &buffer[..got];
        while messages.len() >= HEADER + ABOUT {
            let number = |at: usize| u32::from_ne_bytes(messages[at..at + 4].try_into().expect("4 bytes"));
            let (len, kind) = (number(0) as usize, u16::from_ne_bytes([messages[4], messages[5]]));
            let end = len.clamp(HEADER + ABOUT, messages.len());
            // Of another family it is about a bridge's ports.
            if matches!(kind, NEW_LINK | DELETED_LINK) && messages[HEADER] == 0 {
                hear(Message { kind, index: number(HEADER + 4), flags: number(HEADER + 8) });
            }
            messages = messages.get(end.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}
