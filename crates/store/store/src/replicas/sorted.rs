//! Sorts the entries of a segment by key position, so that a server that recovers some tablets of a
//! log gets only the entries of these tablets.
//!
//! A segment is sorted once for all servers that recover from it, in slices of about a millisecond.

use crate::backup::{Contents, Damage};
use sprat_wire::entry::{Entry, Kind, Malformed, Role, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::group::Group;
use sprat_wire::once::{COMPLETION_KEY_BYTES, COMPLETIONS, Completion, MAX_COMPLETION};
use sprat_wire::op::Selection;
use sprat_wire::tablet::{position, table_of};
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// Bytes of the segment sorted at a time.
const SLICE_BYTES: usize = 1 << 20;

/// Bits of a position that determine an entry's bucket. A reply compares the full positions of the
/// entries in the buckets that it needs. With up to 256 servers that recover a log, few of these
/// entries turn out not to be needed.
const BUCKET_BITS: u32 = 8;

/// Why a segment cannot be sorted.
#[derive(Debug, Error)]
pub(super) enum Unsorted {
    #[error("{0}")]
    Damage(#[from] Damage),
    /// The master did not write a valid log: the bytes were already wrong when they arrived here.
    #[error("byte {at} of the segment: {why}")]
    Entry { at: usize, why: Malformed },
    #[error("the segment does not start with its header")]
    Header,
    #[error("byte {at} of the segment: a segment's header in the wrong place")]
    Misplaced { at: usize },
}

/// An entry in the segment.
#[derive(Clone, Copy, Debug)]
struct EntryRef {
    at: u32,
    len: u32,
    table: u32,
    position: u64,
}

/// The last completion of a client's request slot.
#[derive(Clone)]
struct LastCompletion {
    sequence: u64,
    entry: EntryRef,
    /// Position of the object that the completion's operation changed, if the completion counts
    /// only together with the object: see [`Sorted::completion_for`].
    owner: Option<u64>,
    /// Range in `Sorted::made` of an entry that says only that the operation was begun.
    begun: Range<usize>,
    /// Range in `Sorted::made` of an entry that states the object's position. Empty if the original
    /// completion states that position and need not be followed by its object in the log.
    placed: Range<usize>,
}

/// A segment sorted, or being sorted.
pub(super) struct Sorted {
    seed: u64,
    bytes: Vec<u8>,
    /// The offset up to which entries were sorted.
    at: usize,
    header: Option<(usize, SegmentHeader)>,
    /// The entry before `at`, if that entry is a completion: if no entry follows it, it may not
    /// count.
    last: Option<EntryRef>,
    /// The last completion of each request slot, by table and key. The log has one completion for
    /// each write, but older ones of the same slot do not count.
    completions: BTreeMap<(u32, [u8; COMPLETION_KEY_BYTES]), LastCompletion>,
    /// Entries that are served in place of completions: see [`LastCompletion`].
    made: Vec<u8>,
    buckets: Vec<Vec<EntryRef>>,
    is_done: bool,
    /// Number of selections that were served to their end.
    pub(super) ended: u32,
}

impl Sorted {
    /// Begins to sort. Keys are hashed with `seed`; `bytes` is a buffer to reuse.
    pub(super) fn new(seed: u64, contents: &Contents, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.reserve(contents.len());
        let buckets = vec![Vec::new(); 1 << BUCKET_BITS];
        let (header, last, completions, made) = (None, None, BTreeMap::new(), Vec::new());
        Self {
            seed,
            bytes,
            at: 0,
            header,
            last,
            completions,
            made,
            buckets,
            is_done: false,
            ended: 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Sorts the next slice.
    pub(super) fn sort_slice(&mut self, contents: &mut Contents) -> Result<(), Unsorted> {
        let mut more = contents.copy(self.bytes.len(), SLICE_BYTES, &mut self.bytes)?;
        while self.at < self.bytes.len() {
            let at = self.at;
            let entry = match Entry::parse_checked(&self.bytes[at..]) {
                Ok(entry) => entry,
                // The rest of this entry comes with the next slice.
                Err(_) if more && self.bytes.len() - at < sprat_wire::entry::MAX_ENTRY => break,
                Err(why) => return Err(Unsorted::Entry { at, why }),
            };
            let len = entry.encoded_len();
            self.at += len;
            if at == 0 {
                let header =
                    SegmentHeader::parse(entry.value).filter(|_| entry.kind == Kind::Segment);
                self.header = Some((len, header.ok_or(Unsorted::Header)?));
                continue;
            }
            if entry.kind == Kind::Segment {
                let group = Group::at(at, &entry).ok_or(Unsorted::Misplaced { at })?;
                if group.end > contents.len() {
                    self.bytes.truncate(at);
                    (self.at, more) = (at, false);
                }
                continue;
            }
            let index = |number: usize| u32::try_from(number).expect("within a segment");
            let Entry { table, key, .. } = entry;
            let is_completion = table & COMPLETIONS != 0;
            let position = if is_completion { 0 } else { position(self.seed, table, key) };
            let table = table_of(table);
            let entry = EntryRef { at: index(at), len: index(len), table, position };
            if let Some(before) = self.last.take() {
                self.add_completion(before, Some(position));
            }
            match is_completion {
                true => self.last = Some(entry),
                false => self.buckets[bucket(position)].push(entry),
            }
        }
        if !more {
            if let Some(last) = self.last.take().filter(|&last| !self.is_cut(last)) {
                self.add_completion(last, None);
            }
            self.make_replacements();
            self.is_done = true;
        }
        Ok(())
    }

    fn entry(&self, entry: EntryRef) -> Entry<'_> {
        Entry::parse(&self.bytes[entry.at as usize..]).expect("checked")
    }

    /// Returns the role of the segment. A copy has live entries only, like a survivor of the
    /// cleaner.
    fn role(&self) -> Role {
        let header = self.header.as_ref().map(|(_, header)| header).expect("it comes first");
        if header.is_copy() { Role::Survivor } else { header.role }
    }

    fn is_cut(&self, last: EntryRef) -> bool {
        Completion::is_cut(&self.entry(last), self.role())
    }

    /// Adds a completion; `next` is the position of the entry that follows it.
    fn add_completion(&mut self, at: EntryRef, next: Option<u64>) {
        let entry = self.entry(at);
        let (Ok(key), sequence) = (entry.key.try_into(), entry.version) else { return };
        let completion = Completion::of(&entry);
        let owner = match (self.role(), completion) {
            (Role::Head, Some(completion)) if completion.joined => next,
            (_, completion) => completion.and_then(|completion| completion.position),
        };
        let is_begun = |entry| {
            Completion::of(&self.entry(entry)).is_some_and(|completion| completion.is_begun())
        };
        let known = self.completions.get(&(at.table, key));
        let is_last = known.is_none_or(|known| {
            known.sequence < sequence || known.sequence == sequence && is_begun(known.entry)
        });
        if is_last {
            let last = LastCompletion { sequence, entry: at, owner, begun: 0..0, placed: 0..0 };
            self.completions.insert((at.table, key), last);
        }
    }

    /// Makes the entries that are served in place of completions that have an owner.
    fn make_replacements(&mut self) {
        let Self { completions, bytes, made, .. } = self;
        for ((table, key), last) in completions {
            let mut make = |completion: Completion<'_>| {
                let mut value = [0; MAX_COMPLETION];
                let len = completion.encode(&mut value);
                let (table, version, value) = (*table | COMPLETIONS, last.sequence, &value[..len]);
                let (kind, value_type) = (Kind::Object, ValueType::Bytes);
                let entry = Entry {
                    kind,
                    successor: false,
                    table,
                    version,
                    key,
                    value,
                    value_type,
                    expires: NEVER,
                };
                let begin = made.len();
                made.resize(begin + entry.encoded_len(), 0);
                entry.encode(&mut made[begin..]);
                begin..made.len()
            };
            if last.owner.is_none() {
                continue;
            }
            last.begun = make(Completion::BEGUN);
            let entry = Entry::parse(&bytes[last.entry.at as usize..]).expect("checked");
            if let Some(joined) = Completion::of(&entry).filter(|completion| completion.joined) {
                last.placed = make(Completion { joined: false, position: last.owner, ..joined });
            }
        }
    }

    /// Returns the entry to serve for a completion in a selection. Some replicas may lack the end
    /// of a log, and a later attempt may recover from these. So the outcome of an operation is
    /// served only together with its object. Without the object, the entry says only that the
    /// operation was begun.
    fn completion_for(&self, selection: Selection<'_>, last: &LastCompletion) -> &[u8] {
        let EntryRef { at, len, table, .. } = last.entry;
        match last.owner {
            Some(position) if !selection.wants(table, position) => &self.made[last.begun.clone()],
            Some(_) if !last.placed.is_empty() => &self.made[last.placed.clone()],
            _ => &self.bytes[at as usize..][..len as usize],
        }
    }

    /// Returns the entries of a selection: first the segment's header, then completions, then
    /// objects.
    fn selected<'a>(&'a self, selection: Selection<'a>) -> impl Iterator<Item = &'a [u8]> + 'a {
        let header = self.header.as_ref().map_or(0, |(len, _)| *len);
        let tablets = selection.tablets();
        let buckets = (0..self.buckets.len()).filter(move |&number| {
            let reach = |tablet: sprat_wire::tablet::Tablet| {
                bucket(tablet.range.first)..=bucket(tablet.range.last)
            };
            tablets.clone().any(|tablet| reach(tablet).contains(&number))
        });
        let objects = buckets.flat_map(|number| &self.buckets[number]);
        let objects = objects.filter(move |entry| selection.wants(entry.table, entry.position));
        let objects = objects.map(|entry| &self.bytes[entry.at as usize..][..entry.len as usize]);
        let completions =
            self.completions.values().filter(move |last| selection.wants_of(last.entry.table));
        let completions = completions.map(move |last| self.completion_for(selection, last));
        std::iter::once(&self.bytes[..header]).chain(completions).chain(objects)
    }

    /// Appends the bytes of a selection from `offset` on, at most `most` of them. Returns the total
    /// number of bytes in the selection.
    pub(super) fn copy(
        &self,
        selection: Selection<'_>,
        offset: usize,
        most: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        assert!(self.is_done, "sorted to its end");
        let (begin, mut total) = (out.len(), 0);
        for entry in self.selected(selection) {
            let skip = offset.saturating_sub(total).min(entry.len());
            let room = most - (out.len() - begin);
            out.extend_from_slice(&entry[skip..][..room.min(entry.len() - skip)]);
            total += entry.len();
        }
        total
    }
}

fn bucket(position: u64) -> usize {
    usize::try_from(position >> (u64::BITS - BUCKET_BITS)).expect("a few bits")
}
