//! Socket options that have no safe interface.
#![allow(unsafe_code)] // getsockopt and setsockopt take addresses; see each block

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Fills `into` with the option's value; gives how many bytes there were.
pub(crate) fn get(socket: impl AsFd, level: i32, name: i32, into: &mut [u8]) -> io::Result<usize> {
    let mut length = nix::libc::socklen_t::try_from(into.len()).expect("an option is short");
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the address and the length are those of `into`, of which every byte may be written.
    let result = unsafe { nix::libc::getsockopt(socket, level, name, into.as_mut_ptr().cast(), &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(into.len().min(length as usize))
}

/// Sets the option to `value`.
pub(crate) fn set(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = nix::libc::socklen_t::try_from(value.len()).expect("an option is short");
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the address and the length are those of `value`, which is only read.
    let result = unsafe { nix::libc::setsockopt(socket, level, name, value.as_ptr().cast(), length) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
