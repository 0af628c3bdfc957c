//! Requests and notifications about network interfaces over netlink (`man 7 rtnetlink`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// Message types: RTM_NEWLINK (an interface exists or has changed), RTM_DELLINK, RTM_GETLINK,
/// RTM_SETLINK; and NLMSG_ERROR, the result of a request.
pub(super) const NEW_LINK: u16 = 16;
pub(super) const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;
pub(super) const SET_LINK: u16 = 19;
const RESULT: u16 = 2;

/// The multicast group of interface changes (RTMGRP_LINK).
pub(super) const LINKS: u32 = 1;

/// Flags NLM_F_REQUEST and NLM_F_ACK.
const REQUEST: u16 = 1;
const ACK: u16 = 4;

/// Lengths in bytes: of a message's header, of the `ifinfomsg` after it, and of an attribute's
/// header.
const HEADER: usize = 16;
const IFINFO: usize = 16;
const ATTRIBUTE: usize = 4;

/// A message from the kernel.
pub(super) enum Message<'a> {
    /// The state of an interface, or its removal.
    Link { kind: u16, index: u32, flags: u32, rest: &'a [u8] },
    /// The result of a request: 0, or a negative errno.
    Result(i32),
}

/// A netlink socket, in the network namespace of the thread that opened it.
pub(super) struct Netlink {
    pub(super) socket: OwnedFd,
}

impl Netlink {
    /// Opens a socket that is subscribed to `groups`.
    pub(super) fn open(groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let route = None; // NETLINK_ROUTE is protocol 0
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, route)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { socket })
    }

    /// Requests the state of an interface. The kernel replies with an ordinary message.
    pub(super) fn request_link(&self, index: u32) -> io::Result<()> {
        self.send(GET_LINK, REQUEST, index, &[])
    }

    /// Requests a change of an interface and returns its result. The kernel makes the change before
    /// the call returns.
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
            REQUEST | ACK,
            index,
            &[&len.to_ne_bytes(), &attribute.to_ne_bytes(), value].concat(),
        )?;
        let (mut buffer, mut end) = ([0; 4096], 0);
        self.receive(&mut buffer, |message| {
            if let Message::Result(code) = message {
                end = code;
            }
        })?;
        if end == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-end)) }
    }

    fn send(&self, kind: u16, flags: u16, index: u32, rest: &[u8]) -> io::Result<()> {
        let len = u32::try_from(HEADER + IFINFO + rest.len()).expect("short");
        let mut message = Vec::new();
        message.extend(len.to_ne_bytes());
        message.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        // Sequence number and port, which the kernel fills in. After them any family and type.
        message.extend([0; 8 + 4]);
        message.extend(index.to_ne_bytes());
        message.extend([0; 8]);
        message.extend_from_slice(rest);
        send(&self.socket, &message, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Receives the messages that fit into `buffer`. A longer message is cut.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): no message has arrived. `ENOBUFS`: the kernel has
    /// dropped messages.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        mut handle: impl FnMut(Message<'_>),
    ) -> Result<(), rustix::io::Errno> {
        let (got, _) = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        let mut messages = &buffer[..got];
        while messages.len() >= HEADER + IFINFO {
            let number =
                |at: usize| u32::from_ne_bytes(messages[at..at + 4].try_into().expect("4 bytes"));
            let (len, kind) = (number(0) as usize, u16::from_ne_bytes([messages[4], messages[5]]));
            let end = len.clamp(HEADER + IFINFO, messages.len());
            match kind {
                RESULT => handle(Message::Result(number(HEADER).cast_signed())),
                // Messages of other families are about the ports of a bridge.
                NEW_LINK | DELETED_LINK if messages[HEADER] == 0 => {
                    let (index, flags) = (number(HEADER + 4), number(HEADER + 8));
                    handle(Message::Link {
                        kind,
                        index,
                        flags,
                        rest: &messages[HEADER + IFINFO..end],
                    });
                }
                _ => {}
            }
            messages = messages.get(end.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Returns the attributes in a message, or in another attribute: type and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1] = bytes.first_chunk()?;
        let value = bytes.get(ATTRIBUTE..usize::from(u16::from_ne_bytes([l0, l1])))?;
        bytes = bytes.get((ATTRIBUTE + value.len()).next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]), value))
    })
}
