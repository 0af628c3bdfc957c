//! What hosts report of datagrams for ports where no process listens: ICMP, which the kernel keeps
//! beside what has arrived.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use nix::libc::{ECONNREFUSED, sock_extended_err};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};

use super::Port;
use super::receive::address;

/// Reports taken in one look: the kernel keeps few.
const MAX_REPORTS: usize = 64;

/// Bytes of a datagram that is given back; nothing of it is read.
const RETURNED_BYTES: usize = 64;

/// Room for the two control messages of a report.
const CONTROL_BYTES: usize = 256;

/// Control messages must be aligned as `cmsghdr` is.
#[repr(align(16))]
struct Control([u8; CONTROL_BYTES]);

impl Port {
    /// Takes the reports that there are, and notes who refuses. Until they are taken the socket
    /// counts as readable.
    pub(super) fn take_reports(&mut self) {
        self.has_news = false;
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
