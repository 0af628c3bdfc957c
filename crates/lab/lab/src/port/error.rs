//! Why a port could not be opened, or is no more.

use rustix::io::Errno;

/// Why a port could not be opened, or is no more.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The kernel said no to a step of it.
    #[error("port {port}: {step}: {error}{}", mend(*error))]
    Refused {
        /// Which port.
        port: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        error: Errno,
    },
    /// There is no such namespace.
    #[error(
        "port {port}: no network namespace {netns:?} ({error}); make it with: ip netns add {netns}"
    )]
    NoNamespace {
        /// Which port.
        port: String,
        /// Its namespace.
        netns: String,
        /// What opening it said.
        error: Errno,
    },
    /// Somebody uses the interface.
    #[error(
        "port {port}: the interface {why}, and what it carries would be cut off or go round in circles; if that is meant: --force"
    )]
    InUse {
        /// Which port.
        port: String,
        /// By what that can be seen.
        why: String,
    },
    /// A device past the kernel could not be opened, or is no more.
    #[error("port {port}: {error}{}", mend_device(error))]
    Device {
        /// Which port.
        port: String,
        /// What the device or DPDK said.
        error: std::io::Error,
    },
    /// A thread could not be made.
    #[error("port {port}: cannot start a thread: {error}")]
    Thread {
        /// Which port.
        port: String,
        /// What the system said.
        error: std::io::Error,
    },
}

fn mend(error: Errno) -> &'static str {
    match error {
        Errno::PERM | Errno::ACCESS => {
            "; this needs root, or the capability CAP_NET_ADMIN (and CAP_SYS_ADMIN to enter a namespace)"
        }
        Errno::NOENT => "; is the kernel's tun driver there (/dev/net/tun)?",
        Errno::BUSY => "; another process has it: give another name, or end that one",
        Errno::INVAL => {
            "; a name has 1 to 15 characters, and a TAP that exists must be one with virtio-net headers"
        }
        _ => "",
    }
}

fn mend_device(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; this needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
        }
        _ => "",
    }
}
