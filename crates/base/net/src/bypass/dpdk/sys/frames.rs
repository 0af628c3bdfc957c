//! Frames of DPDK's pools. The holder of a frame owns it. Dropping a frame returns it to its pool.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::device::Device;
use super::eal::error;
use super::ffi::{self, RawFrame};

/// The largest number of frames received in one burst.
pub(in crate::bypass) const BURST: usize = 32;

/// Frames taken from the pool in one call.
const STASH: usize = 32;

/// DPDK's constant for memory of any NUMA node.
const ANY_NODE: c_int = -1;

/// The memory of frames. Any threads may use it at once: DPDK's pools are thread-safe.
pub(in crate::bypass) struct Buffers {
    pool: NonNull<std::ffi::c_void>,
    frames: usize,
    room: usize,
}

// SAFETY: DPDK's pools may be used, and freed, by any thread.
unsafe impl Send for Buffers {}
// SAFETY: DPDK's pools may be used by several threads at the same time.
unsafe impl Sync for Buffers {}

static POOLS: AtomicU32 = AtomicU32::new(0);

impl Buffers {
    /// Allocates `frames` frames with `room` bytes each. They lie in the memory of NUMA node `node`
    /// if it has enough. DPDK must have been started.
    ///
    /// # Errors
    /// No node has enough memory.
    pub(in crate::bypass) fn new(frames: u32, room: usize, node: Option<i32>) -> io::Result<Self> {
        let near = node.and_then(|node| Self::on(frames, room, node).ok());
        near.map_or_else(|| Self::on(frames, room, ANY_NODE), Ok)
    }

    fn on(frames: u32, room: usize, node: c_int) -> io::Result<Self> {
        let name = format!("sprat-{}", POOLS.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("a name without zeros");
        let bytes = u32::try_from(room).expect("frames are short");
        assert!(bytes <= 60_000, "a buffer of {bytes} bytes does not fit DPDK's 16 bits");
        let mut pool = std::ptr::null_mut();
        // SAFETY: the name ends in a zero and is copied; `pool` outlives the call.
        let code =
            unsafe { ffi::sprat_dpdk_pool(name.as_ptr(), frames, bytes, node, &raw mut pool) };
        match NonNull::new(pool) {
            Some(pool) if code == 0 => Ok(Self { pool, frames: frames as usize, room }),
            _ => Err(error(&format!("make {frames} frames of {room} bytes"), code)),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.pool.as_ptr()
    }

    fn used(&self) -> usize {
        // SAFETY: the pool lives as long as `self`.
        unsafe { ffi::sprat_dpdk_pool_used(self.pool.as_ptr()) as usize }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.used() == 0 {
            // SAFETY: no frame of it is in use, and none can be taken any more.
            unsafe { ffi::sprat_dpdk_pool_free(self.pool.as_ptr()) };
        }
        // If frames are in use, a device has them: leak the memory, because the device may write to
        // it.
    }
}

/// A node's source of frames, with a small stock of its own.
pub(in crate::bypass) struct Pool {
    /// Its frames are returned before `buffers` is dropped.
    stash: Vec<Draft>,
    buffers: Arc<Buffers>,
    /// Makes it `!Sync`: a call uses DPDK's cache of the calling thread, so only one thread may use
    /// the pool at a time.
    _thread: PhantomData<Cell<()>>,
}

impl Pool {
    /// Wraps buffers for use by one thread.
    pub(in crate::bypass) fn of(buffers: Arc<Buffers>) -> Self {
        Self { stash: Vec::with_capacity(STASH), buffers, _thread: PhantomData }
    }

    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    pub(super) fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.buffers.as_ptr()
    }

    /// Returns the length of the longest frame, in bytes.
    pub(in crate::bypass) fn room(&self) -> usize {
        self.buffers.room
    }

    /// Returns the number of frames in the pool, free and in use.
    pub(in crate::bypass) fn frames(&self) -> usize {
        self.buffers.frames
    }

    /// Returns the number of frames in use: at a device, or being written.
    pub(in crate::bypass) fn used(&self) -> usize {
        self.buffers.used().saturating_sub(self.stash.len())
    }

    /// Returns whether no frame is left, to write or to receive into.
    pub(in crate::bypass) fn is_empty(&self) -> bool {
        self.used() >= self.buffers.frames
    }

    /// Takes a frame to write; `None` if the pool is empty.
    #[inline]
    pub(in crate::bypass) fn draft(&mut self) -> Option<Draft> {
        if self.stash.is_empty() {
            self.refill();
        }
        self.stash.pop()
    }

    fn refill(&mut self) {
        // The call takes `count` frames or none, and the pool may have fewer than `STASH` left.
        for count in [STASH, 1] {
            let count = u16::try_from(count).expect("few");
            // SAFETY: the pool lives as long as `self`; the stash is empty and has room for `count`
            // frames.
            let got = unsafe {
                ffi::sprat_dpdk_alloc(self.buffers.as_ptr(), self.stash.as_mut_ptr().cast(), count)
            };
            // SAFETY: the C side has filled that many elements, which now belong to the stash.
            // `Draft` is a transparent `RawFrame`.
            unsafe { self.stash.set_len(usize::from(got)) };
            if got > 0 {
                break;
            }
        }
        for draft in &self.stash {
            let room = self.buffers.room;
            assert!(draft.0.len as usize >= room, "the pool's frames have room for {room} bytes");
        }
    }
}

/// A frame being written. Its owner keeps the frame until a device has taken it. Dropping the frame
/// returns it to the pool.
#[repr(transparent)]
pub(in crate::bypass) struct Draft(RawFrame);

// SAFETY: a frame belongs to its owner alone, and any thread may return it.
unsafe impl Send for Draft {}

impl Draft {
    /// Sets the frame's length and returns its bytes; `pool` is the pool it came from. Until they
    /// are written, the bytes hold old contents, but never those of another process, because the
    /// pool belongs to this process.
    #[inline]
    pub(in crate::bypass) fn bytes(&mut self, len: usize, pool: &Pool) -> &mut [u8] {
        assert!(len <= pool.room(), "{len} bytes do not fit {}", pool.room());
        self.0.len = u32::try_from(len).expect("no more than there was");
        // SAFETY: the buffer is ours alone, has at least the pool's room (a driver has only one
        // pool, and `refill` checked its frames), and was zeroed when the pool was created, so that
        // all of it is initialised.
        unsafe { std::slice::from_raw_parts_mut(self.0.data, len) }
    }

