//! The hash table: from the hash of a key to the address of its entry.
//!
//! A line is one cache line: ten slots and a link. A slot packs an address of [`ADDRESS_BITS`] and
//! a tag, the top bits of the hash, so that a lookup touches one line and then, nearly always, only
//! the entry that it seeks. Lines fill from their first slot on and chains from their first line
//! on, without gaps, so the first empty slot is the end of the chain.
//!
//! A slot also has a bit that says whether the entry was used lately, for [eviction](crate::evict).
//!
//! The table grows by linear hashing, see [`grow`]: an insertion now and then splits the chain of a
//! line, so no operation ever waits for a rehash of the whole table. Both ranges of lines are
//! reserved up front, so the table is never copied to a larger one.

mod grow;

use crate::arena::{Mapping, prefetch};
use zerocopy::FromZeros;

/// Bits of an address: a log has at most 256 GB.
pub(crate) const ADDRESS_BITS: u32 = 38;

/// Bits of an address in the upper part of a slot.
const HIGH_BITS: u32 = ADDRESS_BITS - 32;

/// The bit in the upper part of a slot of an entry that was used lately.
const USED: u16 = 1 << HIGH_BITS;

/// Bits in the upper part of a slot below the tag.
const TAG_SHIFT: u32 = HIGH_BITS + 1;

/// Slots of a line.
const SLOTS: usize = 10;

/// Number of entries that a hundred lines hold before the table grows. At 6.4 entries in a line of
/// 64 bytes, an entry takes 10 bytes.
const FILL_PER_100_LINES: usize = 640;

/// Lines of an empty table.
const FIRST_LINES: usize = 64;

/// Numbers from this one on are those of overflow lines; lower ones are those of primary lines.
const OVERFLOW: usize = 1 << 40;

/// One cache line of the table.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Line {
    /// Tag, [`USED`] and the high bits of the address.
    high: [u16; SLOTS],
    /// Low 32 bits of the address. A slot with address zero is empty.
    low: [u32; SLOTS],
    /// Number of the chain's next line, which is an overflow line, plus one; zero if there is none.
    link: u32,
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    #[inline]
    fn address(&self, slot: usize) -> usize {
        let high = self.high[slot] & ((1 << HIGH_BITS) - 1);
        usize::from(high) << 32 | self.low[slot] as usize
    }

    #[inline]
    fn is_empty(&self, slot: usize) -> bool {
        self.address(slot) == 0
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the address is taken apart")]
    fn set(&mut self, slot: usize, tag: u16, used: bool, address: usize) {
        debug_assert!(address < 1 << ADDRESS_BITS);
        let used = if used { USED } else { 0 };
        self.high[slot] = tag << TAG_SHIFT | used | (address >> 32) as u16;
        self.low[slot] = address as u32;
    }

    fn clear(&mut self, slot: usize) {
        self.set(slot, 0, false, 0);
    }

    #[inline]
    fn is_used(&self, slot: usize) -> bool {
        self.high[slot] & USED != 0
    }

    /// Returns the number of slots in use; they come first.
    fn len(&self) -> usize {
        (0..SLOTS).find(|&slot| self.is_empty(slot)).unwrap_or(SLOTS)
    }

    /// Returns a mask with a bit for each slot that has this tag. Empty slots have tag 0.
    #[inline]
    fn candidates(&self, tag: u16) -> u32 {
        let mut found = 0;
        for slot in 0..SLOTS {
            found |= u32::from(self.high[slot] >> TAG_SHIFT == tag) << slot;
        }
        found
    }
}

/// Returns the tag of a hash: its top bits. The bottom bits choose the line.
#[inline]
fn tag(hash: u64) -> u16 {
    (hash >> (48 + TAG_SHIFT)) as u16
}

/// The slot of an entry's address; valid until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSlot {
    line: usize,
    slot: usize,
}

/// The hash table: see the module.
pub(crate) struct Table {
    primary: Mapping<Line>,
    overflow: Mapping<Line>,
    /// Lines are chosen by the low `level` bits of the hash, and by one bit more if these bits are
    /// below `split`.
    level: u32,
    split: usize,
    /// Number of overflow lines ever used, and the link to the first free one (its number plus one,
    /// or zero).
    overflow_used: usize,
    overflow_free: u32,
    entries: usize,
    /// Buffer for the addresses of a chain that is being split, and whether they were used.
    scratch: Vec<(usize, bool)>,
}

