//! Virtual Ethernet cables for paths over an interface of the kernel's, in a network that is the
//! benchmark's alone: the interfaces of the machine are neither seen nor touched.

use std::fs::{self, File};
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// A cable. That there is one shows that it has been laid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cable {
    server: &'static str,
    client: &'static str,
}

impl Cable {
    /// The interface at the server's end.
    #[must_use]
    pub fn server(self) -> &'static str {
        self.server
    }

    /// The interface at the client's.
    #[must_use]
    pub fn client(self) -> &'static str {
        self.client
    }
}

/// A cable for each way to drive its ends: a program that one leaves there is in nobody else's way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cables {
    /// For packet sockets.
    pub packet: Cable,
    /// For XDP sockets.
    pub xdp: Cable,
}

impl Cables {
    /// Moves the calling thread into a network namespace of its own, with a loopback and nothing
    /// else, and lays the cables there. Threads and processes that it starts from then on are
    /// in it too: to be called before there are others. All of it is gone with the last of
    /// them.
    ///
    /// # Errors
    /// What is in the way, and what would help; the thread is then where it was.
    pub fn lay() -> Result<Self, String> {
        ip(&["-V"])?; // before anything has changed
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

    /// What the namespace is to have.
    fn furnish() -> Result<Self, String> {
        ip(&["link", "set", "lo", "up"])?;
        // Nobody but those measured is to send anything. A kernel without IPv6 sends none of its
        // own accord.
        for interfaces in ["all", "default"] {
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
        }
        // DPDK's packet sockets go by the process's id XOR the interface's number: of two processes
        // those must not meet.
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
