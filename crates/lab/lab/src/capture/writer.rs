//! The thread that writes a capture, and its files.

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

/// Default of the bytes that a capture keeps of a packet: all of them.
pub const DEFAULT_SNAP: u32 = 262_144;

/// The largest snap length, which is the number of bytes that a capture keeps of a packet.
pub const MAX_SNAP: u32 = 262_144;

/// Limit on the interfaces of a capture.
pub const MAX_CAPTURE_INTERFACES: usize = 64;

/// Limit on the files that a ring keeps.
pub const MAX_FILES: usize = 10_000;

/// The smallest size limit of a ring's files, in bytes.
pub const MIN_FILE_BYTES: u64 = 1 << 20;

/// Default size of the memory between packets and files, in bytes: half a second at 1 Gb/s.
pub const DEFAULT_MEMORY: u64 = 64 << 20;

/// Limit on the memory of a capture, in bytes. A larger value is reduced to this.
const MAX_MEMORY: u64 = 8 << 30;

/// Length of a slab of that memory, in bytes. Each recorder has at least two slabs.
const SLAB_BYTES: usize = 1 << 20;

/// What to capture, and where to write it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureSettings {
    /// The file's path. With a ring, the name of each file gets a number before its extension.
    pub path: PathBuf,
    /// Names of the interfaces; at most [`MAX_CAPTURE_INTERFACES`].
    pub interfaces: Vec<String>,
    /// Bytes that are kept of each packet; 1 to [`MAX_SNAP`].
    pub snap: u32,
    /// Memory between packets and files, in bytes, divided among the recorders. Each recorder has
    /// at least two MiB.
    pub memory: u64,
    /// With a ring: the limit on the size of a file in bytes, without the counts at its end (at
    /// least [`MIN_FILE_BYTES`]), and the number of files that are kept (1 to [`MAX_FILES`]). With
    /// `None`, one file without a limit.
    pub ring: Option<(u64, usize)>,
}

impl CaptureSettings {
    /// Returns settings for one file with all bytes of all packets.
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

    /// Checks the limits.
    ///
    /// # Errors
    /// A value is outside its limits. The error names the first such value.
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

/// Why a capture cannot start, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A setting is outside its limits.
    #[error("capture: {what} of {value}; use {least} to {most}")]
    Limit {
        /// The name of the setting.
        what: &'static str,
        /// The value of the setting.
        value: u64,
        /// The smallest value that is allowed.
        least: u64,
        /// The largest value that is allowed.
        most: u64,
    },
    /// A file cannot be made or written. The capture does not overwrite existing files: remove the
    /// file, or choose another name.
    #[error("capture to {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system could not start a thread.
    #[error("capture: cannot start a thread: {0}")]
    Thread(io::Error),
}

/// The result of a capture.
#[derive(Debug, Default)]
pub struct CaptureSummary {
    /// The counts of each interface, in order.
    pub interfaces: Vec<Totals>,
    /// The files that exist now, oldest first.
    pub files: Vec<PathBuf>,
    /// Bytes written, including those in files that the ring has removed.
    pub bytes: u64,
    /// The error that ended the capture early. Packets after it count as dropped.
    pub error: Option<CaptureError>,
}

/// Counts of the packets of an interface. A super-packet counts once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Packets that were given to the recorders.
    pub seen: u64,
    /// Those of the `seen` packets that were not written, because memory was short or a write
    /// failed. Some packets of the write that failed may nevertheless be in the file.
    pub dropped: u64,
}

/// A running capture: the thread that writes the files. The thread ends when all recorders of the
/// capture have been dropped.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Shared>,
    thread: JoinHandle<CaptureSummary>,
}

/// What recorders and writer share.
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

/// Complete pcapng blocks, and the number of the recorder that owns their memory.
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
    /// Makes the first file and `recorders` recorders, and starts the writer.
    ///
    /// # Errors
    /// A setting is outside its limits, the file exists already or cannot be made, or no thread can
    /// be started.
    pub fn start(
        settings: CaptureSettings,
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
                // Memory is written once, so that no packet waits for a page fault.
                let mut slab = vec![1; SLAB_BYTES];
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

    /// Returns the counts so far, by interface.
    #[must_use]
    pub fn totals(&self) -> Vec<Totals> {
        self.shared.totals()
    }

    /// Waits until all recorders have been dropped and everything is written.
    ///
    /// # Panics
    /// The writer panicked.
    #[must_use]
    pub fn finish(self) -> CaptureSummary {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Writes blocks until all recorders have been dropped.
fn write(
    mut files: Files,
    filled: &Receiver<Slab>,
    empties: &[SyncSender<Vec<u8>>],
) -> CaptureSummary {
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
    CaptureSummary { interfaces: shared.totals(), files: names.into(), bytes, error }
}

struct Files {
    settings: CaptureSettings,
    shared: Arc<Shared>,
    current: Option<(File, u64)>,
    names: VecDeque<PathBuf>,
    made: u64,
    bytes: u64,
}

impl Files {
    /// Writes blocks, and removes those that are written from `blocks`. After an error, `blocks`
    /// still has all blocks from the write that failed on. Some of them may be in the file.
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

    /// Returns how many bytes the current file may still take.
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
            // The file may have been removed already.
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

    /// Writes the counts so far into the current file, and closes it.
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

    /// Counts the packets in `blocks` as dropped.
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

/// Adds a number to a file's name: `wan.pcapng` becomes `wan-00001.pcapng`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{number:05}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}
