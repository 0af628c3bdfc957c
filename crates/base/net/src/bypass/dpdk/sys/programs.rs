//! Programs in the kernel.

use std::ffi::CString;

use super::ffi;

/// Whether the kernel's program of that number has that name, of which the kernel keeps 15 bytes.
pub(in crate::bypass) fn program_is(number: u32, name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a string ended by a zero, which the call keeps no pointer to.
    unsafe { ffi::sprat_program_is(number, name.as_ptr()) == 1 }
}
