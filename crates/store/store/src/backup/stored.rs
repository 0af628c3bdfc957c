//! Surveys a file of replicas: examines every frame, each independent of the others.

use super::OpenError;
use super::current::Current;
use super::frames::FrameSlot;
use super::mark::Mark;
use super::owner::Owner;
use super::survey::FrameReader;
use super::walk::{ChunkReader, End};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, ReadAt};
use sprat_wire::frame::{Chunk, ChunkHeader, find_chunks};
use sprat_wire::op::ReplicaId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use thiserror::Error;

/// A replica that is on disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// The replica's id.
    pub replica: ReplicaId,
    /// The replica's incarnation in this file.
    pub incarnation: u32,
    /// Number of log bytes in the replica.
    pub len: u32,
    /// Whether the segment is a head; otherwise it is a survivor.
    pub head: bool,
    /// Number of bytes that the replica's chunks take in its frame.
    pub framed: u32,
    /// Whether the master has sealed the replica.
    pub sealed: bool,
    /// Whether more bytes than the replica has may have been acknowledged to the master.
    pub unsure: bool,
}

/// Bytes of a replica on disk differ from what was written.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "{file} is damaged at offset {offset} ({}): expected {expected}, found {found}; other servers \
     have replicas of it",
    replica.map_or_else(|| "an unknown replica".to_owned(), |replica| replica.to_string())
)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The replica at this offset, as far as what is left there shows.
    pub replica: Option<ReplicaId>,
    /// A description of what the file should have at this offset.
    pub expected: String,
    /// A description of what the file has at this offset.
    pub found: String,
}

/// A write that a crash left unfinished. Under [`Durability::Sync`](super::Durability::Sync) it was
/// never acknowledged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Torn {
    /// The replica; `None` when not even its id can be read.
    pub replica: Option<ReplicaId>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The length of the replica's log now, in bytes; zero if the log never began.
    pub len: u32,
    /// A description of what was found at this offset.
    pub found: String,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            Some(replica) => write!(f, "{replica}")?,
            None => f.write_str("an unknown replica")?,
        }
        write!(
            f,
            ", {} B of its log, then {} at offset {} of the file",
            self.len, self.found, self.offset
        )
    }
}

/// The results of opening a file of replicas.
#[derive(Clone, Debug, Default)]
pub struct StoredReport {
    /// Replicas that are whole as far as is known, in the order of their packed ids.
    pub stored: Vec<Stored>,
    /// Damaged replicas, and damaged marks of freed frames. A damaged replica whose id is known
    /// keeps its frame until it is freed.
    pub damaged: Vec<Damage>,
    /// Torn ends that were cut, and torn beginnings that were dropped.
    pub torn: Vec<Torn>,
    /// Number of replicas that were superseded by a later one of the same id; their frames are free
    /// now.
    pub outdated: u64,
    /// Whether one of the two copies of the file header was damaged; it has been rewritten.
    pub header_repaired: bool,
    /// Whether the file was closed cleanly.
    pub clean: bool,
    /// Wall-clock time from the first read to the last.
    pub elapsed: Duration,
}

/// The contents of one frame.
enum FrameContents {
    /// Nothing.
    Nothing,
    /// The remains of a replica whose first write was not finished.
    Beginning(Torn),
    Replica(Stored, Option<Torn>),
    Damaged(Damage, u32),
}

/// The contents of a frame, and the damage of its mark.
type Examined = (FrameContents, Option<Damage>);

/// Which frames hold replicas, and which are free.
#[derive(Default)]
pub(super) struct FrameMap {
    pub(super) live: BTreeMap<u64, FrameSlot>,
    pub(super) free: Vec<u32>,
    /// Frames that must be marked before they are free.
    pub(super) unmarked: Vec<u32>,
}

