//! A congestion window that keeps out of the way: a congestion control in the kernel whose window
//! is always twice what the socket's pacing rate needs. Whoever sets the rate decides.
//!
//! The kernel's own algorithms turn losses and delays into a window; a rate that is set from
//! outside can only be lower than what they allow. This one leaves retransmission, recovery and
//! pacing to the kernel, and its rate to us. It is three short programs for the kernel's
//! verifier, in a structure of functions (BPF `struct_ops`): Linux 6.4 or later with BTF, CAP_BPF
//! and CAP_NET_ADMIN.

pub mod btf;
mod program;

use crate::sys::{self, Function};
use btf::Types;
use program::Places;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use thiserror::Error;

/// The kernel's types.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Most windows of a process.
const MAX_WINDOWS: u32 = 256;

/// The lowest bit of a rate says that it is a knock's
/// ([`Weir::knocks`](crate::weir::Weir::knocks)): the window is then that of the rate around it.
/// Who ends the knock may be late, on a machine that is busy; what is sent until then is bounded by
/// that window.
pub const KNOCK_BIT: u64 = 1;

/// Bytes of a congestion control's name, with the zero at its end.
const NAME_BYTES: usize = 16;

/// Why there is no such window here.
#[derive(Debug, Error)]
pub enum WindowError {
    /// The kernel does not tell its types.
    #[error(
        "the kernel does not tell its types ({KERNEL_TYPES}: {0}); it must be built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes(io::Error),
    /// Its types are others than we know.
    #[error("the kernel's types have no {0}; Linux 6.4 or later is needed")]
    UnknownTypes(&'static str),
    /// It refuses.
    #[error("the kernel refuses a congestion control of ours: {0}{hint}{log}", hint = hint(.0), log = said(.1))]
    Refused(io::Error, String),
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        " (needs CAP_BPF and CAP_NET_ADMIN)"
    } else {
        ""
    }
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its verifier said:\n{log}") }
}

/// The congestion control, as long as it is kept. Connections that use it keep it in the kernel
/// beyond that.
#[derive(Debug)]
pub struct Window {
    name: String,
    _kept: [OwnedFd; 2],
}

impl Window {
    /// Gives the programs to the kernel.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn open() -> Result<Self, WindowError> {
        let bytes = std::fs::read(KERNEL_TYPES).map_err(WindowError::NoTypes)?;
        let unknown = WindowError::UnknownTypes;
        let types = Types::parse(&bytes).ok_or(unknown("form that we know"))?;
        let places = Places::find(&types).map_err(unknown)?;
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
        let follow = program::follow(&places);
        let mut loaded = Vec::new();
        for (name, code) in [
            ("init", &follow),
            ("cong_control", &follow),
            ("ssthresh", &program::ssthresh()),
            ("undo_cwnd", &program::undo(&places)),
        ] {
            let member = put(&mut value, name, &[])?;
            let function = Function { name, code, structure: functions, member };
            let program =
                sys::load(&function).map_err(|(error, log)| WindowError::Refused(error, log))?;
            let number = u64::try_from(program.as_raw_fd()).expect("descriptors count from zero");
            put(&mut value, name, &number.to_ne_bytes())?;
            loaded.push(program);
        }
        // Names are for the whole machine, whatever namespace one is in: another of ours may have
        // one.
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

    /// Gives a connection this window. It needs a rate ([`limit_rate`](crate::path::limit_rate)) to
    /// be told first, and follows it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give(&self, socket: impl AsFd) -> io::Result<()> {
        crate::path::set_congestion_control(socket, &self.name)
    }
}