    /// Requests that the device fill in the UDP checksum. `before` is the number of bytes before
    /// the IP header, and `ip` the length of that header in bytes.
    #[inline]
    pub(in crate::bypass) fn request_checksum(&mut self, before: usize, ip: usize, v6: bool) {
        assert!(before < 0x80 && ip < 0x100, "headers of {before} and {ip} bytes");
        let layers = u32::try_from(before << 8 | ip << 16).expect("15 and 24 bits");
        self.0.flags = ffi::CHECKSUM | layers | if v6 { ffi::IPV6 } else { 0 };
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: the frame is ours, and not used afterwards.
        unsafe { ffi::sprat_dpdk_free(&raw const self.0, 1) };
    }
}

/// A received frame on its way to another thread. Dropping it, on any thread, returns the frame to
/// its pool.
pub(in crate::bypass) struct Parcel(RawFrame);

// SAFETY: a frame belongs to its owner alone, and any thread may return it.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Returns the frame's bytes, and whether the device has verified its checksums.
    #[inline]
    pub(in crate::bypass) fn frame(&self) -> (&[u8], bool) {
        // SAFETY: the buffer is ours and has `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.data, self.0.len as usize) };
        (bytes, self.0.flags & ffi::CHECKED != 0)
    }

    /// Copies a frame into a free frame of the pool. `None` if the pool is empty, or the frame is
    /// too long.
    pub(in crate::bypass) fn copy(frame: &[u8], checked: bool, pool: &mut Pool) -> Option<Self> {
        if frame.len() > pool.room() {
            return None;
        }
        let mut draft = pool.draft()?;
        draft.bytes(frame.len(), pool).copy_from_slice(frame);
        let parcel = Self(RawFrame { flags: if checked { ffi::CHECKED } else { 0 }, ..draft.0 });
        std::mem::forget(draft); // the parcel owns it now
        Some(parcel)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // SAFETY: the frame is ours, and not used afterwards.
        unsafe { ffi::sprat_dpdk_free(&raw const self.0, 1) };
    }
}

/// The frames of one receive; empty between two receives.
pub(in crate::bypass) struct Burst {
    frames: Box<[RawFrame; BURST]>,
    count: usize,
}

// SAFETY: its frames belong to it alone, and any thread may return them.
unsafe impl Send for Burst {}

