//! eBPF programs in the kernel.

use std::ffi::CString;

use super::ffi;

/// Returns whether the kernel's eBPF program with the id `number` has the name `name`. The kernel
/// keeps only the first 15 bytes of a name.
pub(in crate::bypass) fn program_is(number: u32, name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: the string ends in a zero, and the call keeps no pointer to it.
    unsafe { ffi::sprat_program_is(number, name.as_ptr()) == 1 }
}
