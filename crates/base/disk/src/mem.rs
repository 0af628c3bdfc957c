//! A disk in memory that fails as real disks do.

use crate::pages::Pages;
use crate::{AlignedBuf, BLOCK_BYTES, Completion, Disk, MAX_IN_FLIGHT, Op, ReadAt, check_aligned};
use sprat_chance::Chance;
use sprat_host::lock;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes that a device writes as a whole or not at all.
const SECTOR: usize = 512;

/// A failure injected into an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The operation fails with `EIO`. Readers see nothing of a failed write, but a crash may leave
    /// any part of it on the medium.
    Io,
    /// The operation fails with `ENOSPC`. Readers see nothing of a failed write, but a crash may
    /// leave any part of it on the medium.
    NoSpace,
    /// The operation never completes within the life of the process.
    Hang,
}

/// How long operations take, in nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// The time of every operation.
    pub base: u64,
    /// Additional time of a durable write or a sync.
    pub durable: u64,
    /// Bound of a random additional time, drawn for each operation: it is less than `jitter`. 0
    /// adds no time.
    pub jitter: u64,
}

/// A write that the kernel has, but perhaps not yet the medium.
struct Write {
    offset: u64,
    bytes: Vec<u8>,
    /// The order in which operations were started.
    sequence: u64,
    /// Whether the write has succeeded. A crash keeps a write that has succeeded and is durable; of
    /// any other write it keeps all, a part, or nothing.
    completed: bool,
    durable: bool,
}

struct Pending {
    ticket: u64,
    op: Op,
    sequence: u64,
    due: u64,
    fault: Option<Fault>,
    /// For a sync, the writes that it makes durable. They were complete when the sync started.
    covers: Vec<u64>,
}

struct State {
    random: Chance,
    now: u64,
    latency: Latency,
    /// The bytes that are on the medium for certain.
    medium: Pages,
    /// What readers see: the medium with every completed write.
    view: Pages,
    /// Writes that were started and may not be on the medium yet, in the order in which they reach
    /// it.
    writes: Vec<Write>,
    pending: Vec<Pending>,
    begun: u64,
    faults: Vec<(u64, Fault)>,
    capacity: u64,
    /// Number of crashes and of kills. Disks opened before the last of them are dead.
    life: u64,
    opened: bool,
}

/// A disk in memory. A power failure ([`MemControl::crash`]) keeps what was durable. The seed
/// decides for each other sector whether its write is kept.
///
/// [`MemControl::open`] opens it. Time is virtual: operations complete when [`MemControl::set_now`]
/// or a [`wait`](Disk::wait) has advanced it far enough.
pub struct MemDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

/// Controls the medium of a [`MemDisk`]: its clock, latency, faults and crashes. It outlives the
/// disks opened on the medium. All clones control the same medium.
#[derive(Clone)]
pub struct MemControl {
    state: Arc<Mutex<State>>,
}

/// Reads a [`MemDisk`].
#[derive(Clone)]
pub struct MemReader {
    state: Arc<Mutex<State>>,
    life: u64,
}

impl State {
    /// Moves the first writes to the medium, as long as each is complete and durable.
    fn settle(&mut self) {
        let certain =
            self.writes.iter().take_while(|write| write.completed && write.durable).count();
        for write in self.writes.drain(..certain) {
            self.medium.write(write.offset, &write.bytes);
        }
    }

    /// Performs an operation and returns its outcome.
    fn finish(&mut self, pending: Pending) -> Completion {
        let Pending { ticket, op, sequence, fault, covers, .. } = pending;
        let mut result = match fault {
            Some(Fault::Io) => {
                Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()))
            }
            Some(Fault::NoSpace) => {
                Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()))
            }
            Some(Fault::Hang) | None => Ok(()),
        };
        let end = match &op {
            Op::Write { len, offset, .. } => offset + *len as u64,
            Op::Reserve { offset, len } => offset + len,
            Op::Read { wanted, offset, .. } => {
                if result.is_ok() && offset + *wanted as u64 > self.view.size() {
                    result = Err(io::ErrorKind::UnexpectedEof.into());
                }
                0
            }
            Op::Sync | Op::Release { .. } => 0,
        };
        if end > self.capacity {
            result = Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        let buffer = match op {
            Op::Write { buffer, len, offset, durable } => {
                if result.is_ok() {
                    self.view.write(offset, &buffer[..len]);
                    let write = self
                        .writes
                        .iter_mut()
                        .find(|write| write.sequence == sequence)
                        .expect("begun");
                    write.completed = true;
                    write.durable = durable;
                }
                Some(buffer)
            }
            Op::Read { mut buffer, len, offset, .. } => {
                if result.is_ok() {
                    self.view.read(offset, &mut buffer[..len]);
                }
                Some(buffer)
            }
            Op::Sync => {
                if result.is_ok() {
                    for write in
                        self.writes.iter_mut().filter(|write| covers.contains(&write.sequence))
                    {
                        write.durable = true;
                    }
                }
                None
            }
            Op::Reserve { .. } => None,
            Op::Release { offset } => {
                if result.is_ok() {
                    self.settle();
                    self.writes.retain(|write| write.offset < offset);
                    self.view.truncate(offset);
                    self.medium.truncate(offset);
                }
                None
            }
        };
        self.settle();
        Completion { ticket, result, buffer }
    }
}

