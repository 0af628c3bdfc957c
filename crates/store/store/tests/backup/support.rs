//! A small log that drives a backup as the master does, and knows what must be on disk.

use crate::common::frames;
use sprat_chance::Chance;
use sprat_disk::{Disk, MemControl};
use sprat_net::Nanos;
use sprat_store::backup::{
    AppendError, Backup, Durability, Failed, OpenError, Options, ReplayReport,
};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::group::{MARK_BYTES, encode_mark};
use sprat_wire::once::{COMPLETIONS, Completion, MAX_COMPLETION, OperationId};
use sprat_wire::op::Status;
use sprat_wire::value::ValueType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

pub(crate) use frames::{FRAME, SEGMENT, disk};

pub(crate) fn options(durability: Durability) -> Options {
    Options {
        durability,
        segment_bytes: SEGMENT,
        frame_bytes: FRAME,
        ..Options::new(*b"the test cluster", 5, 24)
    }
}

pub(crate) fn hash(table: u32, key: &[u8]) -> u64 {
    key.iter().fold(u64::from(table) + 1, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

/// Segments by id, as a replay returned them.
pub(crate) type Segments = BTreeMap<u64, Vec<u8>>;

/// Opens the log, and checks the properties that every replay must have.
pub(crate) fn open<D: Disk>(
    disk: D,
    options: &Options,
) -> Result<(Backup<D>, ReplayReport, Segments, Option<u64>), OpenError> {
    let mut segments = Segments::new();
    let mut newest = None;
    let mut last = u64::MAX;
    let mut entries = 0;
    let (backup, report) = Backup::open(disk, options, hash, |segment| {
        assert!(segment.id < last, "newest first");
        last = segment.id;
        newest = newest.or(Some(segment.id));
        assert_eq!(segment.header.id, segment.id);
        for (at, hashed) in &segment.entries {
            let entry =
                Entry::parse_checked(&segment.bytes[*at as usize..]).expect("entries are checked");
            assert_eq!(*hashed, hash(entry.table, entry.key));
        }
        entries += segment.entries.len() as u64;
        segments.insert(segment.id, segment.bytes.clone());
        ControlFlow::Continue(())
    })?;
    assert_eq!(report.segments, segments.len() as u64);
    assert_eq!(report.entries, entries);
    assert_eq!(report.bytes, segments.values().map(|bytes| bytes.len() as u64).sum::<u64>());
    assert!(backup.segments().eq(segments.keys().copied()));
    Ok((backup, report, segments, newest))
}

/// A log in memory to which random entries are appended.
pub(crate) struct MiniLog {
    pub(crate) random: Chance,
    /// All bytes that were ever put into a segment, durable or not.
    pub(crate) segments: Segments,
    /// By segment, the number of bytes that were passed to the backup.
    pub(crate) passed: BTreeMap<u64, usize>,
    /// By segment, the number of bytes that the backup reported durable.
    pub(crate) durable: BTreeMap<u64, usize>,
    pub(crate) sealed: BTreeSet<u64>,
    /// Segments whose seal was passed to the backup.
    finished: BTreeSet<u64>,
    pub(crate) head: Option<u64>,
    next: u64,
    /// Segments that the current head lists.
    digest: BTreeSet<u64>,
    /// Segments dropped from the digest, each with the id of the next segment at that time. A
    /// segment is freed once that next segment, a head, has durable bytes.
    reclaimable: Vec<(u64, u64)>,
    survivors: Vec<u64>,
    pub(crate) entries: u64,
    /// The largest number of older segments that a new head lists, without survivors that no head
    /// has listed before. If there are more, some are dropped from the digest.
    pub(crate) most: usize,
}

impl MiniLog {
    pub(crate) fn new(seed: u64) -> Self {
        Self::after(seed, Segments::new(), 0)
    }

    /// Returns a log that continues after a replay.
    pub(crate) fn after(seed: u64, segments: Segments, highest: u64) -> Self {
        let lengths: BTreeMap<u64, usize> =
            segments.iter().map(|(id, bytes)| (*id, bytes.len())).collect();
        Self {
            random: Chance::new(seed),
            passed: lengths.clone(),
            durable: lengths,
            sealed: segments.keys().copied().collect(),
            finished: segments.keys().copied().collect(),
            head: None,
            next: highest + 1,
            digest: segments.keys().copied().collect(),
            segments,
            reclaimable: Vec::new(),
            survivors: Vec::new(),
            entries: 0,
            most: 5,
        }
    }

    fn begin(&mut self, role: Role) -> u64 {
        let id = self.next;
        self.next += 1;
        let digest = match role {
            Role::Head => self.digest.iter().copied().chain([id]).collect(),
            Role::Survivor => Vec::new(),
        };
        let header = SegmentHeader { id, safe_version: 1, role, digest };
        let value = header.encode();
        let entry = Entry {
            kind: Kind::Segment,
            successor: false,
            table: 0,
            version: 0,
            key: &[],
            value: &value,
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        let mut bytes = vec![0; entry.encoded_len()];
        entry.encode(&mut bytes);
        self.segments.insert(id, bytes);
        self.passed.insert(id, 0);
        id
    }

    fn seal(&mut self, id: u64) {
        self.sealed.insert(id);
    }

    /// Appends an entry with a value of `len` bytes to the head, and begins a new head when it
    /// must. Returns false, and appends nothing, if the backup has no frame for a new head.
    pub(crate) fn append<D: Disk>(&mut self, backup: &Backup<D>, len: usize) -> bool {
        let key = self.random.draw().to_le_bytes();
        let value = vec![key[0]; len];
        let kind = if self.random.one_in(4) { Kind::Tombstone } else { Kind::Object };
        let entry = Entry {
            kind,
            successor: false,
            table: 3,
            version: self.entries + 1,
            key: &key,
            value: &value,
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        let needed = entry.encoded_len();
        if let Some(head) = self.head
            && backup.room(head) < self.segments[&head].len() - self.passed[&head] + needed
        {
            self.seal(head);
            self.head = None;
        }
        if self.head.is_none() {
            let count = backup.frame_count();
            let waiting = self.passed.iter().filter(|(_, passed)| **passed == 0).count();
            if count.live as usize + waiting + 1 >= count.max as usize {
                return false;
            }
            self.clean();
            // A survivor counts only when it is durable and a head lists it.
            self.survivors.retain(|id| {
                let whole = self.durable.get(id) == Some(&self.segments[id].len());
                if whole {
                    self.digest.insert(*id);
                }
                !whole
            });
            let head = self.begin(Role::Head);
            self.digest.insert(head);
            self.head = Some(head);
        }
        let bytes = self.segments.get_mut(&self.head.unwrap()).unwrap();
        let at = bytes.len();
        bytes.resize(at + needed, 0);
        entry.encode(&mut bytes[at..]);
        self.entries += 1;
        true
    }

    /// Appends a completion that counts only with the entry that is appended next.
    pub(crate) fn append_completion(&mut self) {
        let id = OperationId { client: 1, slot: 2, sequence: 3, resent: false };
        let mut value = [0; MAX_COMPLETION];
        let completion = Completion {
            joined: true,
            status: Status::Ok,
            version: 1,
            position: None,
            result: &[],
        };
        let len = completion.encode(&mut value);
        let (kind, table, key, value) =
            (Kind::Object, 3 | COMPLETIONS, &id.key()[..], &value[..len]);
        let entry = Entry {
            kind,
            successor: false,
            table,
            version: id.sequence,
            key,
            value,
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        let bytes = self.segments.get_mut(&self.head.expect("a head")).unwrap();
        let at = bytes.len();
        bytes.resize(at + entry.encoded_len(), 0);
        entry.encode(&mut bytes[at..]);
    }

    /// Appends the mark of a group whose entries have `len` bytes, and are appended next.
    pub(crate) fn append_mark(&mut self, len: usize) {
        let bytes = self.segments.get_mut(&self.head.expect("a head")).unwrap();
        let at = bytes.len();
        bytes.resize(at + MARK_BYTES, 0);
        encode_mark(len, &mut bytes[at..]);
    }

    /// Drops some old segments from the digest: the next head no longer lists them.
    fn clean(&mut self) {
        while self.digest.len() > self.most {
            let victim = *self.digest.iter().nth(self.random.index(4)).unwrap();
            self.digest.remove(&victim);
            self.reclaimable.push((victim, self.next));
        }
    }

    /// Begins and seals a survivor of one entry, unless frames are short or two survivors are not
    /// listed yet.
    pub(crate) fn survive<D: Disk>(&mut self, backup: &Backup<D>) {
        let count = backup.frame_count();
        if count.live + 4 >= count.max || self.survivors.len() > 1 {
            return;
        }
        let id = self.begin(Role::Survivor);
        let value = vec![7; self.random.index(9000)];
        let entry = Entry {
            kind: Kind::Object,
            successor: false,
            table: 3,
            version: 1,
            key: b"survivor",
            value: &value,
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        let bytes = self.segments.get_mut(&id).unwrap();
        let at = bytes.len();
        bytes.resize(at + entry.encoded_len(), 0);
        entry.encode(&mut bytes[at..]);
        self.seal(id);
        self.survivors.push(id);
    }

    /// Passes pending bytes to the backup, oldest segment first, in slices.
    pub(crate) fn pass<D: Disk>(&mut self, backup: &mut Backup<D>) -> Result<(), AppendError> {
        for (id, passed) in &mut self.passed {
            let bytes = &self.segments[id];
            let sealed = self.sealed.contains(id);
            if *passed == bytes.len() && (!sealed || self.finished.contains(id)) {
                continue;
            }
            let offset = u32::try_from(*passed).unwrap();
            backup.append(*id, offset, bytes[*passed..].chunks(1000), sealed)?;
            *passed = bytes.len();
            if sealed {
                self.finished.insert(*id);
            }
        }
        Ok(())
    }

    /// Records what is durable, and frees the segments that a durable head no longer lists.
    pub(crate) fn poll<D: Disk>(&mut self, backup: &mut Backup<D>, now: u64) -> Result<(), Failed> {
        let durable = &mut self.durable;
        backup.poll(Nanos(now), |progress| {
            let before = durable.insert(progress.segment, progress.up_to as usize).unwrap_or(0);
            assert!(before <= progress.up_to as usize, "progress goes forwards");
        })?;
        let (durable, passed) = (&self.durable, &mut self.passed);
        self.reclaimable.retain(|(victim, head)| {
            let free = durable.get(head).is_some_and(|up_to| *up_to > 0);
            if free {
                backup.free(*victim);
                passed.remove(victim);
            }
            !free
        });
        Ok(())
    }

    /// Appends, passes, commits and polls until everything is durable.
    pub(crate) fn settle<D: Disk>(&mut self, backup: &mut Backup<D>) {
        self.pass(backup).unwrap();
        let all = |log: &Self| {
            log.passed.iter().all(|(id, passed)| log.durable.get(id).unwrap_or(&0) == passed)
        };
        while !all(self) || backup.is_committing() {
            backup.submit(Nanos(0)).unwrap();
            self.poll(backup, 0).unwrap();
        }
    }

    /// Checks a replay against what was appended and what was reported durable. If `promised`,
    /// everything that was reported durable must be in the replay. A buffered log may lose some of
    /// it in a power failure.
    pub(crate) fn check(&self, replayed: &Segments, newest: Option<u64>, promised: bool) {
        for (id, bytes) in replayed {
            let appended =
                self.segments.get(id).unwrap_or_else(|| panic!("segment {id} was never begun"));
            assert!(appended.starts_with(bytes), "segment {id} holds what was appended");
            if Some(*id) != newest {
                assert!(
                    bytes.len() == appended.len(),
                    "segment {id} is whole: {} of {}",
                    bytes.len(),
                    appended.len()
                );
                assert!(self.sealed.contains(id));
            }
        }
        if !promised {
            return;
        }
        // If part of a head was reported durable, that head or a newer one must be there.
        let heads = self.segments.iter().filter(|(_, bytes)| is_head(bytes)).map(|(id, _)| *id);
        let reported =
            heads.filter(|id| self.durable.get(id).is_some_and(|up_to| *up_to > 0)).max();
        assert!(newest >= reported, "newest head is {newest:?}, {reported:?} was reported durable");
        if let Some(newest) = newest {
            let header =
                SegmentHeader::parse(Entry::parse(&replayed[&newest]).unwrap().value).unwrap();
            assert!(
                header.digest.iter().eq(replayed.keys()),
                "what the head lists is there, and nothing else"
            );
            let up_to = *self.durable.get(&newest).unwrap_or(&0);
            assert!(
                replayed[&newest].len() >= up_to,
                "{} B of {up_to} durable ones",
                replayed[&newest].len()
            );
        }
    }
}

fn is_head(bytes: &[u8]) -> bool {
    let header = SegmentHeader::parse(Entry::parse(bytes).unwrap().value).unwrap();
    header.role == Role::Head
}

/// Returns a disk in memory with `contents`.
pub(crate) fn disk_with(contents: &[u8]) -> MemControl {
    let control = MemControl::new(1);
    control.patch(0, contents);
    control
}
