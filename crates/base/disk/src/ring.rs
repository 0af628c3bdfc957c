//! The io_uring engine, the only module that passes addresses to the kernel.
#![allow(unsafe_code)] // io_uring needs addresses; each block says why it is sound

use crate::{BLOCK_BYTES, MAX_IN_FLIGHT, Op};
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Number of submission entries: each operation in flight needs up to two, for a write and its
/// sync.
const ENTRIES: u32 = 128;
const _: () = assert!(ENTRIES as usize == 2 * MAX_IN_FLIGHT);

/// Marks, in an entry's user data, the sync that follows a durable write; the other bits are the
/// slot's index.
const SYNC: u64 = 1 << 32;

/// An operation that the kernel works on.
struct Slot {
    ticket: u64,
    op: Op,
    /// Bytes written or read so far. The kernel may transfer fewer bytes than requested.
    done: usize,
    /// The number of completions still expected.
    due: u8,
    /// Whether a sync must still follow the write.
    unsynced: bool,
    /// Whether the kernel may have received a write and its sync in two submissions. It then does
    /// not keep their order.
    separated: bool,
    /// The first error of the operation or its sync.
    error: Option<io::Error>,
}

impl Slot {
    /// Handles a completion of the operation, or of the sync linked to it.
    fn complete(&mut self, sync: bool, result: i32) {
        self.due -= 1;
        let Ok(count) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            // The kernel cancels the sync if the write before it was short; the write has its own
            // completion.
            let cancelled =
                sync && error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error());
            if !cancelled {
                self.error.get_or_insert(error);
            }
            return;
        };
        if sync {
            self.unsynced &= self.separated || self.left() > 0;
            return;
        }
        let (before, from) = (self.done, self.from());
        match &self.op {
            Op::Write { len, .. } => {
                self.done = from + count;
                assert!(self.done <= *len, "the kernel wrote what was there");
                if self.done == before {
                    self.error.get_or_insert(io::ErrorKind::WriteZero.into());
                }
            }
            Op::Read { len, wanted, .. } => {
                self.done = from + count;
                assert!(self.done <= *len, "the kernel read what there was room for");
                // No progress: the file ends there.
                if self.done < *wanted && self.done <= before {
                    self.error.get_or_insert(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Op::Sync | Op::Reserve { .. } | Op::Release { .. } => {}
        }
    }

    /// Returns the offset in the buffer at which the operation continues. A read that ended within
    /// a block, as at a file's end, starts again at that block, because direct I/O transfers whole
    /// blocks.
    fn from(&self) -> usize {
        match &self.op {
            Op::Read { .. } => self.done / BLOCK_BYTES * BLOCK_BYTES,
            Op::Write { .. } | Op::Sync | Op::Reserve { .. } | Op::Release { .. } => self.done,
        }
    }

    /// Returns the number of bytes still to be written, or of wanted bytes still to be read.
    fn left(&self) -> usize {
        match &self.op {
            Op::Write { len, .. } => len - self.done,
            Op::Read { wanted, .. } => wanted.saturating_sub(self.done),
            Op::Sync | Op::Reserve { .. } | Op::Release { .. } => 0,
        }
    }
}

/// An io_uring and all operations in flight on it. The ring owns the operations' buffers until the
/// kernel has completed the operations, whatever the caller drops in the meantime.
pub(crate) struct Ring {
    uring: IoUring,
    file: File,
    /// Whether durable writes need a second operation, a data sync.
    separate_sync: bool,
    slots: [Option<Slot>; MAX_IN_FLIGHT],
    in_flight: usize,
}

impl Ring {
    /// Creates a ring for `file`.
    ///
    /// # Errors
    /// If the kernel provides no io_uring, for example because the kernel is too old, or io_uring
    /// is forbidden, as in many containers.
    pub(crate) fn new(file: File, separate_sync: bool) -> io::Result<Self> {
        let uring = IoUring::new(ENTRIES)?;
        Ok(Self {
            uring,
            file,
            separate_sync,
            slots: [const { None }; MAX_IN_FLIGHT],
            in_flight: 0,
        })
    }

    /// Starts `op`, which must be aligned.
    pub(crate) fn submit(&mut self, ticket: u64, op: Op) {
        let index =
            self.slots.iter().position(Option::is_none).expect("a free slot: the caller counts");
        let unsynced = self.separate_sync && matches!(op, Op::Write { durable: true, .. });
        self.slots[index] =
            Some(Slot { ticket, op, done: 0, due: 0, unsynced, separated: false, error: None });
        self.in_flight += 1;
        self.push(index);
    }

    /// Submits the slot's operation to the kernel, or the part of it that is not done yet.
    fn push(&mut self, index: usize) {
        let slot = self.slots[index].as_mut().expect("an operation in the slot");
        let fd = types::Fd(self.file.as_raw_fd());
        let sync = || opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        let mut then = None;
        let from = slot.from();
        let entry = match &mut slot.op {
            Op::Write { len, .. } if from == *len => sync().user_data(SYNC),
            Op::Write { buffer, len, offset, durable } => {
                let bytes = &buffer[from..*len];
                let flags = if *durable && !self.separate_sync { dsync_flag() } else { 0 };
                let length = u32::try_from(bytes.len()).expect("a write under 4 GiB");
                let write =
                    opcode::Write::new(fd, bytes.as_ptr(), length).offset(*offset + from as u64);
                let write = write.rw_flags(flags).build();
                if slot.unsynced {
                    // The kernel starts the sync when the whole write is done, and cancels it
                    // otherwise.
                    then = Some(sync().user_data(SYNC));
                    write.flags(squeue::Flags::IO_LINK)
                } else {
                    write
                }
            }
            Op::Read { buffer, len, offset, .. } => {
                let bytes = &mut buffer[from..*len];
                let length = u32::try_from(bytes.len()).expect("a read under 4 GiB");
                opcode::Read::new(fd, bytes.as_mut_ptr(), length)
                    .offset(*offset + from as u64)
                    .build()
            }
            Op::Sync => sync(),
            Op::Release { offset } => {
                // Older kernels cannot truncate through a ring. The call is short, and only needed
                // when a disk is full.
                slot.error = crate::file::release(&self.file, *offset).err();
                opcode::Nop::new().build()
            }
            Op::Reserve { offset, len } => {
                let keep_size = i32::try_from(rustix::fs::FallocateFlags::KEEP_SIZE.bits())
                    .expect("a small flag");
                opcode::Fallocate::new(fd, *len).offset(*offset).mode(keep_size).build()
            }
        };
        for entry in [Some(entry), then].into_iter().flatten() {
            slot.due += 1;
            let mark = entry.get_user_data();
            let entry = entry.user_data(mark | index as u64);
            // SAFETY: the entry points into the buffer of `self.slots[index]`, heap memory that
            // neither moves nor is accessed before the slot is emptied: in `poll`, once the kernel
            // has completed it, or never (`drop` waits for the completion, or leaks the slots). The
            // descriptor is open as long as `self`.
            let pushed = unsafe { self.uring.submission().push(&entry) };
            pushed.expect("as many entries as operations have steps");
        }
        // An interrupted or refused submission leaves the entry queued; the next `submit` or `wait`
        // submits it.
        let _ = self.uring.submit();
        slot.separated = !self.uring.submission().is_empty();
    }

    /// Returns the next finished operation with its ticket and its outcome. Submits the remainder
    /// of operations that the kernel has done in part.
    pub(crate) fn poll(&mut self) -> Option<(u64, Op, io::Result<()>)> {
        loop {
            let Some(completion) = self.uring.completion().next() else {
                self.resubmit();
                return None;
            };
            let index =
                usize::try_from(completion.user_data() & !SYNC).expect("the index of a slot");
            let slot = self.slots[index].as_mut().expect("the kernel answers what was asked");
            slot.complete(completion.user_data() & SYNC != 0, completion.result());
            if slot.due > 0 {
                continue;
            }
            if slot.error.is_none() && (slot.left() > 0 || slot.unsynced) {
                self.push(index);
                continue;
            }
            let slot = self.slots[index].take().expect("just seen");
            self.in_flight -= 1;
            return Some((slot.ticket, slot.op, slot.error.map_or(Ok(()), Err)));
        }
    }

    /// Submits entries that an earlier submission left in the queue.
    fn resubmit(&mut self) {
        if !self.uring.submission().is_empty() {
            let _ = self.uring.submit();
        }
    }

    /// Blocks until there is a completion or a signal, if anything is in flight.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        match self.uring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Returns a descriptor that polls readable when there are completions.
    pub(crate) fn poll_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring, which stays open as long as `self` is
        // borrowed.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.wait().is_err() {
                // The kernel may still access the buffers, so they must outlive the ring.
                std::mem::forget(std::mem::replace(
                    &mut self.slots,
                    [const { None }; MAX_IN_FLIGHT],
                ));
                return;
            }
            while self.poll().is_some() {}
        }
    }
}

/// Returns the flag of a write that is durable when it completes.
fn dsync_flag() -> i32 {
    i32::try_from(rustix::io::ReadWriteFlags::DSYNC.bits()).expect("a small flag")
}
