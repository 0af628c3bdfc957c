//! Frames: who has one owns it, and gives it back.

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

/// Most frames received at once.
pub(in crate::bypass) const BURST: usize = 32;

/// Frames taken from the pool at once.
const STASH: usize = 32;

/// To DPDK: memory of whichever NUMA node.
const ANY_NODE: c_int = -1;

/// The memory of frames. Of any thread: what DPDK does with it is safe for all of them at once.
pub(in crate::bypass) struct Buffers {
    pool: NonNull<std::ffi::c_void>,
    frames: usize,
    room: usize,
}

// SAFETY: DPDK's pools may be used, and freed, by any thread.
unsafe impl Send for Buffers {}
// SAFETY: and by several at the same time.
unsafe impl Sync for Buffers {}

static POOLS: AtomicU32 = AtomicU32::new(0);

impl Buffers {
    /// `frames` frames with `room` bytes each, in the memory of that NUMA node if there is enough.
    /// DPDK has been started.
    ///
    /// # Errors
    /// When there is not so much memory on any node.
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
            // SAFETY: no frame of it is anywhere else, and nobody can get another.
            unsafe { ffi::sprat_dpdk_pool_free(self.pool.as_ptr()) };
        }
        // Else a device has not given all back: better to keep the memory than to have it written
        // to.
    }
}

/// Where a node's frames come from and go back to.
pub(in crate::bypass) struct Pool {
    /// Given back first.
    stash: Vec<Draft>,
    buffers: Arc<Buffers>,
    /// Draws on caches of whichever thread it is on: one at a time.
    _thread: PhantomData<Cell<()>>,
}

impl Pool {
    /// A thread's way to the buffers.
    pub(in crate::bypass) fn of(buffers: Arc<Buffers>) -> Self {
        Self { stash: Vec::with_capacity(STASH), buffers, _thread: PhantomData }
    }

    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    pub(super) fn as_ptr(&self) -> *mut std::ffi::c_void {
        self.buffers.as_ptr()
    }

    /// Bytes of the longest frame.
    pub(in crate::bypass) fn room(&self) -> usize {
        self.buffers.room
    }

    /// Frames there are.
    pub(in crate::bypass) fn frames(&self) -> usize {
        self.buffers.frames
    }

    /// Frames that are somewhere else: with a device, or being written.
    pub(in crate::bypass) fn used(&self) -> usize {
        self.buffers.used().saturating_sub(self.stash.len())
    }

    /// Whether there is no frame left, to write or to receive into.
    pub(in crate::bypass) fn is_empty(&self) -> bool {
        self.used() >= self.buffers.frames
    }

    /// A frame to write, unless the pool is empty.
    #[inline]
    pub(in crate::bypass) fn draft(&mut self) -> Option<Draft> {
        if self.stash.is_empty() {
            self.refill();
        }
        self.stash.pop()
    }