impl<R: ReadAt> FrameReader<R> {
    /// Examines all frames, on `threads` threads.
    pub(super) fn survey_replicas(
        &self,
        current: &Current,
        threads: usize,
        report: &mut StoredReport,
    ) -> Result<FrameMap, OpenError> {
        let next = AtomicU32::new(0);
        let examine_frames = || {
            let mut buffer = AlignedBuf::zeroed(self.frame_bytes());
            let mut found = Vec::new();
            loop {
                let frame = next.fetch_add(1, Ordering::Relaxed);
                if frame >= self.frames {
                    return Ok(found);
                }
                found.push((frame, self.examine(frame, current, &mut buffer)?));
            }
        };
        let mut all: Vec<(u32, Examined)> = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(examine_frames)).collect();
            for thread in threads {
                let found: Result<_, OpenError> =
                    thread.join().expect("looking over frames does not panic");
                all.extend(found?);
            }
            Ok::<_, OpenError>(())
        })?;
        all.sort_unstable_by_key(|(frame, _)| *frame);
        Ok(arrange_frames(all, report))
    }

    /// Examines one frame.
    fn examine(
        &self,
        frame: u32,
        current: &Current,
        buffer: &mut AlignedBuf,
    ) -> Result<Examined, OpenError> {
        let chunk_bytes = Owner::Replicas.chunk_bytes(self.header.frame_bytes);
        let seed = self.header.seed();
        self.read_at(frame, chunk_bytes, BLOCK_BYTES, buffer)?;
        let mark = Mark::parse(seed, &buffer[..BLOCK_BYTES]);
        let freed = if let Mark::Freed(incarnation) = mark { incarnation } else { 0 };
        self.read(frame, BLOCK_BYTES, buffer)?;
        let header = match ChunkHeader::parse(seed, &buffer[..BLOCK_BYTES]) {
            Ok(Chunk { header, .. }) if header.incarnation <= freed => {
                return Ok((FrameContents::Nothing, None));
            }
            Ok(Chunk { header, .. }) if header.offset == 0 => Some(header),
            _ => None,
        };
        self.read(frame, chunk_bytes, buffer)?;
        let bytes = &buffer[..chunk_bytes];
        let holds = match header {
            Some(header) => self.examine_named(frame, bytes, &header, current),
            None => {
                self.examine_unnamed_replica(frame, bytes, freed, current.header.clean.is_some())
            }
        };
        let damage = (mark == Mark::Damaged).then(|| Damage {
            file: self.name.clone(),
            offset: self.header.frame_offset(frame) + chunk_bytes as u64,
            replica: None,
            expected: "a valid mark of the frame's free part; a freed replica may reappear"
                .to_owned(),
            found: "no valid chunk header".to_owned(),
        });
        Ok((holds, damage))
    }

    /// Examines a frame that begins with a replica's first chunk.
    fn examine_named(
        &self,
        frame: u32,
        bytes: &[u8],
        first: &ChunkHeader,
        current: &Current,
    ) -> FrameContents {
        let replica = ReplicaId::of_word(first.segment);
        let chunks = ChunkReader {
            seed: self.header.seed(),
            segment: first.segment,
            incarnation: first.incarnation,
            segment_bytes: self.header.segment_bytes as usize,
        };
        let mut head = false;
        let walked = chunks.walk_with(bytes, |header, _| head |= header.head);
        let (sealed, found) = match walked.end {
            End::Sealed => (true, None),
            End::Open => (false, None),
            End::Torn(bad) => (false, Some(bad.to_string())),
        };
        let offset = self.header.frame_offset(frame) + walked.position as u64;
        let len = u32::try_from(walked.log_end).expect("within a segment");
        // A process that closed the file cleanly left nothing unfinished.
        let finished =
            current.header.clean.is_some_and(|(life, _)| u64::from(first.incarnation) >= life);
        if !sealed {
            let witness = chunks.witness(bytes, walked.position, walked.log_end);
            let expected = match witness {
                Some((_, durable)) => Some(format!("{durable} B of it, going on at byte {len}")),
                None if finished
                    && (found.is_some() || chunks.has_more(bytes, walked.position)) =>
                {
                    Some(format!("more of it behind byte {len}, for the file was closed in order"))
                }
                None => None,
            };
            if let Some(expected) = expected {
                let found = found.unwrap_or_else(|| "nothing".to_owned());
                let damage = Damage {
                    file: self.name.clone(),
                    offset,
                    replica: Some(replica),
                    expected,
                    found,
                };
                return FrameContents::Damaged(damage, first.incarnation);
            }
        }
        let torn = found.map(|found| Torn { replica: Some(replica), offset, len, found });
        if len == 0 && !sealed {
            let nothing =
                || Torn { replica: Some(replica), offset, len, found: "nothing".to_owned() };
            return FrameContents::Beginning(torn.unwrap_or_else(nothing));
        }
        let framed = u32::try_from(walked.position).expect("within a frame");
        let unsure = first.buffered && !sealed && !finished;
        let incarnation = first.incarnation;
        FrameContents::Replica(
            Stored { replica, incarnation, len, head, framed, sealed, unsure },
            torn,
        )
    }

    /// Examines a frame that begins with no replica's chunk: it is empty, its first write was torn,
    /// or it is damaged.
    fn examine_unnamed_replica(
        &self,
        frame: u32,
        bytes: &[u8],
        freed: u32,
        clean: bool,
    ) -> FrameContents {
        let offset = self.header.frame_offset(frame);
        let headers = find_chunks(self.header.seed(), bytes).map(|(_, chunk)| chunk.header);
        let newest = headers.filter(|header| header.incarnation > freed).max_by_key(|header| {
            // Of one replica's chunks, the one that states the most durable bytes.
            (header.incarnation, header.durable)
        });
        if newest.is_none() && bytes[..BLOCK_BYTES].iter().all(|byte| *byte == 0) {
            return FrameContents::Nothing;
        }
        let replica = newest.map(|header| ReplicaId::of_word(header.segment));
        let found = "no valid chunk header".to_owned();
        let expected = match newest {
            Some(header) if header.durable > 0 => {
                format!("the first of {} B of it", header.durable)
            }
            _ if clean => {
                "nothing, or a replica's first chunk, for the file was closed in order".to_owned()
            }
            _ => return FrameContents::Beginning(Torn { replica, offset, len: 0, found }),
        };
        let damage = Damage { file: self.name.clone(), offset, replica, expected, found };
        FrameContents::Damaged(damage, newest.map_or(0, |header| header.incarnation))
    }
}

