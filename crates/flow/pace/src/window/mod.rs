//! A congestion control whose window follows the socket's pacing rate. Except during a knock, the
//! window is at least twice what the rate needs, so that the rate is the limit. The process that
//! sets the rate thus decides how fast the connection sends.
//!
//! The kernel's own algorithms derive a window from losses and delays. A rate that is set from
//! outside can only lower what they allow. This congestion control leaves retransmission, recovery
//! and pacing to the kernel, and the rate to the process. It consists of three short BPF programs
//! in a structure of functions (`struct_ops`). It needs Linux 6.4 or later with BTF, CAP_BPF and
//! CAP_NET_ADMIN.

pub mod btf;
mod program;

use crate::sys::{self, Function};
use btf::Types;
use program::Offsets;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use thiserror::Error;

/// The file with the kernel's type information.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Limit on the windows of a process: the number of names that are tried for a window. If all of
/// these names are taken, no window can be made.
const MAX_WINDOWS: u32 = 256;

/// The lowest bit of a rate. It marks the rate of a knock
/// ([`Weir::knocks`](crate::weir::Weir::knocks)). During a knock, the window is that of the rate
/// around the knock. On a busy machine the knock may end late; the window limits what is sent until
/// then.
pub const KNOCK_BIT: u64 = 1;

/// Length of a congestion control's name in the kernel, in bytes, including the final zero.
const NAME_BYTES: usize = 16;

/// Why the congestion control is not available.
#[derive(Debug, Error)]
pub enum WindowError {
    /// The kernel does not export its type information.
    #[error(
        "the kernel does not export its types ({KERNEL_TYPES}: {0}); it must be built with \
         CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes(io::Error),
    /// The kernel's types lack this type or member, which the programs need, or have an unknown
    /// format.
    #[error("the kernel's types have no {0}; Linux 6.4 or later is needed")]
    UnknownTypes(&'static str),
    /// The kernel rejects a program or the congestion control, or all names for it are taken.
    /// Contains the verifier's log, which may be empty.
    #[error(
        "the kernel rejects Sprat's congestion control: {0}{hint}{log}",
        hint = hint(.0),
        log = verifier_log(.1)
    )]
    Refused(io::Error, String),
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        " (needs CAP_BPF and CAP_NET_ADMIN)"
    } else {
        ""
    }
}

fn verifier_log(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its verifier said:\n{log}") }
}

/// The congestion control. Connections that use it keep it in the kernel even after this value is
/// dropped.
#[derive(Debug)]
pub struct Window {
    name: String,
    _kept: [OwnedFd; 2],
}

impl Window {
    /// Loads the programs into the kernel and registers the congestion control.
    ///
    /// # Errors
    /// [`WindowError`] if the kernel does not export its types, lacks types that the programs need,
    /// or rejects the programs or the congestion control, or if all names for it are taken.
    pub fn open() -> Result<Self, WindowError> {
        let bytes = std::fs::read(KERNEL_TYPES).map_err(WindowError::NoTypes)?;
        let unknown = WindowError::UnknownTypes;
        let types = Types::parse(&bytes).ok_or(unknown("form that we know"))?;
        let offsets = Offsets::find(&types).map_err(unknown)?;
        let functions =
            types.structure("tcp_congestion_ops").ok_or(unknown("tcp_congestion_ops"))?;
        let whole = types
            .structure("bpf_struct_ops_tcp_congestion_ops")
            .ok_or(unknown("bpf_struct_ops"))?;
        let at = types.offset(whole, &["data"]).ok_or(unknown("data"))?;
        let mut value = vec![0; types.bytes(whole).ok_or(unknown("bpf_struct_ops"))? as usize];
        let put = |value: &mut [u8], name: &'static str, bytes: &[u8]| {
            let member = types.member(functions, name).ok_or(unknown(name))?;
            let place = (at + member.offset) as usize;
            let place = value.get_mut(place..place + bytes.len()).ok_or(unknown(name))?;
            place.copy_from_slice(bytes);
            Ok(member.index)
        };
        let follow = program::follow(&offsets);
        let mut loaded = Vec::new();
        for (name, code) in [
            ("init", &follow),
            ("cong_control", &follow),
            ("ssthresh", &program::ssthresh()),
            ("undo_cwnd", &program::undo(&offsets)),
        ] {
            let member = put(&mut value, name, &[])?;
            let function = Function { name, code, structure: functions, member };
            let program =
                sys::load(&function).map_err(|(error, log)| WindowError::Refused(error, log))?;
            let number = u64::try_from(program.as_raw_fd()).expect("descriptors count from zero");
            put(&mut value, name, &number.to_ne_bytes())?;
            loaded.push(program);
        }
        // Names are global to the machine, across all namespaces, so another process may already
        // have this name.
        for number in 0..MAX_WINDOWS {
            let name = format!("sprat_{:x}_{number:x}", std::process::id());
            put(&mut value, "name", &[0; NAME_BYTES])?;
            put(&mut value, "name", name.as_bytes())?;
            match sys::attach(&name, whole, &value) {
                Ok(kept) => return Ok(Self { name, _kept: kept }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(WindowError::Refused(error, String::new())),
            }
        }
        Err(WindowError::Refused(io::ErrorKind::AlreadyExists.into(), String::new()))
    }

    /// Switches a connection to this congestion control. First set a rate with
    /// [`limit_rate`](crate::path::limit_rate); the window follows that rate.
    ///
    /// # Errors
    /// The kernel does not accept the congestion control for this socket: for example, the socket
    /// is not TCP.
    pub fn attach(&self, socket: impl AsFd) -> io::Result<()> {
        crate::path::set_congestion_control(socket, &self.name)
    }
}
