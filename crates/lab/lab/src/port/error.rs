//! Why a port could not be opened, or failed.

use rustix::io::Errno;

/// Why a port could not be opened, or failed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The kernel refused a step.
    #[error("port {port}: {step}: {error}{}", advice(*error))]
    Refused {
        /// The port's name.
        port: String,
        /// The step that the kernel refused.
        step: &'static str,
        /// The kernel's error.
        error: Errno,
    },
    /// There is no such network namespace.
    #[error(
        "port {port}: no network namespace {netns:?} ({error}); make it with: ip netns add {netns}"
    )]
    NoNamespace {
        /// The port's name.
        port: String,
        /// The name or path of the namespace.
        netns: String,
        /// The error that opening it returned.
        error: Errno,
    },
    /// The interface is in use.
    #[error(
        "port {port}: the interface {why}: using it would cut off its traffic or make a loop; \
         --force uses it anyway"
    )]
    InUse {
        /// The port's name.
        port: String,
        /// What shows that the interface is in use.
        why: String,
    },
    /// A device that bypasses the kernel could not be opened, or failed.
    #[error("port {port}: {error}{}", device_advice(error))]
    Device {
        /// The port's name.
        port: String,
        /// The error of the device or of DPDK.
        error: std::io::Error,
    },
    /// A thread could not be started.
    #[error("port {port}: cannot start a thread: {error}")]
    Thread {
        /// The port's name.
        port: String,
        /// The system's error.
        error: std::io::Error,
    },
}

fn advice(error: Errno) -> &'static str {
    match error {
        Errno::PERM | Errno::ACCESS => {
            "; this needs root, or the capability CAP_NET_ADMIN (and CAP_SYS_ADMIN to enter a \
             namespace)"
        }
        Errno::NOENT => "; is the kernel's tun driver loaded (/dev/net/tun)?",
        Errno::BUSY => "; another process has it: give another name, or end that one",
        Errno::INVAL => {
            "; a name has 1 to 15 characters, and a TAP that exists must be one with virtio-net \
             headers"
        }
        _ => "",
    }
}

fn device_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; this needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
        }
        _ => "",
    }
}
