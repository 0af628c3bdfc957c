//! Networks for a test: cables in a network namespace. The namespace ends with the thread that made
//! it.

use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send,
    setsockopt, socket, sockopt,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::{ip, skip};

/// Lets one test run at a time: DPDK exists once per process, and servers spin on the few cores.
static ONE: Mutex<()> = Mutex::new(());

/// Size of a socket's receive buffer in bytes: large enough for a reader that is late.
const SOCKET_BYTES: usize = 16 << 20;

/// The kernel's packet type of an outgoing frame.
const OUTGOING: u8 = 4;

/// Runs a test on a thread in its own network namespace. If the machine does not allow this, skips
/// the test with a message.
pub(crate) fn alone(test: impl FnOnce() + Send) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| format!("a network namespace: {error}"))?;
        ip(&["link", "set", "lo", "up"])?;
        // Only the test may send packets.
        for interfaces in ["all", "default"] {
            // Fails on a kernel without IPv6.
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
        }
        cable("try0", "try1")?;
        test();
        Ok::<_, String>(())
    };
    match thread::scope(|scope| scope.spawn(run).join()) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => skip(&format!("faults past the kernel: {why}")),
        Err(panic) => resume_unwind(panic),
    }
}

/// Makes a veth pair, and sets both ends up.
pub(crate) fn cable(a: &str, b: &str) -> Result<(), String> {
    numbered_cable([a, b], [a, b].map(number))
}

/// Makes a veth pair with these names and interface numbers.
pub(crate) fn numbered_cable([a, b]: [&str; 2], numbers: [u32; 2]) -> Result<(), String> {
    let [first, second] = numbers.map(|number| number.to_string());
    ip(&["link", "add", a, "index", &first, "type", "veth", "peer", "name", b, "index", &second])?;
    ip(&["link", "set", a, "up"])?;
    ip(&["link", "set", b, "up"])
}

/// Returns a number for an interface. DPDK's packet sockets use the process id XOR this number as
/// their id, which must differ between processes. The process ids in a test are close to each
/// other, so the numbers of servers' and clients' ends differ in high bits.
fn number(name: &str) -> u32 {
    const APART: u32 = 0x5a00;
    static NEXT: AtomicU32 = AtomicU32::new(100);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    if name.starts_with('c') { number ^ APART } else { number }
}

/// One end of a cable, for raw frames.
pub(crate) struct Plug {
    socket: OwnedFd,
    /// The interface's hardware address.
    pub(crate) mac: [u8; 6],
}

impl Plug {
    /// Opens the end of this name, in this thread's namespace.
    pub(crate) fn of(interface: &str) -> Self {
        let all = getifaddrs().expect("interfaces can be listed");
        let address: LinkAddr = all
            .filter(|address| address.interface_name == interface)
            .find_map(|address| address.address?.as_link_addr().copied())
            .expect("the interface is there");
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .expect("we are root");
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES).expect("we are root");
        setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BYTES).expect("we are root");
        bind(socket.as_raw_fd(), &address).expect("it is ours");
        Self { socket, mac: address.addr().expect("Ethernet") }
    }

    /// Sends a frame. Returns false if there is no room at the moment.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty()).is_ok()
    }

    /// Returns a received frame, if there is one.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        loop {
            let (len, from) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer).ok()?;
            if from.is_none_or(|from| from.pkttype() != OUTGOING) {
                buffer.truncate(len);
                return Some(buffer);
            }
        }
    }
}

/// Waits until one of two ends has received a frame, or `longest` has passed.
pub(crate) fn wait(plugs: [&Plug; 2], longest: Duration) {
    let mut fds = plugs.map(|plug| PollFd::from_borrowed_fd(plug.socket.as_fd(), PollFlags::IN));
    let longest = Timespec::try_from(longest).expect("short");
    let _ = poll(&mut fds, Some(&longest)); // interrupted or not, the caller looks for frames
}