impl MemControl {
    /// Creates an empty file without limits, latency or faults. `seed` decides what a crash leaves
    /// of writes that are not durable.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: Chance::new(seed),
            now: 0,
            latency: Latency::default(),
            medium: Pages::default(),
            view: Pages::default(),
            writes: Vec::new(),
            pending: Vec::new(),
            begun: 0,
            faults: Vec::new(),
            capacity: u64::MAX,
            life: 0,
            opened: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Opens the file; `None` if it is open already, because a real file would be locked.
    #[must_use]
    pub fn open(&self) -> Option<MemDisk> {
        let mut state = lock(&self.state);
        if state.opened {
            return None;
        }
        state.opened = true;
        Some(MemDisk { state: self.state.clone(), life: state.life })
    }

    /// Simulates a power failure: writes that were not durable, or not complete, are kept, lost or
    /// torn. Disks that are open are dead afterwards. Removes the scheduled faults.
    pub fn crash(&self) {
        let mut state = lock(&self.state);
        let writes = std::mem::take(&mut state.writes);
        for write in writes {
            let style = if write.completed && write.durable { 0 } else { state.random.modulo(4) };
            let sectors = write.bytes.len().div_ceil(SECTOR) as u64;
            let (from, until) = match style {
                0 => (0, sectors),                          // whole
                1 => (0, 0),                                // lost
                2 => (0, state.random.modulo(sectors + 1)), // its beginning
                _ => (0, sectors),                          // any of its sectors
            };
            for sector in from..until {
                if style == 3 && state.random.one_in(2) {
                    continue;
                }
                let start = usize::try_from(sector).expect("within the write") * SECTOR;
                let bytes = &write.bytes[start..write.bytes.len().min(start + SECTOR)];
                state.medium.write(write.offset + start as u64, bytes);
            }
        }
        state.view = state.medium.clone();
        state.pending.clear();
        state.faults.clear();
        state.life += 1;
        state.opened = false;
    }

    /// Simulates the end of the process while the kernel continues. Operations in flight are still
    /// performed, and open disks are dead.
    pub fn kill(&self) {
        let mut state = lock(&self.state);
        for pending in std::mem::take(&mut state.pending) {
            state.finish(pending);
        }
        state.life += 1;
        state.opened = false;
    }

    /// Advances the virtual clock to `now`, in nanoseconds; never sets it back. Operations due at
    /// the clock's time or earlier complete.
    pub fn set_now(&self, now: u64) {
        let mut state = lock(&self.state);
        state.now = state.now.max(now);
    }

    /// Returns the virtual clock, in nanoseconds. It is ahead of the time set by
    /// [`set_now`](Self::set_now) if a disk had to [`wait`](Disk::wait) for an outcome.
    #[must_use]
    pub fn now(&self) -> u64 {
        lock(&self.state).now
    }

