//! Sparse bytes, the contents of a file in memory.

use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// The contents of an absent page. A write of zeroes to it creates no page, because a growing file
/// is mostly zeroes.
static ZEROES: [u8; PAGE] = [0; PAGE];

/// Bytes by page; absent pages are zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    size: u64,
}

impl Pages {
    /// Returns the size in bytes: the highest end of a write, or less after a truncation.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Writes `bytes` at `offset`.
    pub(crate) fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        self.size = self.size.max(offset + bytes.len() as u64);
        while !bytes.is_empty() {
            let (page, within) = split(offset);
            let count = bytes.len().min(PAGE - within);
            let (part, rest) = bytes.split_at(count);
            if let Some(present) = self.pages.get_mut(&page) {
                present[within..][..count].copy_from_slice(part);
            } else if *part != ZEROES[..count] {
                let mut fresh = Box::new([0; PAGE]);
                fresh[within..][..count].copy_from_slice(part);
                self.pages.insert(page, fresh);
            }
            bytes = rest;
            offset += count as u64;
        }
    }

    /// Drops everything after `size`, which is a multiple of the page size.
    pub(crate) fn truncate(&mut self, size: u64) {
        debug_assert!(split(size).1 == 0, "{size} is within a page");
        self.pages.split_off(&split(size).0);
        self.size = self.size.min(size);
    }

    /// Fills `into` from `offset`; bytes beyond the end are zero.
    pub(crate) fn read(&self, mut offset: u64, mut into: &mut [u8]) {
        while !into.is_empty() {
            let (page, within) = split(offset);
            let count = into.len().min(PAGE - within);
            let (part, rest) = into.split_at_mut(count);
            match self.pages.get(&page) {
                Some(present) => part.copy_from_slice(&present[within..][..count]),
                None => part.fill(0),
            }
            into = rest;
            offset += count as u64;
        }
    }
}

/// Returns the page of an offset, and the offset within it.
fn split(offset: u64) -> (u64, usize) {
    let within = usize::try_from(offset % PAGE as u64).expect("less than a page");
    (offset / PAGE as u64, within)
}
