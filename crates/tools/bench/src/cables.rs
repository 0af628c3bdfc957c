//! Virtual Ethernet cables (veth) in the benchmark's own network namespace, for paths over
//! interfaces of the kernel. The machine's own interfaces are not affected.

use std::fs::{self, File};
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// A virtual cable. Only [`Cables::lay`] makes cables, so the interfaces exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cable {
    server: &'static str,
    client: &'static str,
}

impl Cable {
    /// Returns the interface at the server's end.
    #[must_use]
    pub fn server(self) -> &'static str {
        self.server
    }

    /// Returns the interface at the client's end.
    #[must_use]
    pub fn client(self) -> &'static str {
        self.client
    }
}

/// One cable for each of two drivers: the XDP program that one driver leaves on an interface would
/// disturb the other driver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cables {
    /// For packet sockets.
    pub packet: Cable,
    /// For XDP sockets.
    pub xdp: Cable,
}

impl Cables {
    /// Moves the calling thread into a new network namespace with a loopback interface, and makes
    /// the cables there. Threads and processes inherit the namespace from the thread that starts
    /// them, so call this before you start other threads or processes. The namespace ends with the
    /// last thread in it.
    ///
    /// # Errors
    /// `ip` is missing, or the machine does not allow the namespace or the cables. The text has the
    /// reason and a remedy. The thread is then in its original namespace.
    pub fn lay() -> Result<Self, String> {
        ip(&["-V"])?; // fails before anything has changed, if `ip` is missing
        let home = File::open("/proc/thread-self/ns/net")
            .map_err(|error| format!("/proc/thread-self/ns/net: {error}"))?;
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
            format!(
                "a network namespace is refused: {error}; it needs CAP_SYS_ADMIN: run the \
                benchmark as root"
            )
        })?;
        Self::furnish().inspect_err(|_| {
            setns(&home, CloneFlags::CLONE_NEWNET)
                .expect("a thread that may leave its namespace may come back");
        })
    }

    /// Makes the interfaces in the new namespace.
    fn furnish() -> Result<Self, String> {
        ip(&["link", "set", "lo", "up"])?;
        // Without IPv6, the kernel sends no packets that would disturb the measurement. The write
        // fails on a kernel that has no IPv6.
        for interfaces in ["all", "default"] {
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
        }
        // DPDK's packet sockets join a fanout group whose number is the process's id XOR the
        // interface's index. The indices are far apart, so that two processes get different groups.
        let cable = |[server, client]: [&'static str; 2], [near, far]: [&str; 2]| {
            ip(&[
                "link", "add", server, "index", near, "type", "veth", "peer", "name", client,
                "index", far,
            ])?;
            ip(&["link", "set", server, "up"])?;
            ip(&["link", "set", client, "up"])?;
            Ok::<_, String>(Cable { server, client })
        };
        let packet = cable(["packet-server", "packet-client"], ["100", "23040"])?;
        let xdp = cable(["xdp-server", "xdp-client"], ["101", "23041"])?;
        Ok(Self { packet, xdp })
    }
}

/// Runs `ip`, of iproute2, in this thread's network namespace.
pub(crate) fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output();
    let output = output.map_err(|error| format!("starting ip: {error}; install iproute2"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!(
                "ip {}: {said}; it needs CAP_NET_ADMIN, and a kernel with veth",
                args.join(" ")
            ))
        }
    }
}
