//! System calls without a safe interface, for socket options and BPF.
#![allow(unsafe_code)] // these calls take addresses; see each block

use nix::libc;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Fills `into` with the kernel's statistics of a connection (`TCP_INFO`). An older kernel may fill
/// only the beginning.
pub(crate) fn tcp_info(socket: impl AsFd, into: &mut [u8]) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(into.len()).expect("an option is short");
    let socket = socket.as_fd().as_raw_fd();
    let into = into.as_mut_ptr().cast();
    // SAFETY: the address and the length are those of the slice, and the kernel may write all of
    // its bytes.
    let result = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length)
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Limits the rate at which the kernel sends, in bytes a second (`SO_MAX_PACING_RATE`).
pub(crate) fn limit_pacing_rate(socket: impl AsFd, rate: u64) -> io::Result<()> {
    let value = rate.to_ne_bytes();
    let length = libc::socklen_t::try_from(value.len()).expect("an option is short");
    let (socket, level, name) =
        (socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    // SAFETY: the address and the length are those of `value`, which the kernel only reads.
    let result = unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), length) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Commands of the `bpf` system call.
mod command {
    pub(super) const MAP_CREATE: i64 = 0;
    pub(super) const MAP_UPDATE: i64 = 2;
    pub(super) const PROGRAM_LOAD: i64 = 5;
    pub(super) const TYPES_LOAD: i64 = 18;
    pub(super) const LINK_CREATE: i64 = 28;
}

/// The argument of the `bpf` system call: a union, whose fields have fixed offsets.
struct Request([u8; 128]);

impl Request {
    fn new() -> Self {
        Self([0; 128])
    }

    fn with(mut self, at: usize, value: &[u8]) -> Self {
        self.0[at..at + value.len()].copy_from_slice(value);
        self
    }

    fn number(self, at: usize, value: u32) -> Self {
        self.with(at, &value.to_ne_bytes())
    }

    /// Stores the address of memory that the kernel reads or writes during the call.
    fn address(self, at: usize, of: *const u8) -> Self {
        self.with(at, &(of.expose_provenance() as u64).to_ne_bytes())
    }

    /// # Safety
    /// Each address in the request must be that of memory that lives during the call and is as long
    /// as the request says. The memory must be writable if the kernel writes to it.
    unsafe fn call(&self, command: i64) -> io::Result<i64> {
        // SAFETY: the request lives during the call and has the stated length. The caller
        // guarantees the memory to which the request refers.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// # Safety
    /// As for [`call`](Self::call). The command must also return a descriptor.
    unsafe fn open(&self, command: i64) -> io::Result<OwnedFd> {
        // SAFETY: the caller guarantees what `call` requires.
        let number = unsafe { self.call(command) }?;
        let number = i32::try_from(number).expect("a descriptor");
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// A BPF program that implements one function of a kernel structure of functions.
pub(crate) struct Function<'a> {
    /// The program's name: up to 15 letters, digits and underscores.
    pub(crate) name: &'a str,
    /// The program's instructions, of eight bytes each.
    pub(crate) code: &'a [u8],
    /// The number of the structure's type in the kernel's type information.
    pub(crate) structure: u32,
    /// The index of the function in the structure.
    pub(crate) member: u32,
}

/// Makes the kernel verify and load a program. The error contains the verifier's log.
pub(crate) fn load(function: &Function<'_>) -> Result<OwnedFd, (io::Error, String)> {
    const STRUCT_OPS: u32 = 27;
    // The kernel accepts programs of this type only under a licence that is compatible with its
    // own.
    let license = c"Dual MIT/GPL";
    let mut log = vec![0_u8; 64 << 10];
    let count = u32::try_from(function.code.len() / 8).expect("a short program");
    let request = Request::new()
        .number(0, STRUCT_OPS)
        .number(4, count)
        .address(8, function.code.as_ptr())
        .address(16, license.as_ptr().cast())
        .number(24, 1)
        .number(28, u32::try_from(log.len()).expect("a small log"))
        .address(32, log.as_mut_ptr())
        .with(48, name(function.name))
        .number(68, function.member)
        .number(108, function.structure);
    // SAFETY: code, licence and log live until the end of this function, and the log is writable.
    let loaded = unsafe { request.open(command::PROGRAM_LOAD) };
    loaded.map_err(|error| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        (error, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// Creates a structure of functions, of the kernel type `value_type` and with the content `value`,
/// and attaches it. The structure exists until both returned descriptors are closed and no
/// connection uses it.
pub(crate) fn attach(called: &str, value_type: u32, value: &[u8]) -> io::Result<[OwnedFd; 2]> {
    const STRUCT_OPS_MAP: u32 = 26;
    const BY_LINK: u32 = 1 << 13;
    const ATTACH_STRUCT_OPS: u32 = 44;
    // A map of this kind must have type information, although the kernel uses its own. This type
    // information has a header and one integer.
    let mut types = Vec::new();
    types.extend(0xEB9F_u16.to_ne_bytes());
    types.extend([1, 0]);
    types.extend(
        [24, 0, 16, 16, 1, 0, 1 << 24, 4, 32].iter().flat_map(|word: &u32| word.to_ne_bytes()),
    );
    types.push(0);
    let request = Request::new()
        .address(0, types.as_ptr())
        .number(16, u32::try_from(types.len()).expect("a few"));
    // SAFETY: `types` lives until the end of this function, and has the length that the request
    // states.
    let types = unsafe { request.open(command::TYPES_LOAD) }?;
    let number = |descriptor: &OwnedFd| {
        u32::try_from(descriptor.as_raw_fd()).expect("descriptors count from zero")
    };
    let request = Request::new()
        .number(0, STRUCT_OPS_MAP)
        .number(4, 4)
        .number(8, u32::try_from(value.len()).expect("a structure of functions"))
        .number(12, 1)
        .number(16, BY_LINK)
        .with(28, name(called))
        .number(48, number(&types))
        .number(60, value_type);
    // SAFETY: the request contains no addresses.
    let map = unsafe { request.open(command::MAP_CREATE) }?;
    let key = 0_u32.to_ne_bytes();
    let request =
        Request::new().number(0, number(&map)).address(8, key.as_ptr()).address(16, value.as_ptr());
    // SAFETY: key and value live until the end of this function. They have the sizes with which the
    // map was created.
    unsafe { request.call(command::MAP_UPDATE) }?;
    let request = Request::new().number(0, number(&map)).number(8, ATTACH_STRUCT_OPS);
    // SAFETY: the request contains no addresses.
    let link = unsafe { request.open(command::LINK_CREATE) }?;
    Ok([map, link])
}

/// Checks a name against the kernel's rules, and returns it as bytes.
///
/// # Panics
/// The name has more than 15 bytes, or a byte that is not a letter, a digit or an underscore.
fn name(name: &str) -> &[u8] {
    assert!(
        name.len() < 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        "{name:?}"
    );
    name.as_bytes()
}
