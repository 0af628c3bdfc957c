//! Machine code in memory, and the call into it. The pages are written first and then made
//! executable, so they are never writable and executable at the same time. They are unmapped when
//! the code is dropped.

#![allow(unsafe_code)] // ARCHITECTURE.md says why

use crate::machine::Emitted;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// The loop over the rows of j for one tile of i. Its arguments are: the rows, their number, the
/// tile, the accumulators, the constants, and the memory for spilled values.
type Function = unsafe extern "sysv64" fn(*const u8, usize, *const u8, *mut u8, *const u8, *mut u8);

/// The number of bytes of each buffer that the code of a loop reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Bytes of one row.
    pub(crate) row: usize,
    pub(crate) tile: usize,
    pub(crate) sums: usize,
    pub(crate) pool: usize,
    pub(crate) spills: usize,
}

/// Executable code of one loop.
#[derive(Debug)]
pub(crate) struct Code {
    at: NonNull<c_void>,
    len: usize,
    extent: Extent,
}

impl Code {
    /// Maps the emitted code into executable memory, for buffers of this extent.
    pub(crate) fn new(emitted: &Emitted, extent: Extent) -> Result<Self, Errno> {
        let bytes = &emitted.code;
        assert!(!bytes.is_empty(), "a function returns at least");
        let len = bytes.len();
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let code = Self { at: NonNull::new(at).ok_or(Errno::NOMEM)?, len, extent };
        // SAFETY: the mapping has `len` bytes, is writable, and nothing else refers to it.
        unsafe { at.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        // SAFETY: this object owns the mapping, and no reference into the mapping exists.
        unsafe { mprotect(at, len, MprotectFlags::READ | MprotectFlags::EXEC) }?;
        Ok(code)
    }

    /// Runs the loop over `count` rows and leaves the accumulators in `sums`.
    ///
    /// # Panics
    /// A buffer is shorter than the code's extent, or `count` is 0.
    pub(crate) fn call(
        &self,
        rows: &[u8],
        count: usize,
        tile: &[u8],
        sums: &mut [u8],
        pool: &[u8],
        spills: &mut [u8],
    ) {
        let extent = self.extent;
        assert!(count > 0, "a loop runs once at least");
        assert!(rows.len() / count >= extent.row, "rows that are not there");
        assert!(tile.len() >= extent.tile && sums.len() >= extent.sums, "a tile cut short");
        assert!(
            pool.len() >= extent.pool && spills.len() >= extent.spills,
            "constants or room that are not there"
        );
        // SAFETY: the address is that of a whole function of this type, because `Emitted` contains
        // one. The function stays mapped and executable as long as `self` lives.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.at.as_ptr()) };
        let (sums, spills) = (sums.as_mut_ptr(), spills.as_mut_ptr());
        // SAFETY: the function stays within its extent of each buffer, and the assertions above
        // check that the buffers are long enough. The function uses only registers that its calling
        // convention allows. The kernel was compiled for instructions that this processor has.
        unsafe { function(rows.as_ptr(), count, tile.as_ptr(), sums, pool.as_ptr(), spills) };
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the code with this length. No call is running, because a call
        // borrows `self`.
        let unmapped = unsafe { munmap(self.at.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours: {unmapped:?}");
    }
}

// SAFETY: after `new` the memory is only read and executed, and none of it belongs to a thread.
unsafe impl Send for Code {}
// SAFETY: as for `Send`. Calls share no state except their arguments.
unsafe impl Sync for Code {}
