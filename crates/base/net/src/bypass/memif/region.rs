//! Memory that two processes share.
//!
//! All `unsafe` of memory interfaces is here. No Rust reference to bytes in the shared memory ever
//! exists: bytes are copied in and out. Only a ring's flags and its positions, which order the
//! copies, are accessed in place, as atomics of 16 bits. A peer that violates the protocol can only
//! garble frames that it could have sent garbled anyway. It cannot change bytes that have been
//! copied out.

#![allow(
    unsafe_code,
    reason = "shared memory has no safe interface; each block says why it is sound"
)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The largest region, in bytes. Offsets in a region have 32 bits, so a larger region is refused.
pub(super) const MAX_BYTES: u64 = 4 << 30;

/// A region of shared memory. It stays mapped at its full length, whatever happens to the peer.
pub(super) struct Region {
    start: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping belongs to the process, not to a thread. The module's documentation says how
// it is accessed.
unsafe impl Send for Region {}

impl Region {
    /// Creates a zeroed region that cannot shrink.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn create(name: &str, len: usize) -> io::Result<Self> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, len as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        Self::map(fd, len)
    }

    /// Maps a region that a peer has sent.
    ///
    /// # Errors
    /// Errors of the system, or a region that is shorter than stated, empty, or too long. Also a
    /// region that the peer could shorten, because access beyond its end would kill this process.
    pub(super) fn from_peer(fd: OwnedFd, bytes: u64) -> io::Result<Self> {
        let wrong = |problem: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("a region of memory {problem}"))
        };
        let len = usize::try_from(bytes).ok().filter(|_| (1..=MAX_BYTES).contains(&bytes));
        let len = len.ok_or_else(|| wrong(&format!("of {bytes} bytes")))?;
        if !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(wrong("that the peer could shrink (it lacks F_SEAL_SHRINK)"));
        }
        if fstat(&fd)?.st_size.cast_unsigned() < bytes {
            return Err(wrong("shorter than it says"));
        }
        Self::map(fd, len)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the call creates a new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, &fd, 0)?
        };
        let start = NonNull::new(start.cast()).expect("no mapping is at 0");
        Ok(Self { start, len, fd })
    }

    /// Returns the descriptor to send to the peer.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether `len` bytes at `offset` lie within the region.
    #[inline]
    pub(super) fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(self.contains(offset, len), "{len} bytes at {offset} of {}", self.len);
        // SAFETY: the pointer is within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Copies bytes out of the region.
    #[inline]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: `to.len()` bytes are mapped at `from`. `to` is ours, so it does not overlap them.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes into the region.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: `from.len()` bytes are mapped and writable at `to`. `from` does not overlap them,
        // because a Rust reference to it exists.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Prefetches the cache line at `offset`, if `offset` is within the region.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if offset < self.len {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.start.as_ptr().wrapping_add(offset);
            // SAFETY: the instruction is a hint, for which every address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
    }

    /// Prefetches the cache line at `offset` for writing.
    #[inline]
    pub(super) fn prefetch_to_write(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if offset < self.len {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let line = self.start.as_ptr().wrapping_add(offset);
            // SAFETY: the instruction is a hint, for which every address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
        }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU16 {
        let at = self.at(offset, 2);
        assert!(offset.is_multiple_of(2), "a position at the odd offset {offset}");
        // SAFETY: the word is mapped as long as `self` exists. It is aligned, as the mapping and
        // the offset are. We access it only through atomics, and the protocol demands atomics of
        // the peer too. Any value that the peer writes is a valid `u16`.
        unsafe { AtomicU16::from_ptr(at.cast()) }
    }

    /// Loads a position or flags that the peer writes. Everything that the peer wrote before it is
    /// visible afterwards.
    #[inline]
    pub(super) fn load(&self, offset: usize) -> u16 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Stores a position or flags for the peer. A peer that reads the value also sees everything
    /// that we wrote before.
    #[inline]
    pub(super) fn store(&self, offset: usize, value: u16) {
        self.word(offset).store(value, Ordering::Release);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: the mapping is ours and no reference to it exists. The call cannot fail for a
        // mapping that exists.
        let _ = unsafe { munmap(start, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same_bytes() {
        let ours = Region::create("test", 8192).expect("memory");
        let fd = ours.fd().try_clone_to_owned().expect("a descriptor");
        let theirs = Region::from_peer(fd, 8192).expect("sealed and as long as it says");
        ours.write(4000, b"likes tea");
        ours.store(0, 7);
        let mut bytes = [0; 9];
        theirs.read(4000, &mut bytes);
        assert_eq!((&bytes, theirs.load(0)), (b"likes tea", 7));
        assert!(
            theirs.contains(8191, 1)
                && !theirs.contains(8191, 2)
                && !theirs.contains(usize::MAX, 2)
        );
    }

    #[test]
    fn memory_that_a_peer_could_take_away_is_refused() {
        let loose =
            memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&loose, 8192).expect("grows");
        let error = Region::from_peer(loose, 8192).err().expect("refused").to_string();
        assert!(error.contains("F_SEAL_SHRINK"), "{error}");
        let sealed = Region::create("test", 4096).expect("memory");
        for bytes in [0, 4097, u64::MAX] {
            let fd = sealed.fd().try_clone_to_owned().expect("a descriptor");
            assert!(Region::from_peer(fd, bytes).is_err(), "{bytes} bytes");
        }
    }
}