    /// Returns the time at which the next operation completes, in nanoseconds; `None` if none is in
    /// flight, or each of them hangs.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        lock(&self.state)
            .pending
            .iter()
            .map(|pending| pending.due)
            .filter(|due| *due != u64::MAX)
            .min()
    }

    /// Sets how long operations take.
    pub fn set_latency(&self, latency: Latency) {
        lock(&self.state).latency = latency;
    }

    /// Sets the capacity of the medium, in bytes. A write or reservation that ends beyond it fails
    /// with `ENOSPC`.
    pub fn set_capacity(&self, bytes: u64) {
        lock(&self.state).capacity = bytes;
    }

    /// Returns the number of operations started since the file was created.
    #[must_use]
    pub fn operations(&self) -> u64 {
        lock(&self.state).begun
    }

    /// Injects `fault` into the operation that is `after` operations away (0: the next one).
    pub fn fail(&self, after: u64, fault: Fault) {
        let mut state = lock(&self.state);
        let number = state.begun + after;
        state.faults.push((number, fault));
    }

    /// Removes the faults that [`fail`](Self::fail) has scheduled and that have not happened yet.
    pub fn clear_faults(&self) {
        lock(&self.state).faults.clear();
    }

    /// Flips bit `bit` of the byte at `offset`, on the medium and for readers.
    pub fn flip(&self, offset: u64, bit: u32) {
        let mut state = lock(&self.state);
        let mut byte = [0];
        state.view.read(offset, &mut byte);
        byte[0] ^= 1u8.rotate_left(bit);
        state.view.write(offset, &byte);
        state.medium.write(offset, &byte);
    }

    /// Overwrites bytes, on the medium and for readers.
    pub fn patch(&self, offset: u64, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.view.write(offset, bytes);
        state.medium.write(offset, bytes);
    }

    /// Returns the whole contents that readers see.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        let state = lock(&self.state);
        let mut bytes = vec![0; usize::try_from(state.view.size()).expect("fits memory")];
        state.view.read(0, &mut bytes);
        bytes
    }
}

impl MemDisk {
    /// Returns the state, unless the disk is dead.
    fn alive(&self) -> Option<MutexGuard<'_, State>> {
        Some(lock(&self.state)).filter(|state| state.life == self.life)
    }
}

impl Drop for MemDisk {
    fn drop(&mut self) {
        if let Some(mut state) = self.alive() {
            for pending in std::mem::take(&mut state.pending) {
                state.finish(pending);
            }
            state.opened = false;
        }
    }
}

impl Disk for MemDisk {
    type Reader = MemReader;

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(lock(&self.state).view.size())
    }

    fn submit(&mut self, ticket: u64, op: Op) {
        check_aligned(&op);
        let Some(mut state) = self.alive() else { return };
        assert!(state.pending.len() < MAX_IN_FLIGHT, "the caller counts");
        let sequence = state.begun;
        state.begun += 1;
        let fault =
            state.faults.iter().find(|(number, _)| *number == sequence).map(|(_, fault)| *fault);
        let latency = state.latency;
        let durable = match &op {
            Op::Write { durable, .. } => *durable,
            Op::Sync => true,
            Op::Read { .. } | Op::Reserve { .. } | Op::Release { .. } => false,
        };
        let extra = if latency.jitter > 0 { state.random.modulo(latency.jitter) } else { 0 };
        let mut due = state.now + latency.base + extra + if durable { latency.durable } else { 0 };
        if fault == Some(Fault::Hang) {
            due = u64::MAX;
        }
        if let Op::Write { buffer, len, offset, .. } = &op {
            let bytes = buffer[..*len].to_vec();
            state.writes.push(Write {
                offset: *offset,
                bytes,
                sequence,
                completed: false,
                durable: false,
            });
        }
        let covers = match &op {
            Op::Sync => state
                .writes
                .iter()
                .filter(|write| write.completed)
                .map(|write| write.sequence)
                .collect(),
            _ => Vec::new(),
        };
        state.pending.push(Pending { ticket, op, sequence, due, fault, covers });
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut state = self.alive()?;
        let now = state.now;
        let ready = state.pending.iter().enumerate().filter(|(_, pending)| pending.due <= now);
        let (index, _) = ready.min_by_key(|(_, pending)| (pending.due, pending.sequence))?;
        let pending = state.pending.remove(index);
        Some(state.finish(pending))
    }

    fn wait(&mut self) -> io::Result<()> {
        let Some(mut state) = self.alive() else { return Err(io::ErrorKind::NotConnected.into()) };
        let due = state.pending.iter().map(|pending| pending.due).min();
        match due {
            Some(u64::MAX) => Err(io::ErrorKind::TimedOut.into()),
            Some(due) => {
                state.now = state.now.max(due);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn reader(&self) -> MemReader {
        MemReader { state: self.state.clone(), life: self.life }
    }
}

impl ReadAt for MemReader {
    fn read_at(&self, into: &mut AlignedBuf, len: usize, offset: u64) -> io::Result<()> {
        assert!(
            len.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64),
            "{len} B at {offset}"
        );
        let state = lock(&self.state);
        if state.life != self.life {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if offset + len as u64 > state.view.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        state.view.read(offset, &mut into[..len]);
        Ok(())
    }
}
