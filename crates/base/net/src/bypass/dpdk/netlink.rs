//! What the kernel is asked and tells of network interfaces, over netlink (`man 7 rtnetlink`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// Kinds of messages: an interface is there or has changed, is gone, is asked for, is to be
/// changed; the end of a request.
pub(super) const NEW_LINK: u16 = 16;
pub(super) const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;
pub(super) const SET_LINK: u16 = 19;
const ENDED: u16 = 2;

/// The group that hears of interfaces.
pub(super) const LINKS: u32 = 1;

/// "This is a request", and "say how it ended".
const REQUEST: u16 = 1;
const TELL: u16 = 4;

/// Bytes of a message's header, of what follows it when it is about an interface, and of an
/// attribute's header.
const HEADER: usize = 16;
const ABOUT: usize = 16;
const ATTRIBUTE: usize = 4;

/// A message.
pub(super) enum Message<'a> {
    /// About an interface.
    Link { kind: u16, index: u32, flags: u32, rest: &'a [u8] },
    /// A request has ended: 0, or a negative errno.
    Ended(i32),
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
        self.send(GET_LINK, REQUEST, index, &[])
    }

    /// Asks for something to be done with an interface, and says how that ended. The kernel does it
    /// before it returns.
    pub(super) fn request(
        &self,
        kind: u16,
        index: u32,
        attribute: u16,
        value: &[u8],
    ) -> io::Result<()> {
        let len = u16::try_from(ATTRIBUTE + value.len()).expect("short");
        self.send(
            kind,
            REQUEST | TELL,
            index,
            &[&len.to_ne_bytes(), &attribute.to_ne_bytes(), value].concat(),
        )?;
        let (mut buffer, mut end) = ([0; 4096], 0);
        self.receive(&mut buffer, |message| {
            if let Message::Ended(code) = message {
                end = code;
            }
        })?;
        if end == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-end)) }
    }

    fn send(&self, kind: u16, flags: u16, index: u32, rest: &[u8]) -> io::Result<()> {
        let len = u32::try_from(HEADER + ABOUT + rest.len()).expect("short");
        let mut message = Vec::new();
        message.extend(len.to_ne_bytes());
        message.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        message.extend([0; 8 + 4]); // sequence and sender: the kernel's to fill; then family and kind: any
        message.extend(index.to_ne_bytes());
        message.extend([0; 8]);
        message.extend_from_slice(rest);
        send(&self.socket, &message, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Hears what has come, as much as fits `buffer`; what does not is cut.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): nothing has come. `ENOBUFS`: more than the kernel
    /// kept for us.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        mut hear: impl FnMut(Message<'_>),
    ) -> Result<(), rustix::io::Errno> {
        let (got, _) = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        let mut messages = &buffer[..got];
        while messages.len() >= HEADER + ABOUT {
            let number =
                |at: usize| u32::from_ne_bytes(messages[at..at + 4].try_into().expect("4 bytes"));
            let (len, kind) = (number(0) as usize, u16::from_ne_bytes([messages[4], messages[5]]));
            let end = len.clamp(HEADER + ABOUT, messages.len());
            match kind {
                ENDED => hear(Message::Ended(number(HEADER).cast_signed())),
                // Of another family it is about a bridge's ports.
                NEW_LINK | DELETED_LINK if messages[HEADER] == 0 => {
                    let (index, flags) = (number(HEADER + 4), number(HEADER + 8));
                    hear(Message::Link {
                        kind,
                        index,
                        flags,
                        rest: &messages[HEADER + ABOUT..end],
                    });
                }
                _ => {}
            }
            messages = messages.get(end.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The attributes in a message, or in another attribute: kind and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1] = bytes.first_chunk()?;
        let value = bytes.get(ATTRIBUTE..usize::from(u16::from_ne_bytes([l0, l1])))?;
        bytes = bytes.get((ATTRIBUTE + value.len()).next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]), value))
    })
}