/// Assigns frames to replicas: of two replicas with the same id the later one counts.
fn arrange_frames(all: Vec<(u32, Examined)>, report: &mut StoredReport) -> FrameMap {
    let mut map = FrameMap::default();
    let mut named: BTreeMap<u64, (u32, u32, FrameContents)> = BTreeMap::new();
    for (frame, (holds, bad_mark)) in all {
        report.damaged.extend(bad_mark);
        let (word, incarnation) = match &holds {
            FrameContents::Nothing => {
                map.free.push(frame);
                continue;
            }
            FrameContents::Beginning(torn) => {
                report.torn.push(torn.clone());
                map.unmarked.push(frame);
                continue;
            }
            FrameContents::Replica(stored, _) => (stored.replica.word(), stored.incarnation),
            FrameContents::Damaged(Damage { replica: Some(replica), .. }, incarnation) => {
                (replica.word(), *incarnation)
            }
            FrameContents::Damaged(damage, _) => {
                report.damaged.push(damage.clone());
                map.unmarked.push(frame);
                continue;
            }
        };
        match named.entry(word) {
            Entry::Vacant(vacant) => {
                vacant.insert((incarnation, frame, holds));
            }
            Entry::Occupied(mut there) => {
                let outdated = if there.get().0 < incarnation {
                    there.insert((incarnation, frame, holds)).1
                } else {
                    frame
                };
                report.outdated += 1;
                map.unmarked.push(outdated);
            }
        }
    }
    for (word, (incarnation, frame, holds)) in named {
        map.live.insert(word, FrameSlot { frame, incarnation });
        match holds {
            FrameContents::Replica(stored, torn) => {
                report.stored.push(stored);
                report.torn.extend(torn);
            }
            FrameContents::Damaged(damage, _) => report.damaged.push(damage),
            FrameContents::Nothing | FrameContents::Beginning(_) => {
                unreachable!("they have no name")
            }
        }
    }
    map
}
