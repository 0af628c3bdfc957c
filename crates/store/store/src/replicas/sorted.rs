//! A segment's entries sorted by where their keys stand, so that whoever recovers a part of the log
//! is given that and no more.
//!
//! Sorted once, however many recover parts, in slices of a millisecond or so.

use crate::backup::{Contents, Damage};
use sprat_wire::entry::{Entry, Kind, Malformed, Role, SegmentHeader};
use sprat_wire::once::{COMPLETION_KEY_BYTES, COMPLETIONS, Completion, MAX_COMPLETION};
use sprat_wire::op::Selection;
use sprat_wire::tablet::position;
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// Bytes of the segment taken at a time.
const SLICE_BYTES: usize = 1 << 20;

/// Bits of a position by which entries are told apart; the rest is looked at when they are given.
/// As many servers can recover a log without anybody's looking at entries of many others.
const BUCKET_BITS: u32 = 8;

/// Why a segment cannot be sorted.
#[derive(Debug, Error)]
pub(super) enum Unsorted {
    #[error("{0}")]
    Damage(#[from] Damage),
    /// What was written is not a log: it was wrong when it came.
    #[error("byte {at} of the segment: {why}")]
    Entry { at: usize, why: Malformed },
    #[error("the segment does not begin with its header")]
    Header,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    len: u32,
    table: u32,
    position: u64,
}

/// The last completion of a lane.
#[derive(Clone)]
struct Last {
    sequence: u64,
    place: Place,
    /// Where its object is, or would have been, if what is here may not be in other replicas, or
    /// not count: see [`Sorted::told`].
    owner: Option<u64>,
    /// Entries in `Sorted::made`: that it was begun, and, if it says so only by what stands behind
    /// it, the same with its object's position.
    begun: Range<usize>,
    placed: Range<usize>,
}

/// A segment sorted, or being sorted.
pub(super) struct Sorted {
    seed: u64,
    bytes: Vec<u8>,
    /// Up to where entries were looked at.
    at: usize,
    header: Option<(usize, SegmentHeader)>,
    /// The entry looked at last, if it is a completion: when nothing follows, it may not count.
    last: Option<Place>,
    /// The last completion of each lane, by table and key: older ones do not count, and each write
    /// has left one.
    completions: BTreeMap<(u32, [u8; COMPLETION_KEY_BYTES]), Last>,
    made: Vec<u8>,
    buckets: Vec<Vec<Place>>,
    is_done: bool,
    /// Selections that were given to their ends.
    pub(super) ended: u32,
}

impl Sorted {
    /// Begins; keys are hashed with `seed`, `bytes` is a buffer that may have served before.
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

    /// Takes in the next slice.
    pub(super) fn go_on(&mut self, contents: &mut Contents) -> Result<(), Unsorted> {
        let more = contents.copy(self.bytes.len(), SLICE_BYTES, &mut self.bytes)?;
        while self.at < self.bytes.len() {
            let at = self.at;
            let entry = match Entry::parse_checked(&self.bytes[at..]) {
                Ok(entry) => entry,
                // The rest of it comes with the next slice.
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
            let index = |number: usize| u32::try_from(number).expect("within a segment");
            let Entry { table, key, .. } = entry;
            let is_completion = table & COMPLETIONS != 0;
            let position = if is_completion { 0 } else { position(self.seed, table, key) };
            let place =
                Place { at: index(at), len: index(len), table: table & !COMPLETIONS, position };
            if let Some(before) = self.last.take() {
                self.complete(before, Some(position));
            }
            match is_completion {
                true => self.last = Some(place),
                false => self.buckets[bucket(position)].push(place),
            }
        }
        if !more {
            if let Some(last) = self.last.take().filter(|&last| !self.is_cut(last)) {
                self.complete(last, None);
            }
            self.make();
            self.is_done = true;
        }
        Ok(())
    }

    fn entry(&self, place: Place) -> Entry<'_> {
        Entry::parse(&self.bytes[place.at as usize..]).expect("checked")
    }

    /// Like what the cleaner writes, a copy has only what counts.
    fn role(&self) -> Role {
        let header = self.header.as_ref().map(|(_, header)| header).expect("it comes first");
        if header.is_copy() { Role::Survivor } else { header.role }
    }

    fn is_cut(&self, last: Place) -> bool {
        Completion::is_cut(&self.entry(last), self.role())
    }

    /// Takes a completion in; `behind` is where the entry behind it belongs.
    fn complete(&mut self, place: Place, behind: Option<u64>) {
        let entry = self.entry(place);
        let (Ok(key), sequence) = (entry.key.try_into(), entry.version) else { return };
        let completion = Completion::of(&entry);
        let owner = match (self.role(), completion) {
            (Role::Head, Some(completion)) if completion.joined => behind,
            (_, completion) => completion.and_then(|completion| completion.position),
        };
        let is_begun = |place| {
            Completion::of(&self.entry(place)).is_some_and(|completion| completion.is_begun())
        };
        let known = self.completions.get(&(place.table, key));
        let is_last = known.is_none_or(|known| {
            known.sequence < sequence || known.sequence == sequence && is_begun(known.place)
        });
        if is_last {
            let last = Last { sequence, place, owner, begun: 0..0, placed: 0..0 };
            self.completions.insert((place.table, key), last);
        }
    }

    /// Makes what is given in place of those that have an owner.
    fn make(&mut self) {
        let Self { completions, bytes, made, .. } = self;
        for ((table, key), last) in completions {
            let mut make = |completion: Completion<'_>| {
                let mut value = [0; MAX_COMPLETION];
                let len = completion.encode(&mut value);
                let (table, version, value) = (*table | COMPLETIONS, last.sequence, &value[..len]);
                let (kind, value_type) = (Kind::Object, ValueType::Bytes);
                let entry =
                    Entry { kind, successor: false, table, version, key, value, value_type };
                let begin = made.len();
                made.resize(begin + entry.encoded_len(), 0);
                entry.encode(&mut made[begin..]);
                begin..made.len()
            };
            if last.owner.is_none() {
                continue;
            }
            last.begun = make(Completion::BEGUN);
            let entry = Entry::parse(&bytes[last.place.at as usize..]).expect("checked");
            if let Some(joined) = Completion::of(&entry).filter(|completion| completion.joined) {
                last.placed = make(Completion { joined: false, position: last.owner, ..joined });
            }
        }
    }

    /// What is told of a completion to whoever is given a selection. The end of a log may be in
    /// some replicas and not in others, and what is brought back later comes from others: only
    /// with its object does a completion say what was done.
    fn told(&self, selection: Selection<'_>, last: &Last) -> &[u8] {
        let Place { at, len, table, .. } = last.place;
        match last.owner {
            Some(position) if !selection.wants(table, position) => &self.made[last.begun.clone()],
            Some(_) if !last.placed.is_empty() => &self.made[last.placed.clone()],
            _ => &self.bytes[at as usize..][..len as usize],
        }
    }

    /// What a selection is given, the segment's header first.
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
        let objects = objects.filter(move |place| selection.wants(place.table, place.position));
        let objects = objects.map(|place| &self.bytes[place.at as usize..][..place.len as usize]);
        let completions =
            self.completions.values().filter(move |last| selection.wants_of(last.place.table));
        let completions = completions.map(move |last| self.told(selection, last));
        std::iter::once(&self.bytes[..header]).chain(completions).chain(objects)
    }

    /// Appends what is selected from byte `offset` of it on, `most` bytes at most; returns how many
    /// there are in all.
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
