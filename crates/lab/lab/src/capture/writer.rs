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

/// Default of the bytes kept of a packet: all.
pub const DEFAULT_SNAP: u32 = 262_144;

/// The largest snap length: bytes that a capture keeps of a packet.
pub const MAX_SNAP: u32 = 262_144;

/// Limit on the interfaces of a capture.
pub const MAX_CAPTURE_INTERFACES: usize = 64;

/// Limit on the files that a ring keeps.
pub const MAX_FILES: usize = 10_000;

/// The smallest size limit of a ring's files, in bytes.
pub const MIN_FILE_BYTES: u64 = 1 << 20;

/// Default of the memory between packets and files, in bytes: half a second at 1 Gb/s.
pub const DEFAULT_MEMORY: u64 = 64 << 20;

/// Limit on the memory of a capture, in bytes. A larger value is reduced to it.
const MAX_MEMORY: u64 = 8 << 30;

/// Length of a block of that memory, in bytes. Each recorder has at least two.
const SLAB_BYTES: usize = 1 << 20;

/// What to capture, and where to write it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureSettings {
    /// The file's path. With a ring, each file's name gets a number before its extension.
    pub path: PathBuf,
    /// Names of the interfaces; at most [`MAX_CAPTURE_INTERFACES`].
    pub interfaces: Vec<String>,
    /// Bytes kept of a packet; at most [`MAX_SNAP`].
    pub snap: u32,
    /// Memory between packets and files, in bytes, divided among the recorders.
    pub memory: u64,
    /// A ring of files instead of one file: the size of a file in bytes (at least
    /// [`MIN_FILE_BYTES`]), and how many are kept (1 to [`MAX_FILES`]).
    pub ring: Option<(u64, usize)>,
}

impl CaptureSettings {
    /// Settings for one file with everything.
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
    /// The first value outside its limits.
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

/// Why a capture cannot start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A setting is outside its limits.
    #[error("capture: {what} of {value}; use {least} to {most}")]
    Limit {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// A file cannot be made or written. Existing files are not overwritten: remove the file, or
    /// choose another name.
    #[error("capture to {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// No thread could be started.
    #[error("capture: cannot start a thread: {0}")]
    Thread(io::Error),
}

/// The result of a capture.
#[derive(Debug, Default)]
pub struct CaptureSummary {
    /// Counts by interface.
    pub interfaces: Vec<Totals>,
    /// The files that exist now, oldest first.
    pub files: Vec<PathBuf>,
    /// Bytes written, including files that the ring has removed.
    pub bytes: u64,
    /// The error that ended the capture early; packets since then count as dropped.
    pub error: Option<CaptureError>,
}

/// Packets of an interface. A super-packet counts once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Packets that passed.
    pub seen: u64,
    /// Packets of these that are in no file, because memory or disk space was short.
    pub dropped: u64,
}

/// A running capture: the thread that writes the files. It ends when all its recorders have been
/// dropped.
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

/// Complete pcapng blocks, and the recorder whose memory they are in.
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
    /// A setting is outside its limits; the file exists already or cannot be made.
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
                // Written once, so that no packet waits for a page fault.
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

    /// Returns the packets so far, by interface.
    #[must_use]
    pub fn totals(&self) -> Vec<Totals> {
        self.shared.totals()
    }

    /// Waits until all recorders are gone and everything is written.
    ///
    /// # Panics
    /// The writer panicked.
    #[must_use]
    pub fn finish(self) -> CaptureSummary {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Writes blocks until all recorders are gone.
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
    /// Writes blocks. After an error, `blocks` has all blocks of the write that failed, of which
    /// some may be in the file, and those after it.
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

    /// Returns how many bytes the current file may still take; a file always takes at least one
    /// block.
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

    /// Ends the current file with the counts so far.
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
