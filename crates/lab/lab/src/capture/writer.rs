//! The thread that writes, and its files.

use super::block;
use super::recorder::Recorder;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes kept of a packet unless told: all.
pub const DEFAULT_SNAP: u32 = 262_144;

/// Most bytes that can be kept of a packet.
pub const MAX_SNAP: u32 = 262_144;

/// Most interfaces of a capture.
pub const MAX_CAPTURE_INTERFACES: usize = 64;

/// Most files that are kept at once.
pub const MAX_FILES: usize = 10_000;

/// Smallest limit of a file, in bytes: some packets fit in.
pub const MIN_FILE_BYTES: u64 = 1 << 20;

/// Memory between packets and files unless told, in bytes: half a second at 1 Gb/s.
pub const DEFAULT_MEMORY: u64 = 64 << 20;

/// Most memory, in bytes; more is cut to this.
const MAX_MEMORY: u64 = 8 << 30;

/// A block of that memory, in bytes. A recorder has two at least.
const SLAB_BYTES: usize = 1 << 20;

/// What is to be captured, and to where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The file; of a ring, each has a number before its ending.
    pub path: PathBuf,
    /// Names of the interfaces; up to [`MAX_CAPTURE_INTERFACES`].
    pub interfaces: Vec<String>,
    /// Bytes kept of a packet; up to [`MAX_SNAP`].
    pub snap: u32,
    /// Memory between packets and files, in bytes, shared out among the recorders.
    pub memory: u64,
    /// A ring of files instead of one: bytes of a file (from [`MIN_FILE_BYTES`]), and how many are
    /// kept (1 to [`MAX_FILES`]).
    pub ring: Option<(u64, usize)>,
}

impl Settings {
    /// One file, with everything.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, interfaces: Vec<String>) -> Self {
        Self {
            path: path.into(),
            interfaces,
            snap: DEFAULT_SNAP,
            memory: DEFAULT_MEMORY,
            ring: None,
        }
    }

    /// Whether it is within the limits.
    ///
    /// # Errors
    /// The first that it is not.
    pub fn check(&self) -> Result<(), CaptureError> {
        let most = MAX_CAPTURE_INTERFACES as u64;
        let mut limits = vec![
            ("interfaces", self.interfaces.len() as u64, 1, most),
            ("a snap length", self.snap.into(), 1, MAX_SNAP.into()),
        ];
        if let Some((bytes, files)) = self.ring {
            limits.push(("bytes of a file", bytes, MIN_FILE_BYTES, u64::MAX));
            limits.push(("files", files as u64, 1, MAX_FILES as u64));
        }
        match limits.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((what, value, least, most)) => {
                Err(CaptureError::Limit { what, value, least, most })
            }
            None => Ok(()),
        }
    }
}

/// Why nothing can be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Settings out of their limits.
    #[error("capture: {what} of {value}; use {least} to {most}")]
    Limit {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// Least that will do.
        least: u64,
        /// Most.
        most: u64,
    },
    /// A file cannot be made, or written. One that is there is not overwritten: remove it, or name
    /// another.
    #[error("capture to {}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// No thread.
    #[error("capture: cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What was captured.
#[derive(Debug, Default)]
pub struct Summary {
    /// By interface.
    pub interfaces: Vec<Totals>,
    /// The files that there are now, oldest first.
    pub files: Vec<PathBuf>,
    /// Bytes written, to those that a ring let go of as well.
    pub bytes: u64,
    /// What ended it before its time; packets since then are among the dropped.
    pub error: Option<CaptureError>,
}

/// Packets of an interface. A super-packet is one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// That passed.
    pub seen: u64,
    /// Of these, that are in no file, for want of memory or of room on the disk.
    pub dropped: u64,
}

/// A capture under way.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Shared>,
    thread: JoinHandle<Summary>,
}

/// What recorders and writer both know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) counts: Vec<Counts>,
    pub(super) snap: u32,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) seen: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// Whole blocks, and whose memory they are in.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) from: usize,
    pub(super) bytes: Vec<u8>,
}

impl Shared {
    fn totals(&self) -> Vec<Totals> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.counts
            .iter()
            .map(|counts| Totals { seen: load(&counts.seen), dropped: load(&counts.dropped) })
            .collect()
    }
}

