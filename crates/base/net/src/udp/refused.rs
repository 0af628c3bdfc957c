//! Reads the socket's error queue, in which the kernel keeps ICMP errors for datagrams to ports
//! where no process listens.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use nix::libc::{ECONNREFUSED, sock_extended_err};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};

use super::Port;
use super::receive::address;

/// The largest number of error reports read in one call. The kernel rarely keeps more.
const MAX_REPORTS: usize = 64;

/// Room for the start of the returned datagram, in bytes. Nothing reads it.
const RETURNED_BYTES: usize = 64;

/// Room for the two control messages of a report, in bytes.
const CONTROL_BYTES: usize = 256;

/// Room for control messages, which need the alignment of `cmsghdr`.
#[repr(align(16))]
struct Control([u8; CONTROL_BYTES]);

impl Port {
    /// Reads up to [`MAX_REPORTS`] reports and notes the peers that refuse. The socket polls
    /// readable until all reports are read.
    pub(super) fn take_reports(&mut self) {
        self.has_reports = false;
        let Some(refusals) = &mut self.refusals else { return };
        let (mut returned, mut control) = ([0; RETURNED_BYTES], Control([0; CONTROL_BYTES]));
        for _ in 0..MAX_REPORTS {
            let mut parts = [IoSliceMut::new(&mut returned)];
            let socket = self.socket.as_raw_fd();
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let Ok(report) =
                recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut control.0), flags)
            else {
                return;
            };
            let refused =
                |error: &sock_extended_err| error.ee_errno == ECONNREFUSED.cast_unsigned();
            let is_refusal = report.cmsgs().is_ok_and(|mut messages| {
                messages.any(|message| match message {
                    ControlMessageOwned::Ipv4RecvErr(error, _)
                    | ControlMessageOwned::Ipv6RecvErr(error, _) => refused(&error),
                    _ => false,
                })
            });
            if let Some(peer) = report.address.as_ref().and_then(address).filter(|_| is_refusal) {
                refusals.note(peer);
            }
        }
    }
}
