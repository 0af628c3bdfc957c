//! System calls of ports that no library offers in safe form: interface requests and packet
//! sockets.

#![allow(
    unsafe_code,
    reason = "ioctl and packet sockets have no safe interface; each block is one call with memory \
              of its own"
)]

use nix::libc;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, Result};
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const TUNSETVNETHDRSZ: Opcode = 0x4004_54d8;
const SIOCGIFFLAGS: Opcode = 0x8913;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCGIFMTU: Opcode = 0x8921;
const SIOCSIFMTU: Opcode = 0x8922;

/// Size of an interface's name in the kernel, in bytes, including the terminating zero. A name must
/// be shorter than this.
pub(super) const NAME_BYTES: usize = 16;

/// `struct ifreq` of `linux/if.h`: a name and a union. The first bytes of the union are the flags
/// or the MTU.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    value: [u8; 24],
}

impl InterfaceRequest {
    /// Makes a request for an interface, whose name must be shorter than [`NAME_BYTES`].
    pub(super) fn new(name: &str) -> Result<Self> {
        let mut request = Self { name: [0; NAME_BYTES], value: [0; 24] };
        if name.is_empty() || name.len() >= NAME_BYTES || name.contains('/') {
            return Err(Errno::INVAL);
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(request)
    }

    fn flags(&self) -> u16 {
        u16::from_ne_bytes([self.value[0], self.value[1]])
    }

    fn with_flags(mut self, flags: u16) -> Self {
        self.value[..2].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    fn with_number(mut self, number: u32) -> Self {
        self.value[..4].copy_from_slice(&number.to_ne_bytes());
        self
    }
}

/// Sends an interface request, which the kernel reads and may write.
fn request_interface<const OPCODE: Opcode>(
    fd: BorrowedFd<'_>,
    request: &mut InterfaceRequest,
) -> Result<()> {
    // SAFETY: only the opcodes above are used. Each takes a pointer to a `struct ifreq`, and
    // `InterfaceRequest` has the same layout.
    let updater = unsafe { Updater::<OPCODE, InterfaceRequest>::new(request) };
    // SAFETY: the request lives for the whole call, and the kernel keeps no pointer to it.
    unsafe { ioctl(fd, updater) }
}

/// Turns an open `/dev/net/tun` into the TAP `name`, with a virtio-net header before each frame,
/// and with offload of checksums and TCP segmentation.
pub(super) fn attach_tap(tun: BorrowedFd<'_>, name: &str) -> Result<()> {
    let flags = u16::try_from(libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR)
        .map_err(|_| Errno::INVAL)?;
    request_interface::<TUNSETIFF>(tun, &mut InterfaceRequest::new(name)?.with_flags(flags))?;
    let mut header = i32::try_from(crate::frame::VNET_BYTES).map_err(|_| Errno::INVAL)?;
    // SAFETY: the request takes a pointer to an int.
    let updater = unsafe { Updater::<TUNSETVNETHDRSZ, i32>::new(&mut header) };
    // SAFETY: the int lives for the whole call.
    unsafe { ioctl(tun, updater) }?;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let offloads = usize::try_from(offloads).map_err(|_| Errno::INVAL)?;
    // SAFETY: the request takes its argument by value.
    let setter = unsafe { IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads) };
    // SAFETY: no memory is involved.
    unsafe { ioctl(tun, setter) }
}

/// Sets an interface's MTU, in bytes above Ethernet.
pub(super) fn set_mtu(socket: impl AsFd, name: &str, bytes: u32) -> Result<()> {
    request_interface::<SIOCSIFMTU>(
        socket.as_fd(),
        &mut InterfaceRequest::new(name)?.with_number(bytes),
    )
}

/// Returns an interface's MTU, in bytes above Ethernet.
pub(super) fn mtu(socket: impl AsFd, name: &str) -> Result<u32> {
    let mut request = InterfaceRequest::new(name)?;
    request_interface::<SIOCGIFMTU>(socket.as_fd(), &mut request)?;
    Ok(u32::from_ne_bytes(*request.value.first_chunk().expect("24 bytes")))
}

/// Switches an interface on.
pub(super) fn bring_up(socket: impl AsFd, name: &str) -> Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    request_interface::<SIOCGIFFLAGS>(socket.as_fd(), &mut request)?;
    let up = u16::try_from(libc::IFF_UP).map_err(|_| Errno::INVAL)?;
    let mut request = request.with_flags(request.flags() | up);
    request_interface::<SIOCSIFFLAGS>(socket.as_fd(), &mut request)
}

/// Binds a packet socket to an interface. The socket receives nothing before that.
pub(super) fn bind_packet(socket: BorrowedFd<'_>, interface: u32) -> Result<()> {
    let every_protocol = u16::try_from(libc::ETH_P_ALL).map_err(|_| Errno::INVAL)?.to_be();
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(|_| Errno::INVAL)?,
        sll_protocol: every_protocol,
        sll_ifindex: i32::try_from(interface).map_err(|_| Errno::INVAL)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address lives for the call, and its size is passed with it.
    let done = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_u32(&address))
    };
    check(done)
}

