//! Extended attributes of a file in the `user.` namespace. Attributes of the system (access control
//! lists, capabilities, security labels) apply to one machine only, and are never copied.

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;
use sprat_http::xattrs::{MAX_VALUE, PREFIX, Xattrs};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

/// Size of the buffer for a file's list of attribute names, in bytes. The kernel limits such a list
/// to this size.
const MAX_LIST: usize = 64 << 10;

/// Reads the attributes of an open file. Returns no attributes on a filesystem that does not
/// support them.
///
/// # Errors
/// The list of names or a value cannot be read. An attribute that was removed after the list was
/// read is left out, without an error.
pub(crate) fn xattrs_of(file: impl AsFd) -> io::Result<Xattrs> {
    let mut list: Vec<u8> = Vec::with_capacity(MAX_LIST);
    match flistxattr(&file, spare_capacity(&mut list)) {
        Err(Errno::NOTSUP) => return Ok(Xattrs::default()),
        other => other?,
    };
    let mut all = Vec::new();
    for name in list.split(|byte| *byte == 0) {
        let Some(short) = name.strip_prefix(PREFIX.as_bytes()) else { continue };
        let mut value: Vec<u8> = Vec::with_capacity(MAX_VALUE);
        match fgetxattr(&file, OsStr::from_bytes(name), spare_capacity(&mut value)) {
            // The attribute was removed after the list was read.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => all.push((short.to_vec(), value)),
        }
    }
    Ok(Xattrs::new(all))
}

/// Sets attributes on an open file, up to the first that fails.
/// # Errors
/// The filesystem's error: it supports no extended attributes, or has no room for these. Also a
/// name that contains a NUL.
pub(super) fn set(xattrs: &Xattrs, file: impl AsFd) -> io::Result<()> {
    for (name, value) in xattrs.iter() {
        let name = CString::new([PREFIX.as_bytes(), name].concat())?;
        fsetxattr(&file, &*name, value, XattrFlags::empty())?;
    }
    Ok(())
}
