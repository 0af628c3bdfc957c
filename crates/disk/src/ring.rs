//! The one place that hands memory to the kernel.
#![allow(unsafe_code)] // io_uring takes addresses; see each block

use crate::{MAX_IN_FLIGHT, Op};
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Submission entries: one for each operation that may be under way.
const ENTRIES: u32 = 64;
const _: () = assert!(ENTRIES as usize == MAX_IN_FLIGHT);

/// What lies in a slot while the kernel works on it.
struct Slot {
    ticket: u64,
    op: Op,
    /// Bytes of a write that are done: the kernel may do a part.
    done: usize,
    /// A write whose bytes are all with the kernel, and whose separate sync is under way.
    syncing: bool,
}

/// An io_uring and everything in flight on it. Buffers belong to the ring until the kernel has
/// answered, whatever the caller drops meanwhile.
pub(crate) struct Ring {
    uring: IoUring,
    file: File,
    /// Durable writes take a second operation, a data sync: for filesystems without direct I/O.
    separate_sync: bool,
    slots: [Option<Slot>; MAX_IN_FLIGHT],
    in_flight: usize,
}

impl Ring {
    /// A ring for `file`.
    ///
    /// # Errors
    /// When the kernel gives none: too old, or forbidden (as containers often do).
    pub(crate) fn new(file: File, separate_sync: bool) -> io::Result<Self> {
        let uring = IoUring::new(ENTRIES)?;
        Ok(Self { uring, file, separate_sync, slots: [const { None }; MAX_IN_FLIGHT], in_flight: 0 })
    }

    /// Begins `op`, which is aligned.
    pub(crate) fn submit(&mut self, ticket: u64, op: Op) {
        let index = self.slots.iter().position(Option::is_none).expect("a free slot: the caller counts");
        self.slots[index] = Some(Slot { ticket, op, done: 0, syncing: false });
        self.in_flight += 1;
        self.push(index);
    }

    /// Hands the next step of the slot's operation to the kernel.
    fn push(&mut self, index: usize) {
        let slot = self.slots[index].as_ref().expect("an operation in the slot");
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match &slot.op {
            Op::Write { .. } if slot.syncing => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Write { buffer, len, offset, durable } => {
                let bytes = &buffer[slot.done..*len];
                let flags = if *durable && !self.separate_sync { dsync_flag() } else { 0 };
                let length = u32::try_from(bytes.len()).expect("a write under 4 GiB");
                opcode::Write::new(fd, bytes.as_ptr(), length).offset(offset + slot.done as u64).rw_flags(flags).build()
            }
            Op::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Reserve { offset, len } => {
                let keep_size = i32::try_from(rustix::fs::FallocateFlags::KEEP_SIZE.bits()).expect("a small flag");
                opcode::Fallocate::new(fd, *len).offset(*offset).mode(keep_size).build()
            }
        };
        let entry = entry.user_data(index as u64);
        // SAFETY: the entry points into the buffer of `self.slots[index]`, heap memory that neither moves nor
        // is touched before the slot is emptied: in `poll`, once the kernel has answered, or never
        // (`drop` waits for the answer, or leaks the slots). The descriptor is open as long as `self`.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("as many entries as slots");
        // An interrupted or refused submission leaves the entry queued: the next `submit` or `wait` takes it along.
        let _ = self.uring.submit();
    }

    /// The next finished operation: its ticket, itself and its outcome.
    pub(crate) fn poll(&mut self) -> Option<(u64, Op, io::Result<()>)> {
        loop {
            let Some(answer) = self.uring.completion().next() else {
                self.resubmit();
                return None;
            };
            let index = usize::try_from(answer.user_data()).expect("the index of a slot");
            let slot = self.slots[index].as_mut().expect("the kernel answers what was asked");
            let result = match u32::try_from(answer.result()) {
                Err(_) => Err(io::Error::from_raw_os_error(-answer.result())),
                Ok(count) => match &slot.op {
                    Op::Write { len, durable, .. } if !slot.syncing => {
                        slot.done += count as usize;
                        assert!(slot.done <= *len, "the kernel wrote what was there");
                        if count == 0 {
                            Err(io::ErrorKind::WriteZero.into())
                        } else if slot.done < *len {
                            self.push(index);
                            continue;
                        } else if *durable && self.separate_sync {
                            slot.syncing = true;
                            self.push(index);
                            continue;
                        } else {
                            Ok(())
                        }
                    }
                    _ => Ok(()),
                },
            };
            let slot = self.slots[index].take().expect("just seen");
            self.in_flight -= 1;
            return Some((slot.ticket, slot.op, result));
        }
    }

    /// Offers entries that an earlier call could not hand over to the kernel again.
    fn resubmit(&mut self) {
        if !self.uring.submission().is_empty() {
            let _ = self.uring.submit();
        }
    }

    /// Blocks until an answer is there, if anything is in flight.
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

    /// Polls readable when there are answers.
    pub(crate) fn poll_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which stays open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.wait().is_err() {
                // The kernel may still write from the buffers: they must outlive us.
                std::mem::forget(std::mem::replace(&mut self.slots, [const { None }; MAX_IN_FLIGHT]));
                return;
            }
            while self.poll().is_some() {}
        }
    }
}

/// The flag of a write that is durable when it completes.
fn dsync_flag() -> i32 {
    i32::try_from(rustix::io::ReadWriteFlags::DSYNC.bits()).expect("a small flag")
}