/// Makes an interface receive frames for all addresses (promiscuous mode) while the socket is open.
pub(super) fn set_promiscuous(socket: BorrowedFd<'_>, interface: u32) -> Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: i32::try_from(interface).map_err(|_| Errno::INVAL)?,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).map_err(|_| Errno::INVAL)?,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Switches an option of a packet socket on.
pub(super) fn switch_on(socket: BorrowedFd<'_>, option: PacketOption) -> Result<()> {
    set_option(socket, option as i32, &1i32)
}

/// Options of a packet socket that can be switched on.
#[derive(Clone, Copy)]
pub(super) enum PacketOption {
    /// The kernel puts a virtio-net header in front of each frame.
    VnetHeader = libc::PACKET_VNET_HDR as isize,
    /// The kernel delivers the VLAN tag in a control message, not in the frame.
    AuxData = libc::PACKET_AUXDATA as isize,
    /// The socket does not receive frames that leave by the interface, including those that it
    /// sends itself.
    IgnoreOutgoing = libc::PACKET_IGNORE_OUTGOING as isize,
}

fn set_option<T>(socket: BorrowedFd<'_>, option: i32, value: &T) -> Result<()> {
    let value_at: *const T = value;
    // SAFETY: the value lives for the call, its size is passed with it, and the kernel only reads
    // it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            value_at.cast(),
            size_of_u32(value),
        )
    };
    check(done)
}

/// Returns the number of frames that a packet socket has dropped since the last call because its
/// buffer was full.
pub(super) fn packet_drops(socket: BorrowedFd<'_>) -> u32 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_u32(&stats);
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: the kernel writes at most `len` bytes, which is the size of the counts.
    unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut stats).cast(), &raw mut len)
    };
    stats.tp_drops
}

/// A frame that a packet socket received.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ReceivedFrame {
    /// Bytes of the frame with its virtio-net header.
    pub(super) len: usize,
    /// The VLAN tag that the kernel took out of the frame, if there was one.
    pub(super) tag: Option<[u8; 4]>,
    /// When the kernel received the frame, as time since 1970; `None` if the kernel did not say.
    pub(super) arrived: Option<Duration>,
}

/// Length of `struct cmsghdr` in bytes, and the room for control messages in words.
const CONTROL_HEADER: usize = 16;
const CONTROL_WORDS: usize = 16;

/// Receives a frame with its virtio-net header, and its control messages.
pub(super) fn receive_packet(
    socket: BorrowedFd<'_>,
    slices: &mut [IoSliceMut<'_>],
) -> Result<ReceivedFrame> {
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: a message of zeros is a valid message without parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An `IoSliceMut` has the layout of an iovec.
    message.msg_iov = slices.as_mut_ptr().cast();
    message.msg_iovlen = slices.len();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: slices and control live for the call, and their lengths are passed with it.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(len) else { return Err(last_error()) };
    let mut bytes = [0; CONTROL_WORDS * 8];
    bytes
        .chunks_exact_mut(8)
        .zip(control)
        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
    let control = bytes.get(..message.msg_controllen).unwrap_or(&bytes);
    Ok(control_messages(control).fold(
        ReceivedFrame { len, ..ReceivedFrame::default() },
        |read, (level, kind, part)| match (level, kind) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => ReceivedFrame { tag: tag_in(part), ..read },
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                ReceivedFrame { arrived: time_in(part), ..read }
            }
            _ => read,
        },
    ))
}

/// Iterates over control messages: the level, kind and content of each (cmsg(3)).
fn control_messages(mut bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from_ne_bytes(*bytes.first_chunk()?);
        let number = |at: usize| Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let message = (number(8)?, number(12)?, bytes.get(CONTROL_HEADER..length)?);
        bytes = bytes.get(length.next_multiple_of(8)..).unwrap_or_default();
        Some(message)
    })
}

/// Reads the `struct timespec` of a control message.
fn time_in(part: &[u8]) -> Option<Duration> {
    let number = |at: usize| i64::from_ne_bytes(*part.get(at..)?.first_chunk()?).try_into().ok();
    let (seconds, nanos): (Option<u64>, Option<u64>) = (number(0), number(8));
    Some(Duration::from_secs(seconds?) + Duration::from_nanos(nanos?))
}

/// Reads the VLAN tag of a control message.
fn tag_in(aux: &[u8]) -> Option<[u8; 4]> {
    /// The size of `struct tpacket_auxdata` of `linux/if_packet.h`.
    const BYTES: usize = 20;
    let aux = aux.first_chunk::<BYTES>()?;
    let word = |at| u16::from_ne_bytes([aux[at], aux[at + 1]]);
    let status = u32::from_ne_bytes([aux[0], aux[1], aux[2], aux[3]]);
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { 0x8100 } else { word(18) };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), word(16).to_be_bytes());
    Some([a, b, c, d])
}

fn size_of_u32<T>(value: &T) -> u32 {
    u32::try_from(size_of_val(value)).expect("structures of the kernel are small")
}

fn check(done: i32) -> Result<()> {
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
