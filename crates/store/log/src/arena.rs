//! Memory that is reserved up front. This module has the only unsafe code of the crate.
//!
//! A [`Mapping`] is a range of virtual memory that is reserved up front. The kernel backs each page
//! with zeroed memory when the page is first touched. A mapping derefs to a plain slice, so all
//! other code of the crate is bounds-checked safe Rust.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use zerocopy::FromZeros;

/// Size of a huge page, in bytes. Mappings are aligned to it, so that the kernel can use huge
/// pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory for `len` items. Its address space is reserved at once; a page becomes resident
/// when it is first touched.
pub(crate) struct Mapping<T> {
    items: NonNull<T>,
    len: usize,
    raw: Raw,
}

// SAFETY: the mapping owns its memory alone, as a `Box<[T]>` would.
unsafe impl<T: Send> Send for Mapping<T> {}

impl<T: FromZeros> Mapping<T> {
    /// Reserves room for `len` items.
    ///
    /// # Errors
    /// When the address space is exhausted or limited, or `len` is zero or far too large.
    pub(crate) fn reserve(len: usize) -> std::io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0) };
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes > 0 && bytes <= isize::MAX as usize / 2);
        let bytes = bytes.ok_or(std::io::ErrorKind::InvalidInput)?;
        let (raw, aligned) = Raw::reserve(bytes)?;
        Ok(Self { items: aligned.cast(), len, raw })
    }

    /// Gives the pages of `bytes` (byte offsets, page aligned) back to the kernel; they read as
    /// zeros afterwards.
    pub(crate) fn release(&mut self, bytes: std::ops::Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len * size_of::<T>());
        // SAFETY: the range lies within this mapping, which `&mut self` borrows alone, and zeroed
        // `T`s are valid.
        unsafe { self.raw.release(self.items.cast(), bytes) };
    }
}

impl<T> Deref for Mapping<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` items lie there, aligned, zeroed (valid as `T: FromZeros`) or written
        // through `deref_mut`, and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Mapping<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.items.as_ptr(), self.len) }
    }
}

/// Asks the processor to load the cache line of `item`.
#[inline]
pub(crate) fn prefetch<T>(item: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads nothing and faults on nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = item;
}

/// The memory of a mapping. It comes from the kernel, or under Miri, which cannot map memory, from
/// the heap.
#[cfg(not(miri))]
struct Raw {
    base: NonNull<u8>,
    bytes: usize,
}

#[cfg(not(miri))]
impl Raw {
    /// Maps `bytes` bytes and a huge page more. Returns the mapping and the first address in it
    /// that is aligned to a huge page.
    fn reserve(bytes: usize) -> std::io::Result<(Self, NonNull<u8>)> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        // One huge page is added, so that the mapping contains an aligned range of the wanted
        // length.
        let mapped = bytes + HUGE_PAGE_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).expect("the kernel does not map address zero");
        let skip = base.as_ptr().align_offset(HUGE_PAGE_BYTES);
        assert!(skip < HUGE_PAGE_BYTES);
        // SAFETY: `skip + bytes` is less than the length of the mapping.
        let aligned = unsafe { base.add(skip) };
        // Huge pages are optional: without them the log works too, but slower. SAFETY: the advice
        // concerns this new mapping alone and changes no contents.
        let _ = unsafe { madvise(aligned.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok((Self { base, bytes: mapped }, aligned))
    }

    /// Returns `range`, relative to `items`, to the kernel.
    ///
    /// # Safety
    /// The range lies within this mapping, no borrow of it exists, and zeros are valid there.
    unsafe fn release(&mut self, items: NonNull<u8>, range: std::ops::Range<usize>) {
        // SAFETY: the caller's promise.
        let start = unsafe { items.add(range.start) };
        // If the kernel refuses, the pages stay resident, which costs memory and nothing else.
        // SAFETY: private anonymous memory reads as zeros afterwards; the caller allows that.
        let _ = unsafe {
            rustix::mm::madvise(
                start.as_ptr().cast(),
                range.len(),
                rustix::mm::Advice::LinuxDontNeed,
            )
        };
    }
}

#[cfg(not(miri))]
impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `reserve`; its owner is being dropped, so no borrow
        // of it exists.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(miri)]
struct Raw {
    base: NonNull<u8>,
    layout: std::alloc::Layout,
}

#[cfg(miri)]
impl Raw {
    fn reserve(bytes: usize) -> std::io::Result<(Self, NonNull<u8>)> {
        let layout =
            std::alloc::Layout::from_size_align(bytes, 4096).map_err(std::io::Error::other)?;
        // SAFETY: the layout is not empty: `Mapping::reserve` checks.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok((Self { base, layout }, base))
    }

    /// Zeroes `range`, as the kernel would.
    ///
    /// # Safety
    /// The range lies within this allocation, no borrow of it exists, and zeros are valid there.
    unsafe fn release(&mut self, items: NonNull<u8>, range: std::ops::Range<usize>) {
        // SAFETY: the caller's promise.
        let start = unsafe { items.add(range.start) };
        // SAFETY: the caller's promise.
        unsafe { start.write_bytes(0, range.len()) };
    }
}

#[cfg(miri)]
impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated in `reserve` with this layout; its owner is being dropped.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