    fn refill(&mut self) {
        // All or none: of the last frames there may be too few for many.
        for count in [STASH, 1] {
            let count = u16::try_from(count).expect("few");
            // SAFETY: the pool lives as long as `self`; the stash is empty and has room for so
            // many.
            let got = unsafe {
                ffi::sprat_dpdk_alloc(self.buffers.as_ptr(), self.stash.as_mut_ptr().cast(), count)
            };
            // SAFETY: the C side has filled so many, each of which is now the stash's. `Draft` is
            // `RawFrame` by another name.
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

/// A frame being written. Its owner's until the device has taken it; given back when dropped.
#[repr(transparent)]
pub(in crate::bypass) struct Draft(RawFrame);

// SAFETY: a frame is its owner's alone, whoever that is, and may be given back by any thread.
unsafe impl Send for Draft {}

impl Draft {
    /// The frame's bytes, `len` of them, as the next to have it will see them; it is of that pool.
    /// What they are before they are written is anybody's guess, but never another process's
    /// secret: the pool is ours.
    #[inline]
    pub(in crate::bypass) fn bytes(&mut self, len: usize, pool: &Pool) -> &mut [u8] {
        assert!(len <= pool.room(), "{len} bytes do not fit {}", pool.room());
        self.0.len = u32::try_from(len).expect("no more than there was");
        // SAFETY: the buffer is ours alone, has at least the room of its pool (there is but one a
        // driver, and its frames were looked at when they were taken), and was zero when
        // the pool was made, so that all of it is initialised.
        unsafe { std::slice::from_raw_parts_mut(self.0.data, len) }
    }

    /// Has the device fill in the UDP checksum: the IP header begins at `before`, and has `ip`
    /// bytes.
    #[inline]
    pub(in crate::bypass) fn have_checked(&mut self, before: usize, ip: usize, v6: bool) {
        assert!(before < 0x80 && ip < 0x100, "headers of {before} and {ip} bytes");
        let layers = u32::try_from(before << 8 | ip << 16).expect("15 and 24 bits");
        self.0.flags = ffi::CHECKSUM | layers | if v6 { ffi::IPV6 } else { 0 };
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: the frame is ours, and from here on nobody's.
        unsafe { ffi::sprat_dpdk_free(&raw const self.0, 1) };
    }
}

/// A frame on its way from the thread that received it to another. Given back when dropped,
/// wherever that is.
pub(in crate::bypass) struct Parcel(RawFrame);

// SAFETY: a frame is its owner's alone, whoever that is, and may be given back by any thread.
unsafe impl Send for Parcel {}

impl Parcel {
    /// The frame, and whether the device found its checksums right.
    #[inline]
    pub(in crate::bypass) fn frame(&self) -> (&[u8], bool) {
        // SAFETY: the buffer is ours, and has so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.data, self.0.len as usize) };
        (bytes, self.0.flags & ffi::CHECKED != 0)
    }

    /// A copy of a frame, in one of the pool's; `None` when there is none left, or it is longer
    /// than those.
    pub(in crate::bypass) fn copy(frame: &[u8], checked: bool, pool: &mut Pool) -> Option<Self> {
        if frame.len() > pool.room() {
            return None;
        }
        let mut draft = pool.draft()?;
        draft.bytes(frame.len(), pool).copy_from_slice(frame);
        let parcel = Self(RawFrame { flags: if checked { ffi::CHECKED } else { 0 }, ..draft.0 });
        std::mem::forget(draft); // it is the parcel's now
        Some(parcel)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // SAFETY: the frame is ours, and from here on nobody's.
        unsafe { ffi::sprat_dpdk_free(&raw const self.0, 1) };
    }
}

/// Room for frames as they are received; empty between two rounds.
pub(in crate::bypass) struct Burst {
    frames: Box<[RawFrame; BURST]>,
    count: usize,
}

// SAFETY: its frames are its own alone, and may be given back by any thread.
unsafe impl Send for Burst {}

impl Burst {
    pub(in crate::bypass) fn new() -> Self {
        let none =
            RawFrame { mbuf: std::ptr::null_mut(), data: std::ptr::null_mut(), len: 0, flags: 0 };
        Self { frames: Box::new([none; BURST]), count: 0 }
    }

    /// Takes what has arrived at a device. What was there before is given back.
    #[inline]
    pub(in crate::bypass) fn receive(&mut self, device: &mut Device) {
        self.clear();
        let count = u16::try_from(BURST).expect("few");
        let (port, queue) = (device.port(), device.listen());
        // SAFETY: the device is open, the queue is ours alone, and there is room for so many
        // frames.
        let got = unsafe { ffi::sprat_dpdk_receive(port, queue, self.frames.as_mut_ptr(), count) };
        self.count = usize::from(got);
    }

    /// The frame at that place, counted from 0; none behind the last.
    #[inline]
    pub(in crate::bypass) fn get(&self, at: usize) -> Option<&[u8]> {
        let frame = self.frames[..self.count].get(at)?;
        // SAFETY: the buffer is ours until `clear`, which needs `&mut self`, and has so many bytes.
        Some(unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) })
    }

    /// Whether there are none.
    #[inline]
    pub(in crate::bypass) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The frames, and whether the device found their checksums right.
    #[inline]
    pub(in crate::bypass) fn iter(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.frames[..self.count].iter().map(|frame| {
            // SAFETY: the buffer is ours until `clear`, which needs `&mut self`, and has so many
            // bytes.
            let bytes = unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) };
            (bytes, frame.flags & ffi::CHECKED != 0)
        })
    }

    /// Takes out the frames that `is_for` says a number for, each with that number.
    pub(in crate::bypass) fn take_out(
        &mut self,
        is_for: impl Fn(&[u8]) -> Option<usize>,
        mut take: impl FnMut(usize, Parcel),
    ) {
        let (count, mut kept) = (std::mem::take(&mut self.count), 0);
        for at in 0..count {
            let parcel = Parcel(self.frames[at]);
            match is_for(parcel.frame().0) {
                Some(whose) => take(whose, parcel),
                None => {
                    self.frames[kept] = parcel.0;
                    std::mem::forget(parcel); // it stays the burst's
                    kept += 1;
                }
            }
        }
        self.count = kept;
    }

    /// Gives the frames back.
    #[inline]
    pub(in crate::bypass) fn clear(&mut self) {
        if self.count > 0 {
            let count = u16::try_from(self.count).expect("few");
            // SAFETY: the first `count` are ours, and from here on nobody's.
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

/// Hands a device a frame that begins with `head` and ends with `tail`; gives `head` back if it did
/// not take it.
#[inline]
pub(super) fn transmit_with(
    (port, queue): (u16, u16),
    pool: &Pool,
    head: Draft,
    tail: &[u8],
) -> Option<Draft> {
    let len = u16::try_from(tail.len()).expect("a frame's length has 16 bits");
    // SAFETY: the device is open, its caller's alone, and of a kind that copies a frame at once,
    // which the C side checks: `tail` is read during the call and not after it. `head` is ours;
    // the pool lives.
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
    std::mem::forget(head); // it is the device's now
    None
}

/// Hands the first of `frames` to a device; returns how many it took.
#[inline]
pub(super) fn transmit((port, queue): (u16, u16), frames: &mut Vec<Draft>) -> usize {
    let count = u16::try_from(frames.len()).expect("queues are short");
    // SAFETY: the device is open and its caller's alone; the frames are ours. `Draft` is `RawFrame`
    // by another name.
    let took = usize::from(unsafe {
        ffi::sprat_dpdk_transmit(port, queue, frames.as_ptr().cast(), count)
    });
    // Those are the device's now.
    frames.drain(..took).for_each(std::mem::forget);
    took
}