impl Capture {
    /// Makes the first file, and so many recorders. It ends when they are gone.
    ///
    /// # Errors
    /// Settings out of their limits; the file is there already, or cannot be made.
    pub fn start(
        settings: Settings,
        recorders: usize,
    ) -> Result<(Self, Vec<Recorder>), CaptureError> {
        settings.check()?;
        let share = settings.memory.min(MAX_MEMORY) / SLAB_BYTES as u64 / recorders.max(1) as u64;
        let slabs = usize::try_from(share).unwrap_or(usize::MAX).max(2);
        let counts = settings.interfaces.iter().map(|_| Counts::default()).collect();
        let shared = Arc::new(Shared { counts, snap: settings.snap });
        let (full, filled) = sync_channel(slabs * recorders);
        let (mut empties, mut made) = (Vec::new(), Vec::new());
        for number in 0..recorders {
            let (empty, emptied) = sync_channel(slabs);
            for _ in 0..slabs {
                let mut slab = vec![1; SLAB_BYTES]; // written once, so that no packet waits for the kernel to find a page
                slab.clear();
                empty.try_send(slab).expect("there is a place for each");
            }
            empties.push(empty);
            let comment = String::with_capacity(block::MAX_COMMENT);
            let (shared, full) = (shared.clone(), full.clone());
            made.push(Recorder {
                number,
                shared,
                full,
                empty: emptied,
                filling: None,
                comment,
                since: 0,
            });
        }
        let mut files = Files {
            settings,
            shared: shared.clone(),
            current: None,
            names: VecDeque::new(),
            made: 0,
            bytes: 0,
        };
        files.open()?;
        let writer = move || write(files, &filled, &empties);
        let thread = thread::Builder::new().name("sprat-capture".to_owned()).spawn(writer);
        Ok((Self { shared, thread: thread.map_err(CaptureError::Thread)? }, made))
    }

    /// What passed so far, by interface.
    #[must_use]
    pub fn totals(&self) -> Vec<Totals> {
        self.shared.totals()
    }

    /// Waits until all recorders are gone and everything is written.
    ///
    /// # Panics
    /// When the writer did.
    #[must_use]
    pub fn finish(self) -> Summary {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Writes until all recorders are gone.
fn write(mut files: Files, filled: &Receiver<Slab>, empties: &[SyncSender<Vec<u8>>]) -> Summary {
    let mut error = None;
    while let Ok(Slab { from, mut bytes }) = filled.recv() {
        let mut left = &bytes[..];
        if error.is_none() {
            error = files.write(&mut left).err();
        }
        files.count_lost(left);
        bytes.clear();
        let _ = empties[from].try_send(bytes); // its recorder may be gone
    }
    if error.is_none() {
        error = files.close().err();
    }
    let Files { shared, names, bytes, .. } = files;
    Summary { interfaces: shared.totals(), files: names.into(), bytes, error }
}

struct Files {
    settings: Settings,
    shared: Arc<Shared>,
    current: Option<(File, u64)>,
    names: VecDeque<PathBuf>,
    made: u64,
    bytes: u64,
}

impl Files {
    /// Writes blocks; those that are left were not written, or not all.
    fn write(&mut self, blocks: &mut &[u8]) -> Result<(), CaptureError> {
        while !blocks.is_empty() {
            if self.current.is_none() {
                self.open()?;
            }
            let room = self.room();
            let mut fits = 0;
            while fits < blocks.len() {
                let next = block::length(&blocks[fits..]);
                if (fits + next) as u64 > room {
                    break;
                }
                fits += next;
            }
            let (now, later) = blocks.split_at(fits);
            self.put(now)?;
            *blocks = later;
            if !blocks.is_empty() {
                self.close()?;
            }
        }
        Ok(())
    }

    /// Bytes that the current file may still take; a file takes one block at least.
    fn room(&self) -> u64 {
        let written = self.current.as_ref().map_or(0, |(_, written)| *written);
        self.settings.ring.map_or(u64::MAX, |(limit, _)| limit.saturating_sub(written))
    }

    fn open(&mut self) -> Result<(), CaptureError> {
        self.made += 1;
        let path = match self.settings.ring {
            Some(_) => numbered(&self.settings.path, self.made),
            None => self.settings.path.clone(),
        };
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| CaptureError::File { path: path.clone(), error })?;
        self.names.push_back(path);
        if let Some((_, kept)) = self.settings.ring
            && self.names.len() > kept
            && let Some(oldest) = self.names.pop_front()
        {
            // Somebody may have taken it away.
            let _ = fs::remove_file(oldest);
        }
        self.current = Some((file, 0));
        let mut head = Vec::new();
        block::section(&mut head);
        for name in &self.settings.interfaces {
            block::interface(&mut head, name, self.settings.snap);
        }
        self.put(&head)
    }

    /// Ends the current file with what was seen until now.
    fn close(&mut self) -> Result<(), CaptureError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let mut tail = Vec::new();
        for (number, Totals { seen, dropped }) in (0u32..).zip(self.shared.totals()) {
            block::statistics(&mut tail, number, now, seen, dropped);
        }
        self.put(&tail)?;
        self.current = None;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        let Some((file, written)) = &mut self.current else { return Ok(()) };
        let path = || self.names.back().cloned().unwrap_or_default();
        file.write_all(bytes).map_err(|error| CaptureError::File { path: path(), error })?;
        *written += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Counts the packets of blocks that are in no file as dropped.
    fn count_lost(&self, mut blocks: &[u8]) {
        while !blocks.is_empty() {
            let (first, rest) = blocks.split_at(block::length(blocks));
            let interface = first
                .get(8..)
                .and_then(<[u8]>::first_chunk)
                .map(|bytes| u32::from_le_bytes(*bytes));
            let interface =
                interface.and_then(|number| usize::try_from(number).ok()).unwrap_or_default();
            self.shared.counts[interface].dropped.fetch_add(1, Ordering::Relaxed);
            blocks = rest;
        }
    }
}

/// `wan.pcapng` with a number: `wan-00001.pcapng`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{number:05}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}
