//! Networks of a test's own: cables in a network namespace that is gone with the thread that made
//! it.

use std::fs;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Gives this thread, and those it starts, a network namespace without anything.
///
/// # Errors
/// Why this machine does not let us.
pub(crate) fn alone() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("a network namespace: {error}"))?;
    // Nobody but the test is to send anything.
    for interfaces in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1"); // if it has IPv6
    }
    ip(&["link", "set", "lo", "up"])
}

/// Lays a virtual Ethernet cable, and switches both its ends on.
///
/// # Errors
/// What `ip` says.
pub(crate) fn cable(a: &str, b: &str) -> Result<(), String> {
    ip(&["link", "add", a, "type", "veth", "peer", "name", b])?;
    ip(&["link", "set", a, "up"])?;
    ip(&["link", "set", b, "up"])
}

/// Runs `ip` in this thread's network namespace.
///
/// # Errors
/// What it says.
pub(crate) fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