impl Table {
    /// Makes a table for at most `entries` entries.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub(crate) fn new(entries: usize) -> std::io::Result<Self> {
        let primary = entries * 100 / FILL_PER_100_LINES + 2 * FIRST_LINES;
        // A chain of n lines holds more than 10 (n - 1) entries, so there are fewer overflow lines
        // than a tenth of the entries. Twice that number is reserved.
        let overflow = (entries / 5 + FIRST_LINES).min(u32::MAX as usize - 1);
        Ok(Self {
            primary: Mapping::reserve(primary)?,
            overflow: Mapping::reserve(overflow)?,
            level: FIRST_LINES.trailing_zeros(),
            split: 0,
            overflow_used: 0,
            overflow_free: 0,
            entries: 0,
            scratch: Vec::new(),
        })
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Returns the number of lines that take memory.
    pub(crate) fn lines(&self) -> usize {
        self.buckets() + self.overflow_used
    }

    /// Returns the number of primary lines, each the head of a chain.
    pub(crate) fn buckets(&self) -> usize {
        (1 << self.level) + self.split
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "low bits are wanted")]
    fn bucket(&self, hash: u64) -> usize {
        let mask = (1 << self.level) - 1;
        let bucket = hash as usize & mask;
        if bucket < self.split { hash as usize & (mask << 1 | 1) } else { bucket }
    }

    /// Returns the number of low hash bits that all entries in the chain of `hash` have in common.
    pub(crate) fn depth(&self, hash: u64) -> u32 {
        let bucket = self.bucket(hash) & ((1 << self.level) - 1);
        if bucket < self.split { self.level + 1 } else { self.level }
    }

    #[inline]
    fn line(&self, line: usize) -> &Line {
        if line < OVERFLOW { &self.primary[line] } else { &self.overflow[line - OVERFLOW] }
    }

    #[inline]
    fn line_mut(&mut self, line: usize) -> &mut Line {
        if line < OVERFLOW { &mut self.primary[line] } else { &mut self.overflow[line - OVERFLOW] }
    }

    #[inline]
    fn next(&self, line: usize) -> Option<usize> {
        let link = self.line(line).link;
        (link != 0).then(|| OVERFLOW + link as usize - 1)
    }

    /// Prefetches the line of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.primary[self.bucket(hash)]);
    }

    /// Returns the first address with this hash's tag in this hash's line, so that the caller can
    /// prefetch the entry that a lookup will probably need.
    #[inline]
    pub(crate) fn peek(&self, hash: u64) -> Option<usize> {
        let line = &self.primary[self.bucket(hash)];
        let slot = line.candidates(tag(hash)).trailing_zeros() as usize;
        (slot < SLOTS).then(|| line.address(slot))
    }

    /// Finds the entry of this hash whose address `matches_entry` accepts.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        mut matches_entry: impl FnMut(usize) -> bool,
    ) -> Option<(TableSlot, usize)> {
        let tag = tag(hash);
        let mut number = self.bucket(hash);
        loop {
            let line = self.line(number);
            let mut candidates = line.candidates(tag);
            while candidates != 0 {
                let slot = candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let address = line.address(slot);
                if address != 0 && matches_entry(address) {
                    return Some((TableSlot { line: number, slot }, address));
                }
            }
            number = self.next(number)?;
        }
    }

    /// Sets the address of an entry that was moved or replaced.
    #[inline]
    pub(crate) fn set(&mut self, place: TableSlot, hash: u64, address: usize) {
        let line = self.line_mut(place.line);
        line.set(place.slot, tag(hash), line.is_used(place.slot), address);
    }

    /// Records that an entry was used. One that was just added counts as used.
    #[inline]
    pub(crate) fn note_used(&mut self, place: TableSlot) {
        self.line_mut(place.line).high[place.slot] |= USED;
    }

    /// Calls `visit` with each address in the chain of a primary line, and whether the entry was
    /// used since it was last visited. Before the addresses of a line, calls `prefetch` with all of
    /// them.
    pub(crate) fn visit_used(
        &mut self,
        bucket: usize,
        prefetch: impl Fn(usize),
        mut visit: impl FnMut(usize, bool),
    ) {
        let mut number = Some(bucket);
        while let Some(at) = number {
            let line = self.line_mut(at);
            let len = line.len();
            (0..len).for_each(|slot| prefetch(line.address(slot)));
            for slot in 0..len {
                visit(line.address(slot), line.is_used(slot));
                line.high[slot] &= !USED;
            }
            number = self.next(at);
        }
    }

    /// Adds an entry. `hash_of` returns the hash of an entry in the table; `prefetch` loads an
    /// entry's memory before `hash_of` reads it.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        address: usize,
        hash_of: impl Fn(usize) -> u64,
        prefetch: impl Fn(usize),
    ) {
        self.push(self.bucket(hash), (tag(hash), true), address);
        self.entries += 1;
        self.grow(hash_of, prefetch);
    }

    /// Removes the entry in `place`, and moves the last entry of the chain there.
    pub(crate) fn remove(&mut self, hash: u64, place: TableSlot) {
        let mut before = None;
        let mut last = self.bucket(hash);
        while let Some(next) = self.next(last) {
            before = Some(last);
            last = next;
        }
        let slot = self.line(last).len() - 1;
        let (high, low) = (self.line(last).high[slot], self.line(last).low[slot]);
        let hole = self.line_mut(place.line);
        hole.high[place.slot] = high;
        hole.low[place.slot] = low;
        self.line_mut(last).clear(slot);
        if slot == 0
            && let Some(before) = before
        {
            self.line_mut(before).link = 0;
            self.free_line(last);
        }
        self.entries -= 1;
    }

    /// Calls `visit` with each address in the chain of a hash. Before the addresses of a line,
    /// calls `prefetch` with all of them.
    pub(crate) fn visit(&self, hash: u64, prefetch: impl Fn(usize), mut visit: impl FnMut(usize)) {
        let mut number = Some(self.bucket(hash));
        while let Some(at) = number {
            let line = self.line(at);
            let len = line.len();
            (0..len).for_each(|slot| prefetch(line.address(slot)));
            (0..len).for_each(|slot| visit(line.address(slot)));
            number = self.next(at);
        }
    }

    /// Adds an address at the end of a chain.
    fn push(&mut self, bucket: usize, (tag, used): (u16, bool), address: usize) {
        let mut number = bucket;
        loop {
            if let Some(next) = self.next(number) {
                number = next;
                continue;
            }
            let len = self.line(number).len();
            if len < SLOTS {
                return self.line_mut(number).set(len, tag, used, address);
            }
            let link = self.take_line();
            self.line_mut(number).link = link;
        }
    }

    /// Takes an empty overflow line; returns its link.
    fn take_line(&mut self) -> u32 {
        if self.overflow_free != 0 {
            let link = self.overflow_free;
            let line = &mut self.overflow[link as usize - 1];
            self.overflow_free = std::mem::take(&mut line.link);
            return link;
        }
        self.overflow_used += 1;
        u32::try_from(self.overflow_used).expect("fewer overflow lines than reserved")
    }

    /// Frees an overflow line, which must be empty.
    fn free_line(&mut self, number: usize) {
        let free = self.overflow_free;
        let line = self.line_mut(number);
        debug_assert!(line.is_empty(0));
        line.link = free;
        self.overflow_free = u32::try_from(number - OVERFLOW + 1).expect("it came from a link");
    }

    /// Asserts that the table's counts and chains are right, and each address occurs at most once;
    /// returns all addresses. For tests.
    pub(crate) fn check(&self, hash_of: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut all = Vec::new();
        for bucket in 0..self.buckets() {
            let mut number = Some(bucket);
            while let Some(at) = number {
                let line = self.line(at);
                number = self.next(at);
                assert!(number.is_none() || line.len() == SLOTS, "a gap in a chain");
                assert!((line.len()..SLOTS).all(|slot| line.is_empty(slot)), "a gap in a line");
                for slot in 0..line.len() {
                    let hash = hash_of(line.address(slot));
                    assert_eq!(self.bucket(hash), bucket, "entry in a foreign chain");
                    assert_eq!(tag(hash), line.high[slot] >> TAG_SHIFT);
                    all.push(line.address(slot));
                }
            }
        }
        assert_eq!(all.len(), self.entries);
        all
    }
}