impl Burst {
    pub(in crate::bypass) fn new() -> Self {
        let none =
            RawFrame { mbuf: std::ptr::null_mut(), data: std::ptr::null_mut(), len: 0, flags: 0 };
        Self { frames: Box::new([none; BURST]), count: 0 }
    }

    /// Receives the frames that have arrived at a device, and returns the frames of the previous
    /// receive to their pool.
    #[inline]
    pub(in crate::bypass) fn receive(&mut self, device: &mut Device) {
        self.clear();
        let count = u16::try_from(BURST).expect("few");
        let (port, queue) = (device.port(), device.queue_to_poll());
        // SAFETY: the device is open, the queue is ours alone, and there is room for `count`
        // frames.
        let got = unsafe { ffi::sprat_dpdk_receive(port, queue, self.frames.as_mut_ptr(), count) };
        self.count = usize::from(got);
    }

    /// Returns the bytes of the frame at that index; `None` after the last.
    #[inline]
    pub(in crate::bypass) fn get(&self, at: usize) -> Option<&[u8]> {
        let frame = self.frames[..self.count].get(at)?;
        // SAFETY: the buffer is ours until `clear`, which needs `&mut self`, and has `len` bytes.
        Some(unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) })
    }

    /// Returns whether there are no frames.
    #[inline]
    pub(in crate::bypass) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the frames, each with whether the device has verified its checksums.
    #[inline]
    pub(in crate::bypass) fn iter(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.frames[..self.count].iter().map(|frame| {
            // SAFETY: the buffer is ours until `clear`, which needs `&mut self`, and has `len`
            // bytes.
            let bytes = unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) };
            (bytes, frame.flags & ffi::CHECKED != 0)
        })
    }

    /// Removes the frames for which `is_for` returns a number, and passes each to `take` with that
    /// number.
    pub(in crate::bypass) fn take_out(
        &mut self,
        is_for: impl Fn(&[u8]) -> Option<usize>,
        mut take: impl FnMut(usize, Parcel),
    ) {
        let (count, mut kept) = (std::mem::take(&mut self.count), 0);
        for at in 0..count {
            let parcel = Parcel(self.frames[at]);
            match is_for(parcel.frame().0) {
                Some(number) => take(number, parcel),
                None => {
                    self.frames[kept] = parcel.0;
                    std::mem::forget(parcel); // the frame stays in the burst
                    kept += 1;
                }
            }
        }
        self.count = kept;
    }

    /// Returns the frames to their pool.
    #[inline]
    pub(in crate::bypass) fn clear(&mut self) {
        if self.count > 0 {
            let count = u16::try_from(self.count).expect("few");
            // SAFETY: the first `count` frames are ours, and not used afterwards.
            unsafe { ffi::sprat_dpdk_free(self.frames.as_ptr(), count) };
            self.count = 0;
        }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Sends a frame that begins with `head` and ends with `tail`. Returns `head` if the device did not
/// accept the frame.
#[inline]
pub(super) fn transmit_with(
    (port, queue): (u16, u16),
    pool: &Pool,
    head: Draft,
    tail: &[u8],
) -> Option<Draft> {
    let len = u16::try_from(tail.len()).expect("a frame's length has 16 bits");
    // SAFETY: the device is open and belongs to the caller alone, and is of a kind that copies a
    // frame at once, which the C side checks: `tail` is not read after the call. `head` is ours;
    // the pool is alive.
    let took = unsafe {
        ffi::sprat_dpdk_transmit_with(
            port,
            queue,
            pool.as_ptr(),
            &raw const head.0,
            tail.as_ptr(),
            len,
        )
    };
    if took == 0 {
        return Some(head);
    }
    std::mem::forget(head); // the device owns it now
    None
}

/// Sends the first of `frames`, as many as the device takes, and returns how many.
#[inline]
pub(super) fn transmit((port, queue): (u16, u16), frames: &mut Vec<Draft>) -> usize {
    let count = u16::try_from(frames.len()).expect("queues are short");
    // SAFETY: the device is open and belongs to the caller alone; the frames are ours. `Draft` is a
    // transparent `RawFrame`.
    let took = usize::from(unsafe {
        ffi::sprat_dpdk_transmit(port, queue, frames.as_ptr().cast(), count)
    });
    // The device owns these frames now.
    frames.drain(..took).for_each(std::mem::forget);
    took
}
