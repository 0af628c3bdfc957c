//! Networks for one test: virtual cables in a network namespace, which ends with the thread that
//! created it.

use std::fs;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Gives this thread, and those it starts, an empty network namespace.
///
/// # Errors
/// The reason why this machine does not allow it.
pub(crate) fn enter_namespace() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("a network namespace: {error}"))?;
    // Only the test may send frames.
    for interfaces in ["all", "default"] {
        // Fails if the kernel has no IPv6.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
    }
    ip(&["link", "set", "lo", "up"])
}

/// Creates a virtual Ethernet cable and brings up both its ends.
///
/// # Errors
/// The error output of `ip`.
pub(crate) fn cable(a: &str, b: &str) -> Result<(), String> {
    ip(&["link", "add", a, "type", "veth", "peer", "name", b])?;
    ip(&["link", "set", a, "up"])?;
    ip(&["link", "set", b, "up"])
}

/// Runs `ip` in this thread's network namespace.
///
/// # Errors
/// The error output of `ip`.
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
